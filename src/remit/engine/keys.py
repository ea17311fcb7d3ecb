"""Idempotency keys: a live key gives back the running delegation, a finished one its result, wherever it runs (S8).

Called by the engine when the store says that another delegation holds the key.
"""

import asyncio
from typing import TYPE_CHECKING

from remit.core.errors import Misused, Unavailable
from remit.core.record import Record
from remit.engine.elsewhere import ElsewhereHandle, wait_elsewhere
from remit.engine.handle import LocalHandle, SettledHandle
from remit.engine.running import Running
from remit.flow.context import Handle

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine


async def handle_of_holder(engine: "EmbeddedEngine", asked: Running, session_id: str) -> Handle:
    """The delegation that holds the key: here, settled, or in another process."""
    record = await _holder(engine, asked, session_id)
    if record.result is not None:
        return SettledHandle(record.result)
    ours = engine.running.get(session_id)
    return LocalHandle(ours, engine) if ours is not None else ElsewhereHandle(engine, session_id, asked.delegation)


async def answer_from_holder(engine: "EmbeddedEngine", asked: Running, session_id: str) -> None:
    """Answer whoever asked with what becomes of the delegation that holds the key."""
    try:
        record = await _holder(engine, asked, session_id)
        ours = engine.running.get(session_id)
        if record.result is not None:
            result = record.result
        elif ours is not None:
            result = await asyncio.shield(ours.done)
        else:
            result = await wait_elsewhere(engine.store, session_id, asked.delegation)
    except (Unavailable, Misused) as error:
        asked.tell_trouble(error)
        return
    asked.tell(result)


async def _holder(engine: "EmbeddedEngine", asked: Running, session_id: str) -> Record:
    record = await asyncio.to_thread(engine.store.get, session_id)
    delegation = asked.delegation
    if record is None:
        raise Unavailable(f"The delegation with key {delegation.key!r} has gone.", advice="Try again.")
    if (record.agent, dict(record.parameters)) != (delegation.agent, dict(delegation.parameters)):
        raise Misused(
            f"The key {delegation.key!r} belongs to another call ({record.agent}, {session_id}).",
            advice="Use one key for one call.",
        )
    return record
