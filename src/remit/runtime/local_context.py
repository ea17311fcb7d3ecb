"""The context backend of agents that an engine runs in this process: operations of `ctx` on the delegation itself."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic_core import to_json

from remit.core.budget import Limits
from remit.core.delegation import Delegation
from remit.core.errors import Misused, Refused, Unavailable
from remit.core.events import EventKind
from remit.core.jsonable import clean_text, to_jsonable
from remit.core.ports import Store
from remit.core.request import Request
from remit.core.result import ARTIFACT_ALIASES, ARTIFACT_TYPES, Artifact, Return, StopReason
from remit.runtime import reply
from remit.runtime.authorize import on_behalf_of, permit, permitted
from remit.runtime.context import ContextFacts, Handle, Repair
from remit.runtime.deps import RuntimeDeps
from remit.runtime.engine import LiveDelegation
from remit.runtime.reply import Stop
from remit.runtime.work import Output, Work
from remit.runtime.workspaces import is_recorded_diff
from remit.system.threads import off_loop

GATHER_AT_ONCE = 64
MESSAGE_LIMIT = 4000
ARTIFACTS_LIMIT = 10_000


class LocalRun(LiveDelegation, Protocol):
    """What an engine offers the context of a delegation that it runs."""

    @property
    def work(self) -> Work: ...
    @property
    def deps(self) -> RuntimeDeps: ...
    @property
    def store(self) -> Store: ...
    @property
    def output(self) -> Output: ...
    @property
    def hand_in(self) -> bool: ...
    async def wait_hand_in(self) -> None: ...
    def must_be_alive(self) -> None:
        """Raises `Stopped` if its agent must not continue."""
        ...

    def remaining(self) -> float: ...
    def budget_left(self) -> Limits: ...
    def heard(self) -> None:
        """A sign of life, for the idle limit."""
        ...

    def say(self, kind: EventKind, body: dict[str, Any]) -> None: ...
    def declare(self, artifact: Artifact) -> None: ...
    def spend(self, tokens: int, cost: float) -> tuple[int, float, str | None]:
        """Draw from the budget; tokens and cost so far, and the limit that was passed."""
        ...

    def stop(self, stop: Stop) -> None: ...
    async def save_checkpoint(self, value: Any) -> None:
        """Durable when this returns."""
        ...

    def abandon(self, what: str) -> Callable[[], None]: ...


class LocalBackend:
    __slots__ = ("_run",)

    def __init__(self, run: LocalRun) -> None:
        self._run = run

    def _alive(self) -> LocalRun:
        self._run.must_be_alive()
        return self._run

    @property
    def delegation(self) -> Delegation:
        return self._run.delegation

    @property
    def root(self) -> Path:
        return self._run.work.root

    @property
    def repair(self) -> Repair | None:
        return self._run.work.repair

    @property
    def hand_in(self) -> bool:
        return self._run.hand_in

    def scratch(self) -> Path:
        return self._alive().work.scratch()

    @property
    def workspace(self) -> Path:
        return self._run.work.workspace

    def environment(self) -> dict[str, str]:
        return self._alive().process_environment()

    @property
    def saved(self) -> Any:
        return self._run.work.saved

    def remaining(self) -> float:
        return self._run.remaining()

    def budget(self) -> Limits:
        return self._run.budget_left()

    def facts(self) -> ContextFacts:
        run = self._alive()
        work, environment = run.work, run.process_environment()
        return ContextFacts(run.delegation, work.root, work.workspace, work.repair, work.saved, environment)

    async def wait_hand_in(self) -> None:
        await self._alive().wait_hand_in()

    async def delegate(self, request: Request) -> Return:
        return await self._alive().delegate(request)

    async def start(self, request: Request) -> Handle:
        return await self._alive().start(request)

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
            run.work.notice("The output is beyond its limit (chunk_limit_bytes); the rest is not kept.")

    def artifact(self, path: str | Path, type: str, summary: str) -> None:
        run = self._alive()
        if len(run.work.artifacts or ()) >= ARTIFACTS_LIMIT:
            raise Misused(f"More than {ARTIFACTS_LIMIT} artifacts were declared.", advice="Declare a folder's contents in one list.")
        artifact = Artifact(type=_known_type(type), path=_inside(run.work, path), summary=clean_text(str(summary))[:500])
        run.declare(artifact)
        run.say(EventKind.ARTIFACT, artifact.to_dict())

    def spend(self, tokens: int, cost: float) -> None:
        run = self._alive()
        all_tokens, all_cost, passed = run.spend(tokens, cost)
        self._say(EventKind.SPENT, {"tokens": all_tokens, "cost": all_cost}, 64)
        if passed is not None:
            run.stop(Stop(reason=StopReason.BUDGET, source="the budget", detail=passed))

    async def checkpoint(self, value: Any) -> None:
        run = self._alive()
        kept = to_jsonable(value)
        run.heard()
        await run.save_checkpoint(kept)
        run.work.saved = kept

    async def permit(self, action: str, facts: Mapping[str, Any]) -> None:
        run = self._alive()
        run.heard()
        await permit(run.work, run.deps, action, facts)

    async def permitted(self, paths: Sequence[str]) -> list[str]:
        run = self._alive()
        run.heard()
        return await permitted(run.work, run.deps, paths)

    async def session_diff(self, session_id: str) -> str:
        run = self._alive()
        own, record = run.delegation, await off_loop(run.store.get, session_id)
        if record is None or (record.root_id != own.lineage.root_id and on_behalf_of(record.caller_info) != on_behalf_of(own.caller_info)):
            advice = "Name a session of the same delegation tree, or one that the same principal asked for (`remit history`)."
            raise Refused(f"There is no session {session_id[:80]!r} that you may review.", code="POLICY_DENIED", advice=advice)
        artifacts = record.result.artifacts if record.result is not None else ()
        recorded = [one.path for one in artifacts if one.type == "data" and is_recorded_diff(one.path)]
        if not recorded:
            why = "it has not ended" if record.result is None else "it changed nothing, or worked in the shared workspace"
            advice = "Give the change as diff, commit, branch or path."
            raise Misused(f"Session {session_id} has no recorded diff: {why}.", code="INVALID_PARAMETERS", advice=advice)
        return recorded[-1]

    def printed(self, text: str) -> None:
        if not self._run.is_settled:
            self._run.notice(f"It printed to {clean_text(text)}")

    def warn(self, message: str) -> None:
        """Add a warning to the return, once."""
        work, warning = self._alive().work, clean_text(str(message))[:MESSAGE_LIMIT]
        if warning not in work.warnings:
            work.warnings = (*work.warnings, warning)

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
