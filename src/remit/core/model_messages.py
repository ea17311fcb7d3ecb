"""Values of a conversation with a model: messages, calls, results, questions and answers. Stored as plain JSON.

They belong to no provider; `stream` converts them to pydantic-ai's messages. What a provider must see again unchanged (signed thoughts, its
own ids) is kept in `Reply.raw`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """By the person, or by whoever asks in their place."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    call_id: str
    name: str
    arguments: Mapping[str, Any] | str
    """As they came: text where they are no JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Of the model: words, calls, or both."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    model: str = ""
    """Which one it was, as it is named in the settings."""
    raw: Mapping[str, Any] | None = field(default=None, repr=False)
    """As the library keeps it; given back only to the model that said it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a call gave: as much of it as the model is to see."""

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
    strict: Callable[[], Mapping[str, Any]] | None = field(default=None, repr=False, compare=False)
    """The same with conditions between the arguments, where a reply can be held to it; made when it is needed."""


# ---- questions


class SpendSink(Protocol):
    """What a question draws on: a `Context`."""

    @property
    def remaining(self) -> float: ...
    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None: ...
    def progress(self, message: str, fraction: float | None = None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which models are asked, in this order: the next one when one fails."""

    names: tuple[str, ...]
    """`anthropic:claude-…`, or NAME of `[models.NAME]`."""
    source: str = ""
    """Where it was said, for messages to people."""


class EndReason(StrEnum):
    """Why a reply ended."""

    FINISHED = "finished"
    LENGTH = "length"
    """It had more to say than it was allowed tokens for, or than we take."""
    REFUSED = "refused"
    """The provider's filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    choice: Choice
    instructions: str = ""
    """The system prompt."""
    messages: Sequence[Message] = ()
    tools: Sequence[ToolOffer] = ()
    output_schema: Mapping[str, Any] | None = None
    """The reply is to be JSON of this schema: held by the provider where it can, else only by what the prompt says."""
    hear: Callable[[str], None] | None = None
    """Told the words of the reply as they come. Told `RESTART` when another model begins anew."""
    temperature: float | None = None
    """None: the provider's own. Not held to where a model takes none."""
    max_tokens: int | None = None
    max_characters: int = 400_000
    """Of a reply; a longer one is cut off there (`EndReason.LENGTH`), so that no model fills the memory."""


RESTART = "\0"
"""Said to `hear`: what was said so far is void, another model begins anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """A model that did not answer."""

    model: str
    fault: str
    """In words a person understands; no key in it."""


class ModelCall(NamedTuple):
    """One model that was asked: for whoever watches."""

    provider: str
    model: str
    """The provider's own name for it."""
    seconds: float
    used: tuple[int, int] | None
    """Tokens in and out; None: it did not answer."""
    error: str
    """A code, or the name of what was raised; empty: it answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    reply: Reply
    ended: EndReason = EndReason.FINISHED
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """None: the price of this model is unknown."""
    tried: tuple[FailedAttempt, ...] = ()
    """Those that failed before."""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


# ---- histories


NO_RESULT = "No result was recorded for this call: it was interrupted. Look before you make it again."
GO_ON = "Go on."
NOTHING = "(nothing)"
_EARLIER = "(What was said before is left out.)"


def repaired(messages: Sequence[Message], *, keep_pending: bool = False) -> list[Message]:
    """A history that every provider accepts: it begins and ends with a request, every call has one result, right after it and in the order
    of the calls; a result without a call becomes text; nothing is empty.

    `keep_pending`: calls at the end that have no result yet stay as they are, and so does the end.
    """
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
    """Takes them out of what follows, up to the next reply."""
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
    """Two calls of one id in a reply would share a result: the second of them never had one of its own."""
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
    """Without what no JSON can carry: half characters, and NUL, which some servers refuse."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")
