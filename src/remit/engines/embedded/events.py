"""Events of delegations: told to listeners in this process, watched for in the store, followed from any process."""

import asyncio
import contextlib
import logging
import time
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import Context
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from remit.core.delegation import Delegation
from remit.core.errors import ErrorInfo, Misused, RemitError, Unavailable
from remit.core.events import BEFORE_RUN, NOT_REACHED, STEPS, Event, events_of_steps
from remit.core.lifecycle import AT_DOORS, OUTCOMES, LifecycleEvent, LifecycleKind
from remit.core.ports import Store
from remit.core.record import Head, Record
from remit.core.result import Return
from remit.core.states import State
from remit.engines.embedded.peers import living_owners
from remit.runtime.context import final_event
from remit.runtime.reply import state_of
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engines.embedded.embedded import EmbeddedEngine
    from remit.engines.embedded.running import Running


ROOM = 10_000
NOTHING_SAID: Mapping[str, Any] = MappingProxyType({})
_LOG = logging.getLogger("remit")

Listener = Callable[[LifecycleEvent], None]


class Listeners(list[tuple[Listener, frozenset[LifecycleKind]]]):
    """A plain list for the engine, whose emptiness is asked on every call; and those who wait for the end of it."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: frozenset[LifecycleKind] = frozenset()
        """What anybody listens for."""
        self.wants_more = False
        """Somebody listens for more of delegations than starts and ends."""
        self._readers: weakref.WeakSet[LifecycleEvents] = weakref.WeakSet()

    def hear(self, listener: Listener, kinds: Iterable[LifecycleKind] = OUTCOMES) -> Callable[[], None]:
        """Until what is given back is called."""
        heard = (listener, _known(kinds))
        self.append(heard)
        self.reckon()
        return partial(_forget, self, heard)

    def read(self, kinds: Iterable[LifecycleKind] = OUTCOMES) -> "LifecycleEvents":
        reader = LifecycleEvents(self, kinds=kinds)
        self._readers.add(reader)
        return reader

    def close(self) -> None:
        self.clear()
        self.reckon()
        for reader in list(self._readers):
            reader.close()

    def reckon(self) -> None:
        self.wanted = frozenset().union(*(kinds for _, kinds in self))
        self.wants_more = not self.wanted <= OUTCOMES | AT_DOORS

    def tell(self, event: LifecycleEvent) -> None:
        for listener, kinds in tuple(self):
            if event.kind not in kinds:
                continue
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - users' code: whatever it raises must not become the delegation's
                _LOG.warning("A listener of remit's events raised.", exc_info=True)


class LifecycleEvents:
    """What happens from now on, in order. Ends when the `Remit` is closed, or this is."""

    def __init__(self, listeners: Listeners, room: int = ROOM, kinds: Iterable[LifecycleKind] = OUTCOMES) -> None:
        self.lost = 0
        """So many were not read in time; the oldest were dropped for newer ones."""
        self._kept: deque[LifecycleEvent] = deque()
        self._room = room
        self._is_closed = False
        self._news = asyncio.Event()
        itself = weakref.ref(self)  # whoever forgets it is not listened for any more

        def take(event: LifecycleEvent) -> None:
            reader = itself()
            if reader is not None:
                reader._take(event)

        weakref.finalize(self, listeners.hear(take, kinds))

    def __aiter__(self) -> "LifecycleEvents":
        return self

    async def __anext__(self) -> LifecycleEvent:
        while not self._kept:
            if self._is_closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._kept.popleft()

    def close(self) -> None:
        """What was kept can still be read."""
        self._is_closed = True
        self._news.set()

    def _take(self, event: LifecycleEvent) -> None:
        if self._is_closed:
            return
        if len(self._kept) >= self._room:
            self._kept.popleft()
            self.lost += 1
        self._kept.append(event)
        self._news.set()


def tell_queued(engine: "EmbeddedEngine", running: "Running") -> None:
    """The steps up to its being on record; it waits for a slot."""
    _tell_steps(engine.listeners, running.delegation, running.step_times, running, State.QUEUED)


def tell_started(engine: "EmbeddedEngine", running: "Running") -> None:
    _tell_steps(engine.listeners, running.delegation, running.step_times, running, State.RUNNING)
    engine.listeners.tell(_of(LifecycleKind.STARTED, running.delegation, engine.clock.wall(), State.RUNNING))


def tell_reached(running: "Running") -> None:
    """Steps on the way; asked for where `wants_more`."""
    _tell_steps(running.engine.listeners, running.delegation, running.step_times, running, running.state)


def tell_said(running: "Running", event: Event) -> None:
    """What it says, as it says it; asked for where `wants_more`."""
    listeners, kind = running.engine.listeners, LifecycleKind(f"delegation.{event.kind}")
    if kind in listeners.wanted:
        listeners.tell(_of(kind, running.delegation, event.at, running.state, body=event.body))


def tell_settled(engine: "EmbeddedEngine", running: "Running", result: Return) -> None:
    _tell_steps(engine.listeners, running.delegation, running.step_times, running, state_of(result))
    tell_ended(engine, running.delegation, result, running.tokens, running.cost, running.step_times)


def tell_refused(engine: "EmbeddedEngine", delegation: Delegation, refusal: Return, step_times: Sequence[float | None]) -> None:
    _tell_steps(engine.listeners, delegation, step_times, None, State.REFUSED)
    tell_ended(engine, delegation, refusal, step_times=step_times)


def tell_ended(
    engine: "EmbeddedEngine",
    delegation: Delegation,
    result: Return,
    tokens: int = 0,
    cost: float = 0.0,
    step_times: Sequence[float | None] = (),
) -> None:
    now, kind = engine.clock.wall(), LifecycleKind.COMPLETED if result.ok else LifecycleKind.FAILED
    steps = tuple(NOT_REACHED if at is None else at for at in step_times)
    engine.listeners.tell(_of(kind, delegation, now, state_of(result), result, tokens, cost, step_times=steps))


def tell_at_door(listeners: Listeners, *, door: str, principal: str | None, at: float, error: ErrorInfo | None = None) -> None:
    """Of a request that was let in, or was not."""
    kind = LifecycleKind.ADMITTED if error is None else LifecycleKind.TURNED_AWAY
    if kind in listeners.wanted:
        listeners.tell(LifecycleEvent(kind=kind, at=at, door=door, principal=principal, success=error is None, error=error))


def _tell_steps(
    listeners: Listeners, delegation: Delegation, step_times: Sequence[float | None], running: "Running | None", state: State
) -> None:
    """Those that were reached and not told yet, in their order, each with its own time."""
    if LifecycleKind.STEP not in listeners.wanted:
        return
    begin, told = 0 if running is None else running.steps_told, 0
    for position in range(begin, len(step_times)):
        at = step_times[position]
        if at is not None and at == at:  # reached: neither None nor NOT_REACHED
            told = position + 1
            listeners.tell(_of(LifecycleKind.STEP, delegation, at, state, body={"step": str(STEPS[position])}))
    if running is not None and told:
        running.steps_told = told


def _of(
    kind: LifecycleKind,
    delegation: Delegation,
    at: float,
    state: State,
    result: Return | None = None,
    tokens: int = 0,
    cost: float = 0.0,
    *,
    body: Mapping[str, Any] = NOTHING_SAID,
    step_times: tuple[float, ...] = (),
) -> LifecycleEvent:
    lineage, caller_info = delegation.lineage, delegation.caller_info
    target, _, operation = delegation.agent.partition(".")
    return LifecycleEvent(
        kind=kind,
        at=at,
        session_id=lineage.session_id,
        root_id=lineage.root_id,
        parent_id=lineage.parent_id,
        depth=lineage.depth,
        target=target,
        operation=operation or None,
        state=str(state),
        duration_seconds=None if result is None else max(0.0, at - delegation.created_at),
        success=None if result is None else result.ok,
        error=result.errors[0] if result is not None and result.errors else None,
        tokens=tokens,
        cost=cost,
        principal=None if caller_info is None else caller_info.principal,
        door=(caller_info.door or None) if caller_info is not None else None,
        body=body,
        delegation=delegation,
        result=result,
        step_times=step_times,
    )


def _known(kinds: Iterable[LifecycleKind]) -> frozenset[LifecycleKind]:
    try:
        return frozenset(map(LifecycleKind, (kinds,) if isinstance(kinds, str) else kinds))
    except ValueError as error:
        raise Misused(f"{error}.", advice=f"Use {', '.join(LifecycleKind)}.") from None


def _forget(listeners: Listeners, heard: tuple[Listener, frozenset[LifecycleKind]]) -> None:
    if heard in listeners:
        listeners.remove(heard)
        listeners.reckon()


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


FARTHEST = 2**53
"""No event has so high a number, whatever a client says that it has seen."""
AT_ONCE = 256
"""Events read from the store at a time, at most."""
FEW = 8
"""At first, while nobody knows how large they are."""
AT_ONCE_CHARACTERS = 64 * 1024
"""About so much of them is held at a time for one that reads slowly: a thousand may."""
LAST = len(STEPS) + 1
"""The number of the last event of a delegation that said nothing: after all steps."""

Here = Callable[[str], "Running | None"]
"""The delegation of a session, when this process runs it."""


async def known(store: Store, session_id: str) -> Record:
    record = await off_loop(store.get, session_id)
    if record is None:
        raise Misused(f"There is no delegation {session_id[:80]}.", code="INVALID_TARGET", advice="`remit history` lists them.")
    return record


async def follow(store: Store, watcher: Watcher, here: Here, session_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
    """Those with a number above `after`, in order, each once; the last is always the return."""
    after = min(max(after, 0), FARTHEST)
    ended: tuple[Return, int] | None = None
    with watcher.watching(session_id) as watched:
        while True:
            turn = watched.turn
            ours = here(session_id)
            if ours is not None and ours.is_recorded:
                async for event in _from_memory(ours, after):
                    after = event.number
                    yield event
                ended = _outcome(ours)
            ours = None  # whoever reads slowly must not keep what it said in memory
            record = await known(store, session_id)
            async for event in _from_store(store, record, after):
                after = event.number
                yield event
            if record.result is not None:
                ended = record.result, record.chunk_count
            if ended is not None:
                result, said = ended
                yield final_event(result, LAST + said, record.settled_at or record.created_at)
                return
            await _news(watcher, watched, turn, here(session_id))


def _outcome(running: "Running") -> tuple[Return, int]:
    """As its caller was told it; also where it could not be written yet."""
    if running.told is None:
        assert running.trouble is not None
        raise running.trouble
    return running.told, running.said


async def _news(watcher: Watcher, watched: Watched, turn: int, ours: "Running | None") -> None:
    if ours is None:
        await watcher.moved(watched, turn)
    elif not ours.is_recorded:  # of this process, on its way
        await asyncio.wait([ours.done if ours.recorded is None else ours.recorded], timeout=1.0)


async def _from_memory(running: "Running", after: int) -> AsyncGenerator[Event, None]:
    """Until it has ended: what comes with the end is read from the record."""
    while True:
        for event in _said(running, after):
            after = event.number
            yield event
        if running.is_told:
            return
        if not any(True for _ in _said(running, after)):
            await running.woken()


def _said(running: "Running", after: int) -> Iterator[Event]:
    """What is on record of it now, one after the other; what is said meanwhile comes too."""
    if after < BEFORE_RUN:
        before = tuple(None if at is None or at != at else at for at in running.step_times[:BEFORE_RUN])
        yield from (step for step in events_of_steps(running.delegation.session_id, before, 0) if step.number > after)
        if before[-1] is None:
            return  # what was said of it in the queue comes after the step by which it leaves it
    chunks = running.chunks or ()
    place = bisect_right(chunks, max(after, BEFORE_RUN), key=_number)
    while place < len(chunks) and chunks[place].number <= running.on_record:
        yield chunks[place]
        place += 1


def _number(event: Event) -> int:
    return event.number


async def _from_store(store: Store, record: Record, after: int) -> AsyncGenerator[Event, None]:
    is_waiting = record.result is None and record.step_times[BEFORE_RUN - 1] is None
    most = FEW
    while True:
        events = await off_loop(store.events, record.session_id, after, most)
        size, is_last = sum(_size(event) for event in events), len(events) < most
        while events:
            event = events.pop(0)  # of what was given out nothing is held
            if is_waiting and event.number >= BEFORE_RUN:
                return  # as above
            after = event.number
            yield event
        if is_last:
            return
        most = max(1, min(AT_ONCE, most * AT_ONCE_CHARACTERS // max(1, size)))


def _size(event: Event) -> int:
    """About what it takes. The texts of what it said count; what is nested in them is as large as it looks."""
    return sum(len(value) if isinstance(value, str) else len(str(value)) for value in event.body.values())


async def settled(store: Store, watcher: Watcher, here: Here, session_id: str, seconds: float) -> Return | None:
    """The return, when it is there within so long; None: not yet."""
    result = (await known(store, session_id)).result
    if result is not None or seconds <= 0:
        return result
    try:
        async with asyncio.timeout(seconds):
            return await ending(store, watcher, here, session_id)
    except TimeoutError:
        return (await known(store, session_id)).result


async def ending(store: Store, watcher: Watcher, here: Here, session_id: str) -> Return:
    with watcher.watching(session_id) as watched:
        while True:
            turn = watched.turn
            ours = here(session_id)
            if ours is not None:
                return await asyncio.shield(ours.done)
            result = (await known(store, session_id)).result
            if result is not None:
                return result
            if here(session_id) is None:
                await watcher.moved(watched, turn)
