"""For the tests of other frameworks: an agent whose runs can be waited for, and the calls a scripted model makes of it."""

import asyncio
from typing import Any

from remit import Context, agent
from remit.testing.models import Call


class Present:
    """What runs now; others can wait until so many do."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._waiting: list[tuple[int, asyncio.Event]] = []

    def come(self, name: str) -> None:
        self.names.add(name)
        for count, event in self._waiting:
            if len(self.names) >= count:
                event.set()

    async def until(self, count: int) -> None:
        event = asyncio.Event()
        self._waiting.append((count, event))
        async with asyncio.timeout(20):
            if len(self.names) < count:
                await event.wait()
        self._waiting.remove((count, event))


present = Present()


@agent("echo")
async def echo(text: str, wait: float = 0.0) -> str:
    """Says it again."""
    present.come(text)
    try:
        await asyncio.sleep(wait)
    finally:
        present.names.discard(text)
    return f"echo {text}"


@agent("patient")
async def patient(ctx: Context) -> str:
    """Until its own soft deadline, which lies a little behind its caller's."""
    await ctx.wait_hand_in()
    return "late"


def delegate(target: str, **parameters: Any) -> Call:
    return Call("delegate", target=target, parameters=parameters)
