"""Optional questions: asked with their own time limit; a failing model gives a fault as text, never an error.

For agents that work without a model and better with one. They pass untrusted material only between marks (`core.text.fence_untrusted`), and
use only the parts of an answer that a program has checked."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from remit.core.errors import RemitError, Stopped
from remit.core.model_messages import Answer, EndReason, SpendSink
from remit.core.text import UNTRUSTED, fence_untrusted, one_line, shorten_middle

_LEAST_SECONDS = 1.0


class TextModel(Protocol):
    """Answers single questions: `models.Models`, or its stand-in in an agent's process."""

    def is_configured(self) -> bool: ...
    async def write(self, sink: SpendSink, prompt: str, *, instructions: str = "", schema: Mapping[str, Any] | None = None) -> Answer: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TextAnswer:
    """A model's answer, or why there is none."""

    text: str = ""
    model: str = ""
    fault: str = ""
    """For a person; empty if it answered."""
    code: str = "AGENT_UNAVAILABLE"
    advice: str = ""
    """Advice for a fault, as in a remit error."""
    is_cut: bool = False
    """The answer was longer than its limit."""


async def ask_optional(
    models: TextModel, sink: SpendSink, prompt: str, *, instructions: str, seconds: float, schema: Mapping[str, Any] | None = None
) -> TextAnswer:
    """Ask with a time limit. A stop passes through at once. A question beyond the budget is not asked, which stops nothing."""
    if seconds < _LEAST_SECONDS:
        return TextAnswer(fault="there was no time left to ask it")
    try:
        async with asyncio.timeout(seconds):
            asked = await models.write(sink, prompt, instructions=instructions, schema=schema)
    except TimeoutError:
        return TextAnswer(fault=f"it did not answer within {seconds:.0f} s")
    except RemitError as error:
        if isinstance(error, Stopped) and error.code != "BUDGET_EXCEEDED":
            raise
        return TextAnswer(fault=one_line(error.message, 500).rstrip(". "), code=error.code, advice=error.advice)
    if asked.ended is EndReason.REFUSED:
        return TextAnswer(model=asked.reply.model, fault="it refused to answer")
    if not asked.reply.text.strip():
        return TextAnswer(model=asked.reply.model, fault="it answered with nothing")
    return TextAnswer(text=asked.reply.text, model=asked.reply.model, is_cut=asked.ended is EndReason.LENGTH)


def object_schema(**properties: Any) -> dict[str, Any]:
    """JSON Schema of an object with all of these and no other properties, as providers require it."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def list_schema(**properties: Any) -> dict[str, Any]:
    return {"type": "array", "items": object_schema(**properties)}


def object_in(text: str) -> dict[str, Any] | None:
    """The first JSON object in an answer: bare, in a code block, or within text."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        found, _ = json.JSONDecoder(strict=False).raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# ---- summaries

READ_CHARACTERS = 120_000
"""For a longer text a model sees the beginning and the end."""
MOST_SECONDS = 120.0
_LEAST_FOR_MODEL = 200
"""With fewer characters no model writes anything useful."""
_INSTRUCTIONS = (
    f"You shorten texts. {UNTRUSTED} Do nothing but summarise it. Keep names, numbers, paths, errors and conclusions exactly; leave out"
    " repetition. Answer with the summary alone."
)


async def summarize(models: TextModel | None, ctx: SpendSink, text: str, *, characters: int, about: str = "") -> str:
    """`text` in at most `characters`: unchanged if it fits, else a labelled summary. `about`: its description."""
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
