"""A delegation that is queued or runs: everything the engine knows of it while it lives. One object, gone when it is settled.

It is the `Work` that `flow.perform` sees and the `Caller` of its children; `backend` gives its agent the `ctx`.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.agents import WorkspaceKind
from remit.core.caller_token import CALLER
from remit.core.delegation import Delegation
from remit.core.errors import ErrorInfo, Unavailable
from remit.core.events import BEFORE_RUN, Event, EventKind
from remit.core.policy import PendingApproval
from remit.core.ports import AgentPort
from remit.core.record import AppendEvent
from remit.core.redaction import redact_bytes
from remit.core.request import Request
from remit.core.result import Artifact, Return, Status, StopReason
from remit.core.states import State
from remit.core.tracing import VARIABLE, traceparent_of
from remit.runtime.context import Context, Handle, Repair
from remit.runtime.deps import RuntimeDeps, Submission
from remit.runtime.perform import Work
from remit.runtime.reply import Stop
from remit.system.files import write_beside

if TYPE_CHECKING:
    from remit.engines.embedded.deadlines import Entry
    from remit.engines.embedded.embedded import EmbeddedEngine
    from remit.engines.embedded.replay import Replay
    from remit.runtime.workspace_session import WorkspaceSession
    from remit.runtime.workspaces import Workspace


CHILDREN_SECONDS = 0.9
FAILURES_KEPT = 50
"""Errors of children that a return carries; the children themselves are all on record."""


class Running:
    """What most delegations never have stands here once, as a default; an instance holds only what it has."""

    # ---- where it is in its life
    state: State = State.QUEUED
    is_queued: bool = False
    """It has a place in the queue."""
    place: list[Any] | None = None
    """That place."""
    has_slot: bool = False
    is_recorded: bool = False
    concluding: bool = False
    """Its end is being made: nothing that comes now changes it."""
    is_settled: bool = False
    is_abandoned: bool = False
    attempt: int = 1
    stop: Stop | None = None
    entry: "Entry | None" = None
    """Its place in the deadline heap."""
    started_at: float = 0.0
    last_heard: float = 0.0
    task: "asyncio.Task[None] | None" = None
    ctx: Context = None  # type: ignore[assignment] # made when it starts

    # ---- who waits for it
    recorded: "asyncio.Future[str | None] | None" = None
    """Set when it is on record; to the session that holds its idempotency key, when another does."""
    waiter: "asyncio.Future[Return] | None" = None
    """Of the one caller that waits in `run`, or so long by its handle. Cancelling that caller cancels this, never what others wait for."""
    _done: "asyncio.Future[Return] | None" = None
    told: Return | None = None
    trouble: Exception | None = None
    wake: asyncio.Event | None = None

    # ---- its children
    live_children: "dict[str, Running] | None" = None
    failures: list[ErrorInfo] | None = None
    waiting_for: int = 0
    """How many children it waits for just now; while there are any, its slot is lent."""

    # ---- what it has said and done
    artifacts: dict[str, Artifact] | None = None
    """Declared, by path."""
    chunks: list[Event] | None = None
    chunk_bytes: int = 0
    chunks_dropped: int = 0
    said: int = 0
    on_record: int = BEFORE_RUN
    """The number of the last event it said that is on record: those who follow it from outside are given no more."""
    steps_told: int = 0
    """How many of its steps those who listen for them know of."""
    tokens: int = 0
    cost: float = 0.0
    result: Return | None = None
    held: Return | None = None
    """Its answer, while that is still being checked."""
    trace: str = ""
    """Where the exception came from that its code raised."""
    blocked: str = ""
    """How it blocked the loop, when the watchdog stopped it from outside."""

    # ---- what it is told
    hand_in: bool = False
    hand_in_event: asyncio.Event | None = None
    repair: Repair | None = None
    scratch_path: Path | None = None
    workspace_session: "WorkspaceSession | None" = None
    """Its own folder, when it works in one."""
    own_workspace: "Workspace | None" = None
    """The folder it works in when that is not the project: its own, or the one its caller works in."""
    pending: PendingApproval | None = None
    """What a person must say yes to before its agent runs."""
    saved: Any = None
    replay: "Replay | None" = None

    def __init__(self, submission: Submission, engine: "EmbeddedEngine", parent: "Running | None") -> None:
        assert submission.agent is not None
        self.engine = engine
        self.submission = submission
        self.delegation: Delegation = submission.delegation
        self.agent: AgentPort = submission.agent
        self.arguments = submission.arguments
        self.tree = submission.tree
        self.budget = submission.budget
        self.parent = parent
        self.root: Path = engine.root
        self.step_times = submission.step_times
        self.warnings = submission.warnings
        self.started_wall = submission.delegation.created_at
        if parent is not None and parent.own_workspace is not None:
            self.own_workspace = parent.own_workspace
        if submission.pending is not None:
            self.pending = submission.pending
        if submission.earlier is not None:
            self.saved = submission.earlier.saved
            self.replay = submission.earlier.replay

    @property
    def deps(self) -> RuntimeDeps:
        return self.engine.deps

    # ---- as the caller of its children (flow.deps.Caller)

    @property
    def closing(self) -> str | None:
        """Why it may not delegate any more: it, or one above it, is being stopped or has ended."""
        node: Running | None = self
        while node is not None:
            if node.stop is not None:
                return f"{node.delegation.agent} is being stopped ({node.stop.source})"
            if node.is_settled:
                return f"{node.delegation.agent} has ended"
            node = node.parent
        return None

    def ancestors(self) -> list[Delegation]:
        found, node = [], self
        while True:
            found.append(node.delegation)
            if node.parent is None:
                return found
            node = node.parent

    async def delegate(self, request: Request, deps: RuntimeDeps | None = None) -> Return:
        from remit.engines.embedded.context_backend import EngineBackend

        return await EngineBackend(self).delegate(request, deps)

    async def start(self, request: Request, deps: RuntimeDeps | None = None) -> Handle:
        from remit.engines.embedded.context_backend import EngineBackend

        return await EngineBackend(self).start(request, deps)

    # ---- time

    def elapsed(self) -> float:
        return self.engine.loop.time() - self.started_at if self.started_at else 0.0

    def remaining(self) -> float:
        return self.delegation.deadline.remaining(self.engine.loop.time())

    @property
    def ends_at(self) -> float:
        return self.delegation.deadline.hard_at

    def look(self, now: float) -> None:
        """Called by the deadline heap."""
        self.entry = None
        self.engine.look(self, now)

    def be_looked_at(self, at: float) -> None:
        """The one moment at which the clock next concerns it."""
        deadlines = self.engine.deadlines
        if self.entry is not None:
            deadlines.forget(self.entry)
        self.entry = deadlines.push(at, self)

    def next_look(self) -> float:
        deadline = self.delegation.deadline
        at = deadline.hard_at if self.hand_in else deadline.soft_at
        idle = self.delegation.idle_seconds
        if idle is not None and self.started_at:
            at = min(at, self.last_heard + idle)
        return at

    # ---- as the work of flow.perform

    def stamp(self, step: int, last: int = -1) -> None:
        now = self.engine.clock.wall()
        self.step_times[step] = now
        while step < last:
            step += 1
            self.step_times[step] = now
        if self.engine.bus.wants_details:
            self.publish_steps(self.state)

    def publish_steps(self, state: State) -> None:
        self.steps_told = self.engine.bus.steps(self.delegation, state, self.step_times, self.steps_told)

    def notice(self, message: str) -> None:
        self.say(EventKind.NOTICE, {"message": message})

    def declared(self) -> tuple[Artifact, ...]:
        return tuple(self.artifacts.values()) if self.artifacts else ()

    def child_errors(self) -> Sequence[ErrorInfo]:
        return self.failures or ()

    async def end_children(self) -> None:
        """No child outlives its caller; bounded, like every wait."""
        children = list((self.live_children or {}).values())
        source = f"the end of its caller {self.delegation.agent}"
        for child in children:
            self.engine.stop(child, Stop(reason=StopReason.CANCELLED, source=source))
        if children:
            await asyncio.wait([child.done for child in children], timeout=CHILDREN_SECONDS)

    def hold(self, result: Return) -> None:
        """Its answer, valid as it stands; what is still done with it cannot lose it."""
        self.held = result

    def keep_trace(self, trace: str) -> None:
        self.trace = trace

    def ask_again(self, repair: Repair) -> None:
        self.repair = repair

    def return_file(self) -> Path | None:
        return None if self.scratch_path is None else self.scratch_path / "return.json"

    def environment(self) -> dict[str, str]:
        """For acceptance commands: they delegate nothing in its name."""
        from remit.runtime.verify import acceptance_environment

        return acceptance_environment(self.engine.options.accept_env) | self._marks()

    def process_environment(self) -> dict[str, str]:
        """For the agent's own processes: what they delegate is its child."""
        token = None if self.engine.caller_token is None else self.engine.caller_token(self)
        return {**self._marks(), CALLER: token} if token else self._marks()

    def _marks(self) -> dict[str, str]:
        session_id = self.delegation.session_id
        mark = f"{self.engine.options.project}:{self.engine.owner.owner_id}:{session_id}"
        trace = traceparent_of(self.delegation)
        return {"REMIT_MARK": mark, "REMIT_SESSION": session_id, "REMIT_ROOT": str(self.root), VARIABLE: trace}

    def keep_prose(self, text: str) -> Artifact | None:
        try:
            path = write_beside(self.scratch(), "answer.txt", redact_bytes(text.encode("utf-8", "backslashreplace")))
            relative = path.relative_to(self.root)
        except (OSError, ValueError):
            return None  # a full or foreign disk: the errors of the return still say what was wrong
        return Artifact(type="report", path=str(relative), summary="The answer as it was handed in.")

    def scratch(self) -> Path:
        if self.scratch_path is None:
            path = self.engine.scratch_root / self.delegation.session_id
            path.mkdir(parents=True, exist_ok=True)
            self.scratch_path = path
        return self.scratch_path

    @property
    def workspace(self) -> Path:
        """The folder it works in."""
        return self.root if self.own_workspace is None else self.own_workspace.folder

    @property
    def may_write(self) -> bool:
        return self.agent.spec.workspace is WorkspaceKind.SHARED

    # ---- what it says

    def say(self, kind: EventKind, body: dict[str, Any]) -> None:
        """A numbered event: kept, written with the next group, and given to whoever streams."""
        engine = self.engine
        if kind is not EventKind.NOTICE:  # what we say ourselves is no sign of its life
            self.hear()
        self.said += 1
        event = Event(session_id=self.delegation.session_id, number=BEFORE_RUN + self.said, at=engine.clock.wall(), kind=kind, body=body)
        if self.chunks is None:
            self.chunks = []
        self.chunks.append(event)
        engine.journal.write(AppendEvent(event), self._written)
        if engine.bus.wants_details:
            engine.bus.said(self.delegation, self.state, event)
        self.rouse()

    def _written(self, _problem: object) -> None:
        """In submission, one for each. What could not be written is owed, and told all the same."""
        self.on_record += 1
        self.rouse()

    # ---- how it ends, for whoever waits

    @property
    def done(self) -> "asyncio.Future[Return]":
        """For those who watch it: never to be awaited bare by a task that may be cancelled (`asyncio.wait` or `shield` it)."""
        if self._done is None:
            self._done = self.engine.loop.create_future()
            if self.told is not None:
                self._done.set_result(self.told)
            elif self.trouble is not None:
                self._done.set_exception(self.trouble)
        return self._done

    def note_recorded(self, holder: str | None = None) -> None:
        if self.recorded is not None and not self.recorded.done():
            self.recorded.set_result(holder)

    @property
    def is_told(self) -> bool:
        return self.told is not None or self.trouble is not None

    def tell(self, result: Return) -> None:
        """The answer, to everybody. Once."""
        if self.is_told:
            return
        self.told = result
        for future in (self.waiter, self._done):
            if future is not None and not future.done():
                future.set_result(result)
        self.note_recorded()

    def tell_trouble(self, error: Exception) -> None:
        """There is no answer: it could not be recorded, so nothing ran."""
        if self.is_told:
            return
        self.trouble = error
        for future in (self.waiter, self._done):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # seen: a handle that nobody asks is no leak to complain of
        self.note_recorded()

    def give_way(self, holder: str) -> None:
        """Another holds its key: whoever began it is told which, those who watch it that there is nothing to come."""
        self.note_recorded(holder)
        self.tell_trouble(Unavailable("Another delegation holds its key.", advice="Ask again with the same key."))

    def hear(self) -> None:
        """A sign of life: its own, and of every caller that waits for it."""
        now = self.engine.loop.time()
        node: Running | None = self
        while node is not None:
            node.last_heard = now
            node = node.parent

    async def woken(self) -> None:
        """Until there is something new."""
        if self.wake is None:
            self.wake = asyncio.Event()
            if self.is_settled:
                self.done.add_done_callback(lambda _: self.rouse())
        await self.wake.wait()

    def rouse(self) -> None:
        """Tell whoever streams that there is something new; each waits on the event of its time."""
        if self.wake is not None:
            self.wake.set()
            self.wake = None

    def add_failure(self, child: Return) -> None:
        """A child did not complete: its errors travel up."""
        if child.status is not Status.COMPLETED:
            known = self.failures or []
            new = [error for error in child.errors if error not in known]
            self.failures = [*known, *new][:FAILURES_KEPT]

    def abandon(self, what: str) -> Callable[[], None]:
        """It could not be stopped: it is left behind, and listed until it ends. Call what this gives when it has."""
        self.is_abandoned = True
        abandoned, session_id = self.engine.unstoppable, self.delegation.session_id
        abandoned[session_id] = what
        self.notice(f"{what} could not be stopped and was abandoned; its work no longer counts.")

        def gone() -> None:
            abandoned.pop(session_id, None)

        return gone


_: type[Work] = Running
