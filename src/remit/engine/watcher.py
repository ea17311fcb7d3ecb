"""One look at the store for everybody who waits for what other processes run: who waits is woken when there is something of its own.

However many wait, the store is asked once whether another process has written, and then once how far those are that are waited for. It
looks while somebody waits, and never so often that looking becomes its main work. Now and then it sees whether the processes still live
that run what is waited for; what the dead left is recovered, since nobody else would end it. Used by `following` and `Looking`.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import Context
from pathlib import Path
from typing import Any

from remit.core.errors import RemitError, Unavailable
from remit.core.ports import Store
from remit.core.record import Head
from remit.core.states import State
from remit.engine.vitals import living_owners
from remit.system.threads import off_loop

LOOK_SECONDS = 0.05
"""How often the store is asked whether another process has written: one cheap pragma."""
SHARE = 0.1
"""Of the time, at most, it looks. That it waits its turn behind others is not looking: it would be late when there is most to see."""
OWNERS_SECONDS = 0.5
FORGOTTEN = Head(State.REFUSED, "", 0)
"""Whoever waits for it finds out by looking."""

Recover = Callable[[], Awaitable[Any]]
Heads = Mapping[str, Head]


class Watched:
    """What several may wait for."""

    __slots__ = ("followers", "head", "news", "turn")

    def __init__(self) -> None:
        self.followers = 0
        self.head: Head | None = None
        """As it was last seen; None: not looked at yet."""
        self.turn = 0
        self.news = asyncio.Event()

    def tell(self) -> None:
        self.turn += 1
        self.news.set()
        self.news = asyncio.Event()


class Watcher:
    def __init__(self, store: Store, run_folder: Path, recover: Callable[[], Recover | None] = lambda: None) -> None:
        """`recover`: how to look after what dead processes left, as soon as it is known; without it somebody else does."""
        self._store = store
        self._run_folder = run_folder
        self._recover = recover
        self._watched: dict[str, Watched] = {}
        self._task: asyncio.Task[None] | None = None
        self._stamp: int | None = None
        self._is_closed = False
        self.looks = 0
        """How often it asked how far they are."""

    @contextlib.contextmanager
    def watching(self, session_id: str) -> Iterator[Watched]:
        """Look first at its turn, then at the store, then wait with `moved`: nothing falls in between."""
        watched = self._watched.setdefault(session_id, Watched())
        watched.followers += 1
        try:
            yield watched
        finally:
            watched.followers -= 1
            if not watched.followers and self._watched.get(session_id) is watched:
                del self._watched[session_id]

    async def moved(self, watched: Watched, turn: int) -> None:
        """Until there may be something new since `turn`."""
        if self._is_closed:
            raise Unavailable("The orchestrator was closed meanwhile.", code="STOPPING", advice="Open the project again, and ask again.")
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look_while_watched(), context=Context())
        if watched.turn == turn:
            await watched.news.wait()

    def tell(self, session_id: str) -> None:
        """This process itself has changed it: that does not show as a change."""
        watched = self._watched.get(session_id)
        if watched is not None:
            watched.tell()

    def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        for watched in self._watched.values():
            watched.tell()

    async def _look_while_watched(self) -> None:
        loop = asyncio.get_running_loop()
        owners_at = loop.time() + OWNERS_SECONDS
        try:
            while self._watched:
                began, seconds = loop.time(), 0.0
                with contextlib.suppress(Unavailable):  # the database is busy or gone: those who wait are told when they look themselves
                    seconds = await self._look()
                    if began >= owners_at:
                        owners_at = began + OWNERS_SECONDS
                        await self._mind_owners()
                await asyncio.sleep(max(LOOK_SECONDS, seconds / SHARE))
        finally:
            for watched in self._watched.values():
                watched.tell()  # nobody waits for one that does not look any more

    async def _look(self) -> float:
        """How long the looking itself took."""
        stamp = self._store.change_stamp()
        is_same = stamp == self._stamp
        wanted = [session_id for session_id, watched in self._watched.items() if not is_same or watched.head is None]
        if not wanted:
            return 0.0
        self.looks += 1
        heads, seconds = await off_loop(_timed, self._store.heads, wanted)
        self._stamp = stamp
        for session_id in wanted:
            watched = self._watched.get(session_id)
            if watched is not None and watched.head != (head := heads.get(session_id, FORGOTTEN)):
                watched.head = head
                watched.tell()
        return seconds

    async def _mind_owners(self) -> None:
        """Recovered by this process it is told of by `tell`, by another one it shows."""
        recover = self._recover()
        if recover is None:
            return
        owners = {watched.head.owner for watched in self._watched.values() if watched.head is not None and watched.head.is_live}
        if owners and owners - await off_loop(living_owners, self._store, self._run_folder):
            with contextlib.suppress(RemitError):  # closed, or the database is busy: seen again at the next turn
                await recover()
            for watched in self._watched.values():
                watched.head = None  # looked at again, whoever has it now


def _timed(heads: Callable[[Sequence[str]], Heads], wanted: Sequence[str]) -> tuple[Heads, float]:
    """With the time that this thread was at work for it."""
    began = time.thread_time()
    return heads(wanted), time.thread_time() - began
