"""Questions whose answer can be done without: asked within a time of their own; a model that fails gives a fault in words, never an error.

For agents that do their work without a model and do it better with one. They hand a model material of others only between marks
(`core.prompts.fence_untrusted`), and take of its answer only what a program has checked.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from remit.core.errors import RemitError, Stopped
from remit.models.messages import Asked, Ended, Purse

_FENCE = re.compile(r"^\s*```[\w-]*[ \t]*\n(.*?)\n?```\s*$", re.DOTALL)
_LEAST_SECONDS = 1.0


class Writes(Protocol):
    """What single questions are put to: `models.Models`, or its stand-in in the process of an agent."""

    def is_configured(self) -> bool: ...
    async def write(self, purse: Purse, prompt: str, *, instructions: str = "", schema: Mapping[str, Any] | None = None) -> Asked: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a model said, or why it said nothing."""

    text: str = ""
    model: str = ""
    fault: str = ""
    """In words for a person; empty where it answered."""
    code: str = "AGENT_UNAVAILABLE"
    advice: str = ""
    """With a fault: as an error of ours would say it."""
    is_cut: bool = False
    """It had more to say than we take, or than it was allowed."""


async def hear(
    models: Writes, purse: Purse, prompt: str, *, instructions: str, seconds: float, schema: Mapping[str, Any] | None = None
) -> Heard:
    """Ask, for so long and no longer. Being stopped is not held up: it passes. A question that the budget has no room for is not asked,
    which stops nobody."""
    if seconds < _LEAST_SECONDS:
        return Heard(fault="there was no time left to ask it")
    try:
        async with asyncio.timeout(seconds):
            asked = await models.write(purse, prompt, instructions=instructions, schema=schema)
    except TimeoutError:
        return Heard(fault=f"it did not answer within {seconds:.0f} s")
    except RemitError as error:
        if isinstance(error, Stopped) and error.code != "BUDGET_EXCEEDED":
            raise
        return Heard(fault=_words(error.message), code=error.code, advice=error.advice)
    if asked.ended is Ended.REFUSED:
        return Heard(model=asked.reply.model, fault="it refused to answer")
    if not asked.reply.text.strip():
        return Heard(model=asked.reply.model, fault="it answered with nothing")
    return Heard(text=asked.reply.text, model=asked.reply.model, is_cut=asked.ended is Ended.LENGTH)


def _words(message: str) -> str:
    """Of a provider, in part: shown as words, whatever it sent."""
    return " ".join("".join(one if one.isprintable() else " " for one in message).split())[:500].rstrip(". ")


def object_in(text: str) -> dict[str, Any] | None:
    """The JSON object that an answer is, or holds: bare, in a code block, or with words around it."""
    bare = _FENCE.sub(r"\1", text.strip())
    for candidate in (bare, bare[bare.find("{") : bare.rfind("}") + 1]):
        try:
            found = json.loads(candidate, strict=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None
