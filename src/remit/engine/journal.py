"""The journal: writes collected during one turn of the loop and committed together. Nobody hears of a write before it is durable.

With durability "process" the commit is made in the loop, once per turn: no thread hop, about 20 µs. It moves to the writer thread
when another process holds the lock, and stays there with "power", where each group costs an fsync. Whoever waits on a full or
broken disk is told; outcomes are kept and tried again until they are written.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from dataclasses import dataclass
from typing import Any, TypeVar

from remit.core.errors import Unavailable
from remit.core.ports import Store
from remit.core.record import Applied, Begun, Recorded, Said, Settled, Write

RETRY_SECONDS = 0.25
PATIENCE_SECONDS = 0.6
"""How long a caller waits for an outcome to be written before it is answered anyway, with a warning."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Clash:
    """The session id was taken: draw again."""


@dataclass(frozen=True, slots=True)
class KeyTaken:
    """The idempotency key belongs to another delegation."""

    session_id: str


@dataclass(frozen=True, slots=True)
class Overruled:
    """Another outcome was recorded before this one, by a process that took the delegation over: that one stands."""


Problem = Clash | KeyTaken | Overruled | Unavailable | None
Then = Callable[[Problem], None]


class Journal:
    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, context: Context, *, in_loop: bool) -> None:
        self.store = store
        self._loop = loop
        self._context = context
        self._in_loop = in_loop
        self._writes: list[Write] = []
        self._thens: list[Then | None] = []
        self._armed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="remit-journal")
        self._thread_busy = False
        self._calls: list[tuple[Callable[[Store], Any], asyncio.Future[Any]]] = []
        self._owed: list[tuple[Write, Then | None, float]] = []
        """Outcomes and what was said, not written yet, and since when."""
        self._closed = False

    def write(self, write: Write, then: Then | None = None) -> None:
        self._writes.append(write)
        self._thens.append(then)
        if not self._armed:
            self._armed = True
            self._loop.call_soon(self._flush, context=self._context)

    def call(self, function: Callable[[Store], T]) -> "asyncio.Future[T]":
        """Run `function` on the writer thread, between two groups: it alone has the writing side of the store."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._calls.append((function, future))
        if not self._armed:
            self._armed = True
            self._loop.call_soon(self._flush, context=self._context)
        return future

    @property
    def owes(self) -> int:
        return len(self._owed)

    async def drain(self, seconds: float) -> None:
        """Until everything is written, at most `seconds`."""
        end = self._loop.time() + seconds
        while (  # noqa: ASYNC110 - only at the very end; five conditions, no event worth its upkeep
            self._writes or self._calls or self._thread_busy or self._owed
        ) and self._loop.time() < end:
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        await self.drain(5.0)
        self._closed = True
        self._thread.shutdown(wait=False)

    def _flush(self) -> None:
        self._armed = False
        if self._thread_busy or self._closed:
            return
        if self._calls:
            self._run_call(*self._calls.pop(0))
            return
        writes, thens = self._writes, self._thens
        if not writes:
            return
        self._writes, self._thens = [], []
        if self._in_loop:
            try:
                applied = self.store.try_apply(writes)
            except Unavailable as error:
                self._refused(writes, thens, error)
                return
            if applied is not None:
                self._tell(writes, thens, applied)
                return
        self._hand_to_thread(writes, thens)

    def _hand_to_thread(self, writes: list[Write], thens: list[Then | None]) -> None:
        self._thread_busy = True
        future = self._thread.submit(self.store.apply, writes)

        def finished() -> None:
            self._thread_busy = False
            error = future.exception()
            if error is None:
                self._tell(writes, thens, future.result())
            else:
                self._refused(writes, thens, _as_unavailable(error))
            self._go_on()

        future.add_done_callback(lambda _: self._from_thread(finished))

    def _run_call(self, function: Callable[[Store], Any], waiter: "asyncio.Future[Any]") -> None:
        self._thread_busy = True
        future = self._thread.submit(function, self.store)

        def finished() -> None:
            self._thread_busy = False
            if not waiter.done():
                error = future.exception()
                if error is None:
                    waiter.set_result(future.result())
                else:
                    waiter.set_exception(error)
            self._go_on()

        future.add_done_callback(lambda _: self._from_thread(finished))

    def _from_thread(self, finished: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(finished, context=self._context)

    def _go_on(self) -> None:
        if (self._writes or self._calls) and not self._armed:
            self._armed = True
            self._loop.call_soon(self._flush, context=self._context)

    def _tell(self, writes: list[Write], thens: list[Then | None], applied: Applied) -> None:
        if not applied.clashes and not applied.taken_keys and not applied.already_settled:
            for then in thens:
                if then is not None:
                    then(None)
            return
        for write, then in zip(writes, thens, strict=True):
            if then is not None:
                then(_problem(write, applied))

    def _refused(self, writes: list[Write], thens: list[Then | None], error: Unavailable) -> None:
        """The group was not written. What has not run yet is told so; outcomes are owed and tried again."""
        now = self._loop.time()
        lost_starts = {w.session_id for w in writes if isinstance(w, Begun)}
        for write, then in zip(writes, thens, strict=True):
            if isinstance(write, Said) or (isinstance(write, Settled) and write.session_id not in lost_starts):
                self._owed.append((write, then, now))
            elif then is not None:
                then(error)
        if len(self._owed):
            self._loop.call_later(RETRY_SECONDS, self._pay, error, context=self._context)

    def _pay(self, error: Unavailable) -> None:
        """Try what is owed again; answer those who have waited long enough."""
        owed, self._owed = self._owed, []
        if not owed or self._closed:
            return
        if self._thread_busy:
            self._owed = owed
        else:
            try:
                if self.store.try_apply([write for write, _, _ in owed]) is not None:
                    for _, then, _ in owed:
                        if then is not None:
                            then(None)
                    return
            except Unavailable as still:
                error = still
            self._owed = owed
        now = self._loop.time()
        for position, (write, then, since) in enumerate(self._owed):
            if then is not None and now - since >= PATIENCE_SECONDS:
                self._owed[position] = (write, None, since)
                then(error)
        self._loop.call_later(RETRY_SECONDS, self._pay, error, context=self._context)


def _problem(write: Write, applied: Applied) -> Problem:
    if isinstance(write, Begun | Recorded):
        session_id = write.session_id
        if session_id in applied.clashes:
            return Clash()
        if session_id in applied.taken_keys:
            return KeyTaken(applied.taken_keys[session_id])
    elif isinstance(write, Settled) and write.session_id in applied.already_settled:
        return Overruled()
    return None


def _as_unavailable(error: BaseException) -> Unavailable:
    if isinstance(error, Unavailable):
        return error
    return Unavailable(f"The journal could not be written: {error!r}.", code="STORE_UNAVAILABLE", advice="See `remit config` for its path.")
