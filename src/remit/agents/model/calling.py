"""The calls of one turn of a model, made at once: each becomes a delegation, or words that say what is wrong with it.

Results come in the order of the calls, and whatever becomes of one never loses the others. Knows no model (see `talking`, which uses it).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from remit.agents.model.taking import MOST_CALLS
from remit.core.errors import RemitError, Stopped
from remit.core.result import Return, StopReason
from remit.flow.context import Context, Handle
from remit.models.messages import Result, ToolCall
from remit.tool.catalogue import DelegateError, json_text
from remit.tool.request import DelegateRequest
from remit.tool.result import DelegateResult, result_of
from remit.tool.shortening import shortened
from remit.tool.tool import DelegateTool

FAULT_CHARACTERS = 3000
HANDING_IN_SHARE = 0.3
"""Of the time that is left at the soft deadline: so long children may still end by themselves."""
_NOBODY_WAITS = "its caller no longer waits for it"
_TIME_IS_UP = "its caller must hand in"


class Ending(Protocol):
    """When whoever talks must hand in: a `Context` at its soft deadline, the assistant shortly before the limit of its message."""

    @property
    def hand_in(self) -> bool: ...
    @property
    def remaining(self) -> float: ...
    async def wait_hand_in(self) -> None: ...


Shown = Callable[[DelegateResult], str]
Started = Callable[[ToolCall, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    result: Result
    is_run: bool
    """Whether something was done: it was neither faulty nor refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    ctx: Context
    tool: DelegateTool | None
    shown: Shown = shortened
    started: Started | None = None
    ending: Ending | None = None
    """None: the context's."""

    async def call_all(self, calls: Sequence[ToolCall]) -> list[Called]:
        """What each gave, in their order. At the soft deadline those that still run may end by themselves for a while, then are stopped."""
        turn, ending = _Turn(at_once=asyncio.Semaphore(self._room())), self.ending or self.ctx
        tasks = [asyncio.ensure_future(self._one(call, turn)) for call in calls]
        try:
            if not await until_hand_in(ending, tasks):
                await asyncio.wait(tasks, timeout=max(0.0, ending.remaining * HANDING_IN_SHARE))
                await turn.stop(max(0.0, ending.remaining * HANDING_IN_SHARE))
                await asyncio.wait(tasks, timeout=0.1)  # what was stopped tells what it has
            for task in tasks:
                task.cancel()
            return [_ended(call, one) for call, one in zip(calls, await asyncio.gather(*tasks, return_exceptions=True), strict=True)]
        finally:
            for task in tasks:
                task.cancel()

    def _room(self) -> int:
        alive = self.ctx.budget.alive
        return max(1, min(MOST_CALLS, MOST_CALLS if alive is None else alive))

    async def _one(self, call: ToolCall, turn: "_Turn") -> Called:
        fault = self._fault_of(call)
        if fault is not None:
            return faulty(call, fault)
        assert self.tool is not None
        try:
            request = self.tool.read(call.arguments)
        except DelegateError as error:
            return faulty(call, _words_of(error))
        async with turn.at_once:
            return await self._run(call, request, turn)

    def _fault_of(self, call: ToolCall) -> str | None:
        if self.tool is None:
            return f"There is no tool {call.name!r:.80}: you have none. Answer in words."
        if call.name != self.tool.name:
            return (
                f"There is no tool {call.name!r:.80}. Your only tool is {self.tool.name}: call it with target, operation and parameters. "
                f"Targets: {', '.join(sorted(self.tool.catalogue.targets())[:30]) or 'none'}."
            )
        if isinstance(call.arguments, str):
            return f"The arguments of {call.name} must be one JSON object, whole; these are none: {call.arguments!r:.200}"
        return None

    async def _run(self, call: ToolCall, request: DelegateRequest, turn: "_Turn") -> Called:
        asked_at = self.ctx.deadline - self.ctx.remaining
        try:
            handle = await self.ctx.start(request.agent, **request.asked())
        except Stopped:
            raise
        except RemitError as error:  # it could not be put on record, or there is no such agent any more
            return faulty(call, _words_of(error))
        if self.started is not None:
            self.started(call, handle.session_id)
        returned = await turn.result(handle)
        shown = self.shown(result_of(returned, asked_at))
        return Called(
            # It says itself whether it succeeded. Marked as an error, it would be wrapped in JSON once more on its way to some models.
            result=Result(call_id=call.call_id, name=call.name, text=shown),
            is_run=returned.stop_reason is not StopReason.REFUSED,
        )


class _Turn:
    """What runs of one turn."""

    def __init__(self, at_once: asyncio.Semaphore) -> None:
        self.at_once = at_once
        self._handles: dict[str, Handle] = {}

    async def result(self, handle: Handle) -> Return:
        """Whoever stops waiting for it stops it: nobody would see what it does."""
        self._handles[handle.session_id] = handle
        try:
            return await handle.result()
        except asyncio.CancelledError:
            _keep(asyncio.ensure_future(handle.cancel(_NOBODY_WAITS)))
            raise
        finally:
            del self._handles[handle.session_id]

    async def stop(self, seconds: float) -> None:
        stopping = [asyncio.ensure_future(handle.cancel(_TIME_IS_UP)) for handle in self._handles.values()]
        if stopping:
            await asyncio.wait(stopping, timeout=seconds)
        for task in stopping:
            _keep(task)


async def until_hand_in(ending: Ending, tasks: "Sequence[asyncio.Future[Any]]") -> bool:
    """Whether all of them ended before the soft deadline."""
    bell = asyncio.ensure_future(ending.wait_hand_in())
    try:
        while (pending := [task for task in tasks if not task.done()]) and not bell.done():
            await asyncio.wait([*pending, bell], return_when=asyncio.FIRST_COMPLETED)
        return not pending
    finally:
        bell.cancel()
        bell.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


def _ended(call: ToolCall, outcome: Called | BaseException) -> Called:
    if isinstance(outcome, Called):
        return outcome
    if isinstance(outcome, asyncio.CancelledError):
        return faulty(call, "It was stopped before it ended: your time is nearly up.")
    raise outcome


def faulty(call: ToolCall, words: str) -> Called:
    """A call of which nothing came but these words."""
    return Called(result=Result(call_id=call.call_id, name=call.name, text=words[:FAULT_CHARACTERS], is_error=True), is_run=False)


def _words_of(error: RemitError) -> str:
    """What is wrong, and what is allowed, within a limit: a model is to do better with it."""
    words = f"{error.code}: {error}"
    details = {name: value for name, value in error.details.items() if name != "faults"} if isinstance(error, DelegateError) else {}
    allowed = json_text(details) if details else ""
    return f"{words} {allowed}" if allowed and len(words) + len(allowed) < FAULT_CHARACTERS else words


_STOPPING: set[asyncio.Future[Any]] = set()


def _keep(task: "asyncio.Future[Any]") -> None:
    """Until it is done: the loop itself holds tasks only weakly."""
    _STOPPING.add(task)
    task.add_done_callback(_forget)


def _forget(task: "asyncio.Future[Any]") -> None:
    _STOPPING.discard(task)
    if not task.cancelled():
        task.exception()
