"""`researcher.synthesize_sources`: sources read through worker children, compared, put into one report. Extractive, as all here."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remit.agents.builtin.researcher.citing import Citations
from remit.agents.builtin.researcher.comparing import Compared, compare
from remit.agents.builtin.researcher.gathering import Gatherer
from remit.agents.builtin.researcher.passages import Document, cut
from remit.agents.builtin.researcher.report import count, note
from remit.agents.builtin.researcher.returning import could_not_look, ended, in_words, out_of_time
from remit.agents.builtin.researcher.synthesis_report import FORMATS, Synthesis
from remit.agents.builtin.researcher.writing import Attempt
from remit.agents.builtin.researcher.writing import synthesis as written_from
from remit.agents.builtin.researcher.written import Written
from remit.core.errors import ErrorInfo, Misused
from remit.flow.context import Context
from remit.models.optional import Writes

MOST_SOURCES = 40
MOST_CHARACTERS = 1_000_000
"""Of one text that is handed over; a longer one belongs into a file."""


async def synthesize(ctx: Context, given: Sequence[str | Mapping[str, Any]], format_: str, models: Writes | None = None) -> dict[str, Any]:
    if format_ not in FORMATS:
        raise Misused(f"format {format_!r} is unknown.", code="INVALID_PARAMETERS", advice=f"Use {', '.join(FORMATS)}.")
    if not given or len(given) > MOST_SOURCES:
        raise Misused(f"sources: {len(given)} were given.", code="INVALID_PARAMETERS", advice=f"Give 1 to {MOST_SOURCES}.")
    path = ctx.scratch / ("report.json" if format_ == "json" else "report.md")
    path.write_text("{}\n" if format_ == "json" else "*In progress.*\n", encoding="utf-8")
    ctx.artifact(path, "data" if format_ == "json" else "report", f"What the sources say, as {format_}.")
    gatherer = Gatherer(ctx)
    documents = await _read(gatherer, given)
    ctx.progress(f"Comparing {count(len(documents), 'source')}")
    compared = compare(documents)
    citations = Citations()
    synthesis = Synthesis(documents, compared, citations, gatherer.failures)
    data = synthesis.data(format_)
    _put(path, synthesis, format_, data, Attempt())
    if models is None or not documents:
        return _ended(compared, documents, gatherer, data)
    attempt = await written_from(models, ctx, format_, [one.title or one.name for one in documents], citations.all())
    warnings = [f"No model wrote it, so it is quoted: {attempt.fault}."] if attempt.fault else []
    data |= {**(attempt.written.to_data() if attempt.written is not None else {}), "warnings": warnings}
    _put(path, synthesis, format_, data, attempt)
    return _ended(compared, documents, gatherer, data, attempt.written)


def _put(path: Path, synthesis: Synthesis, format_: str, data: Mapping[str, Any], attempt: Attempt) -> None:
    """The report as it is so far: what is quoted first, so that it is there whatever a model does."""
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n" if format_ == "json" else synthesis.markdown(format_)
    if attempt.written is not None and format_ != "json":
        head, _, rest = text.partition("\n\n")
        text = f"{head}\n\n{attempt.written.text}\n\n{note(attempt.written)}\n\n## What they say, quoted\n\n{rest}"
    path.write_text(text, encoding="utf-8")


async def _read(gatherer: Gatherer, given: Sequence[str | Mapping[str, Any]]) -> list[Document]:
    """In the order they were given, each once."""
    texts = [_inline(source, number) for number, source in enumerate(given, 1) if not isinstance(source, str)]
    named = [source.strip() for source in given if isinstance(source, str)]
    urls = [source for source in named if source.lower().startswith(("http://", "https://"))]
    everything = dict.fromkeys(named, 1 << 60)  # a given file is read as far as one is read at all
    await gatherer.read([source for source in named if source not in urls], 0, everything)
    await gatherer.fetch(urls, 0)
    return [*gatherer.documents.values(), *texts]


def _inline(source: Mapping[str, Any], number: int) -> Document:
    text, title = source.get("text"), source.get("title") or f"Text {number}"
    if not isinstance(text, str) or not text.strip() or not isinstance(title, str):
        raise Misused(
            f"sources: number {number} has no text.",
            code="INVALID_PARAMETERS",
            advice='Give {"title": …, "text": …}, a path or an address.',
        )
    if len(text) > MOST_CHARACTERS:
        raise Misused(
            f"sources: number {number} is longer than {MOST_CHARACTERS} characters.",
            code="INVALID_PARAMETERS",
            advice="Write it to a file.",
        )
    return Document(kind="text", name=title, title=title, text=text, date=str(source.get("date") or ""), passages=cut(text, "x.md"))


def _ended(
    compared: Compared, documents: list[Document], gatherer: Gatherer, data: dict[str, Any], written: Written | None = None
) -> dict[str, Any]:
    if not documents:
        return could_not_look(gatherer, data)
    alone = sum(map(len, compared.single.values()))
    words = f"Compared {count(len(documents), 'source')}: {count(len(compared.agreed), 'statement')} in several of them,"
    words += f" {len(compared.differing)} with numbers that differ, {alone} in one alone."
    words += f" The report lists {count(len(compared.figures), 'figure or date', 'figures and dates')} and quotes every statement."
    if written is not None and written.supported:
        words = in_words(written, count(len(documents), "source"))
    if gatherer.failures:
        lost = f"{count(len(gatherer.failures), 'source')} could not be read: {gatherer.failures[0]}"
        advice = "Check the path or the address, and ask again."
        error = ErrorInfo(type="execution", message=lost[:1000], code="SOURCE_UNREAD", recoverable=True, recommendation=advice)
        return ended("partial", f"{words} Some sources could not be read.", data, [error])
    if gatherer.ran_out_of_time:
        return ended("partial", f"{words} Time ran out before all were read.", data, [out_of_time()])
    return ended("completed", words, data, [])
