"""A reply as it is gone on with: no more calls than are made in one turn, and no arguments that could not be written down.

A model may call a thousand times at once, and nest what it says ten thousand deep. What is not taken is told, and the talk goes on. Pure.
Used by `talking`, before a reply counts.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from remit.core.errors import Failed
from remit.flow.plain import plain
from remit.models.messages import Reply, ToolCall

MOST_CALLS = 64
"""In one turn; the others are told to come later."""
ARGUMENT_LEVELS = 60
"""Of nesting; a conversation is written down with its calls some levels deep in it."""
ARGUMENT_CHARACTERS = 400_000
"""Of all calls of one reply: as long as a reply may be."""


def taken(reply: Reply) -> tuple[Reply, str]:
    """The reply, and what the model is told beside the results of its calls; empty: nothing."""
    left = ARGUMENT_CHARACTERS
    calls: list[ToolCall] = []
    for call in reply.calls[:MOST_CALLS]:
        fault = _fault_of(call.arguments, left)
        calls.append(call if fault is None else replace(call, arguments=fault))
        left -= _length(calls[-1].arguments)
    note = ""
    if len(reply.calls) > MOST_CALLS:
        note = f"Only the first {MOST_CALLS} of your {len(reply.calls)} calls were made. Make the others in your next turn."
    if tuple(calls) == reply.calls:
        return reply, note
    return replace(reply, calls=tuple(calls), raw=None), note  # as the provider has it, it would bring back what was not taken


def _fault_of(arguments: Mapping[str, Any] | str, left: int) -> str | None:
    """What stands in their place, where they are not taken."""
    if isinstance(arguments, str):
        return None if len(arguments) <= left else f"{arguments[: max(0, min(left, 1000))]} … (too long to be taken)"
    if not _is_shallow(arguments):
        return f"(arguments nested deeper than {ARGUMENT_LEVELS} levels are not taken)"
    try:
        plain(arguments)
    except Failed as error:
        return f"(arguments that hold {error.message} are not taken)"
    length = _length(arguments)
    if length > left:
        return f"(arguments of {length} characters are not taken: the calls of one reply may have {ARGUMENT_CHARACTERS}; write in parts)"
    return None


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(ARGUMENT_LEVELS):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return True
    return False


def _inside(value: Any) -> Any:
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()


def _length(arguments: Mapping[str, Any] | str) -> int:
    return len(arguments) if isinstance(arguments, str) else len(json.dumps(arguments, ensure_ascii=False, default=str))
