"""The researcher: answers from sources, with quotations and their places. `AGENTS` lists its operations.

Without a model it only quotes. With a model, the model writes and every citation is matched literally against its source (`reports`). This
module is loaded to list the agents; the operations load the rest in their own process."""

from typing import Annotated, Any, Literal

from pydantic import Field

from remit.agents.function import FunctionAgent, agent
from remit.agents.process.model_access import models_of
from remit.core.context import Context
from remit.core.errors import Misused
from remit.system.packages import need

_WHERE = "files, docs, web, a path or an address; the project's files unless given. !PATH leaves one out."
_WHAT = 'Paths and addresses; in a list also {"title": …, "text": …}. 1 to 40.'


@agent("researcher.deep_research", isolation="process", workspace="scratch", requires_artifacts=True, effects=("read",))
async def deep_research(
    ctx: Context,
    query: Annotated[str, Field(min_length=1, max_length=4000, description="A question. Identifiers and text in quotes weigh most.")],
    max_depth: Annotated[int, Field(ge=1, le=5, description="How far links of pages are followed.")] = 2,
    sources: Annotated[list[str] | str | None, Field(description=_WHERE)] = None,
) -> dict[str, Any]:
    """Answer a question from files, documents and the web with quotations and their places; writes a report."""
    from remit.builtin.researcher.relevance import Words, addresses
    from remit.builtin.researcher.research import Research
    from remit.builtin.researcher.sources import Places

    words, urls = Words(), addresses(query)
    parts = words.parts(query)
    if not parts and not urls:
        raise Misused(
            "query has no word to look for.",
            code="INVALID_PARAMETERS",
            advice="Name the things the question is about, or put them in quotes.",
        )
    return await Research(ctx, query, parts, max_depth, Places.parse(_as_list(sources), urls), words, models_of(ctx)).run()


@agent("researcher.synthesize_sources", isolation="process", workspace="scratch", requires_artifacts=True, effects=("read",))
async def synthesize_sources(
    ctx: Context,
    sources: Annotated[list[str | dict[str, Any]] | str, Field(description=_WHAT)],
    format: Annotated[Literal["summary", "table", "outline", "json"], Field(description="How the report is laid out.")] = "summary",
) -> dict[str, Any]:
    """Put files, pages and texts side by side: quotes what several share, and the first passages of each; writes a report."""
    from remit.builtin.researcher.research import synthesize

    need("bm25s", "research")  # before anything is read or written
    return await synthesize(ctx, _as_list(sources) if isinstance(sources, str) else sources, format, models_of(ctx))


def _as_list(sources: list[str] | str | None) -> list[str]:
    """One source may be given as text, several separated by commas."""
    return [part for part in sources.split(",") if part.strip()] if isinstance(sources, str) else sources or []


AGENTS: list[FunctionAgent] = [deep_research, synthesize_sources]
