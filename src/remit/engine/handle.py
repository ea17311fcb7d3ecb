"""Handles: a delegation that was started and is not waited for, run here. See `elsewhere` and `flow.settled` for the rest."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from remit.core.delegation import Delegation
from remit.core.events import BEFORE_RUN, Event
from remit.core.result import Return
from remit.engine.running import Running
from remit.flow.settled import final_event

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine


class LocalHandle:
    __slots__ = ("_caller", "_engine", "_running")

    def __init__(self, running: Running, engine: "EmbeddedEngine", caller: Running | None = None) -> None:
        self._running = running
        self._engine = engine
        self._caller = caller
        """The delegation that waits for it with this handle: it lends its slot meanwhile."""

    def waited_for_by(self, caller: Running) -> "LocalHandle":
        return LocalHandle(self._running, self._engine, caller)

    @property
    def session_id(self) -> str:
        return self._running.delegation.session_id

    @property
    def delegation(self) -> Delegation:
        return self._running.delegation

    @property
    def is_queued(self) -> bool:
        """It waits for a slot."""
        return self._running.is_queued

    async def result(self) -> Return:
        """The return; waiting for it here does not tie its life to the waiter's."""
        done = self._running.done
        if done.done():
            return done.result()
        with self._waiting():
            return await asyncio.shield(done)

    async def result_within(self, seconds: float) -> Return | None:
        """The return, when it is there within so long. The first who waits is told directly: by a shield it would hear two turns later."""
        running, loop = self._running, self._engine.loop
        if running.is_told or running.waiter is not None or self._caller is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    return await self.result()
            return None
        waiter: asyncio.Future[Return] = loop.create_future()
        running.waiter = waiter
        giving_up = loop.call_later(seconds, _give_up, waiter)
        try:
            return await waiter
        except TimeoutError:
            return None
        finally:
            giving_up.cancel()
            running.waiter = None

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """A caller that waits for its child lends its slot, in whichever way it waits."""
        caller = self._caller
        if caller is None:
            yield
            return
        self._engine.lend_slot(caller)
        try:
            yield
        finally:
            self._engine.take_slot_back(caller)

    async def stream(self) -> AsyncIterator[Event]:
        running, position = self._running, 0
        while True:
            chunks = running.chunks or []
            while position < len(chunks):
                yield chunks[position]
                position += 1
            if running.told is not None:
                yield final_event(running.told, BEFORE_RUN + running.said + 7, self._engine.clock.wall())
                return
            with self._waiting():
                await running.woken()

    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        return list(await self._engine.cancel(self._running.delegation.session_id, reason, "its caller"))


async def until_recorded(running: Running) -> str | None:
    """Until it is on record, or refused; the session that holds its key, when another does. Raises what kept it from being recorded.

    Whoever is cancelled here leaves it as it is: it goes on."""
    holder: str | None = None
    if not running.is_told:
        running.recorded = running.engine.loop.create_future()
        try:
            holder = await running.recorded
        except asyncio.CancelledError:
            running.recorded = running.engine.loop.create_future()  # for those who follow it: the other one went with its caller
            raise
    if holder is None and running.trouble is not None:
        raise running.trouble
    return holder


def _give_up(waiter: "asyncio.Future[Return]") -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
