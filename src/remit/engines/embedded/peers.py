"""Other processes of the project: sends and receives cancel requests.

A cancel request is written to the store; then the owner is woken through its named pipe."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from remit.core.errors import Unavailable
from remit.core.events import EventKind
from remit.core.ports import Store
from remit.core.record import CancelRequest, Record
from remit.engines.embedded.journal import Journal
from remit.system.liveness import below, closed_path, is_dead, pipe_path, wake
from remit.system.threads import off_loop

LOOK_SECONDS = 0.01
"""Interval of polls for writes of other processes: one cheap pragma."""
SLOW_LOOK_SECONDS = 1.0
"""The same if the store sends notifications, in case one is lost."""
CANCEL_SECONDS = 5.0
WAKEUP_SECONDS = 0.01
"""Minimum time between two checks for cancel requests."""


class StoreChanges:
    """Waits for writes of other processes: by notifications of the store if supported, else by polling."""

    def __init__(self, store: Store, on_cancel: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._on_cancel = on_cancel
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._stop = store.watch(self._on_change)

    def _on_change(self, what: Literal["cancel", "write"]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_cancel if what == "cancel" else self._news.set)

    async def stamp(self) -> int:
        """Differs after a write of another process. A store that notifies is a server, which the loop must not wait for."""
        return self._store.change_stamp() if self._stop is None else await off_loop(self._store.change_stamp)

    async def wait(self, at_least: float = 0.0) -> None:
        """Wait until something may have been written, at least `at_least` seconds."""
        if self._stop is None:
            await asyncio.sleep(max(LOOK_SECONDS, at_least))
            return
        await asyncio.sleep(at_least)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SLOW_LOOK_SECONDS):
                await self._news.wait()
        self._news.clear()

    def close(self) -> None:
        if self._stop is not None:
            self._stop()


class WakeupPipe:
    """Calls `on_wakeup` on the loop whenever another process writes to the pipe."""

    def __init__(self, path: Path, on_wakeup: Callable[[], None]) -> None:
        self._path = path
        self._on_wakeup = on_wakeup
        self._loop = asyncio.get_running_loop()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = path.with_suffix(".new")  # without a reader it looks like the pipe of a dead process, which others remove
        os.mkfifo(made, 0o600)
        # Open for reading and writing, so that the pipe never reports its end when a writer closes it.
        self._file = os.open(made, os.O_RDWR | os.O_NONBLOCK)
        made.rename(path)
        self._loop.add_reader(self._file, self._readable)

    def close(self) -> None:
        self._loop.remove_reader(self._file)
        os.close(self._file)
        self._path.unlink(missing_ok=True)

    def _readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._file, 4096)
        self._on_wakeup()


class PeerProcesses:
    def __init__(self, journal: Journal, run_folder: Path, owner_id: str, on_cancel: Callable[[CancelRequest], None]) -> None:
        self._journal = journal
        self._store = journal.store
        self._run_folder = run_folder
        self._owner_id = owner_id
        self._on_cancel = on_cancel
        self._wakeup = asyncio.Event()
        self._pipe: WakeupPipe | None = None
        self._changes: StoreChanges | None = None

    def open(self) -> None:
        """Become reachable."""
        self._changes = StoreChanges(self._store, self._wakeup.set)
        self._pipe = WakeupPipe(pipe_path(self._run_folder, self._owner_id), self._wakeup.set)

    def close(self, *, has_left: bool) -> None:
        """`has_left`: this process is no longer registered in the store; otherwise others must detect that it is gone."""
        if not has_left:
            with contextlib.suppress(OSError):
                closed_path(self._run_folder, self._owner_id).touch()
        if self._changes is not None:
            self._changes.close()
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    async def answer_wakeups(self) -> None:
        """Handle wake-ups until cancelled."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            await self.take_cancels()
            await asyncio.sleep(WAKEUP_SECONDS)

    async def take_cancels(self) -> None:
        """Execute the cancel requests of other processes."""
        with contextlib.suppress(Unavailable):  # retried at the next wake-up, or by maintenance
            for request in await self._journal.call(lambda store: store.take_cancels(self._owner_id)):
                self._on_cancel(request)

    async def request_cancel(self, record: Record, reason: str, source: str, at: float) -> bool:
        """Ask the owner of a delegation to cancel it; False if the owner is dead."""
        request = CancelRequest(session_id=record.session_id, reason=reason, source=source, at=at)
        await self._journal.call(lambda store: store.request_cancel(request))
        if wake(self._run_folder, record.owner):
            return True
        owners = {owner.owner_id: owner for owner in await off_loop(self._store.owners)}
        return record.owner in owners and not is_dead(owners[record.owner], self._run_folder)

    async def wait_cancelled(self, record: Record) -> list[dict[str, Any]]:
        """How the nodes of a cancelled tree ended, as recorded by their owner; bounded."""
        tree = await off_loop(self._store.tree, record.root_id)
        nodes = [record, *(one for one in below(tree, record.session_id)[1:] if not one.state.is_settled)]
        sessions = [one.session_id for one in nodes]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_SECONDS):
                while not all(head.state.is_settled for head in (await off_loop(self._store.heads, sessions)).values()):  # noqa: ASYNC110 - another process settles them
                    await asyncio.sleep(LOOK_SECONDS)
        return [{"session_id": one.session_id, "agent": one.agent, "state": await self._cancel_state(one.session_id)} for one in nodes]

    async def _cancel_state(self, session_id: str) -> str:
        record = await off_loop(self._store.get, session_id)
        if record is None or not record.state.is_settled:
            return "stopping"
        told = [event.body["state"] for event in await off_loop(self._store.events, session_id) if event.kind is EventKind.CANCEL]
        return next((state for state in reversed(told) if state != "requested"), str(record.state))
