"""Recovery: what a dead process was running is found, taken over atomically, and resumed or settled (S8).

Owners are judged by pid and start time; nobody takes over what a living one runs. What declared itself resumable runs again from its
start, its finished children replayed; the rest is settled as partial / AGENT_CRASHED with what can be harvested. What an agent elsewhere
had that will be back (`awaited`) is left as it is until then, or until its deadline. Processes that the dead one left behind are found by
their mark and killed.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

from remit.core.errors import Misused
from remit.core.events import EventKind
from remit.core.ports import Store
from remit.core.record import Record, Settled
from remit.core.result import StopReason
from remit.core.secrets import is_redacted
from remit.engine.awaited import FOLDER, awaited
from remit.engine.embedded import EmbeddedEngine
from remit.engine.ending import clear_later
from remit.engine.happenings import tell_ended
from remit.engine.owners import is_dead
from remit.engine.restoring import artifact_of, delegation_of, restored, said_of, spent_of
from remit.engine.running import Running
from remit.flow import reply
from remit.flow.harvest import Hunt, harvest
from remit.flow.workspace import left_in_room, place_of, where_it_stays
from remit.system.threads import off_loop
from remit.workspaces.workspace import find_room

log = logging.getLogger("remit.engine")
_LOOKS_AT: WeakKeyDictionary[EmbeddedEngine, float] = WeakKeyDictionary()
"""When each looks again after what it left waiting."""


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


async def recover(engine: EmbeddedEngine, run_folder: Path, reap: Callable[[str], int]) -> Recovered:
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
        report.owners.append(owner_id)
    return report


async def _left_waiting(engine: EmbeddedEngine, live: list[Record]) -> set[str]:
    """The trees whose agent is elsewhere, not back yet, and may do it again. At the first deadline of them somebody looks again."""
    known = await off_loop(awaited, engine.run_folder.parent / FOLDER) if live else frozenset()
    now = engine.clock.wall()
    roots = [
        record
        for record in live
        if record.parent_id is None and record.agent in known and engine.house.agents.find(record.agent) is None
        if record.deadline_at > now and not is_redacted(record.parameters)
    ]
    if roots and engine.recover is not None:
        soonest = engine.loop.time() + min(record.deadline_at for record in roots) - now
        if not engine.loop.time() < _LOOKS_AT.get(engine, 0.0) <= soonest + 0.5:  # one that looks is enough
            _LOOKS_AT[engine] = soonest
            engine.spawn(_look_again(engine, soonest))
    return {record.root_id for record in roots}


async def _look_again(engine: EmbeddedEngine, at: float) -> None:
    await asyncio.sleep(at - engine.loop.time())
    if engine.recover is not None and not engine.is_closed:
        await engine.recover()


async def _take_over(engine: EmbeddedEngine, owner_id: str, report: Recovered, waiting: set[str]) -> None:
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


async def _resume(engine: EmbeddedEngine, record: Record, kept: list[Record], owner_id: str) -> bool:
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


async def _settle_strays(engine: EmbeddedEngine, live: list[Record], report: Recovered) -> None:
    """Ours on record, and run by nobody here: left by a recovery that ended half-way."""
    for record in live:
        session_id = record.session_id
        if record.owner == engine.owner.owner_id and session_id not in engine.running and session_id not in engine.pending:
            await _settle_crashed(engine, record, record.owner)
            report.settled.append(session_id)


def _to_be_resumed(engine: EmbeddedEngine, taken: list[Record]) -> set[str]:
    """Resumable roots, and below them resumable children, which go on when their caller asks for them again."""
    kept: set[str] = set()
    for record in sorted(taken, key=lambda r: r.depth):
        may = _can_run_again(engine, record) and record.deadline_at > engine.clock.wall()
        if may and (record.parent_id is None or record.parent_id in kept):
            kept.add(record.session_id)
    return kept


def _can_run_again(engine: EmbeddedEngine, record: Record) -> bool:
    """It is there, it declared itself resumable, and it still takes the parameters that were recorded: all of them, secrets too."""
    agent = engine.house.agents.find(record.agent)
    if agent is None or not agent.spec.resumable or is_redacted(record.parameters):
        return False
    try:
        agent.check(dict(record.parameters))
    except Misused:
        return False
    return True


async def cancel_left_behind(engine: EmbeddedEngine, asked: Record, stop: reply.Stop) -> list[dict[str, str]]:
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


async def _settle_unclaimed(engine: EmbeddedEngine, root: Running, kept: list[Record], owner_id: str) -> None:
    """When a resumed root has ended, what it did not ask for again is settled too: nothing stays live without a runner."""
    await asyncio.wait([root.done])
    if root.told is None:
        return  # handed over again, or not on record: the next one goes on with all of it
    for record in kept:
        if record.root_id == root.delegation.lineage.root_id and record.session_id not in engine.running:
            known = await off_loop(engine.store.get, record.session_id)
            if known is not None and known.result is None:
                await _settle_crashed(engine, record, owner_id)


async def _settle_crashed(engine: EmbeddedEngine, record: Record, owner_id: str) -> None:
    """Partial / AGENT_CRASHED with what can be harvested."""
    pid = owner_id.partition("-")[0]
    detail = (
        f"{record.agent} was running when its orchestrator ended (process {pid})."
        if record.started_at is not None
        else f"{record.agent} was still queued when its orchestrator ended: it never ran."
    )
    agent = engine.house.agents.find(record.agent)
    if agent is not None and agent.spec.resumable and is_redacted(record.parameters):
        detail += " It was not run again: secrets among its parameters are not on record. Delegate it again with them."
    await _settle(engine, record, reply.Stop(reason=StopReason.CRASHED, source="the end of its orchestrator", detail=detail))


async def _settle(engine: EmbeddedEngine, record: Record, stop: reply.Stop) -> None:
    """The outcome of a delegation that nobody runs any more, through the same door as every other."""
    delegation = delegation_of(record, engine)
    agent = engine.house.agents.find(record.agent)
    duration = max(0.0, min(engine.clock.wall() - record.created_at, record.timeout_seconds))
    left = await _left_behind(engine, record) if record.started_at is not None else reply.NOTHING_LEFT
    resumable = agent is not None and agent.spec.resumable
    result = reply.interrupted(delegation, stop, left, duration_seconds=duration, resumable=resumable)
    result = reply.with_agent_session(result, (left.data or {}).get("checkpoint"))
    now = engine.clock.wall()
    tokens, cost = await off_loop(spent_of, engine.store, record)
    said = await off_loop(said_of, engine.store, record)
    settled = Settled(record.session_id, reply.state_of(result), now, result, (*record.step_times[:12], now), tokens, cost, said)
    written: asyncio.Future[None] = engine.loop.create_future()
    engine.journal.write(settled, lambda _problem: None if written.done() else written.set_result(None))
    await written
    if left.spare_room is not None:
        clear_later(engine, left.spare_room)
    engine.pending.pop(record.session_id, None)
    engine.watcher.tell(record.session_id)
    engine.house.note_errors(delegation, result.errors, "")
    if engine.listeners:
        tell_ended(engine, delegation, result, tokens, cost, settled.step_times)


async def _left_behind(engine: EmbeddedEngine, record: Record) -> reply.Leftovers:
    events = await off_loop(engine.store.events, record.session_id)
    declared = tuple(artifact_of(e) for e in events if e.kind is EventKind.ARTIFACT)
    scratch = engine.scratch_root / record.session_id
    hunt = Hunt(
        root=engine.root,
        scratch=scratch if scratch.is_dir() else None,
        since=record.started_at or record.created_at,
        declared=declared,
        scan_root=False,  # others have worked in the project since: only what was declared is certainly its own
        foreign=frozenset(),
    )
    room = await off_loop(find_room, engine.root, record.session_id)
    data = {}
    if chunks := [e.body["chunk"] for e in events if e.kind is EventKind.DATA]:
        data["chunks"] = chunks
    if (saved := await off_loop(engine.store.checkpoint, record.session_id)) is not None:
        data["checkpoint"] = saved
    if room is None:
        found = await harvest(hunt)
        return reply.Leftovers(artifacts=found.artifacts, warnings=found.warnings, data=data or None)
    found, is_spare = await left_in_room(room, hunt, scratch, record.agent)
    if is_spare and saved is None:  # an agent's own session may be tied to the folder that it began in
        return reply.Leftovers(artifacts=found.artifacts, warnings=found.warnings, data=data or None, spare_room=record.session_id)
    warnings = (where_it_stays(room), *found.warnings)
    return reply.Leftovers(artifacts=found.artifacts, warnings=warnings, data=data or None, workspace=place_of(room))
