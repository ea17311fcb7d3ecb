"""`SqliteStore`: what is known about delegations, in one SQLite file that several processes may use at once.

Three kinds of connection, so that nobody waits who need not: one that writes, a few that read (lent out, one user at a time),
one for housekeeping. Here they are lent, guarded and their errors put into words; the statements are in `writing`, `reading`,
`searching`, `handover` and `housekeeping`, the file itself in `database`.
"""

import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar

from remit.core.events import Event
from remit.core.metrics import Tally
from remit.core.record import Applied, CancelRequest, Drawn, Head, HistoryQuery, Owner, Record, Write
from remit.store import database, drawing, faults, handover, reading, searching
from remit.store.database import Durability
from remit.store.housekeeping import Housekeeper
from remit.store.writing import Group, write_in_transaction

Given = ParamSpec("Given")
Found = TypeVar("Found")

READERS_KEPT = 4
PLACE_CHECK_SECONDS = 0.05


class SqliteStore:
    """The `Store` of an embedded engine. `durability`: what a delegation survives, the end of this process or of the power."""

    def __init__(self, path: str | Path, *, durability: Durability = "process") -> None:
        self.path = Path(path).absolute()
        self._place = str(self.path)
        self.owner_id: str | None = None
        """When set, outcomes are written only to delegations that are still this owner's."""
        self._lock = Lock()
        self._housekeeping_lock = Lock()
        self._readers: deque[sqlite3.Connection] = deque()
        self._is_closed = False
        self._stamp = 0
        self._place_checked_at = 0.0
        self._open(durability)

    def _open(self, durability: Durability) -> None:
        database.prepare(self.path)
        with faults.speaking_of(self.path):
            self._writer = database.connect_writer(self.path, durability)
            self._identity = self._identity_now()
            self._housekeeper = Housekeeper(self.path)

    # ---- writes

    def apply(self, writes: Sequence[Write]) -> Applied:
        if not writes:
            return Applied()
        group = Group(writes, self.owner_id)
        with self._lock:
            try:
                self._check_place()
                while True:
                    database.begin(self._writer)
                    applied = write_in_transaction(self._writer, group, writes)
                    if applied is not None:
                        return applied
            except sqlite3.Error as error:
                raise faults.translated(error, self.path) from error

    def try_apply(self, writes: Sequence[Write]) -> Applied | None:
        if not writes:
            return Applied()
        if not self._lock.acquire(blocking=False):
            return None
        try:
            self._check_place()
            if not database.try_begin(self._writer):
                return None
            return write_in_transaction(self._writer, Group(writes, self.owner_id), writes)
        except sqlite3.Error as error:
            raise faults.translated(error, self.path) from error
        except BaseException:
            self._writer.rollback()  # a value that cannot be written must not keep everybody after it from writing
            raise
        finally:
            self._lock.release()

    def enrol(self, owner: Owner) -> None:
        self._transact(handover.enrol, owner)

    def dismiss(self, owner_id: str) -> None:
        self._transact(handover.dismiss, owner_id)

    def take_over(self, session_ids: Sequence[str], *, of: str, to: str) -> list[Record]:
        return self._transact(handover.take_over, session_ids, of, to)

    def requeue(self, session_id: str, *, owner: str) -> None:
        self._transact(handover.requeue, session_id, owner)

    def request_cancel(self, request: CancelRequest) -> None:
        self._transact(handover.request_cancel, request)

    def take_cancels(self, owner_id: str) -> list[CancelRequest]:
        if not self._ask(handover.has_cancels, owner_id):
            return []
        return self._transact(handover.take_cancels, owner_id)

    # ---- questions

    def get(self, session_id: str) -> Record | None:
        return self._ask(reading.get, session_id)

    def by_key(self, key: str) -> Record | None:
        return self._ask(reading.by_key, key)

    def tree(self, root_id: str) -> list[Record]:
        return self._ask(reading.tree, root_id)

    def children(self, session_id: str) -> list[Record]:
        return self._ask(reading.children, session_id)

    def live(self) -> list[Record]:
        return self._ask(searching.live)

    def history(self, query: HistoryQuery) -> list[Record]:
        return self._ask(searching.history, query)

    def count(self, state: str | None = None) -> int:
        return self._ask(searching.count, state)

    def events(self, session_id: str, after: int = 0, most: int | None = None) -> list[Event]:
        return self._ask(reading.events, session_id, after, most)

    def heads(self, session_ids: Sequence[str]) -> dict[str, Head]:
        return self._ask(reading.heads, session_ids)

    def last_sign(self, session_ids: Sequence[str]) -> dict[str, float]:
        return self._ask(reading.last_sign, session_ids)

    def checkpoint(self, session_id: str) -> Any:
        return self._ask(reading.checkpoint, session_id)

    def durations(self, agent: str) -> list[float]:
        return self._ask(searching.durations, agent)

    def tally(self, since: float | None = None, until: float | None = None) -> Tally:
        return self._ask(searching.tally, since, until)

    def drawn(self, principal: str) -> Drawn:
        return self._ask(drawing.drawn, principal)

    def owners(self) -> list[Owner]:
        return self._ask(handover.owners)

    def change_stamp(self) -> int:
        """Asked of the writing connection, whose own commits do not count; while that one is at work, the last answer stands."""
        if self._lock.acquire(blocking=False):
            try:
                (self._stamp,) = self._writer.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error as error:
                if not faults.is_busy(error):
                    raise faults.translated(error, self.path) from error
            finally:
                self._lock.release()
        return self._stamp

    # ---- housekeeping

    def prune(self, *, settled_before: float) -> int:
        with self._housekeeping_lock, faults.speaking_of(self.path):
            return self._housekeeper.prune(settled_before)

    def optimize(self) -> None:
        with self._housekeeping_lock, faults.speaking_of(self.path):
            self._housekeeper.move_log()

    def close(self) -> None:
        """What is left in the write-ahead log moves into the file when the last process closes it."""
        with self._lock, self._housekeeping_lock, faults.speaking_of(self.path):
            self._is_closed = True
            while self._readers:
                self._readers.pop().close()
            self._housekeeper.close()
            self._writer.close()

    # ---- lending connections

    def _transact(
        self, function: Callable[Concatenate[sqlite3.Connection, Given], Found], *given: Given.args, **named: Given.kwargs
    ) -> Found:
        with self._lock, faults.speaking_of(self.path):
            self._check_place()
            database.begin(self._writer)
            try:
                found = function(self._writer, *given, **named)
                self._writer.execute("COMMIT")
            except BaseException:
                database.roll_back(self._writer)
                raise
            return found

    def _ask(self, function: Callable[Concatenate[sqlite3.Connection, Given], Found], *given: Given.args, **named: Given.kwargs) -> Found:
        try:
            connection = self._reader()
            found = function(connection, *given, **named)
        except sqlite3.Error as error:
            raise faults.translated(error, self.path) from error
        if len(self._readers) < READERS_KEPT and not self._is_closed:
            self._readers.append(connection)
        else:
            connection.close()
        return found

    def _reader(self) -> sqlite3.Connection:
        if self._is_closed:
            raise faults.unavailable(f"The store at {self.path} is closed.", "Open it again.")
        try:
            return self._readers.pop()
        except IndexError:
            return self._connect_reader()

    def _connect_reader(self) -> sqlite3.Connection:
        return database.connect_reader(self.path)

    def _identity_now(self) -> tuple[int, int]:
        found = os.stat(self._place)
        return found.st_dev, found.st_ino

    def _check_place(self) -> None:
        """What is written into a deleted file is lost without an error: a look now and then keeps us from it."""
        now = time.monotonic()
        if now < self._place_checked_at + PLACE_CHECK_SECONDS or self._is_closed:
            return
        try:
            stands = self._identity_now() == self._identity
        except OSError:
            stands = False
        if not stands:
            raise faults.replaced(self.path)
        self._place_checked_at = now
