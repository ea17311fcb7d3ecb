"""Answers kept within what clients take: large ones shortened piece by piece, the whole kept by reference (S5.8).

Claude Code cuts a tool's answer at 25,000 tokens; an answer stands in it twice, as structure and as text. Knows no tool and no store.
"""

from collections.abc import Callable
from typing import Any

from remit.tool.speaking import json_bytes, json_text, speakable

__all__ = ["LARGEST_BYTES", "PAGE_CHARACTERS", "fitting", "json_text", "page_of", "speakable"]

LARGEST_BYTES = 28_000
"""Of one document as JSON: both copies and the links stay below 60 KB, about 15,000 tokens."""
PAGE_CHARACTERS = 20_000
_STEPS = ((4_000, 200), (1_000, 60), (300, 20), (80, 5))
"""Tried in turn: at most so many characters of a text, so many members of a list or object."""
_MAY_SHRINK = (
    "data",
    "warnings",
    "artifacts",
    "errors",
    "next_steps",
    "children",
    "delegations",
    "results",
    "agents",
    "parameters",
    "metadata",
)
_NEVER = frozenset({"session_id", "state", "status", "summary", "ask_again", "message", "stop_reason", "evidence", "page", "shortened"})


def fitting(document: dict[str, Any], whole: str, largest_bytes: int = LARGEST_BYTES) -> dict[str, Any]:
    """`document`, shortened where it is too large; then with `shortened`, which says how to get the rest (`whole`)."""
    document = speakable(document)
    if len(json_bytes(document)) <= largest_bytes:
        return document
    names = [name for name in _MAY_SHRINK if name in document] + [n for n in document if n not in _NEVER and n not in _MAY_SHRINK]
    short = dict(document)
    for characters, members in _STEPS:
        for name in names:
            short[name] = _cut(document[name], characters, members)
            if len(json_bytes(short)) <= largest_bytes - len(whole) - 20:
                return {**short, "shortened": whole}
    kept = {name: value for name, value in document.items() if name in _NEVER}
    return {**kept, "shortened": whole}


def _cut(value: Any, characters: int, members: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= characters else f"{value[:characters]}… ({len(value) - characters} characters left out)"
    if isinstance(value, list | tuple):
        kept = [_cut(one, characters, members) for one in value[:members]]
        return kept if len(value) <= members else [*kept, _left_out(value[0], len(value) - members)]
    if isinstance(value, dict):
        short = {_cut(name, 200, 0): _cut(one, characters, members) for name, one in list(value.items())[:members]}
        if len(value) > members:
            short["…"] = f"({len(value) - members} more left out)"
        return short
    return value


def _left_out(like: Any, count: int) -> Any:
    """Of the same shape as its neighbours, so that a reader of the list does not stumble over it."""
    words = f"({count} more left out)"
    return {"…": words} if isinstance(like, dict) else words


def page_of(text: str, offset: int, limit: int) -> dict[str, Any]:
    """A piece of a whole answer; `next_offset` is absent with the last one."""
    piece = _fitting_piece(text[offset : offset + limit], lambda part: len(json_text(part).encode()) <= LARGEST_BYTES - 1_000)
    page: dict[str, Any] = {"offset": offset, "characters": len(text), "text": piece}
    if offset + len(piece) < len(text):
        page["next_offset"] = offset + len(piece)
    return page


def _fitting_piece(piece: str, fits: Callable[[str], bool]) -> str:
    """Quotes and escapes grow when they are written as JSON: halved until it fits."""
    while len(piece) > 1 and not fits(piece):
        piece = piece[: len(piece) // 2]
    return piece
