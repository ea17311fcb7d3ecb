"""Measuring files: lines, sizes, marks like TODO. Blocking, bounded per file; says nothing to anybody."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from remit.cli.demo.files import language
from remit.cli.words import one_line

READ_LIMIT_BYTES = 2_000_000
KEPT = 10
NOTES_KEPT = 25
_MARK = re.compile(rb"\b(TODO|FIXME|XXX|HACK)\b[:( ].{0,200}")


@dataclass(slots=True)
class Measure:
    """Of a number of files; two of them can be added up."""

    files: int = 0
    lines: int = 0
    size: int = 0
    """In bytes."""
    unread: int = 0
    """Binary, too large or not readable: counted by size alone."""
    languages: dict[str, list[int]] = field(default_factory=dict)
    """Files, lines and bytes of each."""
    longest: list[list[Any]] = field(default_factory=list)
    """`[lines, path]`, the longest first."""
    largest: list[list[Any]] = field(default_factory=list)
    """`[bytes, path]`, the largest first."""
    marks: dict[str, int] = field(default_factory=dict)
    notes: list[list[Any]] = field(default_factory=list)
    """`[path, line, text]` of the first few TODOs and their like."""

    def add_file(self, folder: Path, path: str) -> None:
        size, data = _read(folder / path)
        lines = 0
        if data is None:
            self.unread += 1
        else:
            lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
            self._find_marks(path, data)
        self.files += 1
        self.lines += lines
        self.size += size
        tally = self.languages.setdefault(language(path), [0, 0, 0])
        self.languages[language(path)] = [tally[0] + 1, tally[1] + lines, tally[2] + size]
        self.longest = _top([*self.longest, [lines, path]])
        self.largest = _top([*self.largest, [size, path]])

    def _find_marks(self, path: str, data: bytes) -> None:
        for match in _MARK.finditer(data):
            mark = match[1].decode()
            self.marks[mark] = self.marks.get(mark, 0) + 1
            if len(self.notes) < NOTES_KEPT:
                self.notes.append([path, data.count(b"\n", 0, match.start()) + 1, one_line(match[0].decode("utf-8", "replace"), 90)])

    def add(self, other: "Measure") -> None:
        self.files += other.files
        self.lines += other.lines
        self.size += other.size
        self.unread += other.unread
        for name, (files, lines, size) in other.languages.items():
            tally = self.languages.get(name, [0, 0, 0])
            self.languages[name] = [tally[0] + files, tally[1] + lines, tally[2] + size]
        self.longest = _top([*self.longest, *other.longest])
        self.largest = _top([*self.largest, *other.largest])
        for mark, number in other.marks.items():
            self.marks[mark] = self.marks.get(mark, 0) + number
        self.notes = [*self.notes, *other.notes][:NOTES_KEPT]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def total(measures: Iterable[dict[str, Any]]) -> Measure:
    summed = Measure()
    for fields in measures:
        summed.add(Measure(**fields))
    return summed


def _read(path: Path) -> tuple[int, bytes | None]:
    """Its size, and its contents when they are text of a sensible size."""
    try:
        if not path.is_file() or path.is_symlink():
            return 0, None
        size = path.stat().st_size
        if size > READ_LIMIT_BYTES:
            return size, None
        data = path.read_bytes()
    except OSError:
        return 0, None
    return size, None if b"\0" in data[:4096] else data


def _top(pairs: list[list[Any]]) -> list[list[Any]]:
    return sorted(pairs, key=lambda pair: (-pair[0], pair[1]))[:KEPT]
