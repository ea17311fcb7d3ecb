"""The crew: forked processes that read files, watched from outside, since a parser in C can crash or hang as no exception could tell.

Batches go out, facts come back as text (JSON, never pickle: what parsed a hostile file is not trusted). A worker that dies or stays at
one file for too long is killed; that file is reported as unreadable, the others of its batch are read by somebody else.
"""

import contextlib
import mmap
import os
import resource
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple, NoReturn

from remit.agents.builtin.coder.analysis.listing import Listed
from remit.agents.builtin.coder.analysis.opening import Reader

BATCH = 64
FILE_SECONDS = 10.0
WORKERS_AT_MOST = 16
FILES_PER_WORKER = 150
"""Below that, another process costs more than it brings."""
MEMORY_BYTES = 4 << 30
LOSSES_AT_MOST = 100
_LOOK_SECONDS = 0.5


class Read(NamedTuple):
    one: Listed
    gist: str
    symbols: str
    trouble: str
    """Why there are no facts; empty where there are."""


@dataclass(slots=True)
class _Worker:
    pid: int
    connection: Connection
    slot: int
    batch: list[int] = field(default_factory=list)
    at: int = -1
    since: float = 0.0


class Crew:
    def __init__(
        self,
        workspace: Path,
        files: Sequence[Listed],
        read: Callable[[Reader, Listed], tuple[str, str, str]],
        file_seconds: float = FILE_SECONDS,
    ) -> None:
        self._workspace = workspace
        self._files = files
        self._read = read
        self._file_seconds = file_seconds
        self._todo = deque(list(range(start, min(start + BATCH, len(files)))) for start in range(0, len(files), BATCH))
        self._workers: list[_Worker] = []
        self._places = mmap.mmap(-1, 8 * WORKERS_AT_MOST)
        self._losses = 0

    def run(self, is_over: Callable[[], bool]) -> Iterator[Read]:
        """Until all is read or `is_over`. What it started is gone when this ends."""
        cores = len(os.sched_getaffinity(0))
        count = max(1, min(cores, WORKERS_AT_MOST, len(self._files) // FILES_PER_WORKER))
        try:
            for slot in range(count if self._files else 0):
                self._hire(slot, is_needed=slot == 0)
            while self._workers and not is_over():
                for connection in wait([w.connection for w in self._workers], timeout=_LOOK_SECONDS):
                    worker = next(w for w in self._workers if w.connection is connection)
                    yield from self._hear(worker)
                yield from self._look_after()
        finally:
            for worker in list(self._workers):
                self._dismiss(worker)
            self._places.close()

    def _hire(self, slot: int, *, is_needed: bool) -> None:
        """Where no process can be had, those there are do the work; raises OSError where that is nobody."""
        ours, theirs = _pipe()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            if is_needed:
                raise
            return
        if pid == 0:
            _work(theirs, self._places, slot, self._workspace, self._files, self._read)
        theirs.close()
        worker = _Worker(pid, ours, slot)
        self._workers.append(worker)
        self._give(worker)

    def _give(self, worker: _Worker) -> None:
        worker.batch = self._todo.popleft() if self._todo else []
        self._place(worker.slot, -1)
        worker.at, worker.since = -1, time.monotonic()
        if not worker.batch:
            self._dismiss(worker)
            return
        with contextlib.suppress(OSError):  # it died: its pipe tells
            worker.connection.send_bytes(",".join(map(str, worker.batch)).encode())

    def _hear(self, worker: _Worker) -> Iterator[Read]:
        try:
            message = worker.connection.recv_bytes()
            read = [self._unpacked(index, line) for index, line in zip(worker.batch, message.split(b"\n"), strict=True)]
        except (EOFError, OSError, ValueError):
            yield from self._lose(worker, "the parser crashed")
            return
        yield from read
        self._give(worker)

    def _unpacked(self, index: int, line: bytes) -> Read:
        gist, symbols, trouble = line.decode().split("\0")
        return Read(self._files[index], gist, symbols, trouble)

    def _look_after(self) -> Iterator[Read]:
        now = time.monotonic()
        for worker in list(self._workers):
            at = int.from_bytes(self._places[worker.slot * 8 : worker.slot * 8 + 8], "little", signed=True)
            if at != worker.at:
                worker.at, worker.since = at, now
            elif now - worker.since > self._file_seconds and not worker.connection.poll():
                yield from self._lose(worker, f"the parser took longer than {self._file_seconds:g} s")

    def _lose(self, worker: _Worker, why: str) -> Iterator[Read]:
        at = int.from_bytes(self._places[worker.slot * 8 : worker.slot * 8 + 8], "little", signed=True)
        self._dismiss(worker)
        self._losses += 1
        rest = [index for index in worker.batch if index != at]
        if at in worker.batch:
            yield Read(self._files[at], "", "", why)
        if self._losses >= LOSSES_AT_MOST:
            return
        if rest:
            self._todo.appendleft(rest)
        self._hire(worker.slot, is_needed=not self._workers)

    def _dismiss(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(worker.pid, 0)

    def _place(self, slot: int, index: int) -> None:
        self._places[slot * 8 : slot * 8 + 8] = index.to_bytes(8, "little", signed=True)


def _pipe() -> tuple[Connection, Connection]:
    import socket

    ours, theirs = socket.socketpair()
    return Connection(ours.detach()), Connection(theirs.detach())


def _work(
    connection: Connection,
    places: mmap.mmap,
    slot: int,
    workspace: Path,
    files: Sequence[Listed],
    read: Callable[[Reader, Listed], tuple[str, str, str]],
) -> NoReturn:
    """In the child: nothing of the parent's is touched, and nothing returns from here."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _leave_behind(connection.fileno())
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (min(MEMORY_BYTES, hard) if hard != resource.RLIM_INFINITY else MEMORY_BYTES, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        reader = Reader(workspace)
        while True:
            lines = []
            for index in map(int, connection.recv_bytes().split(b",")):
                places[slot * 8 : slot * 8 + 8] = index.to_bytes(8, "little", signed=True)
                lines.append("\0".join(read(reader, files[index])))
            connection.send_bytes("\n".join(lines).encode("utf-8", "replace"))
    except (EOFError, OSError):
        code = 0  # nobody is there to work for
    finally:
        os._exit(code)


def _leave_behind(kept: int) -> None:
    """Descriptors of the process that forked us: held open here, they would keep others waiting for its end."""
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 65536 else 65536)
