"""One search through the contents of files: the program that does it, started, read, and surely ended.

ripgrep where there is one, else `remit.system.grep`: both processes of their own, so that no pattern can hold this one, each in its own
session, killed at the deadline and when nobody waits any more. What they print is looked at again in `matching`. Blocking.
"""

import codecs
import json
import math
import os
import resource
import selectors
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from remit.agents.builtin.worker import ripgrep
from remit.agents.builtin.worker.decoding import HEAD_BYTES, sniffed
from remit.agents.builtin.worker.matching import Matches
from remit.core.errors import Failed, Misused
from remit.system.beneath import Place, Root
from remit.system.interpreter import module_command
from remit.system.listing import rules_above, written_from

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
    is_cut: bool
    out_of_time: bool
    long_lines: int
    notes: tuple[str, ...] = ()


_NOT_SEARCHED = Found(
    matches=[],
    tool="none",
    files_searched=0,
    is_cut=False,
    out_of_time=False,
    long_lines=0,
    notes=("It is not text in UTF-8, or in UTF-16 with a byte order mark, so it was not searched.",),
)


def need_pattern(pattern: str, *, is_regex: bool) -> None:
    """Refuse what no line can match, and what no program can be asked."""
    fault = None
    if not pattern:
        fault = "is empty"
    elif "\n" in pattern or "\r" in pattern:
        fault = "has a line break, and lines are searched one by one"
    elif "\0" in pattern:
        fault = "has a NUL character"
    elif len(pattern) > MOST_CHARACTERS:
        fault = f"is longer than {MOST_CHARACTERS:,} characters"
    elif not pattern.isascii() and pattern.encode("utf-8", "ignore").decode() != pattern:
        fault = "has a character that is none"
    if fault is not None:
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
            command = [program, *ripgrep.arguments(self._wanted, ignore_file=name, is_file=is_file)]
            passed = (ignore_file,) if ignore_file is not None else ()
            matches, code, said = self._carried_out(command, descriptor, is_file, passed, _MEMORY_BYTES)
        finally:
            if ignore_file is not None:
                os.close(ignore_file)
        if code == 2 and said:
            if ripgrep.is_too_old(said):
                return None
            if (fault := ripgrep.misused(self._wanted.pattern, said)) is not None:
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
            raise ripgrep.bad_regex(wanted.pattern, fault["message"], fault["position"])
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
