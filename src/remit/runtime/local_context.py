"""Delegations that run in this process, and the operations of `ctx` on them. Shared by all engines."""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic_core import to_json

from remit.core.agents import WorkspaceKind
from remit.core.budget import Limits
from remit.core.context import Context, ContextFacts, ContextFiles, Handle, Repair
from remit.core.delegation import Delegation, Lineage, on_behalf_of
from remit.core.errors import ErrorInfo, Misused, Refused, Unavailable
from remit.core.events import BEFORE_RUN, Event, EventKind
from remit.core.ids import CALLER, TRACEPARENT, traceparent_of
from remit.core.jsonable import clean_text, to_jsonable
from remit.core.ports import AgentPort, Store
from remit.core.record import Record
from remit.core.redaction import redact_bytes
from remit.core.request import Request
from remit.core.result import ARTIFACT_ALIASES, ARTIFACT_TYPES, Artifact, Return, Status, StopReason, state_of
from remit.core.states import State
from remit.runtime import reply
from remit.runtime.accept import redraw_session_id
from remit.runtime.authorize import filter_permitted, permit
from remit.runtime.deps import ActsFor, RuntimeDeps, Submission, TreeFacts
from remit.runtime.engine import Engine, EngineConfig
from remit.runtime.reply import Stop
from remit.system.context_files import CONTEXT_FOLDER, context_files
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.runtime.verify import AcceptanceSite
    from remit.runtime.workspaces import Changes, Workspace

GATHER_AT_ONCE = 64
MESSAGE_LIMIT = 4000
ARTIFACTS_LIMIT = 10_000
WARNINGS_LIMIT = 100
"""Maximum warnings of one agent; later ones are dropped."""
SPENT_STEP = 1.01
"""Growth of spending that is recorded even beyond the output limit, so that a crash does not refill a budget."""

FAILURES_KEPT = 50
"""Maximum child errors in a return; all children are on record."""
LEAST_EVENT_BYTES = 64


class Output:
    """The numbered events of a delegation: progress, data and notices, limited in size, with their followers."""

    __slots__ = ("_bytes", "_limit", "_news", "count", "dropped", "events", "on_record")

    def __init__(self, limit_bytes: int) -> None:
        self.events: list[Event] = []
        self.count = 0
        self.dropped = 0
        """Events beyond the limit."""
        self.on_record = BEFORE_RUN
        """Number of the last recorded event: readers get no more."""
        self._bytes = 0
        self._limit = limit_bytes
        self._news: asyncio.Event | None = None

    def has_room(self, size: int) -> bool:
        """Count an event of the agent; False: it is beyond the limit and not kept."""
        size = max(size, LEAST_EVENT_BYTES)
        if self._bytes + size > self._limit:
            self.dropped += 1
            return False
        self._bytes += size
        return True

    def append(self, session_id: str, kind: EventKind, body: dict[str, Any], at: float) -> Event:
        self.count += 1
        event = Event(session_id=session_id, number=BEFORE_RUN + self.count, at=at, kind=kind, body=body)
        self.events.append(event)
        return event

    def restore(self, events: list[Event], count: int) -> None:
        """Restore the events of a run before a crash; numbers continue after them."""
        self.events = events
        self.count = count
        self.on_record = BEFORE_RUN + count

    def written(self, _problem: object = None) -> None:
        """Called in order, once per event. An unwritten event can be read nevertheless."""
        self.on_record += 1
        self.notify()

    async def wait_news(self) -> None:
        if self._news is None:
            self._news = asyncio.Event()
        await self._news.wait()

    def notify(self) -> None:
        """Wake the followers; each waits on the event current at its time."""
        if self._news is not None:
            self._news.set()
            self._news = None


class LocalRun(ABC):
    """A delegation in progress in this process: its inputs and its output so far. Every engine adds methods to it."""

    # Class defaults: most delegations never set these.
    changes: "asyncio.Future[Changes] | None" = None
    """Those in its own folder, while they are taken."""
    own_workspace: "Workspace | None" = None
    """The working folder if it is not the project: its own or its caller's."""
    saved: Any = None
    """The last checkpoint."""
    held: Return | None = None
    """The answer while it is being checked."""
    repair: Repair | None = None
    artifacts: dict[str, Artifact] | None = None
    """Declared artifacts by path."""
    failures: list[ErrorInfo] | None = None
    """Errors of children that did not complete."""
    scratch_path: Path | None = None
    attempt: int = 1
    started_at: float = 0.0
    """Loop clock; 0: not started."""
    result: Return | None = None
    parent: "Self | None"
    _ctx: Context | None = None

    def __init__(self, submission: Submission, config: EngineConfig) -> None:
        assert submission.agent is not None
        self.submission = submission
        self.config = config
        self.delegation = submission.delegation
        self.budget = submission.budget
        self.agent: AgentPort = submission.agent
        self.warnings = submission.warnings
        self.started_wall = submission.delegation.created_at
        if submission.caller is not None and submission.caller.own_workspace is not None:
            self.own_workspace = submission.caller.own_workspace
        if submission.earlier is not None:
            self.saved = submission.earlier.saved

    def redrawn(self) -> None:
        """Draw a new session id: the old one was taken, and nothing has run under it."""
        redraw_session_id(self.submission, self.config.deps.policy)
        self.delegation = self.submission.delegation

    @property
    def ctx(self) -> Context:
        """The context of its agent."""
        if self._ctx is None:
            self._ctx = Context(LocalBackend(self))
        return self._ctx

    @property
    def tree(self) -> TreeFacts:
        return self.submission.tree

    @property
    def deps(self) -> RuntimeDeps:
        return self.config.deps

    @property
    def store(self) -> Store:
        return self.config.store

    @property
    def scratch_root(self) -> Path:
        return self.config.folder / "scratch"

    @property
    def mark(self) -> str:
        """Identifies its processes."""
        return f"{self.config.project}:{self.config.owner.owner_id}:{self.delegation.lineage.session_id}"

    @property
    def state(self) -> State:
        if self.result is not None:
            return state_of(self.result)
        return State.RUNNING if self.started_at else State.QUEUED

    def above(self) -> "Iterator[Self]":
        """Itself and its callers."""
        node: Self | None = self
        while node is not None:
            yield node
            node = node.parent

    def ancestors(self) -> list[Delegation]:
        return [node.delegation for node in self.above()]

    @cached_property
    def acts_for(self) -> ActsFor:
        return ActsFor.of(self.ancestors())

    def process_environment(self) -> dict[str, str]:
        token = None if self.config.caller_token is None else self.config.caller_token(self)
        return {**self.marks(), CALLER: token} if token else self.marks()

    def elapsed(self) -> float:
        return self.config.deps.clock.monotonic() - self.started_at if self.started_at else 0.0

    def remaining(self) -> float:
        return self.delegation.deadline.remaining(self.deps.clock.monotonic())

    def budget_left(self) -> Limits:
        return self.budget.left(self.deps.clock.monotonic())

    def notice(self, message: str) -> None:
        self.say(EventKind.NOTICE, {"message": message})

    def stamp(self, step: int, last: int = -1) -> None:
        """Mark a step (by position), or the steps up to `last`, as reached now."""
        now, steps = self.config.deps.clock.wall(), self.submission.step_times
        steps[step] = now
        while step < last:
            step += 1
            steps[step] = now

    def declare(self, artifact: Artifact) -> None:
        if self.artifacts is None:
            self.artifacts = {}
        self.artifacts[artifact.path] = artifact

    # ---- what it was given

    @property
    def root(self) -> Path:
        return self.deps.root

    @property
    def workspace(self) -> Path:
        """The working folder."""
        return self.root if self.own_workspace is None else self.own_workspace.folder

    @property
    def has_workspace(self) -> bool:
        """Whether the working folder is its own, not that of its caller or task."""
        return self.own_workspace is not None and self.own_workspace.session_id == self.delegation.lineage.session_id

    @property
    def may_write(self) -> bool:
        """Whether files that changed where it works may be its own; those in its own workspace are."""
        if self.own_workspace is None:
            return self.agent.spec.workspace is WorkspaceKind.SHARED
        return self.own_workspace.task > 0 or self.agent.spec.workspace not in (WorkspaceKind.SCRATCH, WorkspaceKind.NONE)

    # ---- children

    def child_errors(self) -> Sequence[ErrorInfo]:
        """Errors of children. For an agent that acts for its caller, without cancelled children: it cancels those it no longer needs."""
        errors = self.failures or ()
        return [one for one in errors if one.code != "CANCELLED"] if errors and self.agent.spec.acts_for_caller else errors

    def add_failure(self, child: Return) -> None:
        """Add the errors of a child that did not complete to the return."""
        if child.status is Status.COMPLETED:
            return
        known = self.failures or []
        new = [error for error in child.errors if error not in known]
        self.failures = [*known, *new][:FAILURES_KEPT]

    # ---- its answer

    def declared(self) -> tuple[Artifact, ...]:
        return tuple(self.artifacts.values()) if self.artifacts else ()

    def hold(self, result: Return) -> None:
        """Keep the answer while it is being checked."""
        self.held = result

    def ask_again(self, repair: Repair) -> None:
        self.repair = repair

    def own_errors(self, errors: Sequence[ErrorInfo]) -> list[ErrorInfo]:
        """The errors without those of its children."""
        inherited = set(self.failures or ())
        return [error for error in errors if error not in inherited]

    # ---- its files and processes

    def scratch(self) -> Path:
        """The scratch folder, created on first use."""
        if self.scratch_path is None:
            path = self.scratch_root / self.delegation.session_id
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.scratch_path = path
        return self.scratch_path

    def return_file(self) -> Path | None:
        return None if self.scratch_path is None else self.scratch_path / "return.json"

    def keep_prose(self, text: str) -> Artifact | None:
        """Save an answer that was not a return as a file in the scratch folder."""
        from remit.system.files import write_beside

        try:
            path = write_beside(self.scratch(), "answer.txt", redact_bytes(text.encode("utf-8", "backslashreplace")))
            relative = path.relative_to(self.root)
        except (OSError, ValueError):
            return None  # a full or read-only disk: the errors of the return still describe the fault
        return Artifact(type="report", path=str(relative), summary="The original answer.")

    def acceptance_site(self) -> "AcceptanceSite":
        """Where acceptance commands run. They cannot delegate in its name."""
        from remit.runtime.verify import AcceptanceSite

        return AcceptanceSite(
            folder=self.workspace,
            root=self.root,
            settings=self.deps.settings,
            is_asked_here=self.delegation.is_asked_here,
            marks=self.marks(),
            scratch=self.scratch_path,
        )

    def marks(self) -> dict[str, str]:
        """Environment variables that identify its processes."""
        session_id = self.delegation.lineage.session_id
        return {
            "REMIT_MARK": self.mark,
            "REMIT_SESSION": session_id,
            "REMIT_ROOT": str(self.root),
            TRACEPARENT: traceparent_of(self.delegation),
        }

    # ---- what an engine adds

    @abstractmethod
    async def end_children(self) -> None:
        """Stop the running children: no child outlives its caller."""

    @property
    @abstractmethod
    def engine(self) -> Engine: ...
    @property
    @abstractmethod
    def output(self) -> Output: ...
    @property
    @abstractmethod
    def is_settled(self) -> bool: ...
    @property
    @abstractmethod
    def closing(self) -> str | None: ...
    @property
    @abstractmethod
    def hand_in(self) -> bool: ...
    @abstractmethod
    async def wait_hand_in(self) -> None: ...
    @abstractmethod
    def must_be_alive(self) -> None:
        """Raise `Stopped` if its agent must not continue."""

    @abstractmethod
    def heard(self) -> None:
        """Note a sign of life, for the idle limit."""

    @abstractmethod
    def say(self, kind: EventKind, body: dict[str, Any]) -> None:
        """Record a numbered event and publish it."""

    @abstractmethod
    def spend(self, tokens: int, cost: float) -> tuple[int, float, str | None]:
        """Draw from the budget. Returns tokens and cost so far, and the exceeded limit."""

    @abstractmethod
    def stop(self, stop: Stop) -> None: ...
    @abstractmethod
    async def save_checkpoint(self, value: Any) -> None:
        """Store a checkpoint; durable when this returns."""

    @abstractmethod
    def abandon(self, what: str) -> Callable[[], None]:
        """Record that its agent could not be stopped. Call the result once it has ended."""

    @abstractmethod
    async def delegate(self, request: Request, deps: RuntimeDeps | None = None) -> Return:
        """Run a child and wait for it. Like `start`, it raises `Stopped` if its agent must not continue."""

    @abstractmethod
    async def start(self, request: Request, deps: RuntimeDeps | None = None) -> Handle: ...


class LocalBackend:
    """The context backend in the process of the engine: implements `ContextOperations` on a `LocalRun`."""

    __slots__ = ("_run", "_spent")

    def __init__(self, run: LocalRun) -> None:
        self._run = run
        self._spent = (0, 0.0)
        """Tokens and cost that are durably recorded."""

    def _alive(self) -> LocalRun:
        self._run.must_be_alive()
        return self._run

    @property
    def delegation(self) -> Delegation:
        return self._run.delegation

    @property
    def root(self) -> Path:
        return self._run.root

    @property
    def repair(self) -> Repair | None:
        return self._run.repair

    @property
    def hand_in(self) -> bool:
        return self._run.hand_in

    def scratch(self) -> Path:
        return self._alive().scratch()

    @property
    def workspace(self) -> Path:
        return self._run.workspace

    def environment(self) -> dict[str, str]:
        return self._alive().process_environment()

    @property
    def saved(self) -> Any:
        return self._run.saved

    def remaining(self) -> float:
        return self._run.remaining()

    def budget(self) -> Limits:
        return self._run.budget_left()

    def context_files(self, level: int, language: str) -> ContextFiles:
        return context_files(self.root / CONTEXT_FOLDER, level, language)

    def facts(self) -> ContextFacts:
        run = self._alive()
        return ContextFacts(run.delegation, run.root, run.workspace, run.repair, run.saved, run.process_environment())

    async def wait_hand_in(self) -> None:
        await self._alive().wait_hand_in()

    def delegate(self, request: Request) -> Coroutine[Any, Any, Return]:
        return self._run.delegate(request)

    async def start(self, request: Request) -> Handle:
        return await self._run.start(request)

    async def gather(self, requests: Sequence[Request], limit: int | None) -> list[Return]:
        """Run several children: as many at once as requested and as the budget allows, up to a fixed maximum."""
        room = self.budget().alive
        at_once = max(1, min(limit or GATHER_AT_ONCE, room if room is not None else GATHER_AT_ONCE))
        return await gather_returns(self.delegate, requests, at_once, self.delegation.lineage)

    def progress(self, message: str, fraction: float | None) -> None:
        body: dict[str, Any] = {"message": clean_text(str(message))[:MESSAGE_LIMIT]}
        if fraction is not None:
            body["fraction"] = min(1.0, max(0.0, float(fraction)))
        self._say(EventKind.PROGRESS, body, 64 + len(body["message"]))

    def emit(self, chunk: Any) -> None:
        value = to_jsonable(chunk)
        self._say(EventKind.DATA, {"chunk": value}, len(value) if isinstance(value, str) else len(to_json(value, inf_nan_mode="null")))

    def _say(self, kind: EventKind, body: dict[str, Any], size: int) -> None:
        """Emit an event within the limit; beyond it nothing is kept, with one notice."""
        run = self._alive()
        if run.output.has_room(size):
            run.say(kind, body)
            return
        run.heard()
        if run.output.dropped == 1:
            run.notice("The output exceeds its limit (chunk_limit_bytes); the rest is not kept.")

    def artifact(self, path: str | Path, type: str, summary: str) -> None:
        run = self._alive()
        if len(run.artifacts or ()) >= ARTIFACTS_LIMIT:
            raise Misused(f"More than {ARTIFACTS_LIMIT} artifacts were declared.", advice="Declare a folder's contents in one list.")
        known_type = ARTIFACT_ALIASES.get(type, type)
        if known_type not in ARTIFACT_TYPES:
            raise Misused(f"Unknown type of artifact {type!r}.", advice=f"Use {', '.join(ARTIFACT_TYPES)}.")
        artifact = Artifact(type=known_type, path=_inside(run, path), summary=clean_text(str(summary))[:500])
        known = (run.artifacts or {}).get(artifact.path)
        run.declare(artifact)
        if known is None:
            run.say(EventKind.ARTIFACT, artifact.to_dict())
        elif known != artifact:
            self._say(EventKind.ARTIFACT, artifact.to_dict(), 64 + len(artifact.path) + len(artifact.summary))

    def spend(self, tokens: int, cost: float) -> None:
        run = self._alive()
        all_tokens, all_cost, passed = run.spend(tokens, cost)
        body = {"tokens": all_tokens, "cost": all_cost}
        if all_tokens > self._spent[0] * SPENT_STEP or all_cost > self._spent[1] * SPENT_STEP:
            self._spent = all_tokens, all_cost
            run.say(EventKind.SPENT, body)
        else:
            self._say(EventKind.SPENT, body, 64)
        if passed is not None:
            run.stop(Stop(reason=StopReason.BUDGET, source="the budget", detail=passed))

    async def checkpoint(self, value: Any) -> None:
        run = self._alive()
        kept = to_jsonable(value)
        run.heard()
        await run.save_checkpoint(kept)
        run.saved = kept

    async def permit(self, action: str, facts: Mapping[str, Any]) -> None:
        run = self._alive()
        run.heard()
        await permit(run, run.deps, action, facts)

    async def permitted(self, paths: Sequence[str]) -> list[str]:
        run = self._alive()
        run.heard()
        return await filter_permitted(run, run.deps, paths)

    async def _related_session(self, session_id: str) -> Record:
        """The record of a session with the same tree or principal."""
        run = self._alive()
        own, record = run.delegation, await off_loop(run.store.get, session_id)
        if record is None or (record.root_id != own.lineage.root_id and on_behalf_of(record.caller_info) != on_behalf_of(own.caller_info)):
            advice = "Name a session of the same delegation tree, or one that the same principal asked for (`remit history`)."
            raise Refused(f"There is no session {session_id[:80]!r} that you may read.", code="POLICY_DENIED", advice=advice)
        return record

    async def session_data(self, session_id: str) -> Any:
        record = await self._related_session(session_id)
        if record.result is None or not record.result.ok:
            raise Misused(f"Session {session_id} is {record.state}, not completed.", advice="Name a session that completed.")
        return record.result.data

    async def session_diff(self, session_id: str) -> str:
        from remit.runtime.workspaces import is_recorded_diff

        record = await self._related_session(session_id)
        artifacts = record.result.artifacts if record.result is not None else ()
        folder = f".remit/scratch/{session_id}/"  # an agent can name any other file as its artifact
        recorded = [one.path for one in artifacts if one.path.startswith(folder) and is_recorded_diff(one.path)]
        if not recorded:
            why = "it has not ended" if record.result is None else "it changed nothing, or worked in the shared workspace"
            advice = "Give the change as diff, commit, branch or path."
            raise Misused(f"Session {session_id} has no recorded diff: {why}.", code="INVALID_PARAMETERS", advice=advice)
        return recorded[-1]

    def printed(self, text: str) -> None:
        if not self._run.is_settled:
            self._run.notice(f"It printed to {clean_text(text)}")

    def warn(self, message: str) -> None:
        """Add a warning to the return once, up to a limit, since each is compared with the others."""
        run, warning = self._alive(), clean_text(str(message))[:MESSAGE_LIMIT]
        if len(run.warnings) < WARNINGS_LIMIT and warning not in run.warnings:
            run.warnings = (*run.warnings, warning)

    def abandoned(self, what: str) -> Callable[[], None]:
        return self._run.abandon(what)


async def gather_returns(
    delegate: Callable[[Request], Awaitable[Return]], requests: Sequence[Request], at_once: int, above: Lineage
) -> list[Return]:
    """The returns in call order, failures included. `above`: the caller's place in its tree."""
    for request in requests:
        if not isinstance(request, Request):
            raise Misused(f"gather takes calls, not {request!r}.", advice='Write gather(call("agent", name=value), …).')
    room = asyncio.Semaphore(at_once)

    async def one(request: Request) -> Return:
        async with room:
            try:
                return await delegate(request)
            except (Misused, Unavailable) as error:  # one invalid call must not lose the others
                return reply.unstarted_return(above, request.agent, error)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(request)) for request in requests]
    return [task.result() for task in tasks]


def _inside(work: LocalRun, path: str | Path) -> str:
    """The path relative to the root. Links are checked when the file is opened.

    In its own or its caller's workspace, a path is relative to that workspace, unless it exists only in the root, like the scratch folder.
    """
    given = Path(path)
    try:
        if given.is_absolute():
            relative: Path | None = given.relative_to(work.root)
        elif work.own_workspace is None or (not os.path.lexists(work.workspace / given) and os.path.lexists(work.root / given)):
            relative = given
        else:
            relative = Path(work.own_workspace.inside, given)
    except (ValueError, OSError):
        relative = None
    if relative is None or ".." in relative.parts or "\0" in str(relative) or not given.parts or not relative.parts:
        raise Misused(f"{path} is not inside the project root.", advice="Declare files by their path inside the project.")
    return relative.as_posix()
