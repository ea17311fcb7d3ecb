"""The conversation of a model agent as it is kept in its delegation's checkpoint, by which a repair, and a run after a crash, go on; and as
much of it as its model is asked with.

Bounded: of what is old the results are cut first. Knows neither prompts nor models. Used by `agents.model.agent`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from remit.agents.model.bounding import bounded, squeezed, tokens_of, with_short_arguments
from remit.core.secrets import is_redacted, redacted_parameters
from remit.models.messages import Message, Reply, Result, Said, ToolCall
from remit.tool.shortening import LEAST_CHARACTERS, SHOWN_CHARACTERS

KEPT_CHARACTERS = 240_000
"""Of a conversation that is kept."""
ASKED_TOKENS = 80_000
"""What a model is asked with at most, also where it can read more."""
LEAST_TOKENS = 400
WINDOW_SHARE = 0.7
"""Of what a model can read: the rest is for what it says, and for having counted wrong."""
_STUB_CHARACTERS = 300
_RECENT = 6
"""So many messages at the end are never cut."""
_LEFT_OUT = "… (left out here, since the conversation has grown; ask again for what you still need)"


def to_plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [_fields(message) for message in messages]


def from_plain(kept: Any) -> list[Message] | None:
    """None where it is no conversation of ours."""
    if not isinstance(kept, list):
        return None
    try:
        return [_message(fields) for fields in kept]
    except (KeyError, TypeError, AttributeError):
        return None


def trimmed(messages: Sequence[Message], characters: int = KEPT_CHARACTERS) -> list[Message]:
    """The same conversation in so many characters, as far as cutting old results and replies leads there; nothing is left out whole."""
    kept = list(messages)
    over = sum(map(size_of, kept)) - characters
    for number in range(1, max(1, len(kept) - _RECENT)):
        if over <= 0:
            break
        before = kept[number]
        kept[number] = _cut(before)
        over -= size_of(before) - size_of(kept[number])
    return kept


def room_in(window: int | None, overhead: int) -> int:
    """In tokens, for the conversation: of a model that can read so many (None: unknown), less what stands beside it."""
    most = ASKED_TOKENS if window is None else min(ASKED_TOKENS, int(WINDOW_SHARE * window))
    return max(LEAST_TOKENS, most - overhead)


def characters_in(tokens: int) -> int:
    """Of one result, where there is room for so many tokens: about a third of it."""
    return max(LEAST_CHARACTERS, min(SHOWN_CHARACTERS, tokens))


def fitted(messages: Sequence[Message], tokens: int) -> list[Message]:
    """What is asked instead of the whole conversation, which has no calls left to make."""
    characters = characters_in(tokens)
    kept = bounded(messages, characters)
    if tokens_of(kept) > tokens:
        kept = trimmed(kept, 2 * tokens)
    return kept if tokens_of(kept) <= tokens else squeezed(kept, tokens, characters)


def size_of(message: Message) -> int:
    if isinstance(message, Reply):
        return len(message.text) + sum(len(str(call.arguments)) for call in message.calls) + (len(str(message.raw)) if message.raw else 0)
    return len(message.text)


def _cut(message: Message) -> Message:
    if isinstance(message, Reply):
        # As the provider keeps it, it can only be given back whole.
        calls = tuple(with_short_arguments(call, _STUB_CHARACTERS) for call in message.calls)
        return replace(message, text=_stub(message.text), calls=calls, raw=None)
    return message if isinstance(message, Said) else replace(message, text=_stub(message.text))


def _stub(text: str) -> str:
    return text if len(text) <= _STUB_CHARACTERS + len(_LEFT_OUT) else text[:_STUB_CHARACTERS] + _LEFT_OUT


def _fields(message: Message) -> dict[str, Any]:
    match message:
        case Said():
            return {"said": message.text}
        case Result():
            return {"result": message.text, "call_id": message.call_id, "name": message.name, "is_error": message.is_error}
        case Reply():
            calls = [{"call_id": call.call_id, "name": call.name, "arguments": _kept_arguments(call)} for call in message.calls]
            is_whole = all(kept["arguments"] == call.arguments for kept, call in zip(calls, message.calls, strict=True))
            return {"reply": message.text, "calls": calls, "model": message.model, "raw": message.raw if is_whole else None}


def is_struck(call: ToolCall) -> bool:
    """Whether a secret stood in its arguments: it is kept without, so it cannot be made again."""
    return isinstance(call.arguments, Mapping) and is_redacted(call.arguments)


def _kept_arguments(call: ToolCall) -> Any:
    """Without secrets under telling names, as the parameters of every delegation are kept."""
    return redacted_parameters(call.arguments) if isinstance(call.arguments, Mapping) else call.arguments


def _message(fields: Mapping[str, Any]) -> Message:
    if "said" in fields:
        return Said(text=fields["said"])
    if "result" in fields:
        return Result(call_id=fields["call_id"], name=fields["name"], text=fields["result"], is_error=fields["is_error"])
    calls = tuple(ToolCall(call_id=call["call_id"], name=call["name"], arguments=call["arguments"]) for call in fields["calls"])
    return Reply(text=fields["reply"], calls=calls, model=fields["model"], raw=fields["raw"])
