"""What becomes of delegations when their process ends: recovered after a crash, handed over at a graceful stop, cancelled from anywhere.

A delegation of a dead owner is resumed if its agent is resumable, else settled with what it left. Nothing is run twice: an owner is dead
only when its process is gone and its pipe has no reader."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.errors import Misused, Unavailable
from remit.core.events import EventKind
from remit.core.ports import Store
from remit.core.record import Record, SettleDelegation
from remit.core.redaction import is_redacted
from remit.core.result import StopReason
from remit.engines.embedded import events, handles
from remit.engines.embedded.ending import below, cancel_tree, clear_later, let_go
from remit.engines.embedded.replay import artifact_of, delegation_of, restored, said_of, spent_of
from remit.engines.embedded.running import Running
from remit.runtime import reply
from remit.runtime.engine import Recovered
from remit.runtime.harvest import HarvestRequest, harvest
from remit.runtime.liveness import EXPECTED_FOLDER, closed_path, expected_agents, is_dead
from remit.runtime.reply import Stop
from remit.runtime.workspace_session import describe_workspace, kept_message, left_in_workspace
from remit.runtime.workspaces import find_workspace
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engines.embedded.embedded import EmbeddedEngine

log = logging.getLogger("remit.engine")


async def recover(engine: "EmbeddedEngine", run_folder: Path, reap: Callable[[str], int]) -> Recovered:
    """Settle or resume what dead owners left. `reap` kills the processes marked with an owner and says how many."""
    report = Recovered()
    # What is live first, then who is there: an owner that comes in between is seen, and its work is not taken for nobody's.
    live = await off_loop(engine.store.live)
    owners = await off_loop(engine.store.owners)
    dead = [owner for owner in owners if owner.owner_id != engine.owner.owner_id and is_dead(owner, run_folder)]
    known = {owner.owner_id for owner in owners}
    nobody = {record.owner for record in live} - known
    await _settle_strays(engine, live, report)
    waiting = await _left_waiting(engine, [record for record in live if record.owner in {owner.owner_id for owner in dead} | nobody])
    for owner_id in (*(owner.owner_id for owner in dead), *sorted(nobody)):
        report.killed += await off_loop(reap, owner_id)
        await _take_over(engine, owner_id, report, waiting)
        await engine.journal.call(lambda store, owner_id=owner_id: store.dismiss(owner_id))  # type: ignore[misc]
        closed_path(run_folder, owner_id).unlink(missing_ok=True)
        report.owners.append(owner_id)
    return report


async def _left_waiting(engine: "EmbeddedEngine", live: list[Record]) -> set[str]:
    """The trees whose agent is elsewhere, not back yet, and may do it again. At the first deadline of them somebody looks again."""
    known = await off_loop(expected_agents, engine.run_folder.parent / EXPECTED_FOLDER) if live else frozenset()
    now = engine.clock.wall()
    roots = [
        record
        for record in live
        if record.parent_id is None and record.agent in known and engine.deps.agents.find(record.agent) is None
        if record.deadline_at > now and not is_redacted(record.parameters)
    ]
    if roots:
        soonest = engine.loop.time() + min(record.deadline_at for record in roots) - now
        if not engine.loop.time() < engine.recovers_again_at <= soonest + 0.5:  # one that looks is enough
            engine.recovers_again_at = soonest
            engine.spawn(_look_again(engine, soonest))
    return {record.root_id for record in roots}


async def _look_again(engine: "EmbeddedEngine", at: float) -> None:
    await asyncio.sleep(at - engine.loop.time())
    if not engine.is_closed:
        await engine.recover()


async def _take_over(engine: "EmbeddedEngine", owner_id: str, report: Recovered, waiting: set[str]) -> None:
    def take(store: Store) -> list[Record]:
        left = [record.session_id for record in store.live() if record.owner == owner_id and record.root_id not in waiting]
        return store.take_over(left, of=owner_id, to=engine.owner.owner_id)

    taken = await engine.journal.call(take)
    engine.pending.update({record.session_id: None for record in taken})
    kept = _to_be_resumed(engine, taken)
    for record in sorted(taken, key=lambda r: -r.depth):
        if record.session_id not in kept:
            await _settle_crashed(engine, record, owner_id)
            report.settled.append(record.session_id)
    for record in taken:
        if record.session_id in kept and record.parent_id is None:
            if await _resume(engine, record, [r for r in taken if r.session_id in kept], owner_id):
                report.resumed.append(record.session_id)
            else:
                report.settled.append(record.session_id)


async def _resume(engine: "EmbeddedEngine", record: Record, kept: list[Record], owner_id: str) -> bool:
    """Run it again, unless it was cancelled meanwhile; one that cannot be is settled, and keeps nobody from opening the project."""
    stop = engine.pending.get(record.session_id)
    try:
        if stop is None:
            running = await restored(engine, record, None)
            engine.spawn(_settle_unclaimed(engine, running, kept, owner_id))
            return True
    except Exception:
        log.exception("%s could not be resumed", record.session_id)
    for one in sorted((r for r in kept if r.root_id == record.root_id), key=lambda r: -r.depth):
        if stop is not None:
            await _settle(engine, one, stop)
        else:
            await _settle_crashed(engine, one, owner_id)
    return False


async def _settle_strays(engine: "EmbeddedEngine", live: list[Record], report: Recovered) -> None:
    """Ours on record, and run by nobody here: left by a recovery that ended half-way."""
    for record in live:
        session_id = record.session_id
        if record.owner == engine.owner.owner_id and session_id not in engine.running and session_id not in engine.pending:
            await _settle_crashed(engine, record, record.owner)
            report.settled.append(session_id)


def _to_be_resumed(engine: "EmbeddedEngine", taken: list[Record]) -> set[str]:
    """Resumable roots, and below them resumable children, which go on when their caller asks for them again."""
    kept: set[str] = set()
    for record in sorted(taken, key=lambda r: r.depth):
        may = _can_run_again(engine, record) and record.deadline_at > engine.clock.wall()
        if may and (record.parent_id is None or record.parent_id in kept):
            kept.add(record.session_id)
    return kept


def _can_run_again(engine: "EmbeddedEngine", record: Record) -> bool:
    """It is there, it declared itself resumable, and it still takes the parameters that were recorded: all of them, secrets too."""
    agent = engine.deps.agents.find(record.agent)
    if agent is None or not agent.spec.resumable or is_redacted(record.parameters):
        return False
    try:
        agent.check(dict(record.parameters))
    except Misused:
        return False
    return True


async def cancel_left_behind(engine: "EmbeddedEngine", asked: Record, stop: reply.Stop) -> list[dict[str, str]]:
    """Cancel what a dead process was running: settled as cancelled with what it left, never run again to be cancelled."""

    def take(store: Store) -> list[Record]:
        nodes = {asked.session_id}
        for record in store.tree(asked.root_id):
            if record.parent_id in nodes and not record.state.is_settled:
                nodes.add(record.session_id)
        return store.take_over(sorted(nodes), of=asked.owner, to=engine.owner.owner_id)

    taken = await engine.journal.call(take)
    for record in sorted(taken, key=lambda r: -r.depth):
        await _settle(engine, record, stop)
    return [{"session_id": record.session_id, "agent": record.agent, "state": "stopped"} for record in taken]


async def _settle_unclaimed(engine: "EmbeddedEngine", root: Running, kept: list[Record], owner_id: str) -> None:
    """When a resumed root has ended, what it did not ask for again is settled too: nothing stays live without a runner."""
    await asyncio.wait([root.done])
    if root.told is None:
        return  # handed over again, or not on record: the next one goes on with all of it
    for record in kept:
        if record.root_id == root.delegation.lineage.root_id and record.session_id not in engine.running:
            known = await off_loop(engine.store.get, record.session_id)
            if known is not None and known.result is None:
                await _settle_crashed(engine, record, owner_id)


async def _settle_crashed(engine: "EmbeddedEngine", record: Record, owner_id: str) -> None:
    """Partial / AGENT_CRASHED with what can be harvested."""
    pid = owner_id.partition("-")[0]
    detail = (
        f"{record.agent} was running when its orchestrator ended (process {pid})."
        if record.started_at is not None
        else f"{record.agent} was still queued when its orchestrator ended: it never ran."
    )
    agent = engine.deps.agents.find(record.agent)
    if agent is not None and agent.spec.resumable and is_redacted(record.parameters):
        detail += " It was not run again: secrets among its parameters are not on record. Delegate it again with them."
    await _settle(engine, record, reply.Stop(reason=StopReason.CRASHED, source="the end of its orchestrator", detail=detail))


async def _settle(engine: "EmbeddedEngine", record: Record, stop: reply.Stop) -> None:
    """The outcome of a delegation that nobody runs any more, through the same door as every other."""
    delegation = delegation_of(record, engine)
    agent = engine.deps.agents.find(record.agent)
    duration = max(0.0, min(engine.clock.wall() - record.created_at, record.timeout_seconds))
    left = await _left_behind(engine, record) if record.started_at is not None else reply.NOTHING_LEFT
    resumable = agent is not None and agent.spec.resumable
    result = reply.stopped_return(delegation, stop, left, duration_seconds=duration, resumable=resumable)
    result = reply.with_agent_session(result, (left.data or {}).get("checkpoint"))
    now = engine.clock.wall()
    tokens, cost = await off_loop(spent_of, engine.store, record)
    said = await off_loop(said_of, engine.store, record)
    settled = SettleDelegation(record.session_id, reply.state_of(result), now, result, (*record.step_times[:12], now), tokens, cost, said)
    written: asyncio.Future[None] = engine.loop.create_future()
    engine.journal.write(settled, lambda _problem: None if written.done() else written.set_result(None))
    await written
    if left.removable_workspace is not None:
        clear_later(engine, left.removable_workspace)
    engine.pending.pop(record.session_id, None)
    engine.streams.watcher.tell(record.session_id)
    engine.deps.note_errors(delegation, result.errors, "")
    if engine.bus.has_listeners:
        engine.bus.ended(delegation, result, now, tokens, cost, settled.step_times)


async def _left_behind(engine: "EmbeddedEngine", record: Record) -> reply.PartialWork:
    events = await off_loop(engine.store.events, record.session_id)
    declared = tuple(artifact_of(e) for e in events if e.kind is EventKind.ARTIFACT)
    scratch = engine.scratch_root / record.session_id
    hunt = HarvestRequest(
        root=engine.root,
        scratch=scratch if scratch.is_dir() else None,
        since=record.started_at or record.created_at,
        declared=declared,
        scan_root=False,  # others have worked in the project since: only what was declared is certainly its own
        foreign=frozenset(),
    )
    workspace = await off_loop(find_workspace, engine.root, record.session_id)
    data = {}
    if chunks := [e.body["chunk"] for e in events if e.kind is EventKind.DATA]:
        data["chunks"] = chunks
    if (saved := await off_loop(engine.store.checkpoint, record.session_id)) is not None:
        data["checkpoint"] = saved
    if workspace is None:
        found = await harvest(hunt)
        return reply.PartialWork(artifacts=found.artifacts, warnings=found.warnings, data=data or None)
    found, is_removable = await left_in_workspace(workspace, hunt, scratch, record.agent)
    if is_removable and saved is None:  # an agent's own session may be tied to the folder that it began in
        return reply.PartialWork(
            artifacts=found.artifacts, warnings=found.warnings, data=data or None, removable_workspace=record.session_id
        )
    warnings = (kept_message(workspace), *found.warnings)
    return reply.PartialWork(artifacts=found.artifacts, warnings=warnings, data=data or None, workspace=describe_workspace(workspace))


STOP_SECONDS = 1.5
NOTICE = "Handed over: its orchestrator was told to stop. It goes on when the project is served or opened again."


async def drain(engine: "EmbeddedEngine") -> list[str]:
    """The sessions of the roots that are left to others. Nothing runs of them when this returns, but for code that will not be stopped:
    that ends with the process, and nothing is heard of it any more."""
    engine.slots.is_shut = True
    roots = [running for running in list(engine.running.values()) if running.parent is None and await _can_go_on(engine, running)]
    roots = [root for root in roots if _is_free(root)]  # time has passed
    nodes = [node for root in roots for node in _below(root)]
    for node in nodes:
        node.notice(NOTICE)
        node.concluding = True  # from here on nothing ends it: neither its task, which is cancelled, nor the clock
    tasks = [node.task for node in reversed(nodes) if node.task is not None]
    for task in tasks:
        task.cancel()
    _, stubborn = await asyncio.wait(tasks, timeout=STOP_SECONDS) if tasks else (set(), set())
    for task in stubborn:
        let_go(task)
    for node in nodes:
        node.is_settled = True  # for this process; on record it lives
        engine._leave(node)
        engine._unregister(node)
        node.rouse()
        node.tell_trouble(Unavailable(NOTICE, advice=f"Ask for {node.delegation.session_id} again in a moment."))
    return [root.delegation.session_id for root in roots]


async def _can_go_on(engine: "EmbeddedEngine", running: Running) -> bool:
    """It declared itself resumable, has time left, and everything it was given is on record."""
    if not _is_free(running) or not running.agent.spec.resumable or running.remaining() <= 0:
        return False
    record = await off_loop(engine.store.get, running.delegation.session_id)
    return record is not None and not is_redacted(record.parameters)


def _is_free(running: Running) -> bool:
    return running.is_recorded and not running.is_settled and not running.concluding and running.stop is None


def _below(running: Running) -> Iterator[Running]:
    yield running
    for child in list((running.live_children or {}).values()):
        if not child.is_settled and not child.concluding:
            yield from _below(child)


async def cancel_anywhere(
    engine: "EmbeddedEngine",
    session_id: str,
    reason: str,
    source: str,
    reap: Callable[[str], int],
    kill: Callable[[Collection[str]], None] | None = None,
) -> list[dict[str, Any]]:
    """How each node ended. `reap` ends the processes that a dead owner left; `kill`, those that run here, at once and without grace."""
    running = engine.running.get(session_id)
    if running is not None and kill is not None:
        return await _killed(engine, running, reason, source, kill)
    if running is not None:
        return await cancel_tree(engine, running, reason, source)
    record = await events.known(engine.store, session_id)
    if record.state.is_settled:
        return [{"session_id": session_id, "agent": record.agent, "state": f"already {record.state}"}]
    if not await handles.request_cancel(engine, engine.run_folder, record, reason, source):
        owners = {owner.owner_id: owner for owner in await off_loop(engine.store.owners)}
        if record.owner not in owners or is_dead(owners[record.owner], engine.run_folder):
            await off_loop(reap, record.owner)
            stop = Stop(reason=StopReason.CANCELLED, source=source, detail=reason)
            return list(await cancel_left_behind(engine, record, stop))
    return await handles.acknowledged(engine.store, record)


async def _killed(
    engine: "EmbeddedEngine", running: Running, reason: str, source: str, kill: Callable[[Collection[str]], None]
) -> list[dict[str, Any]]:
    nodes = frozenset(node.delegation.session_id for node in below(running))
    cancelling = engine.spawn(cancel_tree(engine, running, reason, source))
    await asyncio.sleep(0)  # it is cancelled first, so that its death is no crash
    kill(nodes)
    ended: list[dict[str, Any]] = await asyncio.shield(cancelling)
    return ended
