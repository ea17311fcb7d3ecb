"""Background maintenance: the write-ahead log, old scratch folders, unused workspaces, expired history.

Also handles cancel requests whose wake-up was lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from remit.core.errors import Unavailable
from remit.core.record import Record
from remit.system.files import remove_folder
from remit.system.liveness import living_owners
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engines.embedded.embedded import EmbeddedEngine

TURN_SECONDS = 1.0
CANCELS_SECONDS = 30.0
WORKSPACES_PER_TURN = 50

log = logging.getLogger("remit.maintenance")


class Maintenance:
    def __init__(self, engine: "EmbeddedEngine", take_cancels: Callable[[], Awaitable[None]]) -> None:
        self._engine = engine
        self._root = engine.deps.root
        self._clock = engine.deps.clock
        self._store = engine.store
        self._folder = engine.config.folder
        self._settings = engine.deps.settings
        self._take_cancels = take_cancels

    def _is_in_use(self, session_id: str) -> bool:
        return self._engine.find(session_id) is not None or self._engine.recovery.has(session_id)

    async def run(self) -> None:
        """Run until cancelled. A failed step is retried at its next turn."""
        loop = asyncio.get_running_loop()
        swept = cleaned = loop.time()
        step: Callable[[], Awaitable[None]] = self.remove_unused_workspaces  # left by a crash, or by a program that exited at once
        while True:
            try:
                await step()
                step = partial(off_loop, self._store.optimize)
                now = loop.time()
                if now - swept >= CANCELS_SECONDS:
                    swept = now
                    await self._take_cancels()
                if now - cleaned >= self._settings.cleanup_seconds:
                    cleaned = now
                    await self.clean_up()
            except Unavailable:
                pass  # the database is busy or full: reported where it matters
            except Exception:  # a background task that must not end
                log.exception("Maintenance failed; it continues")
            await asyncio.sleep(TURN_SECONDS)

    async def clean_up(self) -> None:
        """Remove scratch folders beyond the retention period, and history beyond `history_days`."""
        await off_loop(self._remove_old_scratch, self._clock.wall() - self._settings.retention_seconds)
        if self._settings.history_days is not None:
            oldest = self._clock.wall() - self._settings.history_days * 86_400
            await self._engine.journal.call(lambda store: store.prune(settled_before=oldest))
        await off_loop(self._forget_old_workspaces)
        await self.remove_unused_workspaces()

    async def remove_unused_workspaces(self) -> None:
        """Remove unchanged workspaces one by one, so that this can be interrupted at any time; before them, left worktrees of merges."""
        if not await off_loop(self._has_workspaces):
            return  # most projects: no workspace module is imported
        from remit.runtime.landing import remove_left_worktrees
        from remit.runtime.workspace_cleanup import remove_unchanged, remove_unfinished

        await off_loop(remove_left_worktrees, self._root)
        for record in await off_loop(self._unused_workspaces, self._clock.wall() - self._settings.retention_seconds):
            if not await off_loop(remove_unchanged, self._root, record.session_id):
                await off_loop(remove_unfinished, self._root, record.session_id)

    def _has_workspaces(self) -> bool:
        return (self._folder / "work").is_dir()

    def _unused_workspaces(self, before: float) -> list[Record]:
        """Candidates for a check with git: settled, not of another live process, and no return names a file in them."""
        from remit.runtime.workspaces import list_workspaces

        sessions = [name for name in list_workspaces(self._root) if not self._is_in_use(name)]
        records = [record for record in map(self._store.get, sessions) if record is not None and record.result is not None]
        if not records:
            return []
        others = living_owners(self._store, self._folder / "run") - {self._engine.owner.owner_id}
        busy = {record.root_id for record in map(self._store.get, list(self._engine.abandoned())) if record is not None}
        free = [record for record in records if record.owner not in others and record.root_id not in busy]
        return [record for record in free if self._may_be_unused(record, before)][:WORKSPACES_PER_TURN]

    def _may_be_unused(self, record: Record, before: float) -> bool:
        """With a checkpoint it is kept for a while: a vendor session may depend on its folder."""
        from remit.runtime.workspaces import DIFF

        assert record.result is not None
        ours = (".remit/work/", f".remit/scratch/{record.session_id}/{DIFF.partition('.')[0]}")
        if any(artifact.path.startswith(ours) for artifact in record.result.artifacts):
            return False
        is_old = record.settled_at is not None and record.settled_at <= before
        return is_old or self._store.checkpoint(record.session_id) is None

    def _forget_old_workspaces(self) -> None:
        """Remove workspaces of delegations that are no longer recorded; their work stays on their branches."""
        if not self._has_workspaces():
            return
        from remit.runtime.workspace_cleanup import remove_forgotten, remove_left
        from remit.runtime.workspaces import list_workspaces

        remove_left(self._root)
        for session_id in list_workspaces(self._root):
            if self._is_in_use(session_id) or self._store.get(session_id) is not None:
                continue
            if not remove_forgotten(self._root, session_id):
                log.warning("The workspace of %s could not be removed", session_id)

    def _remove_old_scratch(self, before: float) -> None:
        """Remove scratch folders, unless a return names a file in them."""
        scratch = self._folder / "scratch"
        for path in scratch.iterdir() if scratch.is_dir() else ():
            record = self._store.get(path.name)
            if record is None or record.settled_at is None or record.settled_at > before:
                continue
            inside = f"{path.relative_to(self._root).as_posix()}/"
            if record.result is None or not any(artifact.path.startswith(inside) for artifact in record.result.artifacts):
                remove_folder(path)
