"""The researcher's operations as agents: names, parameters, effects. What they do is loaded in the process that does it."""

from typing import Annotated, Any, Literal

from pydantic import Field

from remit.agents.builtin.needing import need
from remit.agents.function import agent
from remit.agents.process.remote import models_of
from remit.core.errors import Misused
from remit.flow.context import Context

_WHERE = "files, docs, web, a path, docs:FOLDER or an address; the project's files unless given. !PATH leaves one out."
_WHAT = 'Paths and addresses; in a list also {"title": …, "text": …}. 1 to 40.'


@agent("researcher.deep_research", isolation="process", workspace="scratch", requires_artifacts=True, effects=("read",))
async def deep_research(
    ctx: Context,
    query: Annotated[
        str, Field(min_length=1, max_length=4000, description="A question; names and phrases in quotes are looked for as they stand.")
    ],
    max_depth: Annotated[
        int, Field(ge=1, le=5, description="How far leads are followed: names, files and links that passages point to.")
    ] = 2,
    sources: Annotated[list[str] | str | None, Field(description=_WHERE)] = None,
) -> dict[str, Any]:
    """Answer a question from files, documents and the web, every sentence quoted with its source; writes a report."""
    from remit.agents.builtin.researcher.question import taken_apart
    from remit.agents.builtin.researcher.research import Research
    from remit.agents.builtin.researcher.sources import places

    question = taken_apart(query)
    if not question.terms and not question.urls:
        raise Misused(
            "query holds no word to look for.",
            code="INVALID_PARAMETERS",
            advice="Name the things the question is about, or put them in quotes.",
        )
    return await Research(ctx, question, max_depth, places(_listed(sources), question), models_of(ctx)).run()


@agent("researcher.synthesize_sources", isolation="process", workspace="scratch", requires_artifacts=True, effects=("read",))
async def synthesize_sources(
    ctx: Context,
    sources: Annotated[list[str | dict[str, Any]] | str, Field(description=_WHAT)],
    format: Annotated[Literal["summary", "table", "outline", "json"], Field(description="How the report is laid out.")] = "summary",
) -> dict[str, Any]:
    """Compare files, pages and texts: what several say, where numbers differ, what one alone says; every statement quoted."""
    from remit.agents.builtin.researcher.synthesis import synthesize

    need("bm25s", "research")  # before anything is read, or begun to be written
    given = (_listed(sources) or []) if isinstance(sources, str) else sources
    return await synthesize(ctx, given, format, models_of(ctx))


def _listed(sources: list[str] | str | None) -> list[str] | None:
    """One source may be given as text, several with commas between."""
    return [part for part in sources.split(",") if part.strip()] if isinstance(sources, str) else sources
