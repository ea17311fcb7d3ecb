"""Upkeep: what a runtime does on the side while it is open. Used by `app` alone.

The write-ahead log into the database, scratch folders that nobody needs any more, old history, and, as a backstop, cancel requests
whose bell was not heard (S2.7).
"""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable

from remit.core.errors import Unavailable
from remit.engine.embedded import EmbeddedEngine
from remit.settings import Settings
from remit.system.threads import off_loop
from remit.workspaces.removing import forget
from remit.workspaces.room import rooms

TURN_SECONDS = 1.0
SWEEP_SECONDS = 30.0

log = logging.getLogger("remit.upkeep")


async def keep_house(engine: EmbeddedEngine, settings: Settings, carry_out_cancels: Callable[[], Awaitable[None]]) -> None:
    """Until it is cancelled. What goes wrong once is tried again at its next turn."""
    swept = cleaned = engine.loop.time()
    while True:
        await asyncio.sleep(TURN_SECONDS)
        now = engine.loop.time()
        try:
            await off_loop(engine.store.optimize)
            if now - swept >= SWEEP_SECONDS:
                swept = now
                await carry_out_cancels()
            if now - cleaned >= settings.cleanup_seconds:
                cleaned = now
                await clean_up(engine, settings)
        except Unavailable:
            continue  # the database is busy or full: said where it matters
        except Exception:  # the boundary of a task of ours that must not end
            log.exception("Upkeep went wrong; it goes on")


async def clean_up(engine: EmbeddedEngine, settings: Settings) -> None:
    """What left the registry leaves its scratch folder too; what left the history is forgotten."""
    await off_loop(_remove_old_scratch, engine, engine.clock.wall() - settings.retention_seconds)
    if settings.history_days is not None:
        oldest = engine.clock.wall() - settings.history_days * 86_400
        await engine.journal.call(lambda store: store.prune(settled_before=oldest))
    await off_loop(_forget_old_rooms, engine)


def _forget_old_rooms(engine: EmbeddedEngine) -> None:
    """The workspaces of delegations that nobody knows any more; what was done in them stays on their branches."""
    for session_id in rooms(engine.root):
        if session_id not in engine.running and engine.store.get(session_id) is None and not forget(engine.root, session_id):
            log.warning("The workspace of %s could not be removed", session_id)


def _remove_old_scratch(engine: EmbeddedEngine, before: float) -> None:
    """Unless a return names a file in it."""
    for path in engine.scratch_root.iterdir() if engine.scratch_root.is_dir() else ():
        record = engine.store.get(path.name)
        if record is None or record.settled_at is None or record.settled_at > before:
            continue
        inside = f"{path.relative_to(engine.root).as_posix()}/"
        if record.result is None or not any(artifact.path.startswith(inside) for artifact in record.result.artifacts):
            shutil.rmtree(path, ignore_errors=True)
