"""Delegations that an engine runs in this process, and the operations of `ctx` on them. Shared by all engines."""

import asyncio
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic_core import to_json

from remit.core.budget import Limits
from remit.core.context import ContextFacts, ContextFiles, Handle, Repair
from remit.core.delegation import Delegation
from remit.core.errors import Misused, Refused, Unavailable
from remit.core.events import EventKind
from remit.core.ids import CALLER
from remit.core.jsonable import clean_text, to_jsonable
from remit.core.ports import Store
from remit.core.request import Request
from remit.core.result import ARTIFACT_ALIASES, ARTIFACT_TYPES, Artifact, Return, StopReason, state_of
from remit.core.states import State
from remit.runtime import reply
from remit.runtime.accept import redraw_session_id
from remit.runtime.authorize import filter_permitted, on_behalf_of, permit
from remit.runtime.deps import RuntimeDeps, Submission
from remit.runtime.engine import Engine, EngineConfig
from remit.runtime.lifecycle import LifecycleBus
from remit.runtime.reply import Stop
from remit.runtime.tree_facts import TreeFacts
from remit.runtime.work import Output, Work
from remit.runtime.workspaces import is_recorded_diff
from remit.system.context_files import CONTEXT_FOLDER, context_files
from remit.system.threads import off_loop

GATHER_AT_ONCE = 64
MESSAGE_LIMIT = 4000
ARTIFACTS_LIMIT = 10_000
WARNINGS_LIMIT = 100
"""Of one agent; later ones are dropped."""
SPENT_STEP = 1.01
"""Spending that has grown by so much is recorded whatever the limit of the output: a budget is not refilled by a crash."""


class LocalRun(Work):
    """A delegation that an engine runs in this process: what every engine knows of it, and what the engine must add."""

    attempt: int = 1
    started_at: float = 0.0
    """By the loop's clock; 0: not started."""
    result: Return | None = None
    parent: "Self | None"

    def __init__(self, submission: Submission, config: EngineConfig, bus: LifecycleBus) -> None:
        super().__init__(submission)
        self.budget = submission.budget
        self.config = config
        self.bus = bus
        self._steps_published = 0

    def redrawn(self) -> None:
        """Its session id was taken: nothing has run under it, so it gets another."""
        redraw_session_id(self.submission, self.config.deps.policy)
        self.delegation = self.submission.delegation

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
        return f"{self.config.options.project}:{self.config.owner.owner_id}:{self.delegation.lineage.session_id}"

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

    def process_environment(self) -> dict[str, str]:
        token = None if self.config.caller_token is None else self.config.caller_token(self)
        return {**self.marks(), CALLER: token} if token else self.marks()

    def elapsed(self) -> float:
        return self.deps.clock.monotonic() - self.started_at if self.started_at else 0.0

    def remaining(self) -> float:
        return self.delegation.deadline.remaining(self.deps.clock.monotonic())

    def budget_left(self) -> Limits:
        return self.budget.left(self.deps.clock.monotonic())

    def notice(self, message: str) -> None:
        self.say(EventKind.NOTICE, {"message": message})

    def stamp(self, step: int, last: int = -1) -> None:
        now, steps = self.config.deps.clock.wall(), self.submission.step_times
        steps[step] = now
        while step < last:
            step += 1
            steps[step] = now
        if self.bus.wants_details:
            self.publish_steps(self.state)

    def publish_steps(self, state: State) -> None:
        """Steps that were reached and are not published yet."""
        self._steps_published = self.bus.steps(self.delegation, state, self.submission.step_times, self._steps_published)

    def declare(self, artifact: Artifact) -> None:
        if self.artifacts is None:
            self.artifacts = {}
        self.artifacts[artifact.path] = artifact

    # ---- what an engine adds

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
        """Raises `Stopped` if its agent must not continue."""

    @abstractmethod
    def heard(self) -> None:
        """A sign of life, for the idle limit."""

    @abstractmethod
    def say(self, kind: EventKind, body: dict[str, Any]) -> None:
        """Record a numbered event and publish it."""

    @abstractmethod
    def spend(self, tokens: int, cost: float) -> tuple[int, float, str | None]:
        """Draw from the budget; tokens and cost so far, and the limit that was passed."""

    @abstractmethod
    def stop(self, stop: Stop) -> None: ...
    @abstractmethod
    async def save_checkpoint(self, value: Any) -> None:
        """Durable when this returns."""

    @abstractmethod
    def abandon(self, what: str) -> Callable[[], None]:
        """Its agent could not be stopped. Call the result when it has ended after all."""

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
        """Tokens and cost that are certainly recorded."""

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

    async def delegate(self, request: Request) -> Return:
        return await self._run.delegate(request)

    async def start(self, request: Request) -> Handle:
        return await self._run.start(request)

    async def gather(self, requests: Sequence[Request], limit: int | None) -> list[Return]:
        """At once as many as asked, as the budget has room for, and no more than a sensible number."""
        for request in requests:
            if not isinstance(request, Request):
                raise Misused(f"gather takes calls, not {request!r}.", advice='Write ctx.gather(call("agent", name=value), …).')
        room = self.budget().alive
        at_once = asyncio.Semaphore(max(1, min(limit or GATHER_AT_ONCE, room if room is not None else GATHER_AT_ONCE)))

        async def one(request: Request) -> Return:
            async with at_once:
                try:
                    return await self.delegate(request)
                except (Misused, Unavailable) as error:  # one that cannot even be asked for must not lose the others
                    return reply.unstarted_return(self.delegation, request.agent, error)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(request)) for request in requests]
        return [task.result() for task in tasks]

    def progress(self, message: str, fraction: float | None) -> None:
        body: dict[str, Any] = {"message": clean_text(str(message))[:MESSAGE_LIMIT]}
        if fraction is not None:
            body["fraction"] = min(1.0, max(0.0, float(fraction)))
        self._say(EventKind.PROGRESS, body, 64 + len(body["message"]))

    def emit(self, chunk: Any) -> None:
        value = to_jsonable(chunk)
        self._say(EventKind.DATA, {"chunk": value}, len(value) if isinstance(value, str) else len(to_json(value, inf_nan_mode="null")))

    def _say(self, kind: EventKind, body: dict[str, Any], size: int) -> None:
        """Within the limit; beyond it nothing more is kept, and that is said once."""
        run = self._alive()
        if run.output.has_room(size):
            run.say(kind, body)
            return
        run.heard()
        if run.output.dropped == 1:
            run.notice("The output is beyond its limit (chunk_limit_bytes); the rest is not kept.")

    def artifact(self, path: str | Path, type: str, summary: str) -> None:
        run = self._alive()
        if len(run.artifacts or ()) >= ARTIFACTS_LIMIT:
            raise Misused(f"More than {ARTIFACTS_LIMIT} artifacts were declared.", advice="Declare a folder's contents in one list.")
        artifact = Artifact(type=_known_type(type), path=_inside(run, path), summary=clean_text(str(summary))[:500])
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

    async def session_diff(self, session_id: str) -> str:
        run = self._alive()
        own, record = run.delegation, await off_loop(run.store.get, session_id)
        if record is None or (record.root_id != own.lineage.root_id and on_behalf_of(record.caller_info) != on_behalf_of(own.caller_info)):
            advice = "Name a session of the same delegation tree, or one that the same principal asked for (`remit history`)."
            raise Refused(f"There is no session {session_id[:80]!r} that you may review.", code="POLICY_DENIED", advice=advice)
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
        """Add a warning to the return, once; not without limit, since each is looked for among the others."""
        run, warning = self._alive(), clean_text(str(message))[:MESSAGE_LIMIT]
        if len(run.warnings) < WARNINGS_LIMIT and warning not in run.warnings:
            run.warnings = (*run.warnings, warning)

    def abandoned(self, what: str) -> Callable[[], None]:
        return self._run.abandon(what)


def _known_type(type_: str) -> str:
    known = ARTIFACT_ALIASES.get(type_, type_)
    if known not in ARTIFACT_TYPES:
        raise Misused(f"Unknown type of artifact {type_!r}.", advice=f"Use {', '.join(ARTIFACT_TYPES)}.")
    return known


def _inside(work: Work, path: str | Path) -> str:
    """The path relative to the root; whether a link leads out of it is looked at when the file is.

    In a workspace of its own, or of its caller, a path is relative to that workspace, unless it exists only in the root, like the
    scratch folder.
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
