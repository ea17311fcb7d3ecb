"""Which names a file defines, where, and what callers must hand over: Python by its syntax tree, others by the form of a line. Pure."""

import ast
import re
from dataclasses import dataclass

from remit.agents.builtin.coder.review.matter import ChangedFile
from remit.agents.builtin.coder.review.risky_python import tree_of

_DEFINITIONS = {
    "javascript": re.compile(
        r"^\s{0,40}(?:export\s+)?(?:default\s+)?(?:async\s+)?(?:function\*?|class|const|let)\s+([A-Za-z_$][\w$]{1,80})"
    ),
    "go": re.compile(r"^func\s(?:\([^)]{0,100}\)\s?)?([A-Za-z_]\w{1,80})|^type\s([A-Za-z_]\w{1,80})\s"),
    "rust": re.compile(
        r"^\s{0,40}(?:pub(?:\([a-z]{1,10}\))?\s)?(?:async\s|const\s|unsafe\s){0,3}(?:fn|struct|enum|trait)\s([A-Za-z_]\w{1,80})"
    ),
    "java": re.compile(
        r"^\s{0,40}(?:public|protected|private)?\s?(?:static\s|final\s|abstract\s){0,3}"
        r"(?:class|interface|enum|[\w<>\[\], ]{1,80}\s)([A-Za-z_]\w{1,80})\s?\([^;]{0,300}\{"
    ),
    "ruby": re.compile(r"^\s{0,40}(?:def|class|module)\s(?:self\.)?([A-Za-z_]\w{1,80})"),
}
_DEFINITIONS |= {"typescript": _DEFINITIONS["javascript"], "tsx": _DEFINITIONS["javascript"]}
_PUBLIC = {
    "javascript": re.compile(r"^\s{0,40}export\b"),
    "go": re.compile(r"^(?:func|type)\s(?:\([^)]{0,100}\)\s?)?[A-Z]"),
    "rust": re.compile(r"^\s{0,40}pub\b"),
    "java": re.compile(r"^\s{0,40}public\b"),
    "ruby": re.compile(r""),
}
_PUBLIC |= {"typescript": _PUBLIC["javascript"], "tsx": _PUBLIC["javascript"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    name: str
    kind: str
    """function or class."""
    start: int
    end: int
    required: tuple[str, ...] = ()
    """Parameters that must be given."""
    accepted: tuple[str, ...] = ()
    """All that may be given by name."""
    takes_any: bool = False
    has_docstring: bool = True
    is_typed: bool = True
    is_top: bool = True

    @property
    def is_public(self) -> bool:
        return not self.name.startswith("_")


def python_symbols(text: str) -> list[Symbol]:
    tree = tree_of(text)
    if tree is None:
        return []
    found: list[Symbol] = []
    for node in tree.body:
        found += _symbol(node, is_top=True)
        if isinstance(node, ast.ClassDef):
            found += [symbol for inner in node.body for symbol in _symbol(inner, is_top=False)]
    return found


def _symbol(node: ast.stmt, *, is_top: bool) -> list[Symbol]:
    start = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
    end = node.end_lineno or node.lineno
    if isinstance(node, ast.ClassDef):
        return [
            Symbol(name=node.name, kind="class", start=start, end=end, has_docstring=ast.get_docstring(node) is not None, is_top=is_top)
        ]
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = positional[: len(positional) - len(arguments.defaults)]
    required += [one for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None]
    everything = [*positional, *arguments.kwonlyargs]
    typed = all(one.annotation is not None for one in everything if one.arg not in ("self", "cls")) and node.returns is not None
    return [
        Symbol(
            name=node.name,
            kind="function",
            start=start,
            end=end,
            required=tuple(one.arg for one in required),
            accepted=tuple(one.arg for one in everything),
            takes_any=arguments.vararg is not None or arguments.kwarg is not None,
            has_docstring=ast.get_docstring(node) is not None,
            is_typed=typed,
            is_top=is_top,
        )
    ]


def names_by_form(language: str, lines: list[str], *, public_only: bool = False) -> set[str]:
    """Names that these lines define."""
    definition, public = _DEFINITIONS.get(language), _PUBLIC.get(language)
    names = set()
    for line in lines if definition is not None else ():
        found = definition.match(line[:500]) if definition else None
        if found and (not public_only or (public is not None and public.match(line))):
            names.add(next(filter(None, found.groups())))
    return names


def touched(file: ChangedFile) -> set[str]:
    """The functions and classes whose lines the change touches."""
    if file.language == "python" and file.after is not None:
        found = [symbol for symbol in python_symbols(file.after) if file.first_changed(symbol.start, symbol.end) is not None]
        inner = {symbol.name for symbol in found if symbol.kind == "function"}
        return inner or {symbol.name for symbol in found}
    return names_by_form(file.language, list(file.added.values()))
