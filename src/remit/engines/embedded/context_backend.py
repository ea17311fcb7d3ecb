"""The engine's side of `ctx`: what an agent asks of its context, and the children it delegates to."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from remit.core.budget import Limits
from remit.core.delegation import Delegation
from remit.core.errors import Misused, Refused, Stopped, Unavailable
from remit.core.events import EventKind
from remit.core.jsonable import clean_text, to_jsonable
from remit.core.record import SaveCheckpoint
from remit.core.request import Request
from remit.core.result import ARTIFACT_ALIASES, ARTIFACT_TYPES, Artifact, Return, StopReason
from remit.engines.embedded.handles import LocalHandle
from remit.engines.embedded.journal import Problem
from remit.engines.embedded.replay import restored
from remit.engines.embedded.running import Running
from remit.runtime import accept, reply
from remit.runtime.authorize import on_behalf_of, permit, permitted
from remit.runtime.context import ContextFacts, Handle, Repair, SettledHandle
from remit.runtime.deps import RuntimeDeps
from remit.runtime.reply import Stop
from remit.runtime.workspaces import is_recorded_diff
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engines.embedded.embedded import EmbeddedEngine


async def delegate_child(engine: "EmbeddedEngine", running: Running, request: Request, deps: RuntimeDeps | None = None) -> Return:
    """Waiting for a child, its caller lends its slot, so that callers cannot starve their own children.

    `deps`: where the caller knows agents that the engine's own deps does not.
    """
    engine.lend_slot(running)
    try:
        if running.replay is not None:
            child = await _reclaimed(engine, running, request)
            if child is not None:
                return await asyncio.shield(child.done) if isinstance(child, Running) else child
        return await accept.delegate(request, running, deps or engine.deps, engine)
    finally:
        engine.take_slot_back(running)


async def start_child(engine: "EmbeddedEngine", running: Running, request: Request, deps: RuntimeDeps | None = None) -> Handle:
    child = None if running.replay is None else await _reclaimed(engine, running, request)
    if isinstance(child, Running):
        return LocalHandle(child, engine, running)
    if child is not None:
        return SettledHandle(child)
    handle = await accept.start(request, running, deps or engine.deps, engine)
    return handle.waited_for_by(running) if isinstance(handle, LocalHandle) else handle


async def _reclaimed(engine: "EmbeddedEngine", running: Running, request: Request) -> Running | Return | None:
    """What became of this call in the run before: its recorded return, or the child itself, which goes on."""
    record = running.replay.take(request) if running.replay is not None else None
    if record is None:
        return None
    if record.result is None:
        return await restored(engine, record, running)
    running.notice(f"{record.agent} had finished in the run before ({record.session_id}): its recorded result is used.")
    running.add_failure(record.result)
    return record.result


async def write_checkpoint(engine: "EmbeddedEngine", running: Running, value: Any) -> None:
    written: asyncio.Future[None] = engine.loop.create_future()

    def then(problem: Problem) -> None:
        if written.done():
            return
        if isinstance(problem, Unavailable):
            written.set_exception(problem)
        else:
            written.set_result(None)

    engine.journal.write(SaveCheckpoint(running.delegation.session_id, engine.clock.wall(), value), then)
    await written


GATHER_AT_ONCE = 64
MESSAGE_LIMIT = 4000
ARTIFACTS_LIMIT = 10_000
LEAST_EVENT_BYTES = 64
OVERDUE_SECONDS = 0.6
"""So long after its end it has had its grace: whoever still calls is turned away, even where nothing else can stop it."""


class EngineBackend:
    __slots__ = ("_running",)

    def __init__(self, running: Running) -> None:
        self._running = running

    def _alive(self) -> Running:
        running = self._running
        overdue = running.engine.loop.time() - running.delegation.deadline.hard_at
        if running.is_settled or running.concluding or overdue > OVERDUE_SECONDS:
            raise Stopped(
                f"The delegation {running.delegation.session_id} of {running.delegation.agent} has ended.",
                advice="Its agent must not go on.",
            )
        return running

    @property
    def running(self) -> Running:
        """The delegation that this is the backend of."""
        return self._running

    @property
    def delegation(self) -> Delegation:
        return self._running.delegation

    @property
    def root(self) -> Path:
        return self._running.root

    @property
    def repair(self) -> Repair | None:
        return self._running.repair

    @property
    def hand_in(self) -> bool:
        return self._running.hand_in

    def scratch(self) -> Path:
        return self._alive().scratch()

    @property
    def workspace(self) -> Path:
        return self._running.workspace

    def environment(self) -> dict[str, str]:
        return self._alive().process_environment()

    @property
    def saved(self) -> Any:
        return self._running.saved

    def remaining(self) -> float:
        return self._running.remaining()

    def budget(self) -> Limits:
        return self._running.budget.left(self._running.engine.loop.time())

    def facts(self) -> ContextFacts:
        running = self._alive()
        environment = running.process_environment()
        return ContextFacts(running.delegation, running.root, running.workspace, running.repair, running.saved, environment)

    async def wait_hand_in(self) -> None:
        running = self._alive()
        if not running.hand_in:
            if running.hand_in_event is None:
                running.hand_in_event = asyncio.Event()
            await running.hand_in_event.wait()

    async def delegate(self, request: Request, deps: RuntimeDeps | None = None) -> Return:
        running = self._alive()
        return await delegate_child(running.engine, running, request, deps)

    async def start(self, request: Request, deps: RuntimeDeps | None = None) -> Handle:
        running = self._alive()
        return await start_child(running.engine, running, request, deps)

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
        running = self._alive()
        size = max(size, LEAST_EVENT_BYTES)
        if running.chunk_bytes + size > running.engine.chunk_limit_bytes:
            running.hear()
            running.chunks_dropped += 1
            if running.chunks_dropped == 1:
                running.notice(f"More than {running.engine.chunk_limit_bytes} bytes were streamed; the rest is not kept.")
            return
        running.chunk_bytes += size
        running.say(kind, body)

    def artifact(self, path: str | Path, type: str, summary: str) -> None:
        running = self._alive()
        artifact = Artifact(type=_known_type(type), path=_inside(running, path), summary=clean_text(str(summary))[:500])
        if running.artifacts is None:
            running.artifacts = {}
        if len(running.artifacts) >= ARTIFACTS_LIMIT:
            raise Misused(f"More than {ARTIFACTS_LIMIT} artifacts were declared.", advice="Declare a folder's contents in one list.")
        running.artifacts[artifact.path] = artifact
        running.engine.declared.setdefault(running.delegation.session_id, set()).add(artifact.path)
        running.say(EventKind.ARTIFACT, artifact.to_dict())

    def spend(self, tokens: int, cost: float) -> None:
        running = self._alive()
        passed = running.budget.charge(tokens=tokens, cost=cost)
        running.tokens += tokens
        running.cost += cost
        self._say(EventKind.SPENT, {"tokens": running.tokens, "cost": running.cost}, 64)
        if passed is not None:
            running.engine.stop(running, Stop(reason=StopReason.BUDGET, source="the budget", detail=passed))

    async def checkpoint(self, value: Any) -> None:
        running = self._alive()
        kept = to_jsonable(value)
        running.hear()
        await write_checkpoint(running.engine, running, kept)
        running.saved = kept

    async def permit(self, action: str, facts: Mapping[str, Any]) -> None:
        running = self._alive()
        running.hear()
        await permit(running, running.engine.deps, action, facts)

    async def permitted(self, paths: Sequence[str]) -> list[str]:
        running = self._alive()
        running.hear()
        return await permitted(running, running.engine.deps, paths)

    async def session_diff(self, session_id: str) -> str:
        running = self._alive()
        own, record = running.delegation, await off_loop(running.engine.store.get, session_id)
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
        if not self._running.is_settled:
            self._running.notice(f"It printed to {clean_text(text)}")

    def warn(self, message: str) -> None:
        """Stands among the warnings of its return, once."""
        running, warning = self._alive(), clean_text(str(message))[:MESSAGE_LIMIT]
        if warning not in running.warnings:
            running.warnings = (*running.warnings, warning)

    def abandoned(self, what: str) -> Callable[[], None]:
        return self._running.abandon(what)


def _known_type(type_: str) -> str:
    known = ARTIFACT_ALIASES.get(type_, type_)
    if known not in ARTIFACT_TYPES:
        raise Misused(f"Unknown type of artifact {type_!r}.", advice=f"Use {', '.join(ARTIFACT_TYPES)}.")
    return known


def _inside(running: Running, path: str | Path) -> str:
    """The path relative to the root; whether a link leads out of it is looked at when the file is.

    What is named by an agent that works in a folder of its own, or in its caller's, is in that folder, unless it is only in the root,
    like its scratch folder.
    """
    given = Path(path)
    try:
        if given.is_absolute():
            relative: Path | None = given.relative_to(running.root)
        elif running.own_workspace is None or (not os.path.lexists(running.workspace / given) and os.path.lexists(running.root / given)):
            relative = given
        else:
            relative = Path(running.own_workspace.inside, given)
    except (ValueError, OSError):
        relative = None
    if relative is None or ".." in relative.parts or "\0" in str(relative) or not given.parts or not relative.parts:
        raise Misused(f"{path} is not inside the project root.", advice="Declare files by their path inside the project.")
    return relative.as_posix()
