"""One file's bytes made into facts: symbols, imports, sizes, complexity, tasks left open, entry points, tests. Knows no files.

The grammar's queries find everything in C; one sweep over what they found, in the order of the text, tells what stands inside of what.
Used by `crew` in worker processes: whatever a hostile file does to a parser, it does it there.
"""

import importlib
import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from remit.agents.builtin.coder.analysis.languages import BY_NAME, Language
from remit.agents.builtin.coder.analysis.sweeping import Found, Mark, Swept, sweep

NAME_CHARACTERS = 200
USE_CHARACTERS = 4_000
"""Rust imports many names in one."""
IMPORTS_KEPT = 2_000
SYMBOLS_KEPT = 20_000
TODOS_KEPT = 200
WORST_KEPT = 4
HARD = 15
"""Functions with more decisions than that are hard to follow and hard to test."""
_TODO = re.compile(rb"\b(TODO|FIXME|XXX|HACK)\b[:( ]?[^\n]{0,160}")
_BLANK = re.compile(rb"^[ \t\r\f\v]*$", re.MULTILINE)
_SPACE = re.compile(r"\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\d\.)(?<!i\.e\.)(?<!e\.g\.)\s")
_UNDERLINED = re.compile(r"^[\w. -]{1,60}? [~=*-]{3,} ")
_NO_PROSE = re.compile(
    r"\$Id|licen[cs]e|copyright|SPDX|(file|code) is part of|free software|redistribut|rights reserved|permission is hereby|warrant(y|ies)\b"
    r"|^\W*$|eslint|@ts-|use strict|-\*-|pylint|mypy:|ruff:|noqa|vim:|coding[:=]",
    re.IGNORECASE,
)
_COMMENT_SIGNS = re.compile(r"""^[\s/*#!<>;"'-]+|[\s/*"'-]+$|^[rRbBuUfF]*(\"\"\"|''')""")


@dataclass(frozen=True, slots=True)
class Facts:
    gist: dict[str, Any]
    """What totals, lists and the graph are made of."""
    symbols: list[dict[str, Any]]

    def packed(self) -> tuple[str, str]:
        return json.dumps(self.gist, separators=(",", ":")), json.dumps(self.symbols, separators=(",", ":"))


@cache
def _tools(name: str) -> tuple[Any, Any]:
    """Parser and query, made once per process."""
    import tree_sitter

    language = BY_NAME[name]
    grammar = tree_sitter.Language(getattr(importlib.import_module(language.grammar), language.grammar_function)())
    return tree_sitter.Parser(grammar), tree_sitter.Query(grammar, language.query)


def warm(names: "set[str]") -> None:
    """Load the grammars before workers are forked, so that each of them has them."""
    for name in names:
        _tools(name)


def plain_facts(source: bytes, kind: str) -> Facts:
    """Of a file that is not parsed: its lines."""
    lines, blank = _line_counts(source)
    gist = {"language": kind, "lines": lines, "code": lines - blank, "comments": 0, "blank": blank}
    return Facts(gist, [])


def read_facts(source: bytes, name: str, path: str) -> Facts:
    language = BY_NAME[name]
    parser, query = _tools(name)
    import tree_sitter

    tree = parser.parse(source)
    matches = tree_sitter.QueryCursor(query).matches(tree.root_node)
    found = _collected(matches)
    swept = sweep(found, language)
    lines, blank = _line_counts(source)
    comments = _comment_lines(found, source)
    is_test = bool(language.test_file.search("/" + path))
    gist: dict[str, Any] = {
        "language": name,
        "lines": lines,
        "code": max(0, lines - blank - comments),
        "comments": comments,
        "blank": blank,
        "complexity": sum(f["complexity"] for f in swept.functions) + swept.loose_decisions,
        "functions": len(swept.functions),
        "hard": sum(f["complexity"] > HARD for f in swept.functions),
        "types": sum(s["kind"] not in ("function", "method", "macro", "module") for s in swept.symbols),
        "imports": swept.imports[:IMPORTS_KEPT],
        "worst": _worst(swept.functions),
        "todos": _todos(source, found.comments),
        "entry": _entry(swept, found, language, source, path),
        "isTest": is_test,
        "tests": _tests(swept, found, language, is_test),
        "package": found.package,
        "about": _about(found),
        "hasErrors": bool(tree.root_node.has_error),
    }
    return Facts(gist, swept.symbols[:SYMBOLS_KEPT])


def text_of(node: Any, at_most: int = NAME_CHARACTERS) -> str:
    raw = node.text or b""
    return _SPACE.sub(" ", raw[: at_most * 4].decode("utf-8", "replace")).strip()[:at_most]


def _collected(matches: list[tuple[int, dict[str, list[Any]]]]) -> Found:
    found = Found()
    for _, captures in matches:
        for capture, nodes in captures.items():
            node = nodes[0]
            if capture in ("branch", "decision", "nest"):
                found.marks.append(Mark(node.start_byte, node.end_byte, capture))
            elif capture.startswith("def.") or capture == "scope":
                found.add_definition(node, capture, captures, text_of)
            elif capture in _TAKERS:
                _TAKERS[capture](found, node, captures)
    return found


def _take_import(found: Found, node: Any, captures: dict[str, list[Any]]) -> None:
    if "require" in captures and captures["require"][0].text != b"require":
        return
    what = captures.get("what")
    found.add_import(node, text_of(node, USE_CHARACTERS), text_of(what[0]) if what else None, is_lazy="lazy" in captures)


def _take_submodule(found: Found, node: Any, captures: dict[str, list[Any]]) -> None:
    found.add_import(node, "mod " + text_of(node), None, is_lazy=True)


def _take_comment(found: Found, node: Any, captures: dict[str, list[Any]]) -> None:
    found.comments.append((node.start_byte, node.end_byte))
    if len(found.openings) < 12 and node.start_point[0] < 60:
        found.openings.append((node.start_byte, text_of(node)))


def _take_doc(found: Found, node: Any, captures: dict[str, list[Any]]) -> None:
    found.docs.append((node.start_byte, node.end_byte))
    if not found.doc and node.parent is not None and node.parent.parent is not None and node.parent.parent.parent is None:
        found.doc = text_of(node)


def _take_entry(found: Found, node: Any, captures: dict[str, list[Any]]) -> None:
    word = text_of(captures["entry.word"][0])
    found.entries.append((node.start_point[0] + 1, word))
    if word == "__name__":
        found.marks.append(Mark(node.start_byte, node.end_byte, "typing"))  # what is imported there is not, when the module is


def _take_typing(found: Found, node: Any, captures: dict[str, list[Any]]) -> None:
    if text_of(captures["typing.word"][0]).endswith("TYPE_CHECKING"):
        found.marks.append(Mark(node.start_byte, node.end_byte, "typing"))


def _take_package(found: Found, node: Any, captures: dict[str, list[Any]]) -> None:
    found.package = found.package or text_of(node)


def _take_test(found: Found, node: Any, captures: dict[str, list[Any]]) -> None:
    found.test_words.append(text_of(node))


def _take_elif(found: Found, node: Any, captures: dict[str, list[Any]]) -> None:
    found.elifs.add(node.start_byte)


_TAKERS = {
    "import": _take_import,
    "submodule": _take_submodule,
    "comment": _take_comment,
    "doc": _take_doc,
    "entry": _take_entry,
    "typing": _take_typing,
    "package": _take_package,
    "test.word": _take_test,
    "elif": _take_elif,
}


def _line_counts(source: bytes) -> tuple[int, int]:
    if not source:
        return 0, 0
    body = source[:-1] if source.endswith(b"\n") else source
    return body.count(b"\n") + 1, sum(1 for _ in _BLANK.finditer(body))


def _comment_lines(found: Found, source: bytes) -> int:
    """Lines on which nothing but comment stands; documentation strings are comment."""
    count, last = 0, -1
    for start, end in sorted(found.comments + found.docs):
        line_start = source.rfind(b"\n", 0, start) + 1
        if source[line_start:start].strip():
            continue  # behind code
        if line_start > last:
            count += source.count(b"\n", start, end - 1) + 1 - len(_BLANK.findall(source, start, max(start, end - 1)))
            last = source.find(b"\n", end - 1) if end > start else start
    return count


def _todos(source: bytes, comments: list[tuple[int, int]]) -> list[list[Any]]:
    kept: list[list[Any]] = []
    spans = iter(sorted(comments))
    span = next(spans, None)
    row, counted = 1, 0
    for match in _TODO.finditer(source):
        while span is not None and span[1] <= match.start():
            span = next(spans, None)
        if span is None or len(kept) == TODOS_KEPT:
            break
        if match.start() < span[0]:
            continue
        row += source.count(b"\n", counted, match.start())
        counted = match.start()
        words = source[match.start() : min(match.end(), span[1])].decode("utf-8", "replace")
        kept.append([row, match[1].decode(), _SPACE.sub(" ", words).strip(" */->")])
    return kept


def _worst(functions: list[dict[str, Any]]) -> list[list[Any]]:
    """The most complex, longest and most deeply nested: what may come into the lists of the whole."""
    chosen: dict[tuple[int, str], dict[str, Any]] = {}
    keys = (lambda f: f["complexity"], lambda f: f["endLine"] - f["line"], lambda f: f["nesting"])
    for key in keys:
        for function in sorted(functions, key=key, reverse=True)[:WORST_KEPT]:
            chosen[function["line"], function["name"]] = function
    return [
        [f"{f['parent']}.{f['name']}" if f["parent"] else f["name"], f["line"], f["endLine"], f["complexity"], f["nesting"]]
        for f in chosen.values()
    ]


def _entry(swept: Swept, found: Found, language: Language, source: bytes, path: str) -> list[list[Any]]:
    entries: list[list[Any]] = [[line, f'if {word} == "__main__"'] for line, word in found.entries if word in language.entry_words]
    if language.main_function and (language.name != "Go" or found.package == "main"):
        for symbol in swept.functions:
            is_nested = bool(symbol["parent"]) and language.name != "Java"
            if symbol["name"] == language.main_function and not is_nested:
                entries.append([symbol["line"], f"function {language.main_function}"])
    if not entries and path.rpartition("/")[2] == "__main__.py":
        entries.append([1, "run by python -m"])
    if source.startswith(b"#!"):
        entries.append([1, source.split(b"\n", 1)[0][:80].decode("utf-8", "replace")])
    return entries[:5]


def _tests(swept: Swept, found: Found, language: Language, is_test: bool) -> int:
    if language.test_words:
        return sum(word in language.test_words for word in found.test_words) if is_test or language.tests_anywhere else 0
    return sum(bool(language.test_function.search(f["name"])) for f in swept.functions) if is_test else 0


def _about(found: Found) -> str:
    """The first sentence of what the file says about itself, where it does."""
    code = min([mark.start for mark in found.marks if mark.kind == "import"] + [start for start, _ in found.definitions], default=1 << 62)
    openings = [found.doc] if found.doc else [text for start, text in sorted(found.openings)[:4] if start < code and text[:2] != "#!"]
    for text in openings:
        words = _COMMENT_SIGNS.sub("", _COMMENT_SIGNS.sub("", text)).replace(" * ", " ").strip()
        words = _UNDERLINED.sub("", words)
        if len(words) > 15 and " " in words and not _NO_PROSE.search(words) and (found.doc or not words[0].islower()):
            sentence = _SENTENCE_END.split(words, maxsplit=1)[0]
            return sentence if len(sentence) <= 160 else sentence[:157].rsplit(" ", 1)[0] + "…"
    return ""
