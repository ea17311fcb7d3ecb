"""One question to one model, streamed: bounded in size, cut if too long, given up if nothing arrives.

Limits what a provider's server may send, and converts messages to and from pydantic-ai's. Imports pydantic-ai, so it is imported only when
a model is used. Independent of other models and retries; see `client`."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import (
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from remit.core.model_messages import (
    GO_ON,
    NOTHING,
    EndReason,
    Message,
    Question,
    Reply,
    ToolCall,
    ToolResult,
    UserMessage,
    plain_text,
    repaired,
)
from remit.core.redaction import REDACTED, redact_text
from remit.core.text import one_line
from remit.models.connections import Connection
from remit.models.prices import TokenUsage, usage_of
from remit.system.http import BodyError

# ---- messages


_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")
_INVALID = "INVALID_JSON"
"""Replaces arguments that are not a JSON object when they are shown to the model again; pydantic-ai uses the same name."""


# ---- to the model


def request_of(question: Question, name: str, model: Model[Any], *, structured: bool) -> tuple[list[ModelMessage], ModelRequestParameters]:
    """The request for the model called `name`."""
    parameters = ModelRequestParameters(
        function_tools=[
            ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.schema), strict=False)
            for tool in question.tools
        ]
    )
    if structured and question.output_schema is not None:
        parameters = _request_structure(parameters, question.output_schema, model)
    history = [_translate(message, name) for message in repaired(question.messages)]
    merged = _merge_turns(history)
    last = merged[-1]
    if question.instructions.strip() and isinstance(last, ModelRequest):
        merged[-1] = replace(last, instructions=plain_text(question.instructions))
    return merged, parameters


def _request_structure(parameters: ModelRequestParameters, schema: Mapping[str, Any], model: Model[Any]) -> ModelRequestParameters:
    """By the provider's own means if available, else as JSON without a schema, else only in the prompt."""
    profile = model.profile
    answer = OutputObjectDefinition(json_schema=dict(schema), name="answer")
    either_or = profile.get("google_supports_tool_combination") is False  # older Gemini models take tools or a schema
    if profile.get("supports_json_schema_output", False) and not (parameters.function_tools and either_or):
        return replace(parameters, output_mode="native", output_object=answer)
    if profile.get("supports_json_object_output", False) and not parameters.function_tools:
        return replace(parameters, output_mode="prompted", output_object=answer, prompted_output_template=False)
    return parameters


def _translate(message: Message, name: str) -> ModelMessage:
    if isinstance(message, UserMessage):
        return ModelRequest(parts=[UserPromptPart(content=message.text)])
    if isinstance(message, ToolResult):
        outcome: Any = "failed" if message.is_error else "success"
        result = ToolReturnPart(tool_name=_name(message.name), content=message.text, tool_call_id=_id(message.call_id), outcome=outcome)
        return ModelRequest(parts=[result])
    if message.raw is not None and message.model == name:
        own = _from_raw(message)
        if own is not None:
            return own
    parts: list[ModelResponsePart] = [TextPart(content=message.text)] if message.text.strip() else []
    parts += [ToolCallPart(tool_name=_name(call.name), args=_arguments(call), tool_call_id=_id(call.call_id)) for call in message.calls]
    return ModelResponse(parts=parts or [TextPart(content=NOTHING)])


def _from_raw(message: Reply) -> ModelResponse | None:
    """The library's form; None if the stored one is invalid, or contains other calls."""
    try:
        (loaded,) = ModelMessagesTypeAdapter.validate_python([message.raw])
    except (ValidationError, ValueError, TypeError):
        return None
    if not isinstance(loaded, ModelResponse):
        return None
    kept = [part.tool_call_id for part in loaded.parts if isinstance(part, ToolCallPart)]
    return loaded if kept == [call.call_id for call in message.calls] else None


def _merge_turns(history: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Consecutive requests as one, as a provider sees a turn."""
    merged: list[ModelMessage] = []
    for message in history:
        before = merged[-1] if merged else None
        if isinstance(message, ModelRequest) and isinstance(before, ModelRequest):
            merged[-1] = replace(before, parts=[*before.parts, *message.parts])
        elif isinstance(message, ModelResponse) and isinstance(before, ModelResponse):
            merged += [ModelRequest(parts=[UserPromptPart(content=GO_ON)]), message]
        else:
            merged.append(message)
    return merged


def _name(name: str) -> str:
    return _NAME.sub("_", name)[:64] or "unnamed"


def _id(call_id: str) -> str:
    return call_id if _ID.match(call_id) else f"call_{hashlib.sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:24]}"


def _arguments(call: ToolCall) -> dict[str, Any]:
    given = {_INVALID: call.arguments} if isinstance(call.arguments, str) else dict(call.arguments)
    cleaned: dict[str, Any] = json.loads(plain_text(json.dumps(given, ensure_ascii=False, default=str)))
    return cleaned


# ---- from the model


def reply_of(response: ModelResponse, name: str, *, most: int, is_whole: bool) -> Reply:
    """Its content, at most `most` characters. The library's form is kept only if it has more than text and calls."""
    response = replace(response, parts=_with_own_ids(response.parts))
    words = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    calls = tuple(
        ToolCall(call_id=part.tool_call_id, name=part.tool_name, arguments=_arguments_of(part, most))
        for part in response.parts
        if isinstance(part, ToolCallPart)
    )
    return Reply(text=plain_text(words[:most]), calls=calls, model=name, raw=_raw(response) if is_whole else None)


def _with_own_ids(parts: Sequence[ModelResponsePart]) -> list[ModelResponsePart]:
    """A call with a missing, invalid or duplicate id gets a new one."""
    seen: set[str] = set()
    fresh: list[ModelResponsePart] = []
    for part in parts:
        if isinstance(part, ToolCallPart) and (part.tool_call_id in seen or not _ID.match(part.tool_call_id or "")):
            made = hashlib.sha256(f"{part.tool_call_id}{len(fresh)}{id(parts)}".encode("utf-8", "replace")).hexdigest()[:24]
            part = replace(part, tool_call_id=f"call_{made}")
        if isinstance(part, ToolCallPart):
            seen.add(part.tool_call_id)
        fresh.append(part)
    return fresh


def _arguments_of(part: ToolCallPart, most: int) -> Mapping[str, Any] | str:
    if isinstance(part.args, dict):
        return part.args
    text = part.args or ""
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return plain_text(text[:most])
    return found if isinstance(found, dict) else plain_text(text[:most])


def _raw(response: ModelResponse) -> Mapping[str, Any] | None:
    plain = all(isinstance(part, TextPart | ToolCallPart) and not part.provider_details for part in response.parts)
    if plain or any(isinstance(part, FilePart) for part in response.parts):
        return None
    if any(isinstance(part, ToolCallPart) and part.tool_name != _name(part.tool_name) for part in response.parts):
        return None  # a call with a name that providers refuse: it is shown again under a valid one
    dumped: Mapping[str, Any] = ModelMessagesTypeAdapter.dump_python([response], mode="json")[0]
    return dumped


# ---- streaming


WORDLESS = 5
"""A model whose connection is alive (it pings while it thinks) may send no text this many times longer than a silent one."""


class BrokenReply(Exception):
    """The stream ended before the reply did, or the reply is invalid."""


class SilentModel(Exception):
    """Nothing came for too long."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it said nothing for {seconds:g} s")


@dataclass(slots=True)
class PartialReply:
    """The result of one attempt so far; read also after a failure."""

    characters: int = 0
    """Of text, calls and thoughts, which are all paid for."""
    words: int = 0
    """Characters passed to `hear`."""
    response: ModelResponse | None = field(default=None, repr=False)
    is_cut: bool = False
    is_forwarding: bool = False
    """While the listener runs: its exceptions are not the model's."""


SHORTEST_KEY = 16
"""A shorter key is not a secret: servers without authentication get any word."""


class KeyRedactor:
    """Text without the model's key, which some servers echo. What may be the beginning of the key is held back until the next text."""

    def __init__(self, key: str | None) -> None:
        self._key = key if key is not None and len(key) >= SHORTEST_KEY else ""
        self._held = ""

    def feed(self, words: str, *, is_last: bool = False) -> str:
        if not self._key:
            return words
        said = (self._held + words).replace(self._key, REDACTED)
        longest = 0 if is_last else min(len(self._key) - 1, len(said))
        begun = next((n for n in range(longest, 0, -1) if said.endswith(self._key[:n])), 0)
        self._held = said[len(said) - begun :]
        return said[: len(said) - begun]


async def answer(
    connection: Connection, question: Question, heard: PartialReply, *, max_tokens: int | None, structured: bool = True
) -> tuple[Reply, EndReason, TokenUsage]:
    """Raises the library's exceptions, `BrokenReply` and `SilentModel`; `heard` then has the partial reply."""
    messages, parameters = request_of(question, connection.meant.name, connection.model, structured=structured)
    takes_retries = "max_retries" not in getattr(connection.model, "unsupported_settings", ())
    settings = ModelSettings(max_retries=0) if takes_retries else ModelSettings()
    if question.tools:
        settings["cache"] = True  # a conversation continues: repeated input costs a tenth
    if question.temperature is not None and structured:
        settings["temperature"] = question.temperature
    if max_tokens is not None:
        settings["max_tokens"] = max_tokens
    patience = connection.idle_seconds * (WORDLESS if connection.is_ours else 1)
    stream = model_request_stream(
        connection.model, messages, model_settings=settings, model_request_parameters=parameters, instrument=False
    )
    async with AsyncExitStack() as stack:
        async with _within(patience, asyncio.get_running_loop().time() + patience):
            opened = await stack.enter_async_context(stream)
        try:
            await _listen(opened, question, heard, patience, KeyRedactor(connection.key))
        finally:
            heard.response = opened.get()
    reply, ended, used = _judge(connection, question, heard)
    return replace(reply, text=KeyRedactor(connection.key).feed(reply.text, is_last=True)), ended, used


@asynccontextmanager
async def _within(seconds: float, end: float) -> AsyncIterator[None]:
    """Raises `SilentModel` if nothing came until `end`, `seconds` after the last sign of life."""
    try:
        async with asyncio.timeout_at(end) as limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise SilentModel(seconds) from None
        raise


async def _listen(stream: StreamedResponse, question: Question, heard: PartialReply, patience: float, redactor: KeyRedactor) -> None:
    events: AsyncIterator[Any] = aiter(stream)
    clock = asyncio.get_running_loop().time
    last = clock()
    while True:
        try:
            async with _within(patience, last + patience):
                event = await anext(events)
        except StopAsyncIteration:
            _forward(question, heard, redactor.feed("", is_last=True))
            return
        words, others = _content_of(event)
        if words or others:  # events without content, however many, are silence
            last = clock()
        heard.characters += len(words) + others
        _forward(question, heard, redactor.feed(words))
        if heard.characters > question.max_characters:
            heard.is_cut = True
            return


def _forward(question: Question, heard: PartialReply, words: str) -> None:
    allowed = words[: max(0, question.max_characters - heard.words)]
    if allowed and question.hear is not None:
        heard.is_forwarding = True
        question.hear(allowed)
        heard.is_forwarding = False
    heard.words += len(words)


def _content_of(event: Any) -> tuple[str, int]:
    """The text of an event, and its number of hidden characters: thoughts and calls."""
    piece = getattr(event, "part", None) if isinstance(event, PartStartEvent) else getattr(event, "delta", None)
    if isinstance(piece, TextPart | TextPartDelta):
        return (piece.content if isinstance(piece, TextPart) else piece.content_delta), 0
    fields = ("content", "content_delta", "signature", "signature_delta", "tool_name", "tool_name_delta", "args", "args_delta")
    return "", sum(len(value if isinstance(value, str) else str(value)) for name in fields if (value := getattr(piece, name, None)))


_CHATS = ("openai-chat", "ollama", "local")
"""For these the library treats an end without a reason as good, and keeps the reason only if there was one."""
_ENDED = {"length": EndReason.LENGTH, "content_filter": EndReason.REFUSED}


def _judge(connection: Connection, question: Question, heard: PartialReply) -> tuple[Reply, EndReason, TokenUsage]:
    response = heard.response
    assert response is not None
    # A stream that ends without a reason may be incomplete: a proxy may have cut it. The library does not know every reason, and keeps
    # unknown ones.
    says_why = (
        "finish_reason" in (response.provider_details or {})
        or response.finish_reason == "content_filter"
        or (response.finish_reason is not None and connection.meant.provider not in _CHATS)
    )
    is_whole = response.state == "complete" and (says_why or not connection.is_ours)
    if not heard.is_cut and (not is_whole or (response.finish_reason == "error" and not response.parts)):
        raise BrokenReply("it broke off before it had finished")
    name = connection.meant.name
    ended = EndReason.LENGTH if heard.is_cut else _ENDED.get(str(response.finish_reason), EndReason.FINISHED)
    reply = reply_of(response, name, most=question.max_characters, is_whole=not heard.is_cut)
    return reply, ended, usage_of(response.usage, question, characters=heard.characters, is_whole=not heard.is_cut)


# ---- faults

_MOST = 300
"""Maximum length of a provider's message."""
DEFAULT_WAIT = 1.0
MOST_WAIT = 86_400.0
_BUSY = (429, 503, 529)
_DEEPEST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    words: str
    counts: bool = True
    """Whether it counts against the model: a question it cannot handle does not."""
    retry_after: float | None = None
    """It is busy, and may answer after this many seconds; None: an immediate retry is useless."""
    is_rejected: bool = False
    """The request itself was refused."""


def fault_of(error: Exception, connection: Connection) -> Fault:
    status = _status(error)
    busy = status in _BUSY or isinstance(error, ModelRateLimitError | ModelUnavailableError)
    wait = min(getattr(error, "retry_after", None) or DEFAULT_WAIT, MOST_WAIT)
    return Fault(
        words=without_key(_words(error, connection, status), connection),
        counts=not isinstance(error, ModelContextWindowExceededError) and status not in (400, 413, 422),
        retry_after=wait if busy and not isinstance(error, ModelQuotaExceededError) else None,
        is_rejected=status in (400, 422),
    )


def without_key(text: str, connection: Connection) -> str:
    key = connection.key
    return redact_text(text.replace(key, REDACTED) if key else text)


_STATUS_WORDS = {
    400: "it refused the request",
    404: "there is no such model: check its name, and its address",
    413: "the question is too long for it",
    422: "it refused the request",
    429: "it takes no more requests for now",
    503: "it is overloaded or being restarted",
    529: "it is overloaded or being restarted",
}


def _words(error: Exception, connection: Connection, status: int | None) -> str:
    """What went wrong, and what it said itself."""
    said = one_line(without_key(_message_of(error), connection), _MOST)  # redacted before it is cut: half a key is not recognised
    where = f" at {connection.url}" if connection.url else ""
    if ours := next((cause for cause in _causes(error) if isinstance(cause, BrokenReply | SilentModel | BodyError)), None):
        return f"{ours}."
    if status in (401, 403):
        variable = connection.meant.key_variable or next(iter(connection.meant.key_variables), 'key_variable = "…" of its table')
        what = f"its key was refused{where}: check {variable}"
    elif status is not None and 300 <= status < 400:
        what = f"its address{where} leads elsewhere: write the address it leads to"
    elif status is not None:
        what = _STATUS_WORDS.get(status, "it failed")
    elif isinstance(error, ModelTimeoutError) and error.phase not in ("connect", "pool"):
        return f"it said nothing for {connection.idle_seconds:g} s."
    elif isinstance(error, ModelConnectionError):
        what = f"the connection to {connection.url or 'it'} failed or broke off: check that its server runs and that the network is up"
    else:
        what = f"what it answered could not be read ({type(error).__name__}): is there a model's API{where}?"
    return f"{what}{f' ({status})' if status is not None else ''}.{f' It says: {said}' if said else ''}"


def _status(error: Exception) -> int | None:
    """The HTTP status, also if only the underlying client reports it."""
    found = (getattr(cause, name, None) for cause in _causes(error) for name in ("status_code", "code"))
    return next((status for status in found if isinstance(status, int) and 300 <= status < 600), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(_DEEPEST):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _message_of(error: Exception) -> str:
    """The provider's own message."""
    body = getattr(error, "body", None)
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:
            return body
    while isinstance(body, list | Mapping):
        inner = (body[0] if body else None) if isinstance(body, list) else body.get("error") or body.get("message") or body.get("detail")
        if isinstance(inner, str):
            return inner
        body = inner
    return "" if isinstance(error, ModelHTTPError) else str(error)
