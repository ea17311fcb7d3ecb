"""Following a delegation: its events by number, from any of them on, whoever runs it; at the end its return, once (S5.7).

What runs here is read from its own memory as it is written, woken by it; what another process runs from the store, woken by the one
`Watcher` of all. Nothing is kept for a reader but its place: however slowly it reads, and however many read, memory does not grow. An
event is given out when it is on record, so that its number means the same after a crash. Used by `Looking.follow`.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Iterator

from remit.core.errors import Misused
from remit.core.events import BEFORE_RUN, STEPS, Event, events_of_steps
from remit.core.ports import Store
from remit.core.record import Record
from remit.core.result import Return
from remit.engine.running import Running
from remit.engine.watcher import Watched, Watcher
from remit.flow.settled import final_event
from remit.system.threads import off_loop

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

Here = Callable[[str], Running | None]
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


def _outcome(running: Running) -> tuple[Return, int]:
    """As its caller was told it; also where it could not be written yet."""
    if running.told is None:
        assert running.trouble is not None
        raise running.trouble
    return running.told, running.said


async def _news(watcher: Watcher, watched: Watched, turn: int, ours: Running | None) -> None:
    if ours is None:
        await watcher.moved(watched, turn)
    elif not ours.is_recorded:  # of this process, on its way
        await asyncio.wait([ours.done if ours.recorded is None else ours.recorded], timeout=1.0)


async def _from_memory(running: Running, after: int) -> AsyncGenerator[Event, None]:
    """Until it has ended: what comes with the end is read from the record."""
    while True:
        for event in _said(running, after):
            after = event.number
            yield event
        if running.is_told:
            return
        if not any(True for _ in _said(running, after)):
            await running.woken()


def _said(running: Running, after: int) -> Iterator[Event]:
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
