"""The handle of a delegation that this engine queues or runs, and its interface for callers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from remit.core.context import Handle, final_event
from remit.core.delegation import Delegation
from remit.core.events import LAST, Event
from remit.core.result import Return
from remit.runtime.engine import LiveHandle

if TYPE_CHECKING:
    from remit.engines.embedded.delegation_run import DelegationRun, Outcome
    from remit.runtime.deps import Submission
    from remit.runtime.reply import Stop


class Node(Protocol):
    """A delegation in a tree as seen by its caller and the engine: in this process, or executed by a remote worker."""

    @property
    def submission(self) -> "Submission": ...
    @property
    def delegation(self) -> Delegation: ...
    @property
    def outcome(self) -> "Outcome": ...
    @property
    def can_be_drained(self) -> bool: ...
    def submit(self) -> None: ...
    def stop(self, why: "Stop", /) -> None: ...
    def below(self) -> "Iterator[Node]": ...
    def cancel_state(self) -> str: ...
    def drain(self, notice: str) -> "asyncio.Task[None] | None": ...
    def hand_over(self, notice: str) -> None: ...


class LocalHandle(LiveHandle):
    __slots__ = ("_run",)

    def __init__(self, run: "DelegationRun") -> None:
        self._run = run

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
        """The return. Cancelling a waiter does not end the delegation."""
        return await asyncio.shield(self._run.outcome.done)

    async def stream(self) -> AsyncIterator[Event]:
        run, position = self._run, 0
        while True:
            events = run.output.events
            while position < len(events):
                yield events[position]
                position += 1
            if run.outcome.is_known:
                yield final_event(run.outcome.get(), LAST + run.output.count, run.deps.clock.wall())
                return
            await run.output.wait_news()

    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        return list(await self._run.cancel_tree(reason, "its caller"))


class WaitedHandle:
    """The handle of a child for its caller, which lends its slot while it waits."""

    __slots__ = ("_caller", "_handle")

    def __init__(self, handle: Handle, caller: "DelegationRun") -> None:
        self._handle = handle
        self._caller = caller

    @property
    def session_id(self) -> str:
        return self._handle.session_id

    async def result(self) -> Return:
        with _lent_slot(self._caller):
            return await self._handle.result()

    async def stream(self) -> AsyncIterator[Event]:
        events = aiter(self._handle.stream())
        while True:
            with _lent_slot(self._caller):
                event = await anext(events, None)
            if event is None:
                return
            yield event

    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        return await self._handle.cancel(reason)


@contextlib.contextmanager
def _lent_slot(caller: "DelegationRun") -> Iterator[None]:
    caller.engine.scheduler.lend(caller)
    try:
        yield
    finally:
        caller.engine.scheduler.take_back(caller)
