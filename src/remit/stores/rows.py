"""Delegations as rows: what is written for each event, and how a row is read back."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from itertools import chain
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError, from_json, to_json

from remit.core.budget import Limits
from remit.core.deadline import LONGEST_SECONDS
from remit.core.delegation import CallerInfo, Delegation, TaskContext, caller_info_from
from remit.core.events import STEPS
from remit.core.record import (
    NO_STEPS,
    AppendEvent,
    BeginDelegation,
    Record,
    RecordDelegation,
    SaveCheckpoint,
    SettleDelegation,
    StartDelegation,
    StepTimes,
    Write,
    WriteResult,
)
from remit.core.redaction import (
    ALL_FREE,
    REDACTED,
    SECRETS_REMOVED,
    Shape,
    has_known_secrets,
    is_harmless,
    may_have_secrets,
    redact_json,
    redact_parameters,
)
from remit.core.result import Evidence, Return, Status, StopReason
from remit.core.states import LIVE, Priority, State
from remit.stores.database import is_busy, roll_back, try_begin

NAN = float("nan")
_TIMES = Struct(f"<{len(STEPS)}d")
_NO_TIMES = _TIMES.pack(*[NAN] * len(STEPS))
_INT64 = 2**63 - 1
_COMPLETED, _FINISHED, _CLAIMED, _NORMAL = Status.COMPLETED, StopReason.FINISHED, Evidence.CLAIMED, Priority.NORMAL
_CONTEXT_OURS: Shape = dict.fromkeys(
    (
        "depth",
        "path",
        "timeout_seconds",
        "caller",
        "priority",
        "deadline_at",
        "command",
        "limits",
        "idle_seconds",
        "resumes",
        "came",
        "limits_reason",
    )
)
_ARTIFACT_OURS: Shape = dict.fromkeys(("evidence", "size", "sha256", "mtime"))
_RESULT_OURS: Shape = {**dict.fromkeys(("seconds", "status", "stop_reason", "evidence")), "artifacts": _ARTIFACT_OURS}
EVENT_OURS: Shape = {"state": None, **_ARTIFACT_OURS}
"""Remit's own fields, which are read again: not searched for secrets (see `core.redaction`)."""


class Row(NamedTuple):
    """The columns of `delegations`, in the order every statement uses."""

    session_id: str
    root_id: str
    parent_id: str | None
    agent: str
    status: str
    owner: str
    created_at: float
    started_at: float | None
    settled_at: float | None
    key: str | None
    task_number: int | None
    attempt: int
    tokens: int
    cost: float
    chunk_count: int
    step_times: bytes
    context: str
    result: str | None
    principal: str | None
    conversation: str | None
    queue: str | None
    ticket: int


COLUMNS = ", ".join(Row._fields)
TABLES = {
    "delegations": COLUMNS,
    "events": "session_id, number, at, kind, body",
    "checkpoints": "session_id, at, value",
    "drawn": "principal, delegations, tokens, cost, since",
}
"""The record, without data of running processes; the same names and columns in every store."""


# ---- JSON


def to_json_text(value: Any, ours: Shape = ALL_FREE) -> str:
    """JSON of anything, without secrets except in `ours`: unsupported values become descriptions, because one odd value must not lose a
    whole group."""
    try:
        return redact_json(value, to_json(value), ours=ours).decode()
    except (PydanticSerializationError, ValueError, RecursionError):
        patient = _lenient_json(value, levels=3)
        try:
            return redact_json(json.loads(patient), patient.encode(), ours=ours).decode()
        except (PydanticSerializationError, ValueError, RecursionError):  # half a surrogate pair: no secret has one
            return patient


def _lenient_json(value: Any, levels: int) -> str:
    try:
        return json.dumps(value, default=_described, skipkeys=True)
    except (TypeError, ValueError, RecursionError):
        pass
    if levels and isinstance(value, Mapping):  # keep the shape of a return or a context, whatever one of its fields contains
        pairs = (f"{json.dumps(str(name))}: {_lenient_json(item, levels - 1)}" for name, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    return json.dumps(f"<{type(value).__name__} that JSON cannot hold>")


def _described(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else repr(value)


def from_json_text(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:  # lone surrogates and deep nesting: written and read by the slow path
        return json.loads(text)


# ---- the parts of a row


def pack_times(step_times: Sequence[float | None]) -> bytes:
    if step_times is NO_STEPS:
        return _NO_TIMES
    try:
        return _TIMES.pack(*step_times)
    except StructError:
        return _TIMES.pack(*[NAN if at is None else at for at in step_times])


def unpack_times(blob: bytes) -> StepTimes:
    return tuple([None if at != at else at for at in _TIMES.unpack(blob)])


def result_text(result: Return) -> str:
    """The return without values of its row and defaults: a short row is cheaper."""
    seconds = result.metadata.duration_seconds
    is_bare = 0 <= seconds < LONGEST_SECONDS and _is_bare_result(result)
    if is_bare and (start := _bare_result(result.summary)) and not has_known_secrets():
        return f"{start}{float(seconds)!r}}}"
    known: dict[str, Any] = {"summary": result.summary, "seconds": seconds}
    if result.data is not None:
        known["data"] = result.data
    if result.status is not _COMPLETED:
        known["status"] = result.status._value_
    if result.stop_reason is not _FINISHED:
        known["stop_reason"] = result.stop_reason._value_
    if result.evidence is not _CLAIMED:
        known["evidence"] = result.evidence._value_
    if result.artifacts:
        known["artifacts"] = [artifact.to_dict() for artifact in result.artifacts]
    if result.errors:
        known["errors"] = [error.to_dict() for error in result.errors]
    known |= {name: value for name in ("next_steps", "warnings", "extra", "traceback") if (value := getattr(result, name))}
    if result.metadata.extra:
        known["metadata"] = result.metadata.extra
    return _redacted_result(known, result)


def _is_bare_result(result: Return) -> bool:
    """It completed, and has only a summary."""
    return (
        result.data is None
        and result.status is _COMPLETED
        and result.stop_reason is _FINISHED
        and result.evidence is _CLAIMED
        and not result.artifacts
        and not result.errors
        and not result.next_steps
        and not result.warnings
        and not result.extra
        and not result.traceback
        and not result.metadata.extra
    )


@lru_cache(maxsize=1024)
def _bare_result(summary: str) -> str:
    """Up to its seconds; empty if the summary may contain a secret, or values that JSON lacks."""
    if not is_harmless(summary):
        return ""
    try:
        return to_json({"summary": summary, "seconds": 0}).decode().removesuffix("0}")
    except PydanticSerializationError:
        return ""


def _redacted_result(known: dict[str, Any], result: Return) -> str:
    """Without secrets, and with a warning where some were redacted."""
    text = to_json_text(known, _RESULT_OURS)
    if REDACTED not in text or SECRETS_REMOVED in result.warnings:
        return text
    kept = from_json_text(text)  # remit's own text is appended to redacted text and not searched
    return json.dumps({**kept, "warnings": [*kept.get("warnings", ()), SECRETS_REMOVED]})


def result_of(row: Row, context: Mapping[str, Any]) -> Return | None:
    if row.result is None:
        return None
    known = from_json_text(row.result)
    trace = known.pop("traceback", "")
    metadata = {
        **known.get("metadata", {}),
        "session_id": row.session_id,
        "agent_type": row.agent,
        "delegation_depth": context["depth"],
        "delegation_path": context["path"],
        "duration_seconds": known.pop("seconds"),
    }
    result = Return.from_dict({"status": "completed", "artifacts": (), **known.pop("extra", {}), **known, "metadata": metadata})
    return replace(result, traceback=trace) if trace else result


def _context_text(record: Record) -> str:
    deadline_at = None if _is_usual_deadline(record) else record.deadline_at
    return to_json_text(_context(record, record.depth, record.path, record.timeout_seconds, deadline_at), _CONTEXT_OURS)


def _is_usual_deadline(record: Record) -> bool:
    return record.deadline_at == record.created_at + record.timeout_seconds


def _context(
    of: Record | Delegation, depth: int, path: tuple[str, ...], timeout_seconds: float, deadline_at: float | None
) -> dict[str, Any]:
    """Fields that are never searched; defaults are omitted."""
    context: dict[str, Any] = {"depth": depth, "path": path, "timeout_seconds": timeout_seconds}
    if of.parameters:
        context["parameters"] = _without_secrets(of.parameters)
    if len(path) < 2 or of.caller != path[-2]:
        context["caller"] = of.caller
    if of.priority is not Priority.NORMAL:
        context["priority"] = int(of.priority)
    if deadline_at is not None:
        context["deadline_at"] = deadline_at
    if of.task is not None:
        context["task"] = of.task.to_dict()
    if of.accept:
        context["accept"] = of.accept
    if of.limits is not None:
        context["limits"] = of.limits.to_dict()
    for name in ("command", "idle_seconds", "resumes", "limits_reason"):
        if (value := getattr(of, name)) is not None:
            context[name] = value
    if of.caller_info is not None and (caller_info := _beyond_columns(of.caller_info)):
        context["came"] = caller_info
    return context


def _beyond_columns(caller_info: CallerInfo) -> dict[str, Any]:
    return {name: value for name, value in caller_info.to_dict().items() if name not in ("principal", "session")}


def _without_secrets(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return redact_parameters(parameters) if may_have_secrets(parameters) else parameters
    except RecursionError:  # no delegation has such: what JSON cannot hold is described, not kept (see `to_json_text`)
        return parameters


_TASK_FIELDS = frozenset(f.name for f in fields(TaskContext)) - {"extra"}


def _task_of(given: Mapping[str, Any] | None) -> TaskContext | None:
    if given is None:
        return None
    known = {name: value for name, value in given.items() if name in _TASK_FIELDS}
    return TaskContext(**known, extra={name: value for name, value in given.items() if name not in _TASK_FIELDS})


# ---- whole rows


def row_of(record: Record) -> tuple[Any, ...]:
    """A plain tuple in the order of `Row`: used for every delegation."""
    live = record.state in LIVE
    settled_at = record.settled_at
    if settled_at is None and not live:
        settled_at = record.created_at  # refused on arrival
    task = record.task
    return (
        record.session_id,
        record.root_id,
        record.parent_id,
        record.agent,
        record.state._value_,
        record.owner,
        record.created_at,
        record.started_at,
        None if live else settled_at,
        record.key,
        None if task is None else task.task_number,
        record.attempt,
        record.tokens,
        record.cost,
        record.chunk_count,
        pack_times(record.step_times),
        _context_text(record),
        None if record.result is None else result_text(record.result),
        None if record.caller_info is None else record.caller_info.principal,
        None if record.caller_info is None else record.caller_info.session,
        record.queue,
        record.ticket,
    )


NEW_COLUMNS = "session_id, root_id, agent, status, owner, created_at, started_at, step_times, context"
NEW_COUNT = NEW_COLUMNS.count(",") + 1
"""The columns of a new delegation, and one more for a child: its parent. The others are constant or NULL, which would cost to bind."""


def row_of_new(begun: BeginDelegation) -> tuple[Any, ...]:
    """A new delegation, without creating a record: every delegation passes here. The whole row if it has more than the defaults."""
    delegation = begun.delegation
    lineage, task, caller_info = delegation.lineage, delegation.task, delegation.caller_info
    times = pack_times(begun.step_times)
    if _is_bare(delegation):
        context = f"{_bare_context(lineage.depth, lineage.path)}{float(delegation.deadline.timeout_seconds)!r}}}"
    else:
        context = to_json_text(_context(delegation, lineage.depth, lineage.path, delegation.deadline.timeout_seconds, None), _CONTEXT_OURS)
    state, owner, started_at, created_at = begun.state._value_, begun.owner, begun.started_at, delegation.created_at
    new = (lineage.session_id, lineage.root_id, delegation.agent, state, owner, created_at, started_at, times, context)
    if delegation.key is None and task is None and caller_info is None and begun.queue is None:
        return new if lineage.parent_id is None else (*new, lineage.parent_id)
    return full_row(new)._replace(
        parent_id=lineage.parent_id,
        key=delegation.key,
        task_number=None if task is None else task.task_number,
        principal=None if caller_info is None else caller_info.principal,
        conversation=None if caller_info is None else caller_info.session,
        queue=begun.queue,
    )


def full_row(new: tuple[Any, ...]) -> Row:
    """The whole row of a new delegation."""
    if isinstance(new, Row):
        return new
    session_id, root_id, agent, state, owner, created_at, started_at, times, context, *parent = new
    start = (session_id, root_id, parent[0] if parent else None, agent, state, owner, created_at, started_at)
    return Row(*start, None, None, None, 1, 0, 0.0, 0, times, context, None, None, None, None, 0)


def _is_bare(delegation: Delegation) -> bool:
    """Only the agent was given: its context is that of every such call."""
    return (
        not delegation.parameters
        and delegation.priority is _NORMAL
        and delegation.task is None
        and delegation.limits is None
        and delegation.idle_seconds is None
        and delegation.command is None
        and delegation.resumes is None
        and delegation.limits_reason is None
        and not delegation.accept
        and delegation.caller_info is None
    )


@lru_cache(maxsize=1024)
def _bare_context(depth: int, path: tuple[str, ...]) -> str:
    """Up to the timeout, which differs for every child."""
    return to_json_text({"depth": depth, "path": path, "timeout_seconds": 0}, _CONTEXT_OURS).removesuffix("0}")


def settlement_of(settled: SettleDelegation) -> tuple[Any, ...]:
    """The columns that an outcome sets, then the session id."""
    return (
        settled.state._value_,
        settled.at,
        result_text(settled.result),
        pack_times(settled.step_times),
        settled.tokens,
        settled.cost,
        settled.chunk_count,
        settled.session_id,
    )


def record_of(columns: tuple[Any, ...]) -> Record:
    row = Row._make(columns)
    context = from_json_text(row.context)
    limits = context.get("limits")
    return Record(
        session_id=row.session_id,
        root_id=row.root_id,
        parent_id=row.parent_id,
        depth=context["depth"],
        path=tuple(context["path"]),
        agent=row.agent,
        parameters=context.get("parameters", {}),
        caller=context["caller"] if "caller" in context else context["path"][-2],
        priority=Priority(context.get("priority", Priority.NORMAL)),
        state=State(row.status),
        created_at=row.created_at,
        timeout_seconds=context["timeout_seconds"],
        deadline_at=context["deadline_at"] if "deadline_at" in context else row.created_at + context["timeout_seconds"],
        owner=row.owner,
        started_at=row.started_at,
        settled_at=row.settled_at,
        key=row.key,
        command=context.get("command"),
        task=_task_of(context.get("task")),
        accept=tuple(context.get("accept", ())),
        limits=None if limits is None else Limits(**limits),
        idle_seconds=context.get("idle_seconds"),
        resumes=context.get("resumes"),
        limits_reason=context.get("limits_reason"),
        caller_info=_caller_info(row, context),
        step_times=unpack_times(row.step_times),
        result=result_of(row, context),
        tokens=row.tokens,
        cost=row.cost,
        attempt=row.attempt,
        chunk_count=row.chunk_count,
        queue=row.queue,
        ticket=row.ticket,
    )


def _caller_info(row: Row, context: Mapping[str, Any]) -> CallerInfo | None:
    caller_info = caller_info_from(row.principal, context.get("came"))
    return caller_info if caller_info is None or row.conversation is None else caller_info._replace(session=row.conversation)


def fit_columns(columns: tuple[Any, ...]) -> tuple[Any, ...]:
    """Columns that SQLite refused to bind (a number beyond 64 bits, NaN, half a surrogate pair), converted to the nearest valid value."""
    return tuple([_fit(value) for value in columns])


def _fit(value: Any) -> Any:
    if value != value:
        return 0.0  # SQLite would store NULL
    if isinstance(value, int):
        return max(-_INT64, min(_INT64, value))
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value


NOTHING_MET = WriteResult()
AT_ONCE = 16
"""New delegations per statement, which share its cost."""
INSERT = f"INSERT INTO delegations ({COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"
_CONSTANT = "attempt, tokens, cost, chunk_count", "1, 0, 0.0, 0"
INSERTS = {
    NEW_COUNT: f"INSERT INTO delegations ({_CONSTANT[0]}, {NEW_COLUMNS}) VALUES ({_CONSTANT[1]}{', ?' * NEW_COUNT})",
    NEW_COUNT + 1: f"INSERT INTO delegations ({_CONSTANT[0]}, {NEW_COLUMNS}, parent_id) VALUES ({_CONSTANT[1]}{', ?' * (NEW_COUNT + 1)})",
    len(Row._fields): INSERT,
}
"""By the number of bound columns."""
INSERTS_OF_MANY = {count: one + f", {one.partition(' VALUES ')[2]}" * (AT_ONCE - 1) for count, one in INSERTS.items()}
START = "UPDATE delegations SET status='running', started_at=?, step_times=? WHERE session_id=? AND status='queued'"
SETTLE = (
    "UPDATE delegations SET status=?, settled_at=?, result=?, step_times=?, tokens=?, cost=?, chunk_count=? "
    "WHERE session_id=? AND settled_at IS NULL"
)
START_OURS = START + " AND owner=?"
SETTLE_OURS = SETTLE + " AND owner=?"
# A number is used once: the first event with it is kept.
SAY = "INSERT OR IGNORE INTO events (session_id, number, at, kind, body) VALUES (?, ?, ?, ?, ?)"
CHECKPOINT = (
    "INSERT INTO checkpoints (session_id, at, value) SELECT ?1, ?2, ?3 WHERE ?4 IS NULL "
    "OR EXISTS (SELECT 1 FROM delegations WHERE session_id=?1 AND owner=?4) "
    "ON CONFLICT (session_id) DO UPDATE SET at=excluded.at, value=excluded.value"
)

Columns = tuple[Any, ...]


class Group:
    """The writes of one transaction, as rows by kind. `owner_id`, if known, prevents a superseded process from writing outcomes."""

    __slots__ = ("checkpoints", "inserts", "owner_id", "said", "settlements", "starts")

    def __init__(self, writes: Sequence[Write], owner_id: str | None) -> None:
        self.owner_id = owner_id
        self.inserts: dict[int, list[Columns]] = {}
        """New rows, by the number of their columns."""
        self.starts: list[Columns] = []
        self.settlements: list[Columns] = []
        self.said: list[Columns] = []
        self.checkpoints: list[Columns] = []
        ours = () if owner_id is None else (owner_id,)
        for write in writes:
            kind = type(write)
            if kind is BeginDelegation:
                new = row_of_new(write)  # type: ignore[arg-type]  # `type is` is quicker than isinstance
                self.inserts.setdefault(len(new), []).append(new)
            elif kind is RecordDelegation:
                self.inserts.setdefault(len(Row._fields), []).append(row_of(write.record))  # type: ignore[union-attr]
            elif kind is SettleDelegation:
                self.settlements.append(settlement_of(write) + ours)  # type: ignore[arg-type]
            else:
                self._add_other(write, ours)

    def _add_other(self, write: Write, ours: tuple[str, ...]) -> None:
        if isinstance(write, StartDelegation):
            self.starts.append((write.at, pack_times(write.step_times), write.session_id, *ours))
        elif isinstance(write, AppendEvent):
            event = write.event
            self.said.append((event.session_id, event.number, event.at, event.kind._value_, to_json_text(event.body, EVENT_OURS)))
        elif isinstance(write, SaveCheckpoint):
            self.checkpoints.append((write.session_id, write.at, to_json_text(write.value), self.owner_id))

    def written_quickly(self, connection: sqlite3.Connection) -> bool:
        """False: a clash; the transaction is left open."""
        anyones = self.owner_id is None
        try:
            for count, rows in self.inserts.items():
                if len(rows) >= AT_ONCE:
                    rows = _insert_many(connection, count, rows)
                connection.executemany(INSERTS[count], rows)
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


def _insert_many(connection: sqlite3.Connection, count: int, rows: list[Columns]) -> list[Columns]:
    """Insert as many as a multi-row statement takes; returns the rest."""
    even = len(rows) - len(rows) % AT_ONCE
    many = [tuple(chain.from_iterable(rows[first : first + AT_ONCE])) for first in range(0, even, AT_ONCE)]
    connection.executemany(INSERTS_OF_MANY[count], many)
    return rows[even:]


def write_alone(cursor: sqlite3.Cursor, write: Write, owner_id: str | None) -> bool:
    """One statement, which commits itself. False, and nothing written: a clash, or another process writes."""
    kind = type(write)
    try:
        if kind is BeginDelegation:
            new = row_of_new(write)  # type: ignore[arg-type]  # `type is` is quicker than isinstance
            cursor.execute(INSERTS[len(new)], new)
            return True
        if kind is SettleDelegation and owner_id is not None:
            cursor.execute(SETTLE_OURS, (*settlement_of(write), owner_id))  # type: ignore[arg-type]
            return cursor.rowcount == 1
        return Group((write,), owner_id).written_quickly(cursor.connection)
    except (sqlite3.IntegrityError, OverflowError, UnicodeEncodeError):
        return False
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
    return False


def write_in_transaction(connection: sqlite3.Connection, group: Group, writes: Sequence[Write]) -> WriteResult | None:
    """Write all of `group` in the open transaction, and commit. Any error rolls back.

    None, and nothing written: a clash, and another process took the lock before the second attempt."""
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
    """The slow path: each write separately, in order, with its conflicts."""

    def __init__(self, connection: sqlite3.Connection, owner_id: str | None) -> None:
        self.connection = connection
        self.owner_id = owner_id
        self.clashes: list[str] = []
        self.taken_keys: dict[str, str] = {}
        self.already_settled: list[str] = []
        self.not_recorded: set[str] = set()
        """Later writes for these belong to the unrecorded delegation, not to the one that has the id."""

    def write(self, writes: Sequence[Write]) -> WriteResult:
        for write in writes:
            if isinstance(write, BeginDelegation):
                self._record(fit_columns(full_row(row_of_new(write))))
            elif isinstance(write, RecordDelegation):
                self._record(fit_columns(row_of(write.record)))
            elif isinstance(write, AppendEvent):
                if write.event.session_id not in self.not_recorded:
                    self._write_one(write)
            elif write.session_id not in self.not_recorded:
                self._write_one(write)
        return WriteResult(clashes=tuple(self.clashes), taken_keys=self.taken_keys, already_settled=tuple(self.already_settled))

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
                self.connection.execute(statement, fit_columns(columns))
        for columns in one.settlements:
            if self.connection.execute(settle, fit_columns(columns)).rowcount != 1:
                self.already_settled.append(write.session_id)  # type: ignore[union-attr]  # it is a Settled
