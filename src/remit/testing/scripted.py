"""Scripted agents for tests: agents that play a script, turn by turn, and record their calls.

    from remit.testing import Scripted, answer, fail, say

    reader = Scripted("reader", fail("no network"), say("page 1", "page 2", then=answer("read")))
    async with Remit.open(folder, agents=[reader]) as remit:
        ...
    assert reader.calls == [{"path": "a"}, {"path": "b"}]

The n-th call plays the n-th turn; the last one is played for every further call. They run inline and take any parameters.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from remit.core.agents import AgentSpec
from remit.core.context import Context
from remit.core.request import Request

Turn = Callable[[Context, dict[str, Any]], Awaitable[Any]]


class Scripted:
    """An agent that plays turns. `declared` are fields of `AgentSpec`: timeout_seconds, retries, resumable, …"""

    def __init__(self, name: str, *turns: Turn, **declared: Any) -> None:
        self.spec = AgentSpec(name=name, source=f"scripted:{name}", **declared)
        self.turns = turns or (answer(None),)
        self.calls: list[dict[str, Any]] = []
        """The parameters of each call, in order."""
        self.contexts: list[Context] = []
        self.called = asyncio.Event()
        """Set when it is first called."""

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return parameters

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        turn = self.turns[min(len(self.calls), len(self.turns) - 1)]
        self.calls.append(arguments)
        self.contexts.append(ctx)
        self.called.set()
        return await turn(ctx, arguments)


def answer(value: Any) -> Turn:
    """Return `value`."""

    async def turn(_ctx: Context, _arguments: dict[str, Any]) -> Any:
        return value

    return turn


def fail(error: Exception | str) -> Turn:
    """Raise `error`, or a RuntimeError with that message."""

    async def turn(_ctx: Context, _arguments: dict[str, Any]) -> Any:
        raise RuntimeError(error) if isinstance(error, str) else error

    return turn


def say(*chunks: Any, then: Turn | None = None) -> Turn:
    """Stream these chunks, then continue."""

    async def turn(ctx: Context, arguments: dict[str, Any]) -> Any:
        for chunk in chunks:
            ctx.emit(chunk)
            await asyncio.sleep(0)  # each in its own turn of the loop, as from a real agent
        return await then(ctx, arguments) if then is not None else None

    return turn


def wait(signal: asyncio.Event, then: Turn | None = None) -> Turn:
    """Wait until `signal` is set, then continue."""

    async def turn(ctx: Context, arguments: dict[str, Any]) -> Any:
        await signal.wait()
        return await then(ctx, arguments) if then is not None else None

    return turn


def hang() -> Turn:
    """Never finish; can be cancelled."""
    return wait(asyncio.Event())


def hand_on(*requests: Request) -> Turn:
    """Delegate these at once, and return the data of each."""

    async def turn(ctx: Context, _arguments: dict[str, Any]) -> Any:
        return [result.data for result in await ctx.gather(*requests)]

    return turn
