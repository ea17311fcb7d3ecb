"""Idempotency keys: a live key gives back the running delegation, a finished one its result, wherever it runs (S8).

Called by the engine when the store says that another delegation holds the key.
"""

import asyncio
from typing import TYPE_CHECKING

from remit.core.errors import Misused, Unavailable
from remit.core.lineage import Lineage
from remit.core.record import Record
from remit.core.result import Return, StopReason
from remit.engine.elsewhere import ElsewhereHandle, result_of
from remit.engine.handle import LocalHandle
from remit.engine.running import Running
from remit.flow import reply
from remit.flow.accept import normalised_call
from remit.flow.context import Handle
from remit.flow.settled import SettledHandle
from remit.system.threads import off_loop

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
        async with asyncio.timeout_at(asked.delegation.deadline.hard_at):
            asked.tell(await result_of(engine, record))
    except TimeoutError:
        asked.tell(_still_running(asked, record))
    except (Unavailable, Misused) as error:
        asked.tell_trouble(error)
    finally:
        asked.tell_trouble(Unavailable("The orchestrator was closed while it was waited for.", advice="Ask again with the same key."))


def _still_running(asked: Running, holder: Record) -> Return:
    """Whoever asked for less time than the holder has gets its answer by its own deadline; the holder goes on."""
    lineage = Lineage(holder.session_id, holder.root_id, holder.parent_id, holder.depth, holder.path)
    seconds = round(asked.delegation.deadline.timeout_seconds, 2)
    detail = f"{holder.agent} was delegated with the same key before and still runs after the {seconds:g} s it was waited for."
    stop = reply.Stop(reason=StopReason.DEADLINE, source="its deadline", detail=detail)
    return reply.interrupted(asked.delegation._replace(lineage=lineage), stop, reply.NOTHING_LEFT, duration_seconds=seconds)


async def _holder(engine: "EmbeddedEngine", asked: Running, session_id: str) -> Record:
    record = await off_loop(engine.store.get, session_id)
    delegation = asked.delegation
    if record is None:
        raise Unavailable("The delegation with this key has gone.", advice="Try again.")
    if normalised_call(record.agent, record.parameters) != normalised_call(delegation.agent, delegation.parameters):
        raise Misused(
            f"This idempotency key (messageId in A2A) belongs to another call ({record.agent}, {session_id}).",
            advice="Use one key for one call.",
        )
    return record
