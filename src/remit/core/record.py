"""The record of a delegation, and the writes that change it. Plain values passed between engine and store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from remit.core.budget import Budget, Limits, TreeLimits
from remit.core.delegation import CallerInfo, Delegation, TaskContext
from remit.core.errors import Misused
from remit.core.events import STEPS, Event
from remit.core.result import Return
from remit.core.states import Priority, State

CACHED_FROM = "cached_from"
"""Key in the metadata of a return: the session whose result was reused."""
StepTimes = tuple[float | None, ...]
"""Wall times of the thirteen steps, in order; None: not reached."""
NO_STEPS: StepTimes = (None,) * len(STEPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The current record of one delegation."""

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
    """1, plus one for each resume after a crash."""
    chunk_count: int = 0
    queue: str | None = None
    """The task queue it was given to; None: it runs in the process that recorded it, or in one that takes it over."""
    ticket: int = 0
    """Number of the newest claim (`Store.claim`); 0: no worker has claimed it yet."""
    limits_reason: str | None = None
    """See `Delegation.limits_reason`."""

    @property
    def cached_from(self) -> str | None:
        """The session whose result was reused; None: its agent ran."""
        return None if self.result is None else self.result.metadata.extra.get(CACHED_FROM)


COMMON = (
    "agent", "parameters", "caller", "priority", "created_at", "idle_seconds", "accept", "limits", "command", "task", "resumes",
    "caller_info", "limits_reason",
)  # fmt: skip
"""Fields that a delegation and its record share."""


def common_fields(one: Delegation | Record) -> dict[str, Any]:
    return {name: getattr(one, name) for name in COMMON}


def registry_entry(record: Record) -> dict[str, Any]:
    """The registry entry of a delegation."""
    return {
        **{name: getattr(record, name) for name in ("session_id", "command", "agent")},
        **{name: getattr(record.task, name, None) for name in ("task_number", "language")},
        "start_time": record.created_at,
        "timeout": record.timeout_seconds,
        "deadline": record.deadline_at,
        "status": str(record.state),
        "depth": record.depth,
        "path": list(record.path),
        "principal": record.caller_info.principal if record.caller_info else None,
    }


class Owner(NamedTuple):
    """A process that runs delegations of this project. Identified by pid *and* start time, so that a reused pid is not mistaken for it."""

    owner_id: str
    pid: int
    pid_started: str
    """Start time of the process from the kernel, with its boot id."""
    pid_space: str
    """The pid namespace; a pid of another namespace cannot be checked from here."""
    host: str
    opened_at: float


# ---- writes: applied in atomic groups


class RecordDelegation(NamedTuple):
    """Record a delegation (queued or running; or settled, if it was refused)."""

    record: Record
    limits: TreeLimits | None = None
    """As in `BeginDelegation`."""

    @property
    def session_id(self) -> str:
        return self.record.session_id


class BeginDelegation(NamedTuple):
    """Record a new delegation from the engine: the frequent case, without creating a `Record`."""

    delegation: Delegation
    state: State
    owner: str
    started_at: float | None
    step_times: Sequence[float | None]
    queue: str | None = None
    """Its task queue (see `Record.queue`)."""
    limits: TreeLimits | None = None
    """Compared in the transaction that records it, by what all processes recorded before; None: only this process draws from them."""

    @property
    def session_id(self) -> str:
        return self.delegation.lineage.session_id


class StartDelegation(NamedTuple):
    """Start a queued delegation."""

    session_id: str
    at: float
    step_times: StepTimes


class SettleDelegation(NamedTuple):
    """Record the outcome. A second one for the same delegation is ignored and reported by `Store.apply`."""

    session_id: str
    state: State
    at: float
    result: Return
    step_times: StepTimes
    tokens: int
    cost: float
    chunk_count: int


class AppendEvent(NamedTuple):
    """A numbered event that is not a step: progress, data, artifact, notice, cancel."""

    event: Event
    limits: TreeLimits | None = None
    """Of spending: compared in the transaction that records it."""


class SaveCheckpoint(NamedTuple):
    session_id: str
    at: float
    value: Any


Write = BeginDelegation | RecordDelegation | StartDelegation | SettleDelegation | AppendEvent | SaveCheckpoint


class WriteResult(NamedTuple):
    """Conflicts of a group of writes."""

    clashes: tuple[str, ...] = ()
    """Session ids of `BeginDelegation` and `RecordDelegation` that were taken: not recorded; draw new ids."""
    taken_keys: Mapping[str, str] = {}
    """Session ids of `RecordDelegation` whose idempotency key belongs to another delegation, with its id."""
    over_budget: Mapping[str, str] = {}
    """Session ids of `BeginDelegation` and `RecordDelegation` that were not recorded, with the limit that their principal has reached."""
    over_limits: Mapping[str, str] = {}
    """The same for a limit of their tree."""
    overspent: Mapping[tuple[str, int], str] = {}
    """Session ids and numbers of `AppendEvent` that passed a limit of their tree, with that limit. They are recorded nevertheless."""
    already_settled: tuple[str, ...] = ()
    """Session ids of `SettleDelegation` that already had an outcome, or belong to another owner now: the recorded outcome is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """By tree, agent, state, task, caller and time; newest first."""

    root_id: str | None = None
    agent: str | None = None
    states: tuple[State, ...] = ()
    """Any of these; empty: all."""
    task_number: int | None = None
    since: float | None = None
    until: float | None = None
    principal: str | None = None
    """External caller of its tree."""
    conversation: str | None = None
    """The caller's name of its conversation (`CallerInfo.session`)."""
    roots_only: bool = False
    limit: int = 50
    before_session: str | None = None
    """For the next page: the last session id of the previous page."""


def history_query(status: str | None, query: Mapping[str, Any]) -> HistoryQuery:
    """Build a query from named filters. Raises `Misused` with the valid names."""
    asked = dict(query)
    if status is not None:
        if status not in tuple(State):
            raise Misused(f"Unknown status {status!r}.", advice=f"Use {', '.join(State)}.")
        asked["states"] = (State(status),)
    try:
        return HistoryQuery(**asked)
    except TypeError:
        raise Misused(
            f"Unknown filter among {', '.join(asked)}.",
            advice="Use agent, status, root_id, task_number, since, until, principal, conversation, roots_only, limit.",
        ) from None


class Head(NamedTuple):
    """Progress of a delegation, used to detect changes."""

    state: State
    owner: str
    number: int
    """Number of its newest event that is not a step."""
    queue: str | None = None
    """See `Record.queue`."""

    @property
    def is_recoverable(self) -> bool:
        """Whether another process takes it over when its owner dies. Queued work is given out again by its task queue instead."""
        return not self.state.is_settled and self.queue is None


class Spending(NamedTuple):
    """Spending of a principal, including pruned history, or of a delegation with everything below it."""

    delegations: int = 0
    tokens: int = 0
    cost: float = 0.0
    since: float | None = None
    """Time of its first request; None: never."""
    alive: int = 0

    def lack(self, limits: Limits) -> str | None:
        """The limit that leaves no room for another delegation, or None. The wall clock is not considered."""
        return self._drawn(limits).lacks(float("-inf"))

    def overspent(self, limits: Limits) -> str | None:
        """The limit on tokens or money that was passed, or None."""
        return self._drawn(limits).overspent()

    def _drawn(self, limits: Limits) -> Budget:
        budget = Budget(limits, opened_at=0.0)
        budget.delegations, budget.tokens, budget.cost, budget.alive = self.delegations, self.tokens, self.cost, self.alive
        return budget


class CancelRequest(NamedTuple):
    """A cancel request from another process; the owner executes it."""

    session_id: str
    reason: str
    source: str
    at: float
