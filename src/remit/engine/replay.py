"""Replay: a caller that is run again after a crash gets the recorded results of its finished children (design 4).

Its n-th delegation with the same agent and parameters returns the n-th recorded result instead of running again; a child that had not
finished and is resumable goes on under its own id, with its own children's results at hand.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remit.core.budget import Budget
from remit.core.deadline import Deadline, grace_seconds
from remit.core.delegation import Delegation
from remit.core.errors import ErrorInfo, Misused
from remit.core.events import BEFORE_RUN
from remit.core.lineage import Lineage
from remit.core.record import Record
from remit.core.result import Return, StopReason
from remit.core.states import State
from remit.engine.running import Running
from remit.flow import reply
from remit.flow.accept import normalised_call
from remit.flow.house import Order, Tree
from remit.flow.request import Request

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine


class Replay:
    """The children a caller had in the run before, by call, in the order they were recorded."""

    def __init__(self, children: list[Record]) -> None:
        self._by_call: dict[str, list[Record]] = {}
        for child in children:
            # Those the crash itself ended are no results: their caller asks again, and they run again.
            if child.result is None or child.result.stop_reason not in (StopReason.CRASHED, StopReason.CANCELLED):
                self._by_call.setdefault(normalised_call(child.agent, child.parameters), []).append(child)

    def take(self, request: Request) -> Record | None:
        records = self._by_call.get(normalised_call(request.agent, request.parameters))
        return records.pop(0) if records else None

    def finished(self) -> list[Record]:
        return [record for records in self._by_call.values() for record in records if record.result is not None]

    def unclaimed(self) -> list[Record]:
        """Unfinished children nobody asked for again."""
        return [record for records in self._by_call.values() for record in records if record.result is None]


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an earlier run left to go on from."""

    saved: Any
    replay: Replay | None


CHAIN_LIMIT = 100
"""How many runs back a chain of resumed runs is followed."""


async def look_back(engine: "EmbeddedEngine", order: Order) -> bool:
    """Gather what the run that `order` resumes left; False, and a refusal in the order, when it cannot be gone on from."""
    try:
        order.earlier = await asyncio.to_thread(_earlier, engine, order)
    except Misused as fault:
        error = ErrorInfo(type="invalid_parameters", message=fault.message, code=fault.code, recoverable=False, recommendation=fault.advice)
        order.refusal = reply.refused(order.delegation, error)
        return False
    return True


def _earlier(engine: "EmbeddedEngine", order: Order) -> Earlier:
    assert order.agent is not None
    session_id, agent = order.delegation.resumes, order.delegation.agent
    saved, children = None, []
    for _ in range(CHAIN_LIMIT):
        if session_id is None:
            break
        record = engine.store.get(session_id)
        if record is None:
            raise Misused(f"There is no delegation {session_id} to resume.", code="INVALID_TARGET", advice="`remit history` lists them.")
        if record.agent != agent:
            raise Misused(
                f"{session_id} was handed to {record.agent}, not to {agent}.", advice=f"Resume it by delegating to {record.agent}."
            )
        if not record.state.is_settled:
            raise Misused(f"{session_id} has not ended.", advice=f"Wait for it, or `remit cancel {session_id}` first.")
        saved = engine.store.checkpoint(session_id) if saved is None else saved
        # What its own end stopped is no result: only what was completed is not done again.
        children += [child for child in engine.store.children(session_id) if child.result is not None and child.result.ok]
        session_id = record.resumes
    return Earlier(saved, Replay(children) if order.agent.spec.resumable else None)


async def replayed(engine: "EmbeddedEngine", running: Running, request: Request) -> Return | None:
    """The outcome of this call in the run before the crash: recorded, or of the child that goes on; None: it is a new call."""
    child = await reclaimed(engine, running, request)
    return await asyncio.shield(child.done) if isinstance(child, Running) else child


async def reclaimed(engine: "EmbeddedEngine", running: Running, request: Request) -> "Running | Return | None":
    """What became of this call in the run before the crash: its recorded return, or the child itself, which goes on."""
    record = running.replay.take(request) if running.replay is not None else None
    if record is None:
        return None
    if record.result is not None:
        running.notice(f"{record.agent} had finished in the run before ({record.session_id}): its recorded result is used.")
        running.add_failure(record.result)
        return record.result
    return await restored(engine, record, running)


async def restored(engine: "EmbeddedEngine", record: Record, parent: Running | None) -> Running:
    """A delegation of a dead process, running again from its start under its old id and deadline."""
    agent = engine.house.agents.find(record.agent)
    assert agent is not None
    tree = await asyncio.to_thread(engine.store.tree, record.root_id)
    budget = _spent_budget(engine, record, tree, parent)
    order = Order(
        delegation=delegation_of(record, engine),
        agent=agent,
        arguments=agent.check(dict(record.parameters)),
        tree=parent.tree if parent is not None else Tree(budget),
        budget=budget,
        caller=parent,
        step_times=list(record.step_times),
        warnings=("Resumed after a crash of its orchestrator.",),
    )
    running = Running(order, engine, parent)
    running.attempt = record.attempt + 1
    running.said = max(record.chunk_count, await asyncio.to_thread(_said, engine, record.session_id))
    before = await asyncio.to_thread(_earlier, engine, order) if record.resumes is not None else Earlier(None, None)
    saved = await asyncio.to_thread(engine.store.checkpoint, record.session_id)
    running.saved = before.saved if saved is None else saved
    running.replay = Replay([*(r for r in tree if r.parent_id == record.session_id), *(before.replay.finished() if before.replay else ())])
    await engine.journal.call(lambda store: store.requeue(record.session_id, owner=engine.owner.owner_id))
    engine.resubmit(running)
    running.notice(f"Resumed after a crash of its orchestrator; attempt {running.attempt}.")
    return running


def _spent_budget(engine: "EmbeddedEngine", record: Record, tree: list[Record], parent: Running | None) -> Budget:
    """The scope it draws from. Nothing is refilled: what was drawn before the crash stays drawn."""
    opened_at = engine.loop.time() - max(0.0, engine.clock.wall() - record.created_at)
    if parent is None:
        budget = Budget(engine.house.rules.budget, opened_at=opened_at)
        _draw(budget, tree)
    else:
        budget = parent.budget
        for scope in budget.scopes():
            scope.delegations -= 1  # it was counted with its tree, and enters once more now
    if record.limits is not None:
        budget = budget.narrowed(record.limits, opened_at)
        _draw(budget, _below(record, tree))
    return budget


def _draw(budget: Budget, records: list[Record]) -> None:
    """What these drew; the first of them enters again by itself, and what was refused has drawn nothing."""
    budget.delegations = sum(record.state is not State.REFUSED for record in records) - 1
    budget.tokens = sum(record.tokens for record in records)
    budget.cost = sum(record.cost for record in records)


def _below(record: Record, tree: list[Record]) -> list[Record]:
    """Itself and everything it handed on; callers stand before their children in a tree."""
    found = {record.session_id: record}
    for one in tree:
        if one.parent_id in found:
            found[one.session_id] = one
    return list(found.values())


def _said(engine: "EmbeddedEngine", session_id: str) -> int:
    """How much was said before: the numbers of events go on from there."""
    return max((event.number - BEFORE_RUN for event in engine.store.events(session_id)), default=0)


def delegation_of(record: Record, engine: "EmbeddedEngine") -> Delegation:
    """The delegation that was recorded, its deadline moved from the wall clock to the one that does not jump."""
    left = max(0.0, min(record.deadline_at - engine.clock.wall(), record.timeout_seconds))
    hard_at = engine.loop.time() + left
    return Delegation(
        lineage=Lineage(
            session_id=record.session_id, root_id=record.root_id, parent_id=record.parent_id, depth=record.depth, path=record.path
        ),
        agent=record.agent,
        parameters=record.parameters,
        caller=record.caller,
        priority=record.priority,
        deadline=Deadline(hard_at=hard_at, soft_at=hard_at - grace_seconds(left), timeout_seconds=record.timeout_seconds),
        created_at=record.created_at,
        idle_seconds=record.idle_seconds,
        key=record.key,
        accept=record.accept,
        limits=record.limits,
        command=record.command,
        task=record.task,
        resumes=record.resumes,
    )
