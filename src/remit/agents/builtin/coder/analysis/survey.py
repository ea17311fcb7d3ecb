"""The facts of all files, gathered: totals by language, the lists of the most complex, what is needed for the graph. No input or output.

Facts come from a cache that anybody could have written to, so their shape is checked; what does not fit is as if it had not been read.
"""

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import Any, NamedTuple

from remit.agents.builtin.coder.analysis.languages import BY_NAME

LISTED = 50
_POOL = 20_000


class Import(NamedTuple):
    module: str
    names: tuple[str, ...]
    line: int
    is_lazy: bool
    """Inside of a function, for types alone, or a part that is declared: no load order depends on it."""


class Member(NamedTuple):
    """One file that was parsed."""

    path: str
    language: str
    size: int
    lines: int
    code: int
    complexity: int
    functions: int
    hard: int
    """How many of its functions are hard to follow."""
    types: int
    tests: int
    is_test: bool
    imports: tuple[Import, ...]
    package: str
    about: str


class Function(NamedTuple):
    path: str
    name: str
    line: int
    end_line: int
    complexity: int
    nesting: int

    @property
    def lines(self) -> int:
        return self.end_line - self.line + 1


class Todo(NamedTuple):
    path: str
    line: int
    tag: str
    text: str


class Entry(NamedTuple):
    path: str
    line: int
    what: str


@dataclass(slots=True)
class Tally:
    files: int = 0
    lines: int = 0
    code: int = 0
    comments: int = 0
    blank: int = 0
    size: int = 0


@dataclass(slots=True)
class Survey:
    members: list[Member] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    skipped_folders: set[str] = field(default_factory=set)
    """Those of other people's code."""
    troubles: list[tuple[str, str]] = field(default_factory=list)
    """Files that could not be read or parsed, and why."""
    todos: list[Todo] = field(default_factory=list)
    todo_tags: Counter[str] = field(default_factory=Counter)
    entries: list[Entry] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    """A pool from which the lists are drawn; not all of them."""
    files: int = 0
    broken: int = 0
    """Files with parts the grammar could not make sense of."""

    def add(self, path: str, size: int, gist: Mapping[str, Any]) -> None:
        """Raises ValueError, TypeError or KeyError where the gist is none."""
        if "skipped" in gist:
            self.skipped[str(gist["skipped"])] += 1
            return
        language = str(gist["language"])
        lines, code, comments, blank = (int(gist[key]) for key in ("lines", "code", "comments", "blank"))
        member = _member(path, size, language, gist) if language in BY_NAME else None
        tally = self.tallies.setdefault(language, Tally())
        tally.files += 1
        tally.lines += lines
        tally.code += code
        tally.comments += comments
        tally.blank += blank
        tally.size += size
        self.files += 1
        if member is not None:
            self._add_member(member, gist)

    def _add_member(self, member: Member, gist: Mapping[str, Any]) -> None:
        self.members.append(member)
        self.broken += bool(gist["hasErrors"])
        for line, tag, text in gist["todos"]:
            self.todo_tags[str(tag)] += 1
            if len(self.todos) < 10_000:
                self.todos.append(Todo(member.path, int(line), str(tag), str(text)))
        if member.is_test:
            return  # a complex test is no risk to anybody
        self.functions += [Function(member.path, str(w[0]), *map(int, w[1:5])) for w in gist["worst"]]
        self.entries += [Entry(member.path, int(line), str(what)) for line, what in gist["entry"]]
        if len(self.functions) > _POOL:
            self._prune()

    def _prune(self) -> None:
        kept = {*self.most_complex(), *self.longest(), *self.most_nested()}
        self.functions = list(kept)

    def most_complex(self, count: int = LISTED) -> list[Function]:
        return heapq.nlargest(count, self.functions, key=lambda f: (f.complexity, f.lines, f.path))

    def longest(self, count: int = LISTED) -> list[Function]:
        return heapq.nlargest(count, self.functions, key=lambda f: (f.lines, f.complexity, f.path))

    def most_nested(self, count: int = LISTED) -> list[Function]:
        return heapq.nlargest(count, self.functions, key=lambda f: (f.nesting, f.complexity, f.path))

    def largest(self, count: int = LISTED) -> list[Member]:
        return heapq.nlargest(count, self.members, key=lambda m: (m.code, m.path))


def _member(path: str, size: int, language: str, gist: Mapping[str, Any]) -> Member:
    lines, code, complexity, functions, hard, types, tests = (
        int(gist[key]) for key in ("lines", "code", "complexity", "functions", "hard", "types", "tests")
    )
    imports = tuple(
        Import(intern(str(module)), tuple([intern(str(name)) for name in names]), int(line), bool(lazy))
        for module, names, line, lazy in gist["imports"]
    )
    return Member(
        path, language, size, lines, code, complexity, functions, hard, types, tests,
        bool(gist["isTest"]), imports, str(gist["package"]), str(gist["about"]),
    )  # fmt: skip
