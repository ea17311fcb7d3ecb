"""What the model sees of a conversation: the latest messages, and of older ones the beginnings of what was said. Always bounded."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from remit.agents.model.context_window import bounded, fitted, tokens_of
from remit.core.model_messages import Message, ToolResult, UserMessage
from remit.core.text import one_line, shorten_middle

KEPT_SHARE = 0.5
"""Share of the context that is left when older messages are omitted: it grows again until the next time."""
LEAST_TOKENS = 400
_EXCERPT_CHARACTERS = 6000


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Limits of a request."""

    tokens: int
    characters: int
    """Maximum length of one result."""


def room_for(setting: int, window: int | None, overhead: int, characters: int) -> Room:
    """`setting` tokens, or 70 % of the model's context, minus instructions and tool."""
    tokens = setting if window is None else min(setting, int(0.7 * window))
    return Room(tokens=max(LEAST_TOKENS, tokens - overhead), characters=characters)


def visible(messages: Sequence[Message], room: Room, question: str) -> list[Message]:
    """What the model sees of a whole conversation, in which it answers `question`: if possible all of it."""
    messages = bounded(messages, room.characters)
    cut = _cut_of(messages, room.tokens * 2 // 3) if tokens_of(messages) > room.tokens else 0
    if not cut:
        return fitted(messages, room.tokens, room.characters)
    most = min(_EXCERPT_CHARACTERS, room.tokens // 8)  # twice, of up to four bytes each: a third of the room
    first = next((message.text for message in messages if isinstance(message, UserMessage)), "")
    parts = [
        "[The older part of this conversation is left out. It began:]", shorten_middle(first, most),
        "[Beginnings of what was said then:]", shorten_middle("\n".join(_beginnings(messages[:cut], max(40, min(160, most // cut)))), most),
    ]  # fmt: skip
    rest = messages[cut:]
    is_shown = any(isinstance(message, UserMessage) and message.text == question for message in rest)
    parts.append("[The conversation goes on:]" if is_shown else f"[The message to be answered now:]\n{question}")
    if isinstance(rest[0], UserMessage):
        parts.append(rest.pop(0).text)
    return fitted([UserMessage(text="\n\n".join(parts)), *rest], room.tokens, room.characters)


def _cut_of(messages: Sequence[Message], tokens: int) -> int:
    """Where the visible part begins: at a message of the person if one is near, else at a reply, never at a result.

    It moves in large steps, and later messages do not change earlier steps: most requests begin like the one before."""
    sizes = [tokens_of([message]) for message in messages]
    cut = size = 0
    for last, own in enumerate(sizes):
        size += own
        if size > tokens:
            starts = [number for number in range(cut + 1, last + 1) if not isinstance(messages[number], ToolResult)]
            fitting = [number for number in starts if sum(sizes[number : last + 1]) <= tokens * KEPT_SHARE]
            said = [number for number in fitting if isinstance(messages[number], UserMessage)]
            cut = next(iter([*said, *fitting, *starts[-1:]]), cut)
            size = sum(sizes[cut : last + 1])
    return cut


def _beginnings(messages: Sequence[Message], characters: int) -> Iterator[str]:
    for message in messages:
        if isinstance(message, UserMessage):
            yield f"Person: {one_line(message.text, characters)}"
        elif isinstance(message, ToolResult):
            yield f"Result{' (error)' if message.is_error else ''}: {one_line(message.text, characters)}"
        else:
            if message.text.strip():
                yield f"Assistant: {one_line(message.text, characters)}"
            for call in message.calls:
                arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, default=repr)
                yield f"Assistant called: {one_line(arguments, characters)}"
