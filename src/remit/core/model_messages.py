"""Values of a conversation with a model: messages, calls, results, questions and answers. Stored as plain JSON.

They are independent of providers; `stream` converts them to pydantic-ai's messages. `Reply.raw` keeps what a provider must see again
unchanged (signed thoughts, its own ids)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """A message from the person or the calling agent."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    call_id: str
    name: str
    arguments: Mapping[str, Any] | str
    """As received: text if not a JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply of the model: text, calls, or both."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    model: str = ""
    """Its name in the settings."""
    raw: Mapping[str, Any] | None = field(default=None, repr=False)
    """The library's form; sent back only to the same model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a call, as shown to the model."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


Message = UserMessage | Reply | ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOffer:
    """A tool that the model may call."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """JSON schema of its arguments."""


# ---- questions


class SpendSink(Protocol):
    """Receives the spending of a question: a `Context`."""

    @property
    def remaining(self) -> float: ...
    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None: ...
    def progress(self, message: str, fraction: float | None = None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The models to ask, in order: the next one after a failure."""

    names: tuple[str, ...]
    """`anthropic:claude-…`, or NAME of `[models.NAME]`."""
    source: str = ""
    """Where it is configured, for messages to people."""


class EndReason(StrEnum):
    """Why a reply ended."""

    FINISHED = "finished"
    LENGTH = "length"
    """The reply exceeded its token limit or our size limit."""
    REFUSED = "refused"
    """The provider's filter refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    choice: Choice
    instructions: str = ""
    """The system prompt."""
    messages: Sequence[Message] = ()
    tools: Sequence[ToolOffer] = ()
    output_schema: Mapping[str, Any] | None = None
    """JSON schema of the reply: enforced by the provider if it can, else only requested in the prompt."""
    hear: Callable[[str], None] | None = None
    """Receives the text of the reply as it arrives, and `RESTART` when another model starts again."""
    temperature: float | None = None
    """None: the provider's default. Ignored for models that accept none."""
    max_tokens: int | None = None
    max_characters: int = 400_000
    """Maximum length of a reply; a longer one is cut (`EndReason.LENGTH`), so that no model exhausts the memory."""


RESTART = "\0"
"""Passed to `hear`: discard the text so far, another model starts again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """A model that did not answer."""

    model: str
    fault: str
    """A message for people; contains no key."""


class ModelCall(NamedTuple):
    """One call of a model, for observers."""

    provider: str
    model: str
    """The provider's name of the model."""
    seconds: float
    used: tuple[int, int] | None
    """Tokens in and out; None: no answer."""
    error: str
    """A code, or the name of the exception; empty: it answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    reply: Reply
    ended: EndReason = EndReason.FINISHED
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """None: the price of this model is unknown."""
    tried: tuple[FailedAttempt, ...] = ()
    """Models that failed before."""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


# ---- histories


NO_RESULT = "No result was recorded for this call: it was interrupted. Look before you make it again."
GO_ON = "Go on."
NOTHING = "(nothing)"
_EARLIER = "(Earlier messages are left out.)"


def repaired(messages: Sequence[Message], *, keep_pending: bool = False) -> list[Message]:
    """A history that every provider accepts: it begins and ends with a request; every call has one result, right after it and in call
    order; a result without a call becomes text; nothing is empty.

    `keep_pending`: calls at the end without results stay, and so does the end."""
    ordered: list[Message] = []
    waiting = [_with_plain_text(message) for message in messages]
    while waiting:
        message = waiting.pop(0)
        if isinstance(message, ToolResult):
            ordered.append(UserMessage(text=f"Result of {plain_text(message.name) or 'a call'}: {message.text}"))
        elif isinstance(message, UserMessage):
            if message.text.strip():
                ordered.append(message)
        elif message.calls:
            message = _own_ids(message, ordered)
            ordered.append(message)
            results = _results(message, waiting)
            while keep_pending and not waiting and results and results[-1].text == NO_RESULT:
                results.pop()
            ordered += results
        elif message.text.strip() or message.raw is not None:
            ordered.append(message)
    if keep_pending:
        return ordered
    if not ordered or isinstance(ordered[0], Reply):
        ordered.insert(0, UserMessage(text=_EARLIER if ordered else GO_ON))
    if isinstance(ordered[-1], Reply):
        ordered.append(UserMessage(text=GO_ON))
    return ordered


def _results(reply: Reply, waiting: list[Message]) -> list[Message]:
    """Take the results of a reply out of the following messages, up to the next reply."""
    end = next((index for index, message in enumerate(waiting) if isinstance(message, Reply)), len(waiting))
    found: list[Message] = []
    for call in reply.calls:
        place = next((i for i, one in enumerate(waiting[:end]) if isinstance(one, ToolResult) and one.call_id == call.call_id), None)
        if place is None:
            found.append(ToolResult(call_id=call.call_id, name=call.name, text=NO_RESULT, is_error=True))
        else:
            found.append(waiting.pop(place))
            end -= 1
    return found


def _own_ids(reply: Reply, before: Sequence[Message]) -> Reply:
    """Make call ids unique within a reply: two calls with one id would share a result."""
    seen: set[str] = set()
    calls = []
    for index, call in enumerate(reply.calls):
        fresh = call if call.call_id not in seen else replace(call, call_id=f"{call.call_id}_{len(before)}_{index}")
        seen.add(fresh.call_id)
        calls.append(fresh)
    return reply if tuple(calls) == reply.calls else replace(reply, calls=tuple(calls), raw=None)


def _with_plain_text(message: Message) -> Message:
    text = plain_text(message.text)
    return replace(message, text=NOTHING if isinstance(message, ToolResult) and not text.strip() else text)


def plain_text(text: str) -> str:
    """Text without lone surrogates, which JSON cannot carry, and NUL, which some servers refuse."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")
