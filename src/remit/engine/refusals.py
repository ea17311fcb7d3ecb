"""Refusals on record: a delegation that a guard or a full queue turned away, written down like any other (S1.5). Nothing ran."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from remit.core.errors import ErrorInfo, Unavailable
from remit.core.record import Record, Recorded
from remit.core.result import Return
from remit.core.states import State
from remit.engine.happenings import tell_refused
from remit.engine.journal import Clash, Problem
from remit.engine.running import Running
from remit.flow import reply
from remit.flow.accept import redrawn
from remit.flow.house import Order

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine


async def refuse(engine: "EmbeddedEngine", order: Order) -> Return:
    """Recorded as refused, unless it was answered from memory: then it is on record already."""
    refusal = order.refusal
    assert refusal is not None
    if refusal.metadata.session_id == order.delegation.session_id:
        refusal = await _recorded(engine, order, refusal)
        engine.house.note_errors(order.delegation, refusal.errors, "")
        if engine.listeners:
            tell_refused(engine, order.delegation, refusal, order.step_times)
    if isinstance(order.caller, Running):
        order.caller.add_failure(refusal)
    return refusal


async def refuse_whole(engine: "EmbeddedEngine", order: Order) -> Return:
    """`refuse`, also where its caller leaves meanwhile. No task that the closing of the engine ends: the caller, whom nobody ended, would
    be ended by that; and the journal answers it also then."""
    return await asyncio.shield(engine.loop.create_task(refuse(engine, order)))


def refuse_for_lack_of_room(engine: "EmbeddedEngine", running: Running) -> None:
    """The queue is full: said at once, and worth another try later."""
    error = ErrorInfo(
        type="queue_full",
        message=f"The queue is full: {engine.slots.waiting} delegations wait for {engine.slots.total} slots.",
        code="QUEUE_FULL",
        recoverable=True,
        recommendation="Try again when some have ended, delegate less at once (ctx.gather has limit=), or raise queue_limit or slots.",
    )
    running.is_settled = True
    order = running.order
    order.refusal = reply.refused(order.delegation, error)

    async def answer() -> None:
        running.tell(await refuse(engine, order))

    engine.spawn(answer())


async def _recorded(engine: "EmbeddedEngine", order: Order, refusal: Return) -> Return:
    now = engine.clock.wall()
    order.step_times[12] = now
    written: asyncio.Future[Problem] = engine.loop.create_future()
    record = _record_of(order, refusal, engine.owner.owner_id, now)
    engine.journal.write(Recorded(record), lambda problem: None if written.done() else written.set_result(problem))
    problem = await written
    if isinstance(problem, Clash):
        redrawn(order, engine.house.policy)
        metadata = refusal.metadata._replace(session_id=order.delegation.session_id)
        return await _recorded(engine, order, replace(refusal, metadata=metadata))
    if isinstance(problem, Unavailable):
        return replace(refusal, warnings=(*refusal.warnings, f"Not recorded: {problem}"))
    return refusal


def _record_of(order: Order, refusal: Return, owner_id: str, settled_at: float) -> Record:
    """Without its idempotency key: a refusal does not use it up."""
    delegation = order.delegation
    lineage = delegation.lineage
    timeout_seconds = delegation.deadline.timeout_seconds
    return Record(
        session_id=lineage.session_id,
        root_id=lineage.root_id,
        parent_id=lineage.parent_id,
        depth=lineage.depth,
        path=lineage.path,
        agent=delegation.agent,
        parameters=delegation.parameters,
        caller=delegation.caller,
        priority=delegation.priority,
        state=State.REFUSED,
        created_at=delegation.created_at,
        timeout_seconds=timeout_seconds,
        deadline_at=delegation.created_at + timeout_seconds,
        owner=owner_id,
        settled_at=settled_at,
        command=delegation.command,
        task=delegation.task,
        accept=delegation.accept,
        limits=delegation.limits,
        idle_seconds=delegation.idle_seconds,
        came=delegation.came,
        step_times=tuple(order.step_times),
        result=refusal,
    )
