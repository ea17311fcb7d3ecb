"""What stands inside of what: one pass over the marks of a file in the order of the text. Knows positions, no grammar.

Gives symbols their parents, functions their complexity (McCabe: one, and one more for each decision) and nesting, and tells imports that
run with the module from those that run later, inside of a function, or never (`TYPE_CHECKING`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from remit.agents.builtin.coder.analysis.languages import Language

_FUNCTIONS = ("function", "method")
_TYPES = ("class", "struct", "interface", "enum", "trait", "scope")


class Mark(NamedTuple):
    start: int
    end: int
    kind: str
    """branch, decision, nest, typing, import, scope, or what a definition defines."""
    name: str = ""
    line: int = 0
    end_line: int = 0
    parent: str = ""
    """Said by the definition itself: a receiver."""


@dataclass(slots=True)
class Found:
    """What the queries found in one file."""

    marks: list[Mark] = field(default_factory=list)
    definitions: dict[tuple[int, int], Mark] = field(default_factory=dict)
    imports: dict[int, "Import"] = field(default_factory=dict)
    comments: list[tuple[int, int]] = field(default_factory=list)
    docs: list[tuple[int, int]] = field(default_factory=list)
    openings: list[tuple[int, str]] = field(default_factory=list)
    """The first comments, by row."""
    doc: str = ""
    entries: list[tuple[int, str]] = field(default_factory=list)
    test_words: list[str] = field(default_factory=list)
    elifs: set[int] = field(default_factory=set)
    package: str = ""

    def add_definition(self, node: Any, capture: str, captures: dict[str, list[Any]], text_of: Callable[[Any], str]) -> None:
        kind = capture.removeprefix("def.")
        key = (node.start_byte, node.end_byte)
        if key in self.definitions and kind == "type":
            return  # already known as something more exact
        name, parent = text_of(captures["name"][0]), ""
        if "receiver" in captures:
            parent = text_of(captures["receiver"][0]).lstrip("*").partition("[")[0]
        elif "::" in name and kind == "function":
            parent, _, name = name.rpartition("::")
        self.definitions[key] = Mark(*key, kind, name, node.start_point[0] + 1, node.end_point[0] + 1, parent)

    def add_import(self, node: Any, module: str, what: str | None, *, is_lazy: bool) -> None:
        known = self.imports.get(node.start_byte)
        if known is None:
            known = self.imports[node.start_byte] = Import(module=module.strip("\"'`"), line=node.start_point[0] + 1)
            self.marks.append(Mark(node.start_byte, node.end_byte, "import"))
            if module.startswith('"') and node.type == "string_literal":
                known.module = '"' + known.module  # an include by quotes looks beside the file first
        known.is_lazy = known.is_lazy or is_lazy
        if what is not None:
            known.names.append(what)


@dataclass(slots=True)
class Import:
    module: str
    line: int
    names: list[str] = field(default_factory=list)
    is_lazy: bool = False


@dataclass(slots=True)
class Swept:
    symbols: list[dict[str, Any]] = field(default_factory=list)
    functions: list[dict[str, Any]] = field(default_factory=list)
    imports: list[list[Any]] = field(default_factory=list)
    """Each: module, names, line, whether it is lazy."""
    loose_decisions: int = 0
    """Outside of every function."""


class _Open(NamedTuple):
    end: int
    parent: str
    parent_kind: str
    function: dict[str, Any] | None
    depth: int
    is_lazy: bool


def sweep(found: Found, language: Language) -> Swept:
    swept = Swept()
    stack = [_Open(1 << 62, "", "", None, 0, False)]
    for mark in sorted([*found.definitions.values(), *found.marks], key=lambda m: (m.start, -m.end)):
        while stack[-1].end <= mark.start:
            stack.pop()
        top = stack[-1]
        if mark.kind == "decision":
            _decide(top, swept)
        elif mark.kind in ("branch", "nest"):
            stack.append(_nested(mark, top, swept, is_elif=mark.start in found.elifs))
        elif mark.kind == "import":
            one = found.imports[mark.start]
            swept.imports.append([one.module, one.names, one.line, one.is_lazy or top.is_lazy])
        elif mark.kind == "typing":
            stack.append(top._replace(end=mark.end, is_lazy=True))
        else:
            stack.append(_defined(mark, top, swept))
    return swept


def _decide(top: _Open, swept: Swept) -> None:
    if top.function is None:
        swept.loose_decisions += 1
    else:
        top.function["complexity"] += 1


def _nested(mark: Mark, top: _Open, swept: Swept, *, is_elif: bool) -> _Open:
    if mark.kind == "branch":
        _decide(top, swept)
    depth = top.depth if is_elif else top.depth + 1
    if top.function is not None and depth > top.function["nesting"]:
        top.function["nesting"] = depth
    return top._replace(end=mark.end, depth=depth)


def _defined(mark: Mark, top: _Open, swept: Swept) -> _Open:
    parent = mark.parent or top.parent
    qualified = f"{parent}.{mark.name}" if parent else mark.name
    if mark.kind == "scope":
        return top._replace(end=mark.end, parent=mark.name, parent_kind="scope")
    kind = mark.kind
    if kind == "function" and (mark.parent or top.parent_kind in _TYPES):
        kind = "method"
    symbol: dict[str, Any] = {"kind": kind, "name": mark.name, "line": mark.line, "endLine": mark.end_line, "parent": parent}
    swept.symbols.append(symbol)
    if kind not in _FUNCTIONS:
        return top._replace(end=mark.end, parent=qualified, parent_kind=kind)
    symbol |= {"complexity": 1, "nesting": 0}
    swept.functions.append(symbol)
    return _Open(mark.end, qualified, kind, symbol, 0, True)
