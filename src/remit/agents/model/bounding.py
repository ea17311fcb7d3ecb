"""How long a part of what a model is shown may be, and about how many tokens it takes. Pure; used before each question, by model agents and
by the assistant.

Results, and the arguments of calls, never take more characters than the setting says: what was left out is said, and stands in the record.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from remit.models.messages import Message, Reply, Result, Said, ToolCall
from remit.models.summarising import shortened

_BYTES_PER_TOKEN = 3
"""Four for English, three for code, and a sign of Chinese has three: rather too many tokens than too few."""
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
"""What every provider takes for the name of a tool; a model may have called anything."""
_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_MESSAGE_TOKENS = 8
_CALL_TOKENS = 12


def tokens_of(messages: Sequence[Message]) -> int:
    """About how many; rather too many than too few."""
    return sum(map(_tokens_of_message, messages))


def tokens_of_text(text: str) -> int:
    return len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN + 1


def _tokens_of_message(message: Message) -> int:
    if not isinstance(message, Reply):
        return tokens_of_text(message.text) + _MESSAGE_TOKENS
    calls = sum(tokens_of_text(_text_of(call.arguments)) + _CALL_TOKENS for call in message.calls)
    said = tokens_of_text(message.text) + calls
    return max(said, tokens_of_text(_text_of(message.raw)) if message.raw else 0) + _MESSAGE_TOKENS  # raw goes out in their place


def _text_of(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=repr)


def bounded(messages: Sequence[Message], characters: int) -> list[Message]:
    """No result, and no call's arguments, longer than so many characters; and no name of a tool that a provider would not take back."""
    return [_bounded(message, characters) for message in messages]


def squeezed(messages: Sequence[Message], tokens: int, characters: int) -> list[Message]:
    """Within so many tokens, where that can be had without leaving out a message: results first, then replies, then what was said."""
    kept = list(messages)
    while tokens_of(kept) > tokens and characters > 100:
        characters = max(100, characters // 2)
        kept = bounded(kept, characters)
        if tokens_of(kept) > tokens:
            kept = [_with_short_text(message, 4 * characters) if isinstance(message, Reply) else message for message in kept]
        if tokens_of(kept) > tokens:
            kept = [replace(message, raw=None) if isinstance(message, Reply) else message for message in kept]
    longest = 40_000
    while tokens_of(kept) > tokens and longest > 500:
        longest //= 2
        kept = [replace(message, text=shortened(message.text, longest)) if isinstance(message, Said) else message for message in kept]
    return kept


def _bounded(message: Message, characters: int) -> Message:
    if isinstance(message, Result):
        if _length_of(message) <= characters and _NAME.match(message.name):
            return message
        return replace(message, name=_name_of(message.name), text=_short_text(message, characters))
    if isinstance(message, Reply) and any(_is_long(call, characters) or not _NAME.match(call.name) for call in message.calls):
        calls = (replace(with_short_arguments(call, characters), name=_name_of(call.name)) for call in message.calls)
        return replace(message, calls=tuple(calls), raw=None)
    return message


def _length_of(result: Result) -> int:
    """As it goes out: APIs that have no mark for errors are sent `{"error":"…"}`."""
    return len(result.text) if not result.is_error else len(json.dumps({"error": result.text}, ensure_ascii=False))


def _short_text(result: Result, characters: int) -> str:
    room, short = characters, replace(result, text=shortened(result.text, characters))
    while (over := _length_of(short) - characters) > 0 and room > 0:
        room -= over
        short = replace(result, text=shortened(result.text, max(0, room)))
    return short.text


def _name_of(name: str) -> str:
    return name if _NAME.match(name) else _ODD.sub("_", name[:64]) or "unnamed"


def _with_short_text(reply: Reply, characters: int) -> Reply:
    return reply if len(reply.text) <= characters else replace(reply, text=shortened(reply.text, characters), raw=None)


def _is_long(call: ToolCall, characters: int) -> bool:
    return len(_text_of(call.arguments)) > characters


def with_short_arguments(call: ToolCall, characters: int) -> ToolCall:
    """In so many characters: still an object of the same shape, as long as that has room."""
    if not _is_long(call, characters):
        return call
    if isinstance(call.arguments, str):
        return replace(call, arguments=shortened(call.arguments, characters))
    length = characters // 2
    while length >= 20:
        shorter = _short(call.arguments, length, 8)
        if len(_text_of(shorter)) <= characters:
            return replace(call, arguments=shorter)
        length //= 2
    names = {name: call.arguments[name] for name in ("target", "operation") if isinstance(call.arguments.get(name), str)}
    left = {**{name: shortened(value, 60) for name, value in names.items()}, "leftOut": "its parameters were too long to be shown again"}
    return replace(call, arguments=left if len(_text_of(left)) <= characters else {})


def _short(value: Any, length: int, levels: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= length else f"{value[: max(0, length - 40)]} … ({len(value)} characters in all)"
    if levels == 0:
        return "…"
    if isinstance(value, Mapping):
        most = max(4, length // 20)
        return {name[:100]: _short(one, length, levels - 1) for name, one in list(value.items())[:most]}
    if isinstance(value, list | tuple):
        return [_short(one, length, levels - 1) for one in value[: max(4, length // 20)]]
    return value
