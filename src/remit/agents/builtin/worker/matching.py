r"""What a search printed (`PATH\0LINE:COLUMN:OFFSET:TEXT`) made into matches, each looked at again by us.

The program that searches opens files by name, so whoever swaps a folder for a link at the right moment could have it read outside. What it
says is therefore only where to look: every line that is handed on is read here, below the open folder, and dropped where it is another.
Bounded in number and in length. Used by `searching`.
"""

import codecs
import os
import re
from typing import Any

from remit.agents.builtin.worker.ripgrep import LINE_BYTES
from remit.core.errors import RemitError
from remit.system.beneath import Root
from remit.system.globs import compile_glob
from remit.system.listing import OWN_FOLDERS

SHOWN_BYTES = 400
"""Of a long line: so much round the match."""
MOST_SHOWN_BYTES = 4 << 20
"""Of all lines together, with those round the matches."""
_BEFORE_BYTES = 100
_BLOCK_BYTES = 1 << 18
_COLUMN_BYTES = 1 << 20
"""Further right than this a column is counted in bytes."""
_WIDE_BYTES = 16 << 20
_LONGEST = 64
"""Bytes that what is shown of a long line may end before its limit, so as to cut no character."""
_ROW = re.compile(rb"([^\0]+)\0(\d+)(?::(\d+):(\d+):|-(\d+)-)([^\n]*)\n")
_ASIDE = re.compile(rb"\A(?:[^\n]*: (?:WARNING: stopped searching binary file|binary file matches)[^\n]*\n)+")
_SEARCHED = re.compile(rb"(\d+) files searched")


class Matches:
    """Fed with what is printed, as it comes."""

    def __init__(self, root: Root, *, only: int | None, most: int, glob: str | None) -> None:
        """`only`: the one file that is searched, open; otherwise all below `root`."""
        self._root, self._only, self._most = root, only, most
        self._glob = None if glob is None else compile_glob(glob)
        self._held = b""
        self._shown_bytes = 0
        self._name: bytes | None = None
        self._file: _File | None = None
        self._context: dict[tuple[str, int], str] = {}
        self._matches: list[tuple[str, int, int, str]] = []
        self.is_cut = False
        """There are more than were asked for."""
        self.long_lines = 0
        self.changed = 0
        """Lines that were not there any more when they were looked at."""
        self.left_halfway = False
        """Some file turned out further on not to be text."""
        self.files_searched: int | None = None

    def feed(self, printed: bytes) -> None:
        held = self._held + printed
        done = 0
        for row in _ROW.finditer(held):
            done = row.end()
            self._take(row)
            if self.is_cut:
                return
        self._held = held[done:]

    def end(self) -> None:
        self._without_remarks(self._held)
        if (found := _SEARCHED.search(self._held)) is not None:
            self.files_searched = int(found[1])
        self._leave()

    def told(self, context_lines: int) -> list[dict[str, Any]]:
        """In the order of paths and lines."""
        told: list[dict[str, Any]] = []
        shown = self._context | {(path, line): text for path, line, _, text in self._matches} if context_lines else {}
        for path, line, column, text in sorted(self._matches):
            one: dict[str, Any] = {"path": path, "line": line, "column": column, "text": text}
            if context_lines:
                near = range(line - context_lines, line), range(line + 1, line + context_lines + 1)
                one["before"], one["after"] = ([shown[path, at] for at in lines if (path, at) in shown] for lines in near)
            told.append(one)
        return told

    def _take(self, row: "re.Match[bytes]") -> None:
        name, number, column, offset, context_offset, printed = row.groups()
        if b"\n" in name:  # remarks on files before it; or a name that has a line break
            name = self._without_remarks(name)
        if name != self._name:
            self._enter(name)
        if self._file is None:  # not asked for, however much of it there is
            return
        if column is not None and (len(self._matches) >= self._most or self._shown_bytes > MOST_SHOWN_BYTES):
            self.is_cut = True
            return
        self._shown_bytes += len(printed)
        if column is None:
            seen = self._file.line(int(number), 1, int(context_offset), printed)
            if seen is not None:
                self._context[self._file.path, int(number)] = seen[1]
            return
        seen = self._file.line(int(number), int(column), int(offset), printed)
        if seen is None:
            self.changed += 1
            return
        self._matches.append((self._file.path, int(number), *seen))
        self.long_lines += len(printed) > LINE_BYTES

    def _without_remarks(self, name: bytes) -> bytes:
        rest = _ASIDE.sub(b"", name)
        self.left_halfway |= rest != name
        return rest

    def _enter(self, name: bytes) -> None:
        self._leave()
        self._name = name
        if self._only is not None:
            self._file = _File("", os.dup(self._only))
            return
        path = os.fsdecode(name.removeprefix(b"./"))
        if self._glob is not None and not self._glob.fullmatch(path):
            return
        try:
            with self._root.place(path, follow=False) as place:
                if OWN_FOLDERS.isdisjoint(place.inside) and place.path == path:
                    self._file = _File(path, place.open_file())
        except RemitError:  # gone by now, or not what it was
            self.changed += 1

    def _leave(self) -> None:
        if self._file is not None:
            os.close(self._file.descriptor)
            self._file = None


class _File:
    __slots__ = ("_block", "_is_whole", "_lines", "_shift", "descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor
        self._block = os.pread(descriptor, _BLOCK_BYTES, 0)
        self._is_whole = len(self._block) < _BLOCK_BYTES
        self._shift = len(codecs.BOM_UTF8) if self._block.startswith(codecs.BOM_UTF8) else 0
        self._lines: list[str] | None = None

    def line(self, number: int, column: int, offset: int, printed: bytes) -> tuple[int, str] | None:
        """The column in characters and the text; None when that is not what stands there."""
        if self._block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return self._wide_line(number, column, printed)
        for shift in {0, self._shift}:  # with a byte order mark, some count from behind it
            here = self._bytes(offset + shift, len(printed) + 1)
            if len(printed) < LINE_BYTES and here[: len(printed)] == printed and here[len(printed) :] in (b"", b"\n"):
                return _characters(printed[: column - 1]) + 1, _text(printed)
            if len(printed) >= LINE_BYTES and here.startswith(printed[: LINE_BYTES - _LONGEST]):
                return self._part(offset + shift, column)
        return None

    def _part(self, offset: int, column: int) -> tuple[int, str]:
        """Of a long line what stands round the match."""
        begin = max(0, column - 1 - _BEFORE_BYTES)
        window = self._bytes(offset + begin, SHOWN_BYTES)
        text = _middle(window.partition(b"\n")[0], is_begun=begin > 0)
        count = _characters(self._bytes(offset, column - 1)) if column <= _COLUMN_BYTES else column - 1
        return count + 1, ("…" if begin else "") + text + ("" if b"\n" in window or len(window) < SHOWN_BYTES else "…")

    def _wide_line(self, number: int, column: int, printed: bytes) -> tuple[int, str] | None:
        if self._lines is None:
            self._lines = os.pread(self.descriptor, _WIDE_BYTES, 0).decode("utf-16", "replace").split("\n")
        if number > len(self._lines) or self._lines[number - 1].encode("utf-8", "replace")[:LINE_BYTES] != printed[:LINE_BYTES]:
            return None
        return _characters(printed[: column - 1]) + 1, _middle(printed[:LINE_BYTES], is_begun=False)

    def _bytes(self, offset: int, count: int) -> bytes:
        if self._is_whole or offset + count <= len(self._block):
            return self._block[offset : offset + count]
        return os.pread(self.descriptor, count, offset)


def _characters(raw: bytes) -> int:
    return len(raw.decode("utf-8", "replace"))


def _text(raw: bytes) -> str:
    raw = raw.removesuffix(b"\r")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")


def _middle(raw: bytes, *, is_begun: bool) -> str:
    """The text of a part of a line, which may begin and end inside a character."""
    begin = next((at for at in range(4) if raw[at : at + 1] and raw[at] & 0xC0 != 0x80), 0) if is_begun else 0
    for end in range(len(raw), max(begin, len(raw) - 4), -1):
        try:
            return raw[begin:end].decode().removesuffix("\r")
        except UnicodeDecodeError:
            continue
    return _text(raw)
