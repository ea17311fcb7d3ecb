"""Questions whose answer can be done without: asked within a time of their own; a model that fails gives a fault in words, never an error.

For agents that do their work without a model and do it better with one. They hand a model material of others only between marks
(`core.text.fence_untrusted`), and take of its answer only what a program has checked.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from remit.core.errors import RemitError, Stopped
from remit.core.model_messages import Answer, EndReason, SpendSink
from remit.core.text import UNTRUSTED, fence_untrusted, shorten_middle

_FENCE = re.compile(r"^\s*```[\w-]*[ \t]*\n(.*?)\n?```\s*$", re.DOTALL)
_LEAST_SECONDS = 1.0


class TextModel(Protocol):
    """What single questions are put to: `models.Models`, or its stand-in in the process of an agent."""

    def is_configured(self) -> bool: ...
    async def write(self, purse: SpendSink, prompt: str, *, instructions: str = "", schema: Mapping[str, Any] | None = None) -> Answer: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TextAnswer:
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


async def ask_optional(
    models: TextModel, purse: SpendSink, prompt: str, *, instructions: str, seconds: float, schema: Mapping[str, Any] | None = None
) -> TextAnswer:
    """Ask, for so long and no longer. Being stopped is not held up: it passes. A question that the budget has no room for is not asked,
    which stops nobody."""
    if seconds < _LEAST_SECONDS:
        return TextAnswer(fault="there was no time left to ask it")
    try:
        async with asyncio.timeout(seconds):
            asked = await models.write(purse, prompt, instructions=instructions, schema=schema)
    except TimeoutError:
        return TextAnswer(fault=f"it did not answer within {seconds:.0f} s")
    except RemitError as error:
        if isinstance(error, Stopped) and error.code != "BUDGET_EXCEEDED":
            raise
        return TextAnswer(fault=_words(error.message), code=error.code, advice=error.advice)
    if asked.ended is EndReason.REFUSED:
        return TextAnswer(model=asked.reply.model, fault="it refused to answer")
    if not asked.reply.text.strip():
        return TextAnswer(model=asked.reply.model, fault="it answered with nothing")
    return TextAnswer(text=asked.reply.text, model=asked.reply.model, is_cut=asked.ended is EndReason.LENGTH)


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


# ---- summaries

READ_CHARACTERS = 120_000
"""Of a longer text a model is shown the beginning and the end."""
MOST_SECONDS = 120.0
_LEAST_FOR_MODEL = 200
"""Characters: into less no model writes anything of use."""
_INSTRUCTIONS = (
    f"You shorten texts. {UNTRUSTED} Do nothing but summarise it. Keep names, numbers, paths, errors and conclusions exactly; leave out"
    " repetition. Answer with the summary alone."
)


async def summarize(models: TextModel | None, ctx: SpendSink, text: str, *, characters: int, about: str = "") -> str:
    """`text` in at most `characters`: as it is where it fits, else a summary that says so. `about`: what it is, in a few words."""
    if len(text) <= characters:
        return text
    if models is None or characters < _LEAST_FOR_MODEL or not models.is_configured():
        return shorten_middle(text, characters)
    what = f" of {' '.join(about.split())[:200]}" if about else ""
    ctx.progress(f"Summarising {len(text):,} characters{what}")
    shown = shorten_middle(text, READ_CHARACTERS)
    prompt = f"Summarise this in at most {max(20, characters // 8)} words; it is a text{what}.\n\n{fence_untrusted(shown)}"
    seconds = min(MOST_SECONDS, 0.5 * ctx.remaining)
    answer = await ask_optional(models, ctx, prompt, instructions=_INSTRUCTIONS, seconds=seconds)
    head = f"[Summary by a model of {f'{len(shown):,} of ' if len(shown) < len(text) else ''}{len(text):,} characters]\n"
    room = characters - len(head)
    if not answer.text.strip() or room < _LEAST_FOR_MODEL // 4:
        return shorten_middle(text, characters)
    return head + shorten_middle(answer.text.strip(), room)
