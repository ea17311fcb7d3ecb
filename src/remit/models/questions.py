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
from remit.core.text import UNTRUSTED, fence_untrusted, shorten_middle
from remit.models.messages import Answer, EndReason, SpendSink

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

CHUNK_CHARACTERS = 24_000
MOST_CHUNKS = 8
"""Requests of one summary are at most this many and one more; of a longer text, as much as they hold from its beginning and its end."""
MOST_SECONDS = 120.0
_AT_ONCE = 4
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
    ends_at = asyncio.get_running_loop().time() + min(MOST_SECONDS, 0.5 * ctx.remaining)
    work = _Work(models, ctx, f" of {' '.join(about.split())[:200]}" if about else "", ends_at)
    chunks = _chunks(text)
    ctx.progress(f"Summarising {len(text):,} characters{work.what}")
    written = await _written(work, chunks, characters)
    held = sum(map(len, chunks))
    head = f"[Summary by a model of {f'{held:,} of ' if held < len(text) else ''}{len(text):,} characters]\n"
    room = characters - len(head)
    if not written or room < _LEAST_FOR_MODEL // 4:
        return shorten_middle(text, characters)
    return head + shorten_middle(written, room)


@dataclass(frozen=True, slots=True)
class _Work:
    models: TextModel
    purse: SpendSink
    what: str
    ends_at: float

    async def ask(self, text: str, characters: int, what: str) -> str:
        """Empty where the model does not answer."""
        prompt = f"Summarise this in at most {max(20, characters // 8)} words; it is {what}{self.what}.\n\n{fence_untrusted(text)}"
        seconds = self.ends_at - asyncio.get_running_loop().time()
        heard = await ask_optional(self.models, self.purse, prompt, instructions=_INSTRUCTIONS, seconds=seconds)
        return shorten_middle(heard.text.strip(), characters)


async def _written(work: _Work, chunks: list[str], characters: int) -> str:
    """Each part by itself, then the parts together; a part that no model answers for goes in shortened. Empty where none answers at all."""
    if len(chunks) == 1:
        return await work.ask(chunks[0], characters, "a text")
    each = max(400, CHUNK_CHARACTERS // len(chunks))
    parts: list[str] = []
    for start in range(0, len(chunks), _AT_ONCE):
        numbered = list(enumerate(chunks, 1))[start : start + _AT_ONCE]
        asking = [asyncio.create_task(work.ask(chunk, each, f"part {number} of {len(chunks)}")) for number, chunk in numbered]
        try:
            parts += await asyncio.gather(*asking)
        finally:
            for one in asking:  # one that is stopped stops the others, which would go on asking and paying
                one.cancel()
        if not any(parts):
            return ""
    together = "\n\n".join(part or shorten_middle(chunk, each) for part, chunk in zip(parts, chunks, strict=True))
    return await work.ask(together, characters, "summaries of the parts of a text") or shorten_middle(together, characters)


def _chunks(text: str) -> list[str]:
    """Pieces that end with a line where they can; of a text too long for all requests, its beginning and its end."""
    most = CHUNK_CHARACTERS * MOST_CHUNKS
    stretches = [text] if len(text) <= most else [text[: most // 2], text[-(most // 2) :]]
    chunks = []
    for stretch in stretches:
        while len(stretch) > CHUNK_CHARACTERS:
            cut = stretch.rfind("\n", CHUNK_CHARACTERS * 3 // 4, CHUNK_CHARACTERS) + 1 or CHUNK_CHARACTERS
            chunks.append(stretch[:cut])
            stretch = stretch[cut:]
        if stretch.strip():
            chunks.append(stretch)
    return chunks
