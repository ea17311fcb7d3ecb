"""What an agent hands on: its children, new or gone on with from the run before, and the slot it lends them while it waits."""

import asyncio
from typing import TYPE_CHECKING, Any

from remit.core.errors import Unavailable
from remit.core.record import Checkpointed
from remit.core.result import Return
from remit.engine.handle import LocalHandle
from remit.engine.journal import Problem
from remit.engine.restoring import restored
from remit.engine.running import Running
from remit.flow import delegate as halves
from remit.flow.context import Handle
from remit.flow.house import House
from remit.flow.request import Request
from remit.flow.settled import SettledHandle

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine


async def delegate_child(engine: "EmbeddedEngine", running: Running, request: Request, house: House | None = None) -> Return:
    """Waiting for a child, its caller lends its slot, so that callers cannot starve their own children.

    `house`: where the caller knows agents that the engine's own house does not.
    """
    engine.lend_slot(running)
    try:
        if running.replay is not None:
            child = await _reclaimed(engine, running, request)
            if child is not None:
                return await asyncio.shield(child.done) if isinstance(child, Running) else child
        return await halves.delegate(request, running, house or engine.house, engine)
    finally:
        engine.take_slot_back(running)


async def start_child(engine: "EmbeddedEngine", running: Running, request: Request, house: House | None = None) -> Handle:
    child = None if running.replay is None else await _reclaimed(engine, running, request)
    if isinstance(child, Running):
        return LocalHandle(child, engine, running)
    if child is not None:
        return SettledHandle(child)
    handle = await halves.start(request, running, house or engine.house, engine)
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

    engine.journal.write(Checkpointed(running.delegation.session_id, engine.clock.wall(), value), then)
    await written
