"""Fits a conversation into a model's context: lengths of parts and estimated tokens. Pure; used before each request by model agents and the
assistant.

Results and arguments of calls never exceed the configured length: omissions are marked, and the record has the whole."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from remit.core.delegate_results import LEAST_CHARACTERS, SHOWN_CHARACTERS
from remit.core.model_messages import Message, Reply, ToolCall, ToolResult, UserMessage
from remit.core.redaction import is_redacted, redact_parameters
from remit.core.text import shorten_middle

# ---- bounds

_BYTES_PER_TOKEN = 3
"""Four for English, three for code, three per Chinese character: overestimates tokens rather than underestimates."""
_MESSAGE_TOKENS = 8
_CALL_TOKENS = 12


def tokens_of(messages: Sequence[Message]) -> int:
    """Estimated tokens, rather too many than too few."""
    return sum(map(_tokens_of_message, messages))


def tokens_of_text(text: str) -> int:
    return len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN + 1


def _tokens_of_message(message: Message) -> int:
    if not isinstance(message, Reply):
        return tokens_of_text(message.text) + _MESSAGE_TOKENS
    calls = sum(tokens_of_text(_text_of(call.arguments)) + _CALL_TOKENS for call in message.calls)
    said = tokens_of_text(message.text) + calls
    return max(said, tokens_of_text(_text_of(message.raw)) if message.raw else 0) + _MESSAGE_TOKENS  # raw is sent in their place


def _text_of(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=repr)


def bounded(messages: Sequence[Message], characters: int) -> list[Message]:
    """Cut results and call arguments to this many characters."""
    return [_bounded(message, characters) for message in messages]


def squeezed(messages: Sequence[Message], tokens: int, characters: int) -> list[Message]:
    """Within this many tokens, if possible without dropping a message: shortens results first, then replies, then user messages."""
    kept = list(messages)
    while tokens_of(kept) > tokens and characters > 100:
        characters = max(100, characters // 2)
        kept = bounded(kept, characters)
        if tokens_of(kept) > tokens:
            kept = [_with_short_text(message, 4 * characters) if isinstance(message, Reply) else message for message in kept]
    longest = 40_000
    while tokens_of(kept) > tokens and longest > 500:
        longest //= 2
        kept = [_with_short_text(message, longest) if isinstance(message, UserMessage) else message for message in kept]
    return kept


def _with_short_text(message: UserMessage | Reply, characters: int) -> Message:
    """Without the provider's form of a reply, which can only be sent unchanged."""
    text = shorten_middle(message.text, characters)
    return replace(message, text=text, raw=None) if isinstance(message, Reply) else replace(message, text=text)


def _bounded(message: Message, characters: int) -> Message:
    if isinstance(message, ToolResult):
        return message if len(message.text) <= characters else replace(message, text=shorten_middle(message.text, characters))
    if isinstance(message, Reply) and any(_is_long(call, characters) for call in message.calls):
        return replace(message, calls=tuple(with_short_arguments(call, characters) for call in message.calls), raw=None)
    return message


def _is_long(call: ToolCall, characters: int) -> bool:
    return len(_text_of(call.arguments)) > characters


def with_short_arguments(call: ToolCall, characters: int) -> ToolCall:
    """The call without its parameters, within this many characters."""
    if not _is_long(call, characters):
        return call
    if isinstance(call.arguments, str):
        return replace(call, arguments=shorten_middle(call.arguments, characters))
    names = {name: call.arguments[name] for name in ("target", "operation") if isinstance(call.arguments.get(name), str)}
    left = {
        **{name: shorten_middle(value, 60) for name, value in names.items()},
        "leftOut": "its parameters were too long to be shown again",
    }
    return replace(call, arguments=left if len(_text_of(left)) <= characters else {})


# ---- checkpoints

ASKED_TOKENS = 80_000
"""Maximum tokens of a request, even for larger models, and of a stored conversation."""
LEAST_TOKENS = 400
WINDOW_SHARE = 0.7
"""Share of the context used: the rest is for the reply and estimation errors."""
_STUB_CHARACTERS = 300
_RECENT = 6
"""Number of last messages that are never cut."""
_LEFT_OUT = "… (left out because the conversation is long; request again what you still need)"


def to_plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [_fields(message) for message in messages]


def from_plain(kept: Any) -> list[Message] | None:
    """None if it is not a valid conversation."""
    if not isinstance(kept, list):
        return None
    try:
        return [_message(fields) for fields in kept]
    except (KeyError, TypeError, AttributeError):
        return None


def room_in(window: int | None, overhead: int) -> int:
    """Tokens for the conversation in this context size (None: unknown), minus `overhead`."""
    most = ASKED_TOKENS if window is None else min(ASKED_TOKENS, int(WINDOW_SHARE * window))
    return max(LEAST_TOKENS, most - overhead)


def characters_in(tokens: int) -> int:
    """Length of one result: about a third of the space."""
    return max(LEAST_CHARACTERS, min(SHOWN_CHARACTERS, tokens))


def fitted(messages: Sequence[Message], tokens: int) -> list[Message]:
    """The conversation within this many tokens: cuts old results and replies first; no message is dropped."""
    characters = characters_in(tokens)
    kept = bounded(messages, characters)
    over = tokens_of(kept) - tokens
    for number in range(1, max(1, len(kept) - _RECENT)):
        if over <= 0:
            break
        before = kept[number]
        kept[number] = _cut(before)
        over -= _tokens_of_message(before) - _tokens_of_message(kept[number])
    return kept if over <= 0 else squeezed(kept, tokens, characters)


def _cut(message: Message) -> Message:
    if isinstance(message, Reply):
        # The provider's form can only be sent back unchanged.
        calls = tuple(with_short_arguments(call, _STUB_CHARACTERS) for call in message.calls)
        return replace(message, text=_stub(message.text), calls=calls, raw=None)
    return message if isinstance(message, UserMessage) else replace(message, text=_stub(message.text))


def _stub(text: str) -> str:
    return text if len(text) <= _STUB_CHARACTERS + len(_LEFT_OUT) else text[:_STUB_CHARACTERS] + _LEFT_OUT


def _fields(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage():
            return {"said": message.text}
        case ToolResult():
            return {"result": message.text, "call_id": message.call_id, "name": message.name, "is_error": message.is_error}
        case Reply():
            # Without values under secret names, like the parameters of every delegation.
            kept = [redact_parameters(call.arguments) if isinstance(call.arguments, Mapping) else call.arguments for call in message.calls]
            is_whole = kept == [call.arguments for call in message.calls]
            named = zip(message.calls, kept, strict=True)
            calls = [{"call_id": call.call_id, "name": call.name, "arguments": arguments} for call, arguments in named]
            return {"reply": message.text, "calls": calls, "model": message.model, "raw": message.raw if is_whole else None}


def is_struck(call: ToolCall) -> bool:
    """Whether its arguments contained a redacted secret, so that it cannot be repeated."""
    return isinstance(call.arguments, Mapping) and is_redacted(call.arguments)


def _message(fields: Mapping[str, Any]) -> Message:
    if "said" in fields:
        return UserMessage(text=fields["said"])
    if "result" in fields:
        return ToolResult(call_id=fields["call_id"], name=fields["name"], text=fields["result"], is_error=fields["is_error"])
    calls = tuple(ToolCall(call_id=call["call_id"], name=call["name"], arguments=call["arguments"]) for call in fields["calls"])
    return Reply(text=fields["reply"], calls=calls, model=fields["model"], raw=fields["raw"])
