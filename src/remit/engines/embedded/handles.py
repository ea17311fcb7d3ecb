"""The handle of a delegation that this process runs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from remit.core.delegation import Delegation
from remit.core.events import LAST, Event
from remit.core.result import Return
from remit.engines.embedded.delegation_run import DelegationRun
from remit.runtime.context import final_event
from remit.runtime.engine import LiveHandle


class LocalHandle(LiveHandle):
    __slots__ = ("_caller", "_run")

    def __init__(self, run: DelegationRun, caller: DelegationRun | None = None) -> None:
        self._run = run
        self._caller = caller
        """The delegation that waits with this handle: it lends its slot meanwhile."""

    def waited_for_by(self, caller: DelegationRun) -> "LocalHandle":
        return LocalHandle(self._run, caller)

    @property
    def session_id(self) -> str:
        return self._run.delegation.session_id

    @property
    def delegation(self) -> Delegation:
        return self._run.delegation

    @property
    def is_queued(self) -> bool:
        return self._run.engine.scheduler.is_waiting(self._run)

    async def result(self) -> Return:
        """The return. A waiter that is cancelled does not end the delegation."""
        done = self._run.outcome.done
        if done.done():
            return done.result()
        with self._waiting():
            return await asyncio.shield(done)

    async def result_within(self, seconds: float) -> Return | None:
        """The return if it comes within `seconds`. The first waiter is told directly: a shield would tell it two turns later."""
        outcome, loop = self._run.outcome, self._run.engine.loop
        if outcome.is_known or outcome.waiter is not None or self._caller is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    return await self.result()
            return None
        waiter: asyncio.Future[Return] = loop.create_future()
        outcome.waiter = waiter
        timer = loop.call_later(seconds, _time_out, waiter)
        try:
            return await waiter
        except TimeoutError:
            return None
        finally:
            timer.cancel()
            outcome.waiter = None

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """A caller that waits for its child lends its slot."""
        caller = self._caller
        if caller is None:
            yield
            return
        caller.engine.scheduler.lend(caller)
        try:
            yield
        finally:
            caller.engine.scheduler.take_back(caller)

    async def stream(self) -> AsyncIterator[Event]:
        run, position = self._run, 0
        while True:
            events = run.output.events
            while position < len(events):
                yield events[position]
                position += 1
            if run.outcome.result is not None:
                yield final_event(run.outcome.result, LAST + run.output.count, run.deps.clock.wall())
                return
            if run.outcome.error is not None:
                raise run.outcome.error
            with self._waiting():
                await run.output.wait_news()

    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        return list(await self._run.cancel_tree(reason, "its caller"))


def _time_out(waiter: "asyncio.Future[Return]") -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
