"""How delegations end: by themselves, or stopped and harvested, alone or with everything below them.

A stop is decided once, with its source. The agent is cancelled; its carrier (thread, process) stops what it started; after the
grace whoever is still there is abandoned. Then children are ended, what was left is gathered, and the outcome is settled.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from remit.core.agents import Isolation
from remit.core.errors import ErrorInfo, OutOfTime
from remit.core.events import EventKind
from remit.core.result import Artifact, Return, StopReason
from remit.engines.embedded.deadlines import BlockedLoop
from remit.engines.embedded.running import CHILDREN_SECONDS, Running
from remit.runtime import reply
from remit.runtime.artifacts import checked_artifacts
from remit.runtime.harvest import HARVEST_SECONDS, Harvest, HarvestRequest, harvest
from remit.runtime.reply import PartialWork, Stop, describe_exception
from remit.runtime.workspace_cleanup import remove_unchanged
from remit.runtime.workspace_session import (
    WorkspaceSession,
    changes_since,
    describe_workspace,
    is_removable,
    kept_message,
    late_changes,
    with_workspace_changes,
)
from remit.system.files import write_beside
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engines.embedded.embedded import EmbeddedEngine

PROCESS_GRACE_SECONDS = 0.5
"""Within it a process agent's carrier has sent SIGTERM, waited its grace, and killed everything. With the harvest after it, which
may take 0.4 s, this must stay below the second that is promised."""
GATHERED_SECONDS = 0.7
"""After the hard deadline: by then the harvest is in, but for the tenth of a second it may itself be late."""
LEAST_GATHERING_SECONDS = 0.1
LATE_SECONDS = 0.2
UNRECORDED_SECONDS = 0.5
WRITING_SECONDS = 0.5
_ABANDONED = "remit-abandoned"
INLINE_DATA_BYTES = 64 * 1024
ANSWER_SECONDS = 0.85
"""After the hard deadline: by then the diff of a workspace is there, or is not waited for."""
LEAST_DIFF_SECONDS = 0.2
MOST_DIFF_SECONDS = 0.6
CLOSING_SECONDS = 1.0
"""How long the closing of an engine waits for rooms that are being cleared away. The next upkeep does what is left."""


async def perform_to_the_end(engine: "EmbeddedEngine", running: Running) -> None:
    """The body of a delegation's task: perform, and end it one way or the other."""
    late: Return | None = None
    crash: BaseException | None = None
    try:
        late = await engine.perform(running)
    except asyncio.CancelledError:
        late = running.held
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
    except BlockedLoop as blocked:
        running.stop = running.stop or Stop(reason=StopReason.DEADLINE, source="the watchdog", detail=blocked.message or running.blocked)
    except OutOfTime as early:
        running.stop = running.stop or _stop_of(running, early)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit and the like from an agent must not end the orchestrator
        crash = error
    if running.is_settled or running.concluding:
        return
    if running.stop is None and late is not None:
        running.concluding = True  # it has its answer: nothing that happens from here on, not even its deadline, takes it away
        if engine.loop.time() > running.delegation.deadline.hard_at + LATE_SECONDS:
            late = _with_lateness(engine, running, late)
        if running.live_children:
            await running.end_children()
        engine.settle(running, late)
        return
    if running.stop is None:
        running.stop = _stop_by_itself(running, crash)
    await conclude(engine, running, late)


def _with_lateness(engine: "EmbeddedEngine", running: Running, late: Return) -> Return:
    """It finished by itself before anybody could stop it: its answer counts, and that it came late is said."""
    seconds = engine.loop.time() - running.delegation.deadline.hard_at
    return replace(late, warnings=(*late.warnings, f"It finished {seconds:.1f} s after its deadline: the event loop stood still."))


def _stop_of(running: Running, early: OutOfTime) -> Stop:
    said = early.message.rstrip(".")
    if early.code == "BUDGET_EXCEEDED":
        return Stop(reason=StopReason.BUDGET, source="the budget", detail=said)
    words = f"{said}: {running.elapsed():.1f} s of its {running.delegation.deadline.timeout_seconds:g} s were over."
    return Stop(reason=StopReason.DEADLINE, source="the soft deadline", detail=words)


def _stop_by_itself(running: Running, crash: BaseException | None) -> Stop:
    if crash is None:
        return Stop(reason=StopReason.CANCELLED, source="its own code", detail="the task of the agent was cancelled")
    detail = f"{running.delegation.agent} ended the program: {describe_exception(crash)}."
    return Stop(reason=StopReason.CRASHED, source="its own code", detail=detail)


def tell_hand_in(running: Running) -> None:
    """The soft deadline: hand in what there is."""
    running.hand_in = True
    if running.started_at:
        running.notice(f"Soft deadline: {running.remaining():.1f} s left to hand in what there is.")
    if running.hand_in_event is not None:
        running.hand_in_event.set()


def stop(engine: "EmbeddedEngine", running: Running, why: Stop) -> None:
    """Begin to end a delegation and everything below it. Decided once; never waits."""
    if running.is_settled or running.concluding or running.stop is not None:
        return
    running.stop = why
    if why.reason is StopReason.CANCELLED:
        running.say(EventKind.CANCEL, {"state": "requested", "source": why.source, "reason": why.detail})
    for child in list((running.live_children or {}).values()):
        stop(engine, child, _stop_of_child(engine, child, running, why))
    if running.task is not None:
        if running.hand_in_event is not None:
            running.hand_in_event.set()
        running.task.cancel()
        running.be_looked_at(engine.loop.time() + _grace(engine, running))
    elif running.is_recorded:
        conclude_unstarted(engine, running)
    else:  # being recorded just now; told in any case, and settled when it is on record
        running.be_looked_at(engine.loop.time() + UNRECORDED_SECONDS)


def _stop_of_child(engine: "EmbeddedEngine", child: Running, caller: Running, why: Stop) -> Stop:
    """A child whose own deadline has come as well was stopped by that; any other by its caller's end."""
    if why.reason is StopReason.DEADLINE and child.delegation.deadline.hard_at <= engine.loop.time() + 0.001:
        return why
    if why.reason is StopReason.CANCELLED:
        return why
    return Stop(reason=StopReason.CANCELLED, source=f"the end of its caller {caller.delegation.agent}", detail=why.source)


def _grace(engine: "EmbeddedEngine", running: Running) -> float:
    if running.agent.spec.isolation is Isolation.PROCESS:
        return max(PROCESS_GRACE_SECONDS, engine.options.kill_grace_seconds + 0.25)
    return engine.options.kill_grace_seconds + (0.1 if running.agent.spec.isolation is Isolation.THREAD else 0.0)


def conclude_unstarted(engine: "EmbeddedEngine", running: Running) -> None:
    """Stopped before its agent was called: nothing to harvest."""
    if not running.concluding and not running.is_settled:
        running.concluding = True
        assert running.stop is not None
        engine.settle(running, reply.stopped_return(running.delegation, running.stop, reply.NOTHING_LEFT, duration_seconds=0.0))


def abandon(engine: "EmbeddedEngine", running: Running) -> None:
    """Its grace is over and it has not stopped: it is left behind, and its caller gets its answer."""
    if running.concluding or running.is_settled:
        return
    if running.task is None and running.is_recorded:
        conclude_unstarted(engine, running)
        return
    if running.task is None:
        assert running.stop is not None
        left = PartialWork(warnings=("It could not be recorded in time: the database is busy. It did not run.",))
        running.tell(reply.stopped_return(running.delegation, running.stop, left, duration_seconds=0.0))
        return
    if not running.is_abandoned:
        gone = running.abandon(f"The {running.agent.spec.isolation} agent {running.delegation.agent}")
        running.task.add_done_callback(lambda _: gone())
        let_go(running.task)
    running.concluding = True
    engine.spawn(conclude(engine, running, None))


def let_go(task: "asyncio.Task[None]") -> None:
    """`asyncio.run` waits at the end of a program until every task it knows has ended: for this one that would be for ever."""
    asyncio._unregister_task(task)  # documented for those who extend asyncio
    task.set_name(f"{_ABANDONED} {task.get_name()}")
    logging.getLogger("asyncio").addFilter(_is_news)  # adding it twice has no effect


def _is_news(record: logging.LogRecord) -> bool:
    """That an abandoned agent never ended has been said already."""
    return _ABANDONED not in record.getMessage()


async def conclude(engine: "EmbeddedEngine", running: Running, late: Return | None) -> None:
    """Gather what was left and settle. Whatever goes wrong here, the caller gets its answer."""
    running.concluding = True
    running.stamp(7)
    why = running.stop
    assert why is not None
    left = reply.NOTHING_LEFT
    try:
        if running.live_children:
            await running.end_children()
        left = await leftovers(engine, running, late)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the promise to answer outweighs the harvest
        left = PartialWork(warnings=(f"What it left could not be gathered: {error!r}",))
    if why.reason is StopReason.CANCELLED:
        running.say(EventKind.CANCEL, {"state": ack_state(running), "source": why.source, "reason": why.detail})
    result = reply.stopped_return(running.delegation, why, left, duration_seconds=running.elapsed(), resumable=running.agent.spec.resumable)
    engine.settle(running, reply.with_agent_session(result, running.saved))
    if left.removable_workspace is not None:
        clear_later(engine, left.removable_workspace, running)


def clear_later(engine: "EmbeddedEngine", session_id: str, running: Running | None = None) -> None:
    """Remove a workspace that nothing was done in, when its delegation has been answered. Nobody waits for it."""

    async def clear() -> None:
        if running is not None:
            await asyncio.wait([running.done])
        await off_loop(remove_unchanged, engine.root, session_id)

    task = engine.spawn(clear())
    engine.clearing.add(task)
    task.add_done_callback(engine.clearing.discard)


async def cleared(engine: "EmbeddedEngine") -> None:
    """What was begun by `clear_later`, in the time there is."""
    if engine.clearing:
        await asyncio.wait(engine.clearing, timeout=CLOSING_SECONDS)


def ack_state(running: Running) -> str:
    if running.is_abandoned:
        return "abandoned"
    return "killed" if running.agent.spec.isolation is Isolation.PROCESS else "stopped"


async def leftovers(engine: "EmbeddedEngine", running: Running, late: Return | None) -> PartialWork:
    """Artifacts declared, files changed, chunks, the last checkpoint, and an answer that came after the end."""
    warnings = list(running.warnings)
    artifacts: tuple[Artifact, ...] = ()
    declared = running.declared()
    if running.workspace_session is not None:
        found = await _left_in_workspace(engine, running, running.workspace_session, () if late is None else late.artifacts)
        artifacts = found.artifacts
        warnings.extend(found.warnings)
    elif declared or running.scratch_path is not None or running.may_write:
        since = min(running.started_wall, engine.clock.wall() - running.elapsed())  # also when the wall clock was set back
        hunt = HarvestRequest(
            root=running.root,
            scratch=running.scratch_path,
            since=since if running.own_workspace is None else max(since, changes_since(running.own_workspace)),
            declared=declared,
            scan_root=running.may_write,
            foreign=_foreign(engine, running),
            below="" if running.own_workspace is None else running.own_workspace.inside,
        )
        found = await harvest(hunt, seconds=_seconds_to_gather(engine, running))
        artifacts = found.artifacts
        warnings.extend(found.warnings)
    if late is not None:
        known = {a.path for a in artifacts}
        artifacts = (*artifacts, *(a for a in late.artifacts if a.path not in known))
        warnings.extend(late.warnings)
    if running.chunks_dropped:
        warnings.append(f"{running.chunks_dropped} chunks beyond the limit were not kept.")
    data, reference = await _said_and_saved(running, late)
    errors = tuple(running.failures or ())
    left = PartialWork(artifacts=(*artifacts, *reference), data=data, errors=errors, warnings=tuple(warnings))
    if running.workspace_session is None:
        return left
    if running.workspace_session.is_removable:
        return replace(left, removable_workspace=running.workspace_session.workspace.session_id)
    return replace(left, workspace=describe_workspace(running.workspace_session.workspace))


def _seconds_to_gather(engine: "EmbeddedEngine", running: Running) -> float:
    """Less when the killing took long: the answer is due a second after the deadline."""
    since_deadline = engine.loop.time() - running.delegation.deadline.hard_at
    if since_deadline < 0:  # cancelled, or out of budget
        return HARVEST_SECONDS
    return min(HARVEST_SECONDS, max(LEAST_GATHERING_SECONDS, GATHERED_SECONDS - since_deadline))


async def _left_in_workspace(engine: "EmbeddedEngine", running: Running, session: WorkspaceSession, late: Sequence[Artifact]) -> Harvest:
    """Files changed in its own folder and their diff, in the time there is; folder and branch session, unless nothing is in them."""
    seconds = running.delegation.deadline.hard_at + ANSWER_SECONDS - engine.loop.time()
    seconds = max(LEAST_DIFF_SECONDS, min(seconds, MOST_DIFF_SECONDS))
    until = engine.loop.time() + seconds
    diff = asyncio.ensure_future(late_changes(running, seconds))
    hunt = HarvestRequest(
        root=running.root,
        scratch=running.scratch_path,
        since=session.began_at,
        declared=running.declared(),
        scan_root=True,
        below=session.workspace.inside,
    )
    found = await harvest(hunt, seconds=_seconds_to_gather(engine, running))
    changes, told = await diff
    # Whoever could not be stopped may write there still; and an agent's own session may be tied to the folder that it began in.
    if not engine.unstoppable and running.saved is None:
        session.is_removable = await is_removable(session.workspace, changes, (*found.artifacts, *late), seconds=until - engine.loop.time())
    return await with_workspace_changes(
        session.workspace, found, changes, told if session.is_removable else (kept_message(session.workspace), *told)
    )


def _foreign(engine: "EmbeddedEngine", running: Running) -> frozenset[str]:
    """Files that other living delegations have declared as theirs."""
    if not engine.declared:
        return frozenset()
    others = (paths for session_id, paths in engine.declared.items() if session_id != running.delegation.session_id)
    return frozenset().union(*others)


async def _said_and_saved(running: Running, late: Return | None) -> tuple[Any, tuple[Artifact, ...]]:
    """What it streamed and saved, in the return; by reference when it is large."""
    chunks = [event.body["chunk"] for event in running.chunks or () if event.kind is EventKind.DATA]
    data: dict[str, Any] = {}
    if late is not None and late.data is not None:
        data["late_answer"] = late.data
    if chunks:
        data["chunks"] = chunks
    if running.saved is not None:
        data["checkpoint"] = running.saved
    if not data:
        return None, ()
    text = to_json(data, inf_nan_mode="null", indent=1)
    if len(text) <= INLINE_DATA_BYTES:
        return data, ()
    try:
        async with asyncio.timeout(WRITING_SECONDS):
            path = await off_loop(write_beside, running.scratch(), "harvest.json", text)
    except (OSError, TimeoutError):
        return data, ()  # a full or stuck disk: better a long return than a lost one
    artifact = Artifact(type="data", path=path.relative_to(running.root).as_posix(), summary="Chunks streamed and the last checkpoint.")
    seen = await off_loop(checked_artifacts, running.root, (artifact,))
    return {"by_reference": artifact.path, "chunks": len(chunks)}, seen


def below(running: Running) -> Iterator[Running]:
    yield running
    for child in list((running.live_children or {}).values()):
        yield from below(child)


async def cancel_tree(engine: "EmbeddedEngine", running: Running, reason: str, source: str) -> list[dict[str, Any]]:
    """Cancel a delegation and everything below it; how each node ended."""
    nodes = list(below(running))
    stop(engine, running, Stop(reason=StopReason.CANCELLED, source=source, detail=reason))
    await asyncio.wait([node.done for node in nodes], timeout=CHILDREN_SECONDS * 3)
    return [
        {
            "session_id": node.delegation.session_id,
            "agent": node.delegation.agent,
            "state": ack_state(node) if node.is_told else "stopping",
        }
        for node in nodes
    ]


def note_own_errors(engine: "EmbeddedEngine", running: Running, errors: Sequence[ErrorInfo]) -> None:
    """For the error ledger: those of its children it has from them."""
    inherited = set(running.failures or ())
    own = [error for error in errors if error not in inherited]
    if own:
        engine.deps.note_errors(running.delegation, own, running.trace)
