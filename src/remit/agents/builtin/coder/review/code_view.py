"""Lines of a file as code: comments, and the insides of strings, blanked out, so that a pattern finds calls and not words about calls.

By tree-sitter where the language has a grammar here; otherwise only lines that begin as comments are left out. Used by `risky`,
`leftovers` and `syntax`.
"""

import importlib
from collections.abc import Iterator
from typing import Any, NamedTuple

_GRAMMARS = {
    "python": ("tree_sitter_python", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "go": ("tree_sitter_go", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "java": ("tree_sitter_java", "language"),
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
}
_STRINGS = frozenset(
    {
        "string",
        "string_literal",
        "template_string",
        "interpreted_string_literal",
        "raw_string_literal",
        "char_literal",
        "character_literal",
        "regex",
        "jsx_text",
        "rune_literal",
        "system_lib_string",
        "concatenated_string",
    }
)
_COMMENT_STARTS = ("#", "//", "/*", "* ", "--", "<!--")
NODE_LIMIT = 2_000_000


class View(NamedTuple):
    code: str
    """Without comments and without what stands in strings; columns as in the file."""
    told: str
    """Without comments alone."""


def parse(language: str, text: str) -> Any:
    """The tree, or None where there is no grammar for it here."""
    named = _GRAMMARS.get(language)
    if named is None:
        return None
    try:
        tree_sitter, grammar = importlib.import_module("tree_sitter"), importlib.import_module(named[0])
    except ImportError:
        return None
    parser = tree_sitter.Parser(tree_sitter.Language(getattr(grammar, named[1])()))
    return parser.parse(text.encode("utf-8", "replace"))


def views(language: str, text: str) -> dict[int, View]:
    """Every line of the file by its number."""
    tree = parse(language, text)
    if tree is None:
        return {number: rough(line) for number, line in enumerate(text.split("\n"), 1)}
    raw = text.encode("utf-8", "replace")
    told, code = bytearray(raw), bytearray(raw)
    for node in nodes(tree.root_node, into=lambda node: node.type not in _STRINGS and "comment" not in node.type):
        if "comment" in node.type:
            _blank(told, node.start_byte, node.end_byte)
            _blank(code, node.start_byte, node.end_byte)
        elif node.type in _STRINGS:
            _blank(code, node.start_byte + 1, node.end_byte - 1)
            for inside in nodes(node, into=lambda _node: True):
                if inside.type in ("template_substitution", "interpolation"):  # what stands there is code again
                    code[inside.start_byte : inside.end_byte] = raw[inside.start_byte : inside.end_byte]
    pairs = zip(code.decode("utf-8", "replace").split("\n"), told.decode("utf-8", "replace").split("\n"), strict=True)
    return {number: View(*pair) for number, pair in enumerate(pairs, 1)}


def rough(line: str) -> View:
    return View("", "") if line.lstrip().startswith(_COMMENT_STARTS) else View(line, line)


def nodes(root: Any, into: Any) -> Iterator[Any]:
    """All nodes below, without recursion: hostile files are nested deeply."""
    stack, count = [root], 0
    while stack and count < NODE_LIMIT:
        node = stack.pop()
        count += 1
        yield node
        if into(node):
            stack.extend(reversed(node.children))


def _blank(held: bytearray, start: int, end: int) -> None:
    if end > start:
        held[start:end] = bytes(10 if byte == 10 else 32 for byte in held[start:end])
