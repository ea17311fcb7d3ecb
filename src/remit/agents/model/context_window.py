"""Fits a conversation into a model's context: lengths of parts and estimated tokens. Pure; used before each request by model agents and the
assistant.

Results and arguments of calls never exceed the configured length: omissions are marked, and the record has the whole."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from types import UnionType
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
NAME_CHARACTERS = 64
"""Providers accept no longer names of tools."""
_RECENT = 6
"""Number of last messages that are cut last."""
_CUTS: tuple[tuple[int | None, type | UnionType, int], ...] = (
    (-_RECENT, Reply | ToolResult, 300),
    (None, Reply | ToolResult, 300),
    (None, Reply | ToolResult, 100),
    *((None, UserMessage, most) for most in (20_000, 5_000, 2_000, 600)),
)
"""Cuts in this order, until the conversation fits: up to which message, its kind, and the characters left of it."""


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
    return [_cut(message, characters, with_text=False) for message in messages]


def fitted(messages: Sequence[Message], tokens: int, characters: int) -> list[Message]:
    """Results and arguments within `characters`, and all of it within `tokens` if possible. No message is dropped: old results and replies
    are cut first, then recent ones, then what the user wrote."""
    kept = bounded(messages, characters)
    over = tokens_of(kept) - tokens
    for end, kinds, most in _CUTS:
        for number, before in enumerate(kept[:end]):
            if over <= 0:
                return kept
            if isinstance(before, kinds):
                kept[number] = _cut(before, most, with_text=True)
                over -= _tokens_of_message(before) - _tokens_of_message(kept[number])
    return kept


def _cut(message: Message, characters: int, *, with_text: bool) -> Message:
    """`with_text`: its own text too, not only results and arguments. The provider's form of a reply can only be sent unchanged."""
    is_cut = len(message.text) > characters and (with_text or isinstance(message, ToolResult))
    text = shorten_middle(message.text, characters) if is_cut else message.text
    if not isinstance(message, Reply):
        return replace(message, text=text) if is_cut else message
    calls = tuple(with_short_arguments(call, characters) for call in message.calls)
    return replace(message, text=text, calls=calls, raw=None) if is_cut or calls != message.calls else message


def with_short_arguments(call: ToolCall, characters: int) -> ToolCall:
    """The call without its parameters, within this many characters."""
    call = call if len(call.name) <= NAME_CHARACTERS else replace(call, name=call.name[:NAME_CHARACTERS])
    if len(_text_of(call.arguments)) <= characters:
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


_KINDS: Mapping[str, type[Message]] = {"said": UserMessage, "result": ToolResult, "reply": Reply}
"""By the name of its text."""


def to_plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Without values under secret names, like the parameters of every delegation."""
    return [_fields(message) for message in messages]


def _fields(message: Message) -> dict[str, Any]:
    fields = asdict(message)
    if isinstance(message, Reply):
        fields["calls"] = [{**call, "arguments": _without_secrets(call["arguments"])} for call in fields["calls"]]
        if any(call["arguments"] != whole.arguments for call, whole in zip(fields["calls"], message.calls, strict=True)):
            fields["raw"] = None
    return {next(name for name, kind in _KINDS.items() if isinstance(message, kind)): fields.pop("text"), **fields}


def _without_secrets(arguments: Any) -> Any:
    return redact_parameters(arguments) if isinstance(arguments, Mapping) else arguments


def is_struck(call: ToolCall) -> bool:
    """Whether its arguments contained a redacted secret, so that it cannot be repeated."""
    return isinstance(call.arguments, Mapping) and is_redacted(call.arguments)


def from_plain(kept: Any) -> list[Message] | None:
    """None if it is not a valid conversation."""
    try:
        return [_message(dict(fields)) for fields in kept]
    except (KeyError, TypeError, ValueError, StopIteration):
        return None


def _message(fields: dict[str, Any]) -> Message:
    name = next(name for name in _KINDS if name in fields)
    if "calls" in fields:
        fields["calls"] = tuple(ToolCall(**call) for call in fields["calls"])
    return _KINDS[name](text=fields.pop(name), **fields)


def room_in(window: int | None, overhead: int) -> int:
    """Tokens for the conversation in this context size (None: unknown), minus `overhead`."""
    most = ASKED_TOKENS if window is None else min(ASKED_TOKENS, int(WINDOW_SHARE * window))
    return max(LEAST_TOKENS, most - overhead)


def characters_in(tokens: int) -> int:
    """Length of one result: about a third of the space."""
    return max(LEAST_CHARACTERS, min(SHOWN_CHARACTERS, tokens))
