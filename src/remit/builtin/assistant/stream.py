"""The assistant's text as it arrives: emitted during the answer (`ReplyStream`), and received by the caller (`ask`, `stream_words`)."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from remit.core.agents import ASSISTANT
from remit.core.context import Handle
from remit.core.errors import RemitError
from remit.core.events import Event, EventKind
from remit.core.model_messages import RESTART
from remit.core.result import Return

BATCH_SECONDS = 0.05
BATCH_CHARACTERS = 2000
PAUSE = "\n\n"
"""Emitted between two replies: before a call and after it."""
_SURROGATES = re.compile("[\ud800-\udfff]")


class Starter(Protocol):
    """An open `Remit`."""

    async def start(self, agent: str, /, **asked: Any) -> Handle: ...


async def ask(
    remit: Starter, message: str, conversation: str | None = None, hear: Callable[[str], None] | None = None, **asked: Any
) -> Return:
    """Ask and return the answer; `hear` gets text as it arrives, and `RESTART` when it starts again. Cancelling stops the whole tree.

    `asked`: options of the delegation, such as `timeout` and `budget`. Without a `conversation` a new one starts."""
    handle = await remit.start(ASSISTANT, parameters=message_parameters(message, conversation), **asked)
    try:
        if hear is not None:
            async for piece in stream_words(handle.stream()):
                hear(piece)
        return await handle.result()
    except asyncio.CancelledError:
        await asyncio.shield(handle.cancel("the person stopped it"))
        raise


def message_parameters(message: str, conversation: str | None) -> dict[str, Any]:
    return {"message": replace_surrogates(message), **({"conversation": conversation} if conversation else {})}


def replace_surrogates(message: str) -> str:
    """Bytes of a terminal or a pipe that were not text are lone surrogates, which no provider accepts."""
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", message)


async def stream_words(events: AsyncIterator[Event]) -> AsyncIterator[str]:
    """The text among the events of the assistant."""
    async for event in events:
        chunk = event.body.get("chunk") if event.kind is EventKind.DATA else None
        if isinstance(chunk, dict):
            if chunk.get("restart") is True:
                yield RESTART
            elif isinstance(chunk.get("text"), str):
                yield chunk["text"]


class ReplyStream:
    """Emits the pieces of replies in batches."""

    def __init__(self, emit: Callable[[Any], None]) -> None:
        self._emit = emit
        self._loop = asyncio.get_running_loop()
        self._batch: list[str] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._said: list[str] = []
        self._needs_pause = False

    def hear(self, piece: str) -> None:
        if piece == RESTART:
            self._flush()
            if self._said:
                self._emit({"restart": True})
            self._said = []
            return
        if self._needs_pause:
            self._needs_pause = False
            self._emit({"text": PAUSE})
        self._said.append(piece)
        self._batch.append(piece)
        self._size += len(piece)
        if self._size >= BATCH_CHARACTERS:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(BATCH_SECONDS, self._flush)

    @property
    def said(self) -> str:
        """The current reply so far."""
        return "".join(self._said)

    def end_reply(self, text: str) -> None:
        """The reply is complete. The text of a model that does not stream is emitted at once."""
        if text and not self._said:
            self.hear(text)
        self._flush()
        self._needs_pause = self._needs_pause or bool(self._said)
        self._said = []

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text, self._batch, self._size = "".join(self._batch), [], 0
        if text:
            try:
                self._emit({"text": text})
            except RemitError:
                return  # the delegation has ended meanwhile
