"""Upkeep: what a runtime does on the side while it is open. Used by `app` alone.

The write-ahead log into the database, scratch folders that nobody needs any more, old history, and, as a backstop, cancel requests
whose bell was not heard.
"""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable

from remit.core.errors import Unavailable
from remit.core.record import Record
from remit.core.settings import Settings
from remit.engines.embedded.embedded import EmbeddedEngine
from remit.engines.embedded.peers import living_owners
from remit.runtime.workspace_cleanup import UNFINISHED_SECONDS, finish_removal, remove_forgotten, remove_unchanged, remove_unfinished
from remit.runtime.workspaces import DIFF, list_workspaces
from remit.system.threads import off_loop

TURN_SECONDS = 1.0
SWEEP_SECONDS = 30.0
ROOMS_A_TURN = 50

log = logging.getLogger("remit.upkeep")


async def keep_house(engine: EmbeddedEngine, settings: Settings, carry_out_cancels: Callable[[], Awaitable[None]]) -> None:
    """Until it is cancelled. What goes wrong once is tried again at its next turn."""
    swept = cleaned = engine.loop.time()
    is_first = True
    while True:
        if not is_first:
            await asyncio.sleep(TURN_SECONDS)
        now = engine.loop.time()
        try:
            if is_first:
                is_first = False
                await clear_removable_workspaces(engine, settings)  # what a crash left, or a program that ended at once
                continue
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
    await clear_removable_workspaces(engine, settings)


async def clear_removable_workspaces(engine: EmbeddedEngine, settings: Settings) -> None:
    """Workspaces that nothing was done in. One after the other, so that this can be ended at any time."""
    now = engine.clock.wall()
    for record in await off_loop(_removable_workspaces, engine, now - settings.retention_seconds):
        if not await off_loop(remove_unchanged, engine.root, record.session_id) and now - (record.settled_at or now) > UNFINISHED_SECONDS:
            await off_loop(remove_unfinished, engine.root, record.session_id)


def _removable_workspaces(engine: EmbeddedEngine, before: float) -> list[Record]:
    """Those worth asking git about: settled, by nobody else who is still there, and no return names anything in them."""
    sessions = [name for name in list_workspaces(engine.root) if name not in engine.running and name not in engine.pending]
    records = [record for record in map(engine.store.get, sessions) if record is not None and record.result is not None]
    if not records:
        return []
    others = living_owners(engine.store, engine.run_folder) - {engine.owner.owner_id}
    busy = {record.root_id for record in map(engine.store.get, list(engine.abandoned)) if record is not None}
    return [r for r in records if r.owner not in others and r.root_id not in busy and _may_be_spare(engine, r, before)][:ROOMS_A_TURN]


def _may_be_spare(engine: EmbeddedEngine, record: Record, before: float) -> bool:
    """One that saved where it was is kept for a while: an agent's own session may be tied to the folder that it began in."""
    assert record.result is not None
    ours = (".remit/work/", f".remit/scratch/{record.session_id}/{DIFF.partition('.')[0]}")
    if any(artifact.path.startswith(ours) for artifact in record.result.artifacts):
        return False
    is_old = record.settled_at is not None and record.settled_at <= before
    return is_old or engine.store.checkpoint(record.session_id) is None


def _forget_old_rooms(engine: EmbeddedEngine) -> None:
    """The workspaces of delegations that nobody knows any more; what was done in them stays on their branches."""
    for session_id in list_workspaces(engine.root):
        if session_id in engine.running or engine.store.get(session_id) is not None or finish_removal(engine.root, session_id):
            continue
        if not remove_forgotten(engine.root, session_id):
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
