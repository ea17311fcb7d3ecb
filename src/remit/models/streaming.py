"""One question to one model, streamed: heard as it comes, cut where it is too long, given up when nothing comes.

Imports pydantic-ai: only when a model is asked. Knows no other model and no retry; see `asking`.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import StreamedResponse
from pydantic_ai.settings import ModelSettings

from remit.core.secret_looks import REDACTED
from remit.models.connecting import Connection
from remit.models.counting import Spent, spent
from remit.models.messages import Reply
from remit.models.question import Ended, Question
from remit.models.translating import reply_of, request_of

WORDLESS = 5
"""A model whose connection is alive (it pings, as while it thinks) may say nothing so many times longer than one that is silent."""

SHORTEST_KEY = 16


class Died(Exception):
    """The stream ended before the reply did, or the reply is none."""


class Silent(Exception):
    """Nothing came for too long."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it said nothing for {seconds:g} s")


@dataclass(slots=True)
class Heard:
    """What one attempt has come to so far; read also when it failed."""

    characters: int = 0
    """Of words, calls and thoughts: what is paid for."""
    words: int = 0
    """Those that `hear` was told."""
    response: ModelResponse | None = field(default=None, repr=False)
    is_cut: bool = False
    is_telling: bool = False
    """While whoever listens is told: what is raised then is theirs, not the model's."""


class KeyStruck:
    """Words as they come, without the key that the model was asked with: some servers say it back. What may be its beginning is held until
    it is known not to be. A short one is no secret: servers that want none are given any word."""

    def __init__(self, key: str | None) -> None:
        self._key = key if key is not None and len(key) >= SHORTEST_KEY else ""
        self._held = ""

    def __call__(self, words: str) -> str:
        if not self._key:
            return words
        said = (self._held + words).replace(self._key, REDACTED)
        begun = next((n for n in range(min(len(self._key) - 1, len(said)), 0, -1) if said.endswith(self._key[:n])), 0)
        self._held = said[len(said) - begun :]
        return said[: len(said) - begun]

    def rest(self) -> str:
        held, self._held = self._held, ""
        return held

    def of(self, reply: Reply) -> Reply:
        return replace(reply, text=reply.text.replace(self._key, REDACTED)) if self._key and self._key in reply.text else reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    reply: Reply
    ended: Ended
    used: Spent


async def answer(connection: Connection, question: Question, heard: Heard, *, max_tokens: int | None, structured: bool = True) -> Answered:
    """Raises whatever the library raises, and `Died` and `Silent`; `heard` then says how far it came."""
    messages, parameters = request_of(question, connection.meant.name, connection.model, structured=structured)
    settings = ModelSettings(max_retries=0) if _takes_retries(connection) else ModelSettings()
    if question.tools:
        settings["cache"] = True  # a conversation goes on: what was read once is read again, at a tenth of the price
    if question.temperature is not None and structured:
        settings["temperature"] = question.temperature
    if max_tokens is not None:
        settings["max_tokens"] = max_tokens
    patience = connection.idle_seconds * (WORDLESS if connection.is_ours else 1)
    stream = model_request_stream(
        connection.model, messages, model_settings=settings, model_request_parameters=parameters, instrument=False
    )
    struck = KeyStruck(connection.key)
    async with _within(patience, stream) as opened:
        try:
            await _listen(opened, question, heard, patience, struck)
        finally:
            heard.response = opened.get()
    answered = _judged(connection, question, heard)
    return replace(answered, reply=struck.of(answered.reply))


def _takes_retries(connection: Connection) -> bool:
    return "max_retries" not in getattr(connection.model, "unsupported_settings", ())


class _within:
    """A stream that must open in time."""

    def __init__(self, seconds: float, stream: Any) -> None:
        self._seconds, self._stream = seconds, stream

    async def __aenter__(self) -> StreamedResponse:
        try:
            async with asyncio.timeout(self._seconds) as limit:
                opened: StreamedResponse = await self._stream.__aenter__()
        except TimeoutError:
            if limit.expired():
                raise Silent(self._seconds) from None
            raise
        return opened

    async def __aexit__(self, *how: Any) -> Any:
        return await self._stream.__aexit__(*how)


async def _listen(stream: StreamedResponse, question: Question, heard: Heard, patience: float, struck: KeyStruck) -> None:
    events: AsyncIterator[Any] = aiter(stream)
    clock = asyncio.get_running_loop().time
    last = clock()
    while True:
        try:
            async with asyncio.timeout_at(last + patience) as limit:
                event = await anext(events)
        except StopAsyncIteration:
            _tell(question, heard, struck.rest())
            return
        except TimeoutError:
            if limit.expired():
                raise Silent(patience) from None
            raise
        words, others = _said(event)
        if words or others:  # events that say nothing, however many, are silence
            last = clock()
        heard.characters += len(words) + others
        _tell(question, heard, struck(words))
        if heard.characters > question.max_characters:
            heard.is_cut = True
            return


def _tell(question: Question, heard: Heard, words: str) -> None:
    allowed = words[: max(0, question.max_characters - heard.words)]
    if allowed and question.hear is not None:
        heard.is_telling = True
        question.hear(allowed)
        heard.is_telling = False
    heard.words += len(words)


def _said(event: Any) -> tuple[str, int]:
    """The words of an event, and how many characters it holds of what is not shown."""
    if isinstance(event, PartStartEvent):
        part = event.part
        if isinstance(part, TextPart):
            return part.content, 0
        if isinstance(part, ThinkingPart):
            return "", len(part.content) + len(part.signature or "")
        if isinstance(part, ToolCallPart):
            return "", len(part.tool_name) + len(part.args if isinstance(part.args, str) else str(part.args or ""))
        return "", 1
    if isinstance(event, PartDeltaEvent):
        delta = event.delta
        if isinstance(delta, TextPartDelta):
            return delta.content_delta, 0
        if isinstance(delta, ThinkingPartDelta):
            return "", len(delta.content_delta or "") + len(delta.signature_delta or "")
        if isinstance(delta, ToolCallPartDelta):
            more = delta.args_delta
            return "", len(more if isinstance(more, str) else str(more or "")) + len(delta.tool_name_delta or "")
    return "", 0


_CHATS = ("openai-chat", "ollama", "local")
"""Of these the library takes an end without a reason for a good one, and keeps the reason only where there was one."""
_ENDED = {"length": Ended.LENGTH, "content_filter": Ended.REFUSED}


def _judged(connection: Connection, question: Question, heard: Heard) -> Answered:
    response = heard.response
    assert response is not None
    # A stream that just ends, without a word on why, may be half of one: a proxy in between cuts like that.
    # The library knows not every reason there is, and keeps those that it does not know.
    says_why = (
        "finish_reason" in (response.provider_details or {})
        or response.finish_reason == "content_filter"
        or (response.finish_reason is not None and connection.meant.provider not in _CHATS)
    )
    is_whole = response.state == "complete" and (says_why or not connection.is_ours)
    if not heard.is_cut and (not is_whole or (response.finish_reason == "error" and not response.parts)):
        raise Died("it broke off before it had finished")
    name = connection.meant.name
    ended = Ended.LENGTH if heard.is_cut else _ENDED.get(str(response.finish_reason), Ended.FINISHED)
    reply = reply_of(response, name, most=question.max_characters, is_whole=not heard.is_cut)
    return Answered(reply=reply, ended=ended, used=spent(response.usage, question, characters=heard.characters, is_whole=not heard.is_cut))
