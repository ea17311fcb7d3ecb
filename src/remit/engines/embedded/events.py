"""Events of delegations: published to listeners in this process, polled in the store, followed from any process."""

import asyncio
import contextlib
import time
from bisect import bisect_right
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextvars import Context
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.context import final_event
from remit.core.errors import Misused, RemitError, Unavailable
from remit.core.events import BEFORE_RUN, LAST, Event, events_of_steps
from remit.core.ports import Store
from remit.core.record import Head, Record
from remit.core.result import Return
from remit.core.states import State
from remit.engines.embedded.peers import StoreChanges
from remit.system.liveness import living_owners
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engines.embedded.delegation_run import DelegationRun


SHARE = 0.1
"""Maximum share of time spent polling. Waiting for a thread does not count, because polling would be slowest under load."""
OWNERS_SECONDS = 0.5
HEADS_AT_ONCE = 1000
"""Maximum delegations per read: the rows of ten thousand would take megabytes."""
FORGOTTEN = Head(State.REFUSED, "", 0)
"""A waiter detects it on its next read."""

Recover = Callable[[], Awaitable[Any]]


class WatchedDelegation:
    """A delegation with waiters."""

    __slots__ = ("_news", "followers", "head", "listener", "turn")

    def __init__(self) -> None:
        self.followers = 0
        self.head: Head | None = None
        """The last known state; None: not read yet."""
        self.turn = 0
        self.listener: Callable[[], None] | None = None
        self._news: asyncio.Event | None = None

    def tell(self) -> None:
        self.turn += 1
        if self._news is not None:
            self._news.set()
            self._news = None
        if self.listener is not None and (self.head is None or self.head.state.is_settled):
            listener, self.listener = self.listener, None
            listener()

    async def wait_news(self) -> None:
        if self._news is None:
            self._news = asyncio.Event()
        await self._news.wait()


class Watcher:
    def __init__(self, store: Store, run_folder: Path, recover: Recover | None = None) -> None:
        """`recover`: resumes or settles the delegations of dead processes; None: another process does."""
        self._store = store
        self._run_folder = run_folder
        self._recover = recover
        self._watched: dict[str, WatchedDelegation] = {}
        self._task: asyncio.Task[None] | None = None
        self._stamp: int | None = None
        self._is_closed = False

    @contextlib.contextmanager
    def watching(self, session_id: str) -> Iterator[WatchedDelegation]:
        """Read its turn first, then the store, then wait with `moved`, so that no change is missed."""
        watched = self._add_follower(session_id)
        try:
            yield watched
        finally:
            self._remove_follower(session_id, watched)

    def call_when_settled(self, session_id: str, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` once, when its outcome is recorded or its state is unknown. Returns what ends the watch. Costs a fraction of a
        task that waits."""
        watched = self._add_follower(session_id)
        watched.listener = listener
        watched.head = None  # read again: followers may have been told of its outcome before
        self._keep_looking()

        def end() -> None:
            watched.listener = None
            self._remove_follower(session_id, watched)

        return end

    def head(self, session_id: str) -> Head | None:
        """The last known state of a watched delegation."""
        watched = self._watched.get(session_id)
        return None if watched is None else watched.head

    def _add_follower(self, session_id: str) -> WatchedDelegation:
        watched = self._watched.get(session_id)
        if watched is None:
            watched = self._watched[session_id] = WatchedDelegation()
        watched.followers += 1
        return watched

    def _remove_follower(self, session_id: str, watched: WatchedDelegation) -> None:
        watched.followers -= 1
        if not watched.followers and self._watched.get(session_id) is watched:
            del self._watched[session_id]

    async def moved(self, watched: WatchedDelegation, turn: int) -> None:
        """Wait until there may be something new since `turn`."""
        if self._is_closed:
            raise Unavailable("The orchestrator was closed meanwhile.", code="STOPPING", advice="Open the project again, and ask again.")
        self._keep_looking()
        if watched.turn == turn:
            await watched.wait_news()

    def _keep_looking(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look_while_watched(), context=Context())

    def tell(self, session_id: str) -> None:
        """Report a change by this process, which the store does not signal."""
        watched = self._watched.get(session_id)
        if watched is not None:
            watched.head = None
            watched.tell()

    def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        self._tell_all()

    def _tell_all(self) -> None:
        """Nothing is polled from now on."""
        for watched in list(self._watched.values()):
            watched.head = None
            watched.tell()

    async def _look_while_watched(self) -> None:
        loop = asyncio.get_running_loop()
        owners_at = loop.time() + OWNERS_SECONDS
        changes = StoreChanges(self._store)
        try:
            while self._watched:
                began, seconds = loop.time(), 0.0
                with contextlib.suppress(Unavailable):  # the database is busy or gone: waiters get the error on their own read
                    seconds = await self._look(changes)
                    if began >= owners_at:
                        owners_at = began + OWNERS_SECONDS
                        await self._watch_owners()
                await changes.wait(seconds / SHARE)
        finally:
            changes.close()
            self._tell_all()

    async def _look(self, changes: StoreChanges) -> float:
        """Returns the duration of the poll."""
        total, stamp = 0.0, await changes.stamp()
        wanted = [session_id for session_id, watched in self._watched.items() if stamp != self._stamp or watched.head is None]
        for start in range(0, len(wanted), HEADS_AT_ONCE):
            part = wanted[start : start + HEADS_AT_ONCE]
            heads, seconds = await off_loop(self._timed_heads, part)
            total += seconds
            for session_id in part:
                watched = self._watched.get(session_id)
                if watched is not None and watched.head != (head := heads.get(session_id, FORGOTTEN)):
                    watched.head = head
                    watched.tell()
        self._stamp = stamp
        return total

    def _timed_heads(self, wanted: Sequence[str]) -> tuple[dict[str, Head], float]:
        """The heads, with the thread time used."""
        began = time.thread_time()
        return self._store.heads(wanted), time.thread_time() - began

    async def _watch_owners(self) -> None:
        """Recover delegations of dead owners. This process reports its own recoveries with `tell`; those of others appear in the store."""
        if self._recover is None:
            return
        owners = {watched.head.owner for watched in self._watched.values() if watched.head is not None and watched.head.is_recoverable}
        if owners and owners - await off_loop(living_owners, self._store, self._run_folder):
            with contextlib.suppress(RemitError):  # closed, or the database is busy: seen at the next turn
                await self._recover()
            for watched in self._watched.values():
                watched.head = None  # checked again under its new owner


FARTHEST = 2**53
"""Larger than any event number that a client may send."""
AT_ONCE = 16
"""Events per read from the store: slow readers keep them in memory, and there may be a thousand."""

Find = Callable[[str], "DelegationRun | None"]
"""The delegation of a session, if this process runs it."""


async def known(store: Store, session_id: str) -> Record:
    record = await off_loop(store.get, session_id)
    if record is None:
        raise Misused(f"There is no delegation {session_id[:80]}.", code="INVALID_TARGET", advice="`remit history` lists them.")
    return record


class EventStreams:
    """Events and returns of delegations in any process: from memory if this process runs them, else from the store."""

    def __init__(self, store: Store, run_folder: Path, find: Find = lambda _session_id: None, recover: Recover | None = None) -> None:
        """`recover`: resumes or settles the delegations of dead processes; None: another process does."""
        self._store = store
        self._find = find
        self.watcher = Watcher(store, run_folder, recover)

    def close(self) -> None:
        self.watcher.close()

    async def follow(self, session_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """Events after number `after`, in order, each once; the last is the return."""
        after = min(max(after, 0), FARTHEST)
        ended: tuple[Return, int] | None = None
        with self.watcher.watching(session_id) as watched:
            while True:
                turn = watched.turn
                ours = self._find(session_id)
                if ours is not None and ours.is_recorded:
                    async for event in _from_memory(ours, after):
                        after = event.number
                        yield event
                    ended = ours.outcome.get(), ours.output.count
                ours = None  # a slow reader must not keep its output in memory
                record = await known(self._store, session_id)
                async for event in self._from_store(record, after):
                    after = event.number
                    yield event
                if record.result is not None:
                    ended = record.result, record.chunk_count
                if ended is not None:
                    result, said = ended
                    yield final_event(result, LAST + said, record.settled_at or record.created_at)
                    return
                ours = self._find(session_id)
                if ours is None:
                    await self.watcher.moved(watched, turn)
                elif not ours.is_recorded:  # in this process, being recorded
                    await ours.outcome.wait_recorded_or_done()

    async def result(self, session_id: str, wait_seconds: float) -> Return | None:
        """The return if it comes within `wait_seconds`."""
        result = (await known(self._store, session_id)).result
        if result is not None or wait_seconds <= 0:
            return result
        try:
            async with asyncio.timeout(wait_seconds):
                return await self.outcome(session_id)
        except TimeoutError:
            return (await known(self._store, session_id)).result

    async def outcome(self, session_id: str) -> Return:
        """The return, without a time limit."""
        with self.watcher.watching(session_id) as watched:
            while True:
                turn = watched.turn
                ours = self._find(session_id)
                if ours is not None:
                    return await asyncio.shield(ours.outcome.done)
                result = (await known(self._store, session_id)).result
                if result is not None:
                    return result
                if self._find(session_id) is None:
                    await self.watcher.moved(watched, turn)

    async def _from_store(self, record: Record, after: int) -> AsyncGenerator[Event, None]:
        is_waiting = record.result is None and record.step_times[BEFORE_RUN - 1] is None
        while True:
            events = await off_loop(self._store.events, record.session_id, after, AT_ONCE)
            is_last = len(events) < AT_ONCE
            for event in events:
                if is_waiting and event.number >= BEFORE_RUN:
                    return  # notices from the queue follow the step that ends the wait
                after = event.number
                yield event
            if is_last:
                return


async def _from_memory(run: "DelegationRun", after: int) -> AsyncGenerator[Event, None]:
    """Until it has ended; the last steps are read from the record."""
    while True:
        for event in _recorded_events(run, after):
            after = event.number
            yield event
        if run.outcome.is_known:
            return
        if not any(True for _ in _recorded_events(run, after)):
            await run.output.wait_news()


def _recorded_events(run: "DelegationRun", after: int) -> Iterator[Event]:
    """Its recorded events in order, including events that arrive meanwhile."""
    if after < BEFORE_RUN:
        before = tuple(None if at is None or at != at else at for at in run.submission.step_times[:BEFORE_RUN])
        yield from (step for step in events_of_steps(run.delegation.session_id, before, 0) if step.number > after)
        if before[-1] is None:
            return  # as in `_from_store`
    output = run.output
    place = bisect_right(output.events, max(after, BEFORE_RUN), key=attrgetter("number"))
    while place < len(output.events) and output.events[place].number <= output.on_record:
        yield output.events[place]
        place += 1
