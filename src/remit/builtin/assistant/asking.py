"""Ask the assistant and hear it answer: what doors need of it, in one call."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from remit.core.agents import ASSISTANT
from remit.core.events import Event, EventKind
from remit.core.result import Return
from remit.models.messages import RESTART
from remit.runtime.context import Handle

_HALVES = re.compile("[\ud800-\udfff]")


class Door(Protocol):
    """An open `Remit`."""

    async def start(self, agent: str, /, **asked: Any) -> Handle: ...


async def ask(
    remit: Door, message: str, conversation: str | None = None, hear: Callable[[str], None] | None = None, **asked: Any
) -> Return:
    """The return; `hear` is told the words as they come, and `RESTART` where they begin anew. Cancelled, it stops the whole tree.

    `asked`: options of the delegation, such as `timeout` and `budget`. Without a `conversation` a new one is begun.
    """
    handle = await remit.start(ASSISTANT, parameters=parameters_of(message, conversation), **asked)
    try:
        if hear is not None:
            async for piece in words_of(handle.stream()):
                hear(piece)
        return await handle.result()
    except asyncio.CancelledError:
        await asyncio.shield(handle.cancel("the person stopped it"))
        raise


def parameters_of(message: str, conversation: str | None) -> dict[str, Any]:
    return {"message": readable(message), **({"conversation": conversation} if conversation else {})}


def readable(message: str) -> str:
    """Bytes that were no text (of a terminal, a pipe, a command line) are halves of signs by now, which nobody can be sent."""
    return _HALVES.sub("\N{REPLACEMENT CHARACTER}", message)


async def words_of(events: AsyncIterator[Event]) -> AsyncIterator[str]:
    """The words among the events of the assistant."""
    async for event in events:
        chunk = event.body.get("chunk") if event.kind is EventKind.DATA else None
        if isinstance(chunk, dict):
            if chunk.get("restart") is True:
                yield RESTART
            elif isinstance(chunk.get("text"), str):
                yield chunk["text"]
