"""Delegations as rows: how they are read, and the statements that write a group of events. The same for every SQL database."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from itertools import chain
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple, Protocol

from pydantic_core import PydanticSerializationError, from_json, to_json

from remit.core.budget import Limits, TreeLimits
from remit.core.deadline import LONGEST_SECONDS
from remit.core.delegation import Delegation, TaskContext, caller_info_from
from remit.core.errors import Failed
from remit.core.events import STEPS
from remit.core.jsonable import clean_text, to_jsonable
from remit.core.record import (
    NO_STEPS,
    AppendEvent,
    BeginDelegation,
    Record,
    RecordDelegation,
    SaveCheckpoint,
    SettleDelegation,
    Spending,
    StartDelegation,
    StepTimes,
    Write,
    WriteResult,
)
from remit.core.redaction import (
    ALL_FREE,
    REDACTED,
    SECRETS_REMOVED,
    HarmlessParameters,
    Shape,
    has_known_secrets,
    is_harmless,
    redact_json,
    redact_parameters,
)
from remit.core.result import Evidence, Return, Status, StopReason
from remit.core.states import LIVE, Priority, State

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
    "principal_limits": "principal, limits",
}
"""The record, without data of running processes; the same names and columns in every store."""


# ---- JSON


def to_json_text(value: Any, ours: Shape = ALL_FREE) -> str:
    """JSON of anything, without secrets except in `ours`: unsupported values become descriptions, because one odd value must not lose a
    whole group."""
    try:
        return redact_json(value, to_json(value), ours=ours).decode()
    except (PydanticSerializationError, ValueError, RecursionError):
        kept = _described(value, levels=3)
        return redact_json(kept, to_json(kept), ours=ours).decode()


def _described(value: Any, levels: int) -> Any:
    try:
        return to_jsonable(value)
    except Failed:
        if levels and isinstance(value, Mapping):  # keep the shape of a return or a context, whatever one of its fields contains
            return {clean_text(str(name)): _described(item, levels - 1) for name, item in value.items()}
        return f"<{type(value).__name__} that JSON cannot hold>"


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
    """The return without values of its row and defaults: a short row is cheaper. With a warning where secrets were redacted."""
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
    text = to_json_text(known, _RESULT_OURS)
    if REDACTED not in text or SECRETS_REMOVED in result.warnings:
        return text
    kept = from_json_text(text)  # remit's own text is appended to redacted text and not searched
    return json.dumps({**kept, "warnings": [*kept.get("warnings", ()), SECRETS_REMOVED]})


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
    came = {} if of.caller_info is None else of.caller_info.to_dict()
    if came := {name: value for name, value in came.items() if name not in ("principal", "session")}:
        context["came"] = came
    return context


def _without_secrets(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return parameters if isinstance(parameters, HarmlessParameters) else redact_parameters(parameters)
    except RecursionError:  # no delegation has such: what JSON cannot hold is described, not kept (see `to_json_text`)
        return parameters


_TASK_FIELDS = frozenset(f.name for f in fields(TaskContext)) - {"extra"}


# ---- whole rows


def row_of(record: Record) -> tuple[Any, ...]:
    """A plain tuple in the order of `Row`: used for every delegation."""
    live = record.state in LIVE
    settled_at = record.settled_at
    if settled_at is None and not live:
        settled_at = record.created_at  # refused on arrival
    deadline_at = None if record.deadline_at == record.created_at + record.timeout_seconds else record.deadline_at
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
        to_json_text(_context(record, record.depth, record.path, record.timeout_seconds, deadline_at), _CONTEXT_OURS),
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
    caller_info = caller_info_from(row.principal, context.get("came"))
    if caller_info is not None and row.conversation is not None:
        caller_info = caller_info._replace(session=row.conversation)
    task = context.get("task")
    if task is not None:
        extra = {name: value for name, value in task.items() if name not in _TASK_FIELDS}
        task = TaskContext(**{name: value for name, value in task.items() if name in _TASK_FIELDS}, extra=extra)
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
        task=task,
        accept=tuple(context.get("accept", ())),
        limits=None if limits is None else Limits(**limits),
        idle_seconds=context.get("idle_seconds"),
        resumes=context.get("resumes"),
        limits_reason=context.get("limits_reason"),
        caller_info=caller_info,
        step_times=unpack_times(row.step_times),
        result=result_of(row, context),
        tokens=row.tokens,
        cost=row.cost,
        attempt=row.attempt,
        chunk_count=row.chunk_count,
        queue=row.queue,
        ticket=row.ticket,
    )


def fit_columns(columns: tuple[Any, ...]) -> tuple[Any, ...]:
    """Columns that the database refused (a number beyond 64 bits, NaN, half a surrogate pair, NUL), as the nearest valid values."""
    return tuple([_fit(value) for value in columns])


def _fit(value: Any) -> Any:
    if value != value:
        return 0.0  # SQLite stores NULL for it
    if isinstance(value, int):
        return max(-_INT64, min(_INT64, value))
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    return value


NOTHING_MET = WriteResult()
AT_ONCE = 16
"""New delegations per statement, which share its cost."""
PRINCIPAL = Row._fields.index("principal")
INSERT = f"INSERT INTO delegations ({COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"
_CONSTANT = "attempt, tokens, cost, chunk_count", "1, 0, 0.0, 0"
INSERTS = {
    NEW_COUNT: f"INSERT INTO delegations ({_CONSTANT[0]}, {NEW_COLUMNS}) VALUES ({_CONSTANT[1]}{', ?' * NEW_COUNT})",
    NEW_COUNT + 1: f"INSERT INTO delegations ({_CONSTANT[0]}, {NEW_COLUMNS}, parent_id) VALUES ({_CONSTANT[1]}{', ?' * (NEW_COUNT + 1)})",
    len(Row._fields): INSERT,
}
"""By the number of bound columns."""
START = "UPDATE delegations SET status='running', started_at=?, step_times=? WHERE session_id=? AND status='queued'"
SETTLE = (
    "UPDATE delegations SET status=?, settled_at=?, result=?, step_times=?, tokens=?, cost=?, chunk_count=? "
    "WHERE session_id=? AND settled_at IS NULL"
)
START_OURS = START + " AND owner=?"
SETTLE_OURS = SETTLE + " AND owner=?"
# A number is used once: the first event with it is kept.
SAY = "INSERT INTO events (session_id, number, at, kind, body) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
CHECKPOINT = (
    "INSERT INTO checkpoints (session_id, at, value) SELECT ?, ?, ? WHERE CAST(? AS TEXT) IS NULL "
    "OR EXISTS (SELECT 1 FROM delegations WHERE session_id=? AND owner=?) "
    "ON CONFLICT (session_id) DO UPDATE SET at=excluded.at, value=excluded.value"
)
# What each principal has spent, updated in the transaction that records a delegation or its outcome.
DRAW = (
    "INSERT INTO drawn (principal, delegations, tokens, cost, since) VALUES (?, ?, ?, ?, ?) ON CONFLICT (principal) DO UPDATE SET "
    "delegations=drawn.delegations+excluded.delegations, tokens=drawn.tokens+excluded.tokens, cost=drawn.cost+excluded.cost, "
    "since=CASE WHEN excluded.since<drawn.since THEN excluded.since ELSE drawn.since END"
)
CHARGE = "UPDATE drawn SET tokens=tokens+?, cost=cost+? WHERE principal=(SELECT principal FROM delegations WHERE session_id=?)"

Columns = tuple[Any, ...]


class Cursor(Protocol):
    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """Of any database; statements have `?` for values."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Cursor: ...
    def executemany(self, statement: str, rows: list[Columns], /) -> Cursor: ...


class Group:
    """The writes of one transaction, as rows by kind. `owner_id`, if known, prevents a superseded process from writing outcomes."""

    def __init__(self, writes: Sequence[Write], owner_id: str | None) -> None:
        self.owner_id = owner_id
        self.limited_trees: set[str] = set()
        """Those whose limits are compared, row by row."""
        self.limits_principal = False
        self.inserts: dict[int, list[Columns]] = {}
        """New rows, by the number of their columns."""
        self.draws: list[Row] = []
        """Those of the new rows that have a principal."""
        self.starts: list[Columns] = []
        self.settlements: list[Columns] = []
        self.charges: list[Columns] = []
        """Spending of the settlements, which their principals may have limits for."""
        self.said: list[Columns] = []
        self.checkpoints: list[Columns] = []
        ours = () if owner_id is None else (owner_id,)
        for write in writes:
            kind = type(write)
            if kind is BeginDelegation:
                new = row_of_new(write)  # type: ignore[arg-type]  # `type is` is quicker than isinstance
                self._note_limits(write.limits)  # type: ignore[union-attr]
                if len(new) > PRINCIPAL:
                    self._add_whole(new)
                else:
                    self.inserts.setdefault(len(new), []).append(new)
            elif kind is RecordDelegation:
                self._note_limits(write.limits)  # type: ignore[union-attr]
                self._add_whole(row_of(write.record))  # type: ignore[union-attr]
            elif kind is SettleDelegation:
                self.settlements.append(settlement_of(write) + ours)  # type: ignore[arg-type]
                if write.tokens or write.cost:  # type: ignore[union-attr]
                    self.charges.append((write.tokens, write.cost, write.session_id))  # type: ignore[union-attr]
            else:
                self._add_other(write, ours)

    def _note_limits(self, limits: TreeLimits | None) -> None:
        if limits is not None:
            self.limited_trees.add(limits.root_id)
            self.limits_principal |= limits.principal is not None

    def _add_whole(self, row: Columns) -> None:
        self.inserts.setdefault(len(row), []).append(row)
        if row[PRINCIPAL] is not None:
            self.draws.append(Row._make(row))

    def _add_other(self, write: Write, ours: tuple[str, ...]) -> None:
        if isinstance(write, StartDelegation):
            self.starts.append((write.at, pack_times(write.step_times), write.session_id, *ours))
        elif isinstance(write, AppendEvent):
            event = write.event
            self._note_limits(write.limits)
            self.said.append((event.session_id, event.number, event.at, event.kind._value_, to_json_text(event.body, EVENT_OURS)))
        elif isinstance(write, SaveCheckpoint):
            session_id, owner_id = write.session_id, self.owner_id
            self.checkpoints.append((session_id, write.at, to_json_text(write.value), owner_id, session_id, owner_id))

    @property
    def is_drawn(self) -> bool:
        """Whether it changes the spending of principals, or compares it."""
        return bool(self.draws or self.charges or self.limits_principal)

    def write(self, connection: Connection, inserts: Mapping[int, str] = INSERTS) -> Cursor | None:
        """The cursor of the settlements: if it has fewer rows, something was settled before, and the caller rolls back."""
        anyones = self.owner_id is None
        settled = None
        for count, rows in self.inserts.items():
            if len(rows) >= AT_ONCE:
                rows = _insert_many(connection, inserts[count], rows)
            if rows:
                connection.executemany(inserts[count], rows)
        if self.starts:
            connection.executemany(START if anyones else START_OURS, self.starts)
        if self.settlements:
            settled = connection.executemany(SETTLE if anyones else SETTLE_OURS, self.settlements)
        if self.draws:
            connection.executemany(DRAW, [draw_of(row) for row in self.draws])
        if self.charges:
            connection.executemany(CHARGE, self.charges)
        if self.said:
            connection.executemany(SAY, self.said)
        if self.checkpoints:
            connection.executemany(CHECKPOINT, self.checkpoints)
        return settled


def draw_of(row: Row) -> Columns:
    """What a new delegation draws. A refused one draws nothing; its principal is known from then on."""
    return row.principal, int(row.status != State.REFUSED), row.tokens, row.cost, row.created_at


def _insert_many(connection: Connection, insert: str, rows: list[Columns]) -> list[Columns]:
    """Insert as many as a multi-row statement takes; returns the rest."""
    even = len(rows) - len(rows) % AT_ONCE
    many = [tuple(chain.from_iterable(rows[first : first + AT_ONCE])) for first in range(0, even, AT_ONCE)]
    connection.executemany(insert + f", {insert.partition(' VALUES ')[2]}" * (AT_ONCE - 1), many)
    return rows[even:]


class RowByRow:
    """The slow path: each write separately, in order, with its conflicts, and compared with the limits of its tree."""

    def __init__(
        self,
        connection: Connection,
        owner_id: str | None,
        drawn: Callable[[Connection, str], tuple[Spending, Limits]],
        spent_below: Callable[[Connection, str, str], Spending],
    ) -> None:
        """`drawn`: spending and limits of a principal."""
        self._connection = connection
        self._owner_id = owner_id
        self._drawn = drawn
        self._spent_below = spent_below
        self._clashes: list[str] = []
        self._taken_keys: dict[str, str] = {}
        self._over_budget: dict[str, str] = {}
        self._over_limits: dict[str, str] = {}
        self._overspent: dict[tuple[str, int], str] = {}
        self._already_settled: list[str] = []
        self._not_recorded: set[str] = set()
        """Later writes for these belong to the unrecorded delegation, not to the one that has the id."""

    def write(self, writes: Sequence[Write]) -> WriteResult:
        for write in writes:
            if isinstance(write, BeginDelegation):
                self._record(full_row(row_of_new(write)), write.limits)
            elif isinstance(write, RecordDelegation):
                self._record(row_of(write.record), write.limits)
            elif (write.event if isinstance(write, AppendEvent) else write).session_id not in self._not_recorded:
                self._write_one(write)
        return WriteResult(
            clashes=tuple(self._clashes),
            taken_keys=self._taken_keys,
            over_budget=self._over_budget,
            over_limits=self._over_limits,
            overspent=self._overspent,
            already_settled=tuple(self._already_settled),
        )

    def _find(self, condition: str, *values: Any) -> Any:
        return self._connection.execute(f"SELECT session_id FROM delegations WHERE {condition}", values).fetchone()

    def _record(self, columns: Columns, limits: TreeLimits | None) -> None:
        row = Row._make(fit_columns(columns))
        if self._find("session_id=?", row.session_id) and self._is_ours(row):
            return
        if not self._is_refused(row, limits):
            if self._connection.execute(f"{INSERT} ON CONFLICT DO NOTHING", row).rowcount == 1:
                if row.principal is not None:
                    self._connection.execute(DRAW, draw_of(row))
                return
            self._is_refused(row, limits)  # another process was faster
        self._not_recorded.add(row.session_id)

    def _is_refused(self, row: Row, limits: TreeLimits | None) -> bool:
        """Whether its id or key is taken, or its tree or principal has no budget left; then that is in the result."""
        if self._find("session_id=?", row.session_id):
            self._clashes.append(row.session_id)
        elif row.key is not None and (holder := self._find("key=?", row.key)):
            self._taken_keys[row.session_id] = holder[0]
        elif row.status == State.REFUSED:
            return False
        elif limits is not None and (lack := self._first(limits, Spending.lack)) is not None:
            self._over_limits[row.session_id] = lack
        elif row.principal is not None and (lack := self._of_principal(row.principal, Spending.lack)) is not None:
            self._over_budget[row.session_id] = lack
        else:
            return False
        return True

    def _first(self, limits: TreeLimits, passed: Callable[[Spending, Limits], str | None]) -> str | None:
        """The first limit that is passed, the innermost scope first."""
        for session_id, of_one in limits.scopes:
            if (lack := passed(self._spent_below(self._connection, limits.root_id, session_id), of_one)) is not None:
                return lack
        return None if limits.principal is None else self._of_principal(limits.principal, passed)

    def _of_principal(self, principal: str, passed: Callable[[Spending, Limits], str | None]) -> str | None:
        return passed(*self._drawn(self._connection, principal))

    def _is_ours(self, row: Row) -> bool:
        """Written before, by an attempt whose commit was cut off."""
        same = "session_id=? AND owner=? AND created_at=? AND context=? AND agent=?"
        values = (row.session_id, self._owner_id, row.created_at, row.context, row.agent)
        return self._owner_id is not None and self._find(same, *values) is not None

    def _write_one(self, write: Write) -> None:
        one = Group((write,), self._owner_id)
        start, settle = (START, SETTLE) if self._owner_id is None else (START_OURS, SETTLE_OURS)
        for statement, rows in ((start, one.starts), (SAY, one.said), (CHECKPOINT, one.checkpoints)):
            for columns in rows:
                self._connection.execute(statement, fit_columns(columns))
        limits = write.limits if isinstance(write, AppendEvent) else None
        if limits is not None and (passed := self._first(limits, Spending.overspent)) is not None:
            self._overspent[one.said[0][:2]] = passed
        for columns in map(fit_columns, one.settlements):
            if self._connection.execute(settle, columns).rowcount == 1:
                for charge in one.charges:
                    self._connection.execute(CHARGE, fit_columns(charge))
            elif not self._is_settled_so(columns):
                self._already_settled.append(columns[7])

    def _is_settled_so(self, columns: Columns) -> bool:
        """This very outcome, by an attempt whose commit was cut off."""
        same = "status=? AND settled_at=? AND result=? AND step_times=? AND session_id=? AND owner=?"
        return self._owner_id is not None and self._find(same, *columns[:4], columns[7], self._owner_id) is not None
