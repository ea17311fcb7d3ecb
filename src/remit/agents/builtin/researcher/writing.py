"""The answer in words: a model writes it from numbered passages, and `written` holds every sentence against what it cites.

It never stands in the way: without time, without passages, or when the model fails or says nothing that is supported, there is a fault in
words and the quotations stand alone. Used by `research` and `synthesis`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from remit.agents.builtin.researcher.citing import Citation
from remit.agents.builtin.researcher.evidence import Gathered, evidence_of, plain_name
from remit.agents.builtin.researcher.written import ABSENT, Written, checked
from remit.flow.context import Context
from remit.models.optional import MATERIAL, Writes, fenced, hear

MOST_SECONDS, SHARE = 150.0, 0.6
"""Of the time that is left when writing begins: the rest is for the report, which is there in any case."""
_RULES = (
    " Say only what the passages say. End every sentence with the number of the passage it rests on, like this [3], or [3][5]; before the"
    " full stop. Use only numbers that were given. Copy figures, names and identifiers exactly. No sentence without a number: no"
    f" introduction, no conclusion of your own. Where the passages do not answer, write: {ABSENT} {MATERIAL}"
)
_ANSWERING = "You answer a question from numbered passages, in a few plain sentences, the most important first; markdown, no headings."
_FORMS = {
    "summary": "a summary of a few short paragraphs: what the sources agree on, where they differ, what one alone says",
    "table": "one markdown table with the columns statement and source; each row is one statement and ends its first cell with its number",
    "outline": "an outline: markdown headings of few words, below each a list, each item one sentence",
    "json": "a summary of a few short paragraphs: what the sources agree on, where they differ, what one alone says",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of asking: something written, or why there is nothing."""

    written: Written | None = None
    fault: str = ""


async def answer(models: Writes, ctx: Context, question: str, citations: Iterable[Citation]) -> Attempt:
    gathered = evidence_of(citations)
    task = f"Answer this question from the passages below.\n\n{fenced(question, kind='question')}"
    return await _write(models, ctx, _ANSWERING + _RULES, task, question, gathered)


async def synthesis(models: Writes, ctx: Context, form: str, names: Iterable[str], citations: Iterable[Citation]) -> Attempt:
    gathered = evidence_of(citations)
    told = [plain_name(" ".join(name.split())[:200], f"source {number}") for number, name in enumerate(names, 1)]
    task = f"Write {_FORMS[form]}. The passages are from these sources:\n\n{fenced(chr(10).join(told), kind='sources')}"
    return await _write(models, ctx, "You put together what several sources say, from numbered passages." + _RULES, task, "", gathered)


async def _write(models: Writes, ctx: Context, instructions: str, task: str, question: str, gathered: Gathered) -> Attempt:
    if not gathered.passages:
        return Attempt(fault="there was no passage to write from")
    if ctx.hand_in:
        return Attempt(fault="time was up before it could be asked")
    count = len(gathered.passages)
    ctx.progress(f"A model writes the answer from {count} passage{'s' * (count != 1)}")
    prompt = "\n\n".join([task, *(one.shown() for one in gathered.passages), "Now write it, every sentence with its number."])
    seconds = min(MOST_SECONDS, SHARE * ctx.remaining)
    heard = await hear(models, ctx, prompt, instructions=instructions, seconds=seconds)
    if heard.fault:
        return Attempt(fault=heard.fault)
    ctx.progress("Comparing each sentence with what it cites")
    written = checked(heard.text, gathered.passages, question, by=heard.model, addressing=gathered.addressing)
    written = replace(written, cut=written.cut or heard.is_cut)
    if not written.supported and not (written.says_absent and not written.marked):
        told = f"none of its {len(written.claims)} sentences is supported by what it cites" if written.claims else "it said nothing"
        return Attempt(fault=f"{told}, so what it wrote was left out")
    return Attempt(written=written)
