"""`MemoryStore`: the twin of the SQLite store for tests and for work nobody must keep. The same answers, nothing on disk.

Keeps rows, not records: what goes in is written down as JSON at once, so neither a caller nor a reader can change it afterwards,
and it comes out exactly as it would from the database. Simple rather than quick: history is searched by looking at all of it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import RLock
from typing import Any

from remit.core.events import Event, EventKind, events_of_steps
from remit.core.metrics import Tally
from remit.core.record import (
    AppendEvent,
    BeginDelegation,
    CancelRequest,
    Head,
    HistoryQuery,
    Owner,
    Record,
    RecordDelegation,
    SaveCheckpoint,
    SettleDelegation,
    Spending,
    StartDelegation,
    Write,
    WriteResult,
)
from remit.core.states import State
from remit.stores.queries import DURATIONS_KEPT, newest_of, summed
from remit.stores.rows import EVENT_OURS, Row, decoded, encoded, packed, record_of, row_of, row_of_new, settlement_of, unpacked, whole


@dataclass(slots=True)
class _Shelf:
    """What several handles share, as several processes share a file."""

    lock: RLock = field(default_factory=RLock)
    rows: dict[str, Row] = field(default_factory=dict)
    """In the order they were recorded."""
    keys: dict[str, str] = field(default_factory=dict)
    said: dict[str, dict[int, tuple[float, str, str]]] = field(default_factory=dict)
    checkpoints: dict[str, str] = field(default_factory=dict)
    owners: dict[str, Owner] = field(default_factory=dict)
    cancels: list[CancelRequest] = field(default_factory=list)
    drawn: dict[str, Spending] = field(default_factory=dict)
    """By what has been forgotten since."""
    writes: int = 0


class MemoryStore:
    def __init__(self, beside: "MemoryStore | None" = None) -> None:
        """`beside`: another store whose contents this one shares, the way two processes share a database."""
        self.owner_id: str | None = None
        """When set, outcomes are written only to delegations that are still this owner's."""
        self._shelf: _Shelf = _Shelf() if beside is None else beside._shelf
        self._own_writes = 0

    # ---- writes

    def apply(self, writes: Sequence[Write]) -> WriteResult:
        with self._shelf.lock:
            self._count_write()
            return _Group(self._shelf, self.owner_id).write(writes)

    def try_apply(self, writes: Sequence[Write]) -> WriteResult | None:
        if not self._shelf.lock.acquire(blocking=False):
            return None
        try:
            return self.apply(writes)
        finally:
            self._shelf.lock.release()

    def enrol(self, owner: Owner) -> None:
        with self._shelf.lock:
            self._count_write()
            self._shelf.owners[owner.owner_id] = owner

    def dismiss(self, owner_id: str) -> None:
        with self._shelf.lock:
            self._count_write()
            self._shelf.owners.pop(owner_id, None)

    def take_over(self, session_ids: Sequence[str], *, of: str, to: str) -> list[Record]:
        with self._shelf.lock:
            self._count_write()
            taken = []
            for session_id in dict.fromkeys(session_ids):
                row = self._shelf.rows.get(session_id)
                if row is not None and row.owner == of and row.settled_at is None:
                    self._shelf.rows[session_id] = row._replace(owner=to)
                    taken.append(record_of(self._shelf.rows[session_id]))
            return taken

    def requeue(self, session_id: str, *, owner: str) -> None:
        with self._shelf.lock:
            self._count_write()
            row = self._shelf.rows.get(session_id)
            if row is not None and row.owner == owner and row.settled_at is None:
                self._shelf.rows[session_id] = row._replace(status="queued", started_at=None, attempt=row.attempt + 1)

    def request_cancel(self, request: CancelRequest) -> None:
        with self._shelf.lock:
            self._count_write()
            self._shelf.cancels.append(request)

    def take_cancels(self, owner_id: str) -> list[CancelRequest]:
        with self._shelf.lock:
            rows = self._shelf.rows
            known = [(request, rows.get(request.session_id)) for request in self._shelf.cancels]
            taken = [request for request, row in known if row and row.settled_at is None and row.owner == owner_id]
            if taken:
                self._count_write()
                self._shelf.cancels = [r for r, row in known if r not in taken and (row is None or row.settled_at is None)]
            return taken

    def prune(self, *, settled_before: float) -> int:
        with self._shelf.lock:
            kept_roots = {row.root_id for row in self._shelf.rows.values() if not _is_before(row, settled_before)}
            old = [session_id for session_id, row in self._shelf.rows.items() if row.root_id not in kept_roots]
            for session_id in old:
                self._forget(session_id)
            if old:
                self._count_write()
            return len(old)

    def optimize(self) -> None:
        """Nothing to do: there is no log."""

    def close(self) -> None:
        """Nothing to do: there is no file."""

    # ---- questions

    def get(self, session_id: str) -> Record | None:
        row = self._shelf.rows.get(session_id)
        return None if row is None else record_of(row)

    def by_key(self, key: str) -> Record | None:
        session_id = self._shelf.keys.get(key)
        return None if session_id is None else self.get(session_id)

    def tree(self, root_id: str) -> list[Record]:
        return self._records(lambda row: row.root_id == root_id)

    def children(self, session_id: str) -> list[Record]:
        return self._records(lambda row: row.parent_id == session_id)

    def live(self) -> list[Record]:
        return self._records(lambda row: row.settled_at is None)

    def history(self, query: HistoryQuery) -> list[Record]:
        rows = self._newest_first()
        if query.before_session is not None:
            places = [place for place, row in enumerate(rows) if row.session_id == query.before_session]
            rows = rows[places[0] + 1 :] if places else []
        matching = (row for row in rows if _matches(row, query))
        return [record_of(row) for row in islice(matching, max(0, query.limit))]

    def count(self, state: str | None = None) -> int:
        return sum(1 for row in self._rows() if state is None or row.status == state)

    def events(self, session_id: str, after: int = 0, most: int | None = None) -> list[Event]:
        with self._shelf.lock:
            row = self._shelf.rows.get(session_id)
            said = list(self._shelf.said.get(session_id, {}).items())
        events = [] if row is None else events_of_steps(session_id, unpacked(row.step_times), row.chunk_count)
        for number, (at, kind, body) in said:
            events.append(Event(session_id=session_id, number=number, at=at, kind=EventKind(kind), body=decoded(body)))
        return sorted((event for event in events if event.number > after), key=lambda event: event.number)[:most]

    def heads(self, session_ids: Sequence[str]) -> dict[str, Head]:
        with self._shelf.lock:
            known = {session_id: self._shelf.rows.get(session_id) for session_id in session_ids}
            said = self._shelf.said
            return {
                session_id: Head(State(row.status), row.owner, max(said.get(session_id, ()), default=0))
                for session_id, row in known.items()
                if row is not None
            }

    def drawn(self, principal: str) -> Spending:
        with self._shelf.lock:
            parts = [_drawn_by(self._shelf, row) for row in self._shelf.rows.values() if row.principal == principal]
            return summed([*parts, self._shelf.drawn.get(principal, Spending())])

    def last_sign(self, session_ids: Sequence[str]) -> dict[str, float]:
        signs = {}
        with self._shelf.lock:
            for session_id in session_ids:
                row = self._shelf.rows.get(session_id)
                said = self._shelf.said.get(session_id)
                if row is not None:
                    said_at = said[max(said)][0] if said else None
                    signs[session_id] = newest_of(row.created_at, unpacked(row.step_times), said_at)
        return signs

    def checkpoint(self, session_id: str) -> Any:
        text = self._shelf.checkpoints.get(session_id)
        return None if text is None else decoded(text)

    def durations(self, agent: str) -> list[float]:
        runs = (
            row.settled_at - row.started_at
            for row in self._newest_first()
            if row.agent == agent and row.settled_at is not None and row.started_at is not None
        )
        return list(islice(runs, DURATIONS_KEPT))

    def tally(self, since: float | None = None, until: float | None = None) -> Tally:
        summed = Tally()
        for row in self._rows():
            if (since is None or row.created_at >= since) and (until is None or row.created_at < until):
                seconds = None if row.settled_at is None else row.settled_at - row.created_at
                summed.add(row.agent, State(row.status), seconds, row.tokens, row.cost)
        return summed

    def owners(self) -> list[Owner]:
        with self._shelf.lock:
            return sorted(self._shelf.owners.values(), key=lambda owner: (owner.opened_at, owner.owner_id))

    def change_stamp(self) -> int:
        return self._shelf.writes - self._own_writes

    # ---- the shelf

    def _count_write(self) -> None:
        self._shelf.writes += 1
        self._own_writes += 1

    def _rows(self) -> list[Row]:
        with self._shelf.lock:
            return list(self._shelf.rows.values())

    def _records(self, wanted: Callable[[Row], bool]) -> list[Record]:
        return [record_of(row) for row in self._rows() if wanted(row)]

    def _newest_first(self) -> list[Row]:
        rows = list(enumerate(self._rows()))
        rows.sort(key=lambda numbered: (numbered[1].created_at, numbered[0]), reverse=True)
        return [row for _, row in rows]

    def _forget(self, session_id: str) -> None:
        shelf = self._shelf
        row = shelf.rows.pop(session_id)
        if row.principal is not None:
            shelf.drawn[row.principal] = summed([_drawn_by(shelf, row), shelf.drawn.get(row.principal, Spending())])
        if row.key is not None:
            shelf.keys.pop(row.key, None)
        shelf.said.pop(session_id, None)
        shelf.checkpoints.pop(session_id, None)
        shelf.cancels = [request for request in shelf.cancels if request.session_id != session_id]


def _drawn_by(shelf: _Shelf, row: Row) -> Spending:
    """On its row once it is settled, told by itself before."""
    tokens, cost = row.tokens, row.cost
    if row.settled_at is None:
        told = [decoded(body) for _, (_, kind, body) in sorted(shelf.said.get(row.session_id, {}).items()) if kind == EventKind.SPENT]
        tokens, cost = (int(told[-1].get("tokens", 0)), float(told[-1].get("cost", 0.0))) if told else (0, 0.0)
    return Spending(int(row.status != State.REFUSED), tokens, cost, row.created_at)


def _is_before(row: Row, moment: float) -> bool:
    return row.settled_at is not None and row.settled_at < moment and row.created_at < moment


def _matches(row: Row, query: HistoryQuery) -> bool:
    wanted: Iterable[tuple[object, object]] = (
        (query.root_id, row.root_id),
        (query.agent, row.agent),
        (query.task_number, row.task_number),
        (query.principal, row.principal),
        (query.conversation, row.conversation),
    )
    if any(asked is not None and asked != found for asked, found in wanted):
        return False
    if (query.wanted is not None and row.status not in query.wanted) or (query.roots_only and row.parent_id is not None):
        return False
    return (query.since is None or row.created_at >= query.since) and (query.until is None or row.created_at <= query.until)


class _Group:
    """One group of writes on the shelf, in order, with what it met."""

    def __init__(self, shelf: _Shelf, owner_id: str | None) -> None:
        self.shelf = shelf
        self.owner_id = owner_id
        self.clashes: list[str] = []
        self.taken_keys: dict[str, str] = {}
        self.already_settled: list[str] = []
        self.not_recorded: set[str] = set()

    def write(self, writes: Sequence[Write]) -> WriteResult:
        for write in writes:
            if isinstance(write, BeginDelegation):
                self._record(whole(row_of_new(write)))
            elif isinstance(write, RecordDelegation):
                self._record(Row._make(row_of(write.record)))
            elif isinstance(write, AppendEvent):
                self._say(write.event)
            elif write.session_id in self.not_recorded:
                continue  # it belongs to the delegation that was not recorded, not to the one that has the id
            elif isinstance(write, StartDelegation):
                self._start(write)
            elif isinstance(write, SettleDelegation):
                self._settle(write)
            else:
                self._checkpoint(write)
        return WriteResult(clashes=tuple(self.clashes), taken_keys=self.taken_keys, already_settled=tuple(self.already_settled))

    def _record(self, row: Row) -> None:
        holder = None if row.key is None else self.shelf.keys.get(row.key)
        if row.session_id in self.shelf.rows:
            self.clashes.append(row.session_id)
            self.not_recorded.add(row.session_id)
        elif holder is not None:
            self.taken_keys[row.session_id] = holder
            self.not_recorded.add(row.session_id)
        else:
            self.shelf.rows[row.session_id] = row
            if row.key is not None:
                self.shelf.keys[row.key] = row.session_id

    def _ours(self, session_id: str) -> Row | None:
        row = self.shelf.rows.get(session_id)
        return row if row is not None and self.owner_id in (None, row.owner) else None

    def _start(self, write: StartDelegation) -> None:
        row = self._ours(write.session_id)
        if row is not None and row.status == "queued":
            times = packed(write.step_times)
            self.shelf.rows[write.session_id] = row._replace(status="running", started_at=write.at, step_times=times)

    def _settle(self, write: SettleDelegation) -> None:
        row = self._ours(write.session_id)
        if row is None or row.settled_at is not None:
            self.already_settled.append(write.session_id)
            return
        status, at, result, times, tokens, cost, chunks, _ = settlement_of(write)
        self.shelf.rows[write.session_id] = row._replace(
            status=status, settled_at=at, result=result, step_times=times, tokens=tokens, cost=cost, chunk_count=chunks
        )

    def _say(self, event: Event) -> None:
        if event.session_id not in self.not_recorded:
            said = self.shelf.said.setdefault(event.session_id, {})
            said.setdefault(event.number, (event.at, event.kind.value, encoded(event.body, EVENT_OURS)))

    def _checkpoint(self, write: SaveCheckpoint) -> None:
        if self.owner_id is None or self._ours(write.session_id) is not None:
            self.shelf.checkpoints[write.session_id] = encoded(write.value)
