"""Cancelling a delegation wherever it is run: here, by another process that is asked to, or by nobody any more. Used by `app`."""

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from remit.core.result import StopReason
from remit.engine import elsewhere, following
from remit.engine.ending import below
from remit.engine.owners import is_dead
from remit.engine.recovery import cancel_left_behind
from remit.engine.running import Running
from remit.flow.reply import Stop
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine


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
        return await engine.cancel(session_id, reason, source)
    record = await following.known(engine.store, session_id)
    if record.state.is_settled:
        return [{"session_id": session_id, "agent": record.agent, "state": f"already {record.state}"}]
    if not await elsewhere.request_cancel(engine, engine.run_folder, record, reason, source):
        owners = {owner.owner_id: owner for owner in await off_loop(engine.store.owners)}
        if record.owner not in owners or is_dead(owners[record.owner], engine.run_folder):
            await off_loop(reap, record.owner)
            stop = Stop(reason=StopReason.CANCELLED, source=source, detail=reason)
            return list(await cancel_left_behind(engine, record, stop))
    return await elsewhere.acknowledged(engine.store, record)


async def _killed(
    engine: "EmbeddedEngine", running: Running, reason: str, source: str, kill: Callable[[Collection[str]], None]
) -> list[dict[str, Any]]:
    nodes = frozenset(node.delegation.session_id for node in below(running))
    cancelling = engine.spawn(engine.cancel(running.delegation.session_id, reason, source))
    await asyncio.sleep(0)  # it is cancelled first, so that its death is no crash
    kill(nodes)
    ended: list[dict[str, Any]] = await asyncio.shield(cancelling)
    return ended
