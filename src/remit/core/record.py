"""What the store knows of a delegation, and the writes by which it learns it. Plain values passed between engine and store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from remit.core.budget import Limits
from remit.core.delegation import CallerInfo, Delegation, TaskContext
from remit.core.errors import Misused
from remit.core.events import STEPS, Event
from remit.core.result import Return
from remit.core.states import Priority, State

StepTimes = tuple[float | None, ...]
"""Wall times of the thirteen steps, in their order; None: not reached."""
NO_STEPS: StepTimes = (None,) * len(STEPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One delegation, as it is known now."""

    session_id: str
    root_id: str
    parent_id: str | None
    depth: int
    path: tuple[str, ...]
    agent: str
    parameters: Mapping[str, Any]
    caller: str
    priority: Priority
    state: State
    created_at: float
    timeout_seconds: float
    deadline_at: float
    """Wall clock."""
    owner: str
    """The process that runs it (see `Owner`)."""
    started_at: float | None = None
    settled_at: float | None = None
    key: str | None = None
    command: str | None = None
    task: TaskContext | None = None
    accept: tuple[str, ...] = ()
    limits: Limits | None = None
    idle_seconds: float | None = None
    resumes: str | None = None
    caller_info: CallerInfo | None = None
    step_times: StepTimes = NO_STEPS
    result: Return | None = None
    tokens: int = 0
    cost: float = 0.0
    attempt: int = 1
    """1, and one more for each time it was resumed after a crash."""
    chunk_count: int = 0


def registry_entry(record: Record) -> dict[str, Any]:
    """A line of the registry, of a delegation."""
    return {
        "session_id": record.session_id,
        "command": record.command,
        "agent": record.agent,
        "task_number": record.task.task_number if record.task else None,
        "language": record.task.language if record.task else None,
        "start_time": record.created_at,
        "timeout": record.timeout_seconds,
        "deadline": record.deadline_at,
        "status": str(record.state),
        "depth": record.depth,
        "path": list(record.path),
        "principal": record.caller_info.principal if record.caller_info else None,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process that runs delegations of this project. Identified by pid *and* start time, so that a reused pid is not mistaken for it."""

    owner_id: str
    pid: int
    pid_started: str
    """Start time of the process as the kernel counts it, with the boot it belongs to."""
    pid_space: str
    """The pid namespace; a pid of another one cannot be judged from here."""
    host: str
    opened_at: float


# ---- writes: applied in groups, each group wholly or not at all


@dataclass(slots=True)
class RecordDelegation:
    """A delegation exists (queued or running; or already settled, when it was refused)."""

    record: Record

    @property
    def session_id(self) -> str:
        return self.record.session_id


class BeginDelegation(NamedTuple):
    """A new delegation, straight from the engine: the frequent way to be recorded, without a `Record` made for it."""

    delegation: Delegation
    state: State
    owner: str
    started_at: float | None
    step_times: Sequence[float | None]

    @property
    def session_id(self) -> str:
        return self.delegation.lineage.session_id


@dataclass(frozen=True, slots=True)
class StartDelegation:
    """A queued delegation gets its slot."""

    session_id: str
    at: float
    step_times: StepTimes


class SettleDelegation(NamedTuple):
    """The outcome: recorded once; a second one for the same delegation is ignored and reported by `Store.apply`."""

    session_id: str
    state: State
    at: float
    result: Return
    step_times: StepTimes
    tokens: int
    cost: float
    chunk_count: int


@dataclass(frozen=True, slots=True)
class AppendEvent:
    """A numbered event that is not a step: progress, data, artifact, notice, cancel."""

    event: Event


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    session_id: str
    at: float
    value: Any


Write = BeginDelegation | RecordDelegation | StartDelegation | SettleDelegation | AppendEvent | SaveCheckpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What a group of writes met that its writer must know."""

    clashes: tuple[str, ...] = ()
    """Session ids of `BeginDelegation` and `RecordDelegation` that were already taken: not recorded; draw again."""
    taken_keys: Mapping[str, str] = field(default_factory=dict)
    """Session ids of `RecordDelegation` whose idempotency key another delegation holds, and that delegation's id."""
    already_settled: tuple[str, ...] = ()
    """Session ids of `SettleDelegation` that had an outcome before, or are no longer ours: the recorded one stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """By session, tree, agent, state and time; newest first."""

    root_id: str | None = None
    agent: str | None = None
    state: State | None = None
    states: tuple[State, ...] = ()
    """Any of these; empty: any at all."""
    task_number: int | None = None
    since: float | None = None
    until: float | None = None
    principal: str | None = None
    """Who asked from outside, for the tree it belongs to."""
    conversation: str | None = None
    """The caller's name of the conversation it belongs to (`CallerInfo.session`)."""
    roots_only: bool = False
    limit: int = 50
    before_session: str | None = None
    """For the next page: the last session id of the page before."""

    @property
    def wanted(self) -> tuple[State, ...] | None:
        """Any of these states; None: whichever."""
        if self.state is None:
            return self.states or None
        return (self.state,) if not self.states or self.state in self.states else ()


def history_query(status: str | None, query: Mapping[str, Any]) -> HistoryQuery:
    """From what a caller asked by name. Raises `Misused` with the names there are."""
    asked = dict(query)
    if status is not None:
        try:
            asked["state"] = State(status)
        except ValueError:
            raise Misused(f"Unknown status {status!r}.", advice=f"Use {', '.join(State)}.") from None
    try:
        return HistoryQuery(**asked)
    except TypeError:
        raise Misused(
            f"Unknown filter among {', '.join(asked)}.",
            advice="Use agent, status, root_id, task_number, since, until, principal, conversation, roots_only, limit.",
        ) from None


class Head(NamedTuple):
    """How far a delegation is: by this it is seen that there is something new."""

    state: State
    owner: str
    number: int
    """Of its newest event that is no step."""

    @property
    def is_live(self) -> bool:
        return not self.state.is_settled


class Spending(NamedTuple):
    """What everything that a principal ever asked for has drawn, also what the history has forgotten since."""

    delegations: int = 0
    tokens: int = 0
    cost: float = 0.0
    since: float | None = None
    """When it asked first; None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest:
    """Asked for by another process; carried out by the owner."""

    session_id: str
    reason: str
    source: str
    at: float
