"""The floors: minimal delegations, one in memory and two durable. None of them uses remit.

Each runs a task under a timeout. The durable ones write one row before it and one after it, each committed (SQLite, WAL,
synchronous=NORMAL) before the next step: by a writer thread in groups, or in the loop once per tick.
"""

import asyncio
import queue
import secrets
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

TIMEOUT_SECONDS = 30.0
_CONTEXT = '{"parameters":{},"path":["orchestrator","noop"],"caller":"orchestrator","priority":2}'
_RETURN = (
    '{"status":"completed","summary":"noop completed.","artifacts":[],"metadata":{"session_id":"sess_1763200000_abcdef",'
    '"agent_type":"noop","delegation_depth":1,"delegation_path":["orchestrator","noop"],"duration_seconds":0.0001},'
    '"errors":[],"data":null,"stop_reason":"finished"}'
)
_SCHEMA = "CREATE TABLE d (id INTEGER PRIMARY KEY, s TEXT, status TEXT, context TEXT, result TEXT)"
_START = "INSERT INTO d (id, s, status, context) VALUES (?, ?, ?, ?)"
_END = "UPDATE d SET status=?, result=? WHERE id=?"

Row = tuple[Any, ...]


class Floor(Protocol):
    async def delegate(self) -> None: ...
    def close(self) -> None: ...


class InMemory:
    """A bare asyncio task with a timeout: the minimum for a runtime without persistence."""

    async def delegate(self) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.get_running_loop().create_task(_nothing())

    def close(self) -> None:
        pass


class _Durable:
    """Awaits one row at the start and one at the end. Subclasses define how rows are committed."""

    def __init__(self, path: Path, synchronous: str = "NORMAL") -> None:
        self.path = path
        self.synchronous = synchronous
        self.loop = asyncio.get_running_loop()
        self.count = 0

    async def delegate(self) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await self.loop.create_task(self._work())

    async def _work(self) -> None:
        self.count += 1
        number = self.count
        session_id = f"sess_{1763200000 + number // 15000}_{secrets.token_hex(3)}"
        await self.written(_START, (number, session_id, "running", _CONTEXT))
        await self.written(_END, ("completed", _RETURN, number))

    def written(self, statement: str, row: Row) -> "asyncio.Future[None]":
        raise NotImplementedError


class CommittedInLoop(_Durable):
    """One commit per tick of the loop, on the loop."""

    def __init__(self, path: Path, synchronous: str = "NORMAL") -> None:
        super().__init__(path, synchronous)
        self._connection = _connect(path, synchronous)
        self._starts: list[Row] = []
        self._ends: list[Row] = []
        self._waiting: list[asyncio.Future[None]] = []

    def written(self, statement: str, row: Row) -> "asyncio.Future[None]":
        future = self.loop.create_future()
        (self._starts if statement is _START else self._ends).append(row)
        if not self._waiting:
            self.loop.call_soon(self._commit)
        self._waiting.append(future)
        return future

    def _commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        _write(self._connection, self._starts, self._ends)
        self._starts, self._ends = [], []
        _resolve(waiting)

    def close(self) -> None:
        self._connection.close()


class CommittedByThread(_Durable):
    """A writer thread that commits all rows that arrived since its last commit."""

    def __init__(self, path: Path, synchronous: str = "NORMAL") -> None:
        super().__init__(path, synchronous)
        self._queue: queue.SimpleQueue[tuple[str, Row, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="bench-floor", daemon=True)
        self._thread.start()

    def written(self, statement: str, row: Row) -> "asyncio.Future[None]":
        future = self.loop.create_future()
        self._queue.put((statement, row, future))
        return future

    def _serve(self) -> None:
        connection = _connect(self.path, self.synchronous)
        while (first := self._queue.get()) is not None:
            group = [first]
            while not self._queue.empty() and (more := self._queue.get()) is not None:
                group.append(more)
            _write(connection, [row for kind, row, _ in group if kind is _START], [row for kind, row, _ in group if kind is _END])
            self.loop.call_soon_threadsafe(_resolve, [future for _, _, future in group])
        connection.close()

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(timeout=5.0)


async def _nothing() -> None:
    return None


def _connect(path: Path, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute(_SCHEMA)
    return connection


def _write(connection: sqlite3.Connection, starts: Sequence[Row], ends: Sequence[Row]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    if starts:
        connection.executemany(_START, starts)
    if ends:
        connection.executemany(_END, ends)
    connection.execute("COMMIT")


def _resolve(futures: Sequence["asyncio.Future[None]"]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
