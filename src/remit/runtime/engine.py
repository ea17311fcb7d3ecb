"""The engine port: everything that clients of an engine use. The embedded engine implements it; another engine needs nothing else.

An engine records a delegation before it runs, enforces its deadline, and records its outcome before the caller receives it."""

from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from remit.core.budget import Budget, Limits
from remit.core.context import Handle
from remit.core.delegation import Delegation
from remit.core.events import Event
from remit.core.lifecycle import LifecycleKind
from remit.core.ports import Store
from remit.core.record import Owner
from remit.core.result import Return
from remit.runtime.deps import RuntimeDeps, Submission
from remit.runtime.lifecycle import LifecycleBus, Listener

if TYPE_CHECKING:
    from remit.runtime.local_context import LocalRun


class LiveHandle(Handle):
    """The handle of a delegation in this process: its state is known without reading the store."""

    @property
    @abstractmethod
    def delegation(self) -> Delegation: ...
    @property
    @abstractmethod
    def is_queued(self) -> bool: ...


@dataclass(slots=True)
class Recovered:
    """What recovery found and did."""

    resumed: list[str] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    killed: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.resumed or self.settled or self.killed)


class WorkerInfo(NamedTuple):
    """A process that takes work from the queues of a project."""

    identity: str
    agents: tuple[str, ...]
    """Agents that it runs."""
    heard_seconds: float
    """Seconds since its last poll."""


Perform = Callable[["LocalRun"], Awaitable[Return]]
Middleware = Callable[["LocalRun", Perform], Awaitable[Return]]
"""Wraps the performance of a delegation: runs in the task and context of its agent, and awaits the next `Perform`."""


class EngineConfig(NamedTuple):
    """Dependencies of an engine. Its limits are in `deps.settings`."""

    deps: RuntimeDeps
    store: Store
    owner: Owner
    folder: Path
    """`.remit` of the project."""
    project: str = "remit"
    """Identifies the project in the marks of its processes."""
    commit_in_loop: bool = True
    """False with durability "power": each group costs an fsync, which must not block the loop."""
    may_recover: bool = True
    """False: the project is not approved, so delegations of dead processes are left to the next process."""
    middleware: tuple[Middleware, ...] = ()
    """The first is the outermost."""
    listeners: tuple[tuple[Listener, tuple[LifecycleKind, ...]], ...] = ()
    caller_token: Callable[["LocalRun"], str] | None = None
    """Creates the token that authenticates processes of a delegation. Called from any thread."""
    reap: Callable[[str, str], int] = lambda _owner_id, _session_id: 0
    """Kill the processes that an owner on this machine left: of one session, or of all if that is empty. Returns their number. Blocking."""
    kill: Callable[[Collection[str]], None] = lambda _session_ids: None
    """Kill the processes of these sessions now, without grace."""
    definition: Callable[[str], str] = lambda _agent: ""
    """Hash of an agent's definition, equal in all processes that would execute it alike."""


class Engine(Protocol):
    """Runs delegations and records them."""

    @property
    def owner(self) -> Owner:
        """This process as registered in the store."""
        ...

    @property
    def bus(self) -> LifecycleBus:
        """Publishes starts and ends of its delegations, and what APIs report."""
        ...

    # ---- delegations

    async def run(self, submission: Submission) -> Return:
        """Run a delegation: recorded before it runs, settled before this returns, by its deadline whatever the agent does.

        A submission with `cache` goes to `ResultCache.run`; in `start` to `ResultCache.start`."""
        ...

    async def start(self, submission: Submission) -> Handle:
        """Like `run`, but returns once it is recorded. If the caller is cancelled meanwhile, it was started completely or not at all."""
        ...

    async def refuse(self, submission: Submission) -> Return:
        """Record a refusal; nothing runs."""
        ...

    async def record(self, submission: Submission, result: Return) -> Return:
        """Record a delegation answered without running its agent, as the result cache does. Returns the recorded return."""
        ...

    async def cancel(self, session_id: str, reason: str, source: str) -> list[dict[str, Any]]:
        """Stop a delegation and everything below it, in whichever process it runs. Returns how each node ended."""
        ...

    def message(self, session_id: str, text: str) -> bool:
        """Add a notice to the events of a live delegation; False if this process does not run it."""
        ...

    # ---- reading

    def live(self) -> Mapping[str, "LocalRun"]:
        """Delegations queued or running in this process, by session. A view: copy it before awaiting."""
        ...

    def find(self, session_id: str) -> "LocalRun | None": ...
    def abandoned(self) -> Mapping[str, str]:
        """Agents that could not be stopped and still run, by session."""
        ...

    async def wait_idle(self) -> None:
        """Wait until nothing is live. Cancelling the wait ends nothing."""
        ...

    def follow(self, session_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """Events after number `after`, in whichever process the delegation runs; the last is its return."""
        ...

    async def result(self, session_id: str, wait_seconds: float) -> Return | None:
        """The return if it comes within `wait_seconds`, in whichever process the delegation runs."""
        ...

    # ---- limits

    def limit_slots(self, agent: str, slots: int | None) -> None:
        """Limit the parallel delegations of `agent`; None: no limit of its own."""
        ...

    async def principal_budget(self, principal: str, limits: Limits | None = None) -> Budget:
        """The budget shared by all trees of an authenticated principal, with its current `limits`."""
        ...

    # ---- work from a queue

    async def work(self, agents: Collection[str] | None = None) -> None:
        """Take work for these agents, or for all, from now on. Raises `Misused` in an engine without a queue."""
        ...

    async def workers(self) -> list[WorkerInfo]:
        """Processes that take work for the agents of this project."""
        ...

    # ---- the engine's own life

    async def open(self, *, recover: bool = True) -> Recovered:
        """Register this process, then recover. Called once, before anything else."""
        ...

    async def recover(self) -> Recovered:
        """Resume or settle the delegations of dead processes."""
        ...

    async def clean_up(self) -> None:
        """Remove old scratch folders, unused workspaces and expired history. Also runs periodically."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Start a background task outside any delegation; cancelled when the engine closes."""
        ...

    async def drain(self) -> list[str]:
        """Stop resumable delegations without settling them, so that the next process continues them. Returns their root sessions."""
        ...

    async def close(self) -> None:
        """Stop and settle live delegations, write everything, unregister from the store."""
        ...
