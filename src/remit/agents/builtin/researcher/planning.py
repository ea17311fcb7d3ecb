"""What to look for, planned by a model: the parts of a question, in words that sources would use.

The question itself always stays the first part, so a bad plan costs a few searches and loses nothing. Used by `research`.
"""

from dataclasses import dataclass, replace
from typing import Any

from remit.agents.builtin.researcher.question import MOST_PARTS, Part, Question, part_of
from remit.flow.context import Context
from remit.models.optional import MATERIAL, Writes, fenced, hear, object_in

LONGEST = 300
MOST_SECONDS, SHARE = 45.0, 0.15
_LEAST_SECONDS = 15.0
"""That must be left for the whole of it: with less, every second is the search's."""
_INSTRUCTIONS = (
    "You plan a search in files and documents. The search finds words, not meanings. Take the question apart into at most"
    f" {MOST_PARTS - 1} short sub-questions that together answer it, each in the words that a source would use, each naming what it is"
    f" about (no pronouns). Keep names, identifiers and quoted phrases as they stand. {MATERIAL}"
    ' Answer with JSON alone: {"questions": ["…"]}'
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"questions": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_PARTS - 1}},
    "required": ["questions"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    question: Question
    by: str = ""
    """The model; empty where it was planned by rule."""
    fault: str = ""
    """Why no model planned it, though one was asked."""


async def planned(models: Writes, ctx: Context, question: Question) -> Plan:
    if ctx.remaining < _LEAST_SECONDS:
        return Plan(question=question, fault="there was no time to have the question planned")
    ctx.progress("A model plans what to look for")
    seconds = min(MOST_SECONDS, SHARE * ctx.remaining)
    prompt = f"The question:\n\n{fenced(question.text)}"
    heard = await hear(models, ctx, prompt, instructions=_INSTRUCTIONS, seconds=seconds, schema=SCHEMA)
    if heard.fault:
        return Plan(question=question, fault=heard.fault)
    parts = _parts(heard.text, question)
    if not parts:
        return Plan(question=question, fault="what it planned cannot be used")
    return Plan(question=replace(question, parts=parts), by=heard.model)


def _parts(text: str, question: Question) -> tuple[Part, ...]:
    """The whole question first, then what was planned, each once; nothing where the plan holds no usable part."""
    found = object_in(text)
    asked = found.get("questions") if found is not None else None
    if not isinstance(asked, list):
        return ()
    words = [" ".join(one.split()) for one in asked if isinstance(one, str) and one.isprintable() and 0 < len(one.strip()) <= LONGEST]
    new = [part for part in map(part_of, words) if part.terms]
    known = {frozenset(term.stem for term in part.terms) for part in question.parts}
    told: dict[frozenset[str], Part] = {}
    for part in new:
        told.setdefault(frozenset(term.stem for term in part.terms), part)
    added = [part for key, part in told.items() if key not in known]
    kept = question.parts if len(question.parts) < MOST_PARTS else question.parts[: MOST_PARTS - 1]
    return (*kept, *added)[:MOST_PARTS] if new else ()
