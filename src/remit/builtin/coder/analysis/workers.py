"""Worker processes that parse files. A parser written in C can crash or hang on a hostile file, so the parent watches from outside.

Batches go out, and the facts of each file come back as JSON, never as pickle. A worker that dies or spends too long on one file is killed;
that file is reported as unreadable, and another worker reads the rest of its batch.
"""

import contextlib
import json
import os
import resource
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from remit.builtin.coder.analysis.files import SourceFile, language_of, read_bytes
from remit.builtin.coder.analysis.parsing import read_source
from remit.system.beneath import Root

FILE_SECONDS = 10.0
MEMORY_BYTES = 4 << 30
LOSSES_AT_MOST = 100
_BATCH = 64
_FILES_PER_WORKER = 150
"""For fewer files, another process costs more than it saves."""
_WORKERS_AT_MOST = 16
_DESCRIPTORS = 65_536
Facts = dict[str, Any]


class Read(NamedTuple):
    file: SourceFile
    facts: Facts
    text: str = ""
    """The facts as they came: JSON."""


def read_file(root: Root, file: SourceFile) -> Facts:
    """Facts of one file; `skipped` or `trouble` where there are none."""
    try:
        source = read_bytes(root, file.path)
    except OSError as error:
        return {"trouble": f"unreadable: {error}"}
    language = language_of(source, file.kind)
    if language.startswith("("):
        return {"skipped": language.strip("()")}
    try:
        return read_source(source, language, file.path)
    except Exception as error:  # noqa: BLE001 - the readers of lizard are not made for hostile text
        return {"trouble": f"the parser failed: {type(error).__name__}"}


@dataclass(slots=True, kw_only=True)
class _Worker:
    pid: int
    connection: Connection
    batch: deque[int] = field(default_factory=deque)
    """What it has yet to read; it is at the first."""
    since: float = 0.0


class Workers:
    def __init__(
        self,
        workspace: Path,
        files: Sequence[SourceFile],
        read: Callable[[Root, SourceFile], Facts] = read_file,
        file_seconds: float = FILE_SECONDS,
    ) -> None:
        self._workspace, self._files, self._read, self._file_seconds = workspace, files, read, file_seconds
        self._todo = deque(deque(range(start, min(start + _BATCH, len(files)))) for start in range(0, len(files), _BATCH))
        self._workers: list[_Worker] = []
        self._losses = 0

    def run(self, is_over: Callable[[], bool]) -> Iterator[Read]:
        """Yield facts until all files are read or `is_over`. No process is left when this ends."""
        count = max(1, min(len(os.sched_getaffinity(0)), _WORKERS_AT_MOST, len(self._files) // _FILES_PER_WORKER))
        try:
            for _ in range(count if self._files else 0):
                self._start()
            while self._workers and not is_over():
                ready = wait([worker.connection for worker in self._workers], timeout=0.5)
                for worker in list(self._workers):
                    if worker.connection in ready:
                        yield self._receive(worker)
                    elif time.monotonic() - worker.since > self._file_seconds:
                        yield self._replace(worker, f"the parser took longer than {self._file_seconds:g} s")
        finally:
            for worker in list(self._workers):
                self._stop(worker)

    def _start(self) -> None:
        """Raises OSError where no process can be started and none runs."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                pid = os.fork()
            except OSError:
                ours.close()
                if not self._workers:
                    raise
                return
            if pid == 0:
                _work(Connection(theirs.detach()), self._workspace, self._files, self._read)
        worker = _Worker(pid=pid, connection=Connection(ours.detach()))
        self._workers.append(worker)
        self._send_batch(worker)

    def _send_batch(self, worker: _Worker) -> None:
        if not self._todo:
            self._stop(worker)
            return
        worker.batch, worker.since = self._todo.popleft(), time.monotonic()
        with contextlib.suppress(OSError):  # it died: the end of its pipe is read next
            worker.connection.send_bytes(json.dumps(list(worker.batch)).encode())

    def _receive(self, worker: _Worker) -> Read:
        try:
            text = worker.connection.recv_bytes().decode()
            facts = json.loads(text)
        except (EOFError, OSError, ValueError, RecursionError):
            return self._replace(worker, "the parser crashed")
        file, worker.since = self._files[worker.batch.popleft()], time.monotonic()
        if not worker.batch:
            self._send_batch(worker)
        return Read(file, facts, text) if isinstance(facts, dict) else Read(file, {"trouble": "the parser gave no facts"})

    def _replace(self, worker: _Worker, why: str) -> Read:
        self._stop(worker)
        self._losses += 1
        lost = self._files[worker.batch.popleft()]
        if worker.batch:
            self._todo.appendleft(worker.batch)
        if self._losses < LOSSES_AT_MOST and self._todo:
            self._start()
        return Read(lost, {"trouble": why})

    def _stop(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(worker.pid, 0)


def _work(connection: Connection, workspace: Path, files: Sequence[SourceFile], read: Callable[[Root, SourceFile], Facts]) -> NoReturn:
    """The child: touches nothing of the parent's, and never returns."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.closerange(3, connection.fileno())  # held open here, they would keep others waiting for the parent's end
        os.closerange(connection.fileno() + 1, _DESCRIPTORS)
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard), hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with Root(workspace) as root:
            while True:
                for index in json.loads(connection.recv_bytes()):
                    connection.send_bytes(json.dumps(read(root, files[index]), separators=(",", ":")).encode())
    finally:
        os._exit(0)
