"""A conversation with a model as values of our own: what was said, what was called, what came back. Stored as plain JSON.

No provider's and no library's: `translating` makes pydantic-ai's messages of them. What a provider wants to see again unchanged (signed
thoughts, ids of its own) travels along in `Reply.raw`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
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
class Result:
    """What a call gave: as much of it as the model is to see."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


Message = Said | Reply | Result


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOffer:
    """A tool that the model may call."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """JSON schema of its arguments."""
    strict: Callable[[], Mapping[str, Any]] | None = field(default=None, repr=False, compare=False)
    """The same with conditions between the arguments, where a reply can be held to it; made when it is needed."""
