"""The hot path: a group of writes in one transaction, grouped by kind; and row by row when something in the group clashes.

Runs on the writing connection inside a transaction that its caller (`sqlite`) has begun. The quick way assumes what nearly
always holds: new ids, free keys, first outcomes. When one of these fails the transaction is undone and the slow way finds out
which, so that the other writes of the group are kept (S1.1, S8).
"""

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

from remit.core.record import Applied, Begun, Checkpointed, Recorded, Said, Settled, Started, Write
from remit.store.database import roll_back, try_begin
from remit.store.rows import (
    COLUMNS,
    EVENT_OURS,
    NEW_COLUMNS,
    NEW_COUNT,
    Row,
    encoded,
    packed,
    row_of,
    row_of_new,
    settlement_of,
    tamed,
    whole,
)

NOTHING_MET = Applied()
AT_ONCE = 16
"""So many delegations that begin are written by one statement: what it costs to run one is shared by them."""
_NEW = f"({', '.join('?' * NEW_COUNT)}, 1, 0, 0.0, 0)"
BEGIN = f"INSERT INTO delegations ({NEW_COLUMNS}, attempt, tokens, cost, chunk_count) VALUES {_NEW}"
BEGIN_MANY = BEGIN + f", {_NEW}" * (AT_ONCE - 1)
INSERT = f"INSERT INTO delegations ({COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"
START = "UPDATE delegations SET status='running', started_at=?, step_times=? WHERE session_id=? AND status='queued'"
SETTLE = (
    "UPDATE delegations SET status=?, settled_at=?, result=?, step_times=?, tokens=?, cost=?, chunk_count=? "
    "WHERE session_id=? AND settled_at IS NULL"
)
START_OURS = START + " AND owner=?"
SETTLE_OURS = SETTLE + " AND owner=?"
# A number is used once: what was said first under it stands.
SAY = "INSERT OR IGNORE INTO events (session_id, number, at, kind, body) VALUES (?, ?, ?, ?, ?)"
CHECKPOINT = (
    "INSERT INTO checkpoints (session_id, at, value) SELECT ?1, ?2, ?3 WHERE ?4 IS NULL "
    "OR EXISTS (SELECT 1 FROM delegations WHERE session_id=?1 AND owner=?4) "
    "ON CONFLICT (session_id) DO UPDATE SET at=excluded.at, value=excluded.value"
)

Columns = tuple[Any, ...]


class Group:
    """The writes of one transaction, as rows by kind. `owner_id`, when known, keeps a superseded process from writing outcomes."""

    __slots__ = ("begun", "checkpoints", "inserts", "owner_id", "said", "settlements", "starts")

    def __init__(self, writes: Sequence[Write], owner_id: str | None) -> None:
        self.owner_id = owner_id
        self.begun: list[Columns] = []
        self.inserts: list[Columns] = []
        self.starts: list[Columns] = []
        self.settlements: list[Columns] = []
        self.said: list[Columns] = []
        self.checkpoints: list[Columns] = []
        ours = () if owner_id is None else (owner_id,)
        for write in writes:
            kind = type(write)
            if kind is Begun:
                new = row_of_new(write)  # type: ignore[arg-type]
                if len(new) == NEW_COUNT:
                    self.begun.append(new)
                else:
                    self.inserts.append(whole(new))
            elif kind is Recorded:
                self.inserts.append(row_of(write.record))  # type: ignore[union-attr]  # `type is` is quicker than isinstance
            elif kind is Settled:
                self.settlements.append(settlement_of(write) + ours)  # type: ignore[arg-type]
            else:
                self._add_other(write, ours)

    def _add_other(self, write: Write, ours: tuple[str, ...]) -> None:
        if isinstance(write, Started):
            self.starts.append((write.at, packed(write.step_times), write.session_id, *ours))
        elif isinstance(write, Said):
            event = write.event
            self.said.append((event.session_id, event.number, event.at, event.kind._value_, encoded(event.body, EVENT_OURS)))
        elif isinstance(write, Checkpointed):
            self.checkpoints.append((write.session_id, write.at, encoded(write.value), self.owner_id))

    def written_quickly(self, connection: sqlite3.Connection) -> bool:
        """False: something clashed, and the transaction has been left unfinished."""
        anyones = self.owner_id is None
        try:
            if self.begun:
                self._begin(connection)
            if self.inserts:
                connection.executemany(INSERT, self.inserts)
            if self.starts:
                connection.executemany(START if anyones else START_OURS, self.starts)
            if self.settlements:
                settled = connection.executemany(SETTLE if anyones else SETTLE_OURS, self.settlements).rowcount
                if settled != len(self.settlements):
                    return False
            if self.said:
                connection.executemany(SAY, self.said)
            if self.checkpoints:
                connection.executemany(CHECKPOINT, self.checkpoints)
        except (sqlite3.IntegrityError, OverflowError, UnicodeEncodeError):
            return False
        return True

    def _begin(self, connection: sqlite3.Connection) -> None:
        rest = self.begun
        if len(rest) >= AT_ONCE:
            even = len(rest) - len(rest) % AT_ONCE
            many = [tuple(chain.from_iterable(rest[first : first + AT_ONCE])) for first in range(0, even, AT_ONCE)]
            connection.executemany(BEGIN_MANY, many)
            rest = rest[even:]
        if rest:
            connection.executemany(BEGIN, rest)


def write_in_transaction(connection: sqlite3.Connection, group: Group, writes: Sequence[Write]) -> Applied | None:
    """All of `group` into the transaction that has begun, and the commit. Any error undoes it all.

    None, and nothing written: something clashed and another process was quicker to take the lock for the second attempt.
    """
    try:
        if group.written_quickly(connection):
            connection.execute("COMMIT")
            return NOTHING_MET
        roll_back(connection)
        if not try_begin(connection):
            return None
        applied = _RowByRow(connection, group.owner_id).write(writes)
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise
    return applied


class _RowByRow:
    """The slow way: each write by itself, in order, with what it met."""

    def __init__(self, connection: sqlite3.Connection, owner_id: str | None) -> None:
        self.connection = connection
        self.owner_id = owner_id
        self.clashes: list[str] = []
        self.taken_keys: dict[str, str] = {}
        self.already_settled: list[str] = []
        self.not_recorded: set[str] = set()
        """What follows of these belongs to the delegation that was not recorded, not to the one that has the id."""

    def write(self, writes: Sequence[Write]) -> Applied:
        for write in writes:
            if isinstance(write, Begun):
                self._record(tamed(whole(row_of_new(write))))
            elif isinstance(write, Recorded):
                self._record(tamed(row_of(write.record)))
            elif isinstance(write, Said):
                if write.event.session_id not in self.not_recorded:
                    self._write_one(write)
            elif write.session_id not in self.not_recorded:
                self._write_one(write)
        return Applied(clashes=tuple(self.clashes), taken_keys=self.taken_keys, already_settled=tuple(self.already_settled))

    def _record(self, columns: Columns) -> None:
        row = Row._make(columns)
        taken = self.connection.execute("SELECT 1 FROM delegations WHERE session_id=?", (row.session_id,)).fetchone()
        holder = self.connection.execute("SELECT session_id FROM delegations WHERE key=?", (row.key,)).fetchone()
        if taken:
            self.clashes.append(row.session_id)
            self.not_recorded.add(row.session_id)
        elif holder:
            self.taken_keys[row.session_id] = holder[0]
            self.not_recorded.add(row.session_id)
        else:
            self.connection.execute(INSERT, columns)

    def _write_one(self, write: Write) -> None:
        one = Group((write,), self.owner_id)
        start, settle = (START, SETTLE) if self.owner_id is None else (START_OURS, SETTLE_OURS)
        statements = ((start, one.starts), (SAY, one.said), (CHECKPOINT, one.checkpoints))
        for statement, rows in statements:
            for columns in rows:
                self.connection.execute(statement, tamed(columns))
        for columns in one.settlements:
            if self.connection.execute(settle, tamed(columns)).rowcount != 1:
                self.already_settled.append(write.session_id)  # type: ignore[union-attr]  # it is a Settled
