"""Declares `worker.web_fetch` and `worker.web_search`. Both run in their own processes, which load `pages` and `web_search`."""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from remit.agents.function import agent
from remit.core.context import Context

_Headers = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [{"type": "object", "additionalProperties": {"type": "string"}}, {"type": "null"}],
            "description": "Names and values to send along, as JSON.",
        }
    ),
]
"""Checked by `build_headers`: the usual message about a wrong parameter would repeat its value, which may be a key."""
_MOST_CHARACTERS = 200_000


@agent("worker.web_fetch", isolation="process", workspace="scratch", effects=("network",), acts_on={"url": "url"})
async def web_fetch(
    ctx: Context,
    url: Annotated[str, Field(description="An http:// or https:// address.")],
    method: Annotated[str, Field(description="GET, HEAD, POST, …")] = "GET",
    headers: _Headers = None,
    body: Annotated[Any, Field(description="To send along, e.g. with POST: text, or JSON.")] = None,
    max_bytes: Annotated[int, Field(ge=1, description="Read no more than this.")] | None = None,
    max_characters: Annotated[int, Field(ge=1, le=5_000_000, description="Of the text that is handed back.")] = _MOST_CHARACTERS,
    raw: Annotated[bool, Field(description="The text as it was sent, tags and all.")] = False,
    save: Annotated[bool, Field(description="Write what was sent to a file, as an artifact.")] = False,
) -> dict[str, Any]:
    """Fetch a page, JSON or a PDF from the web, and hand back its readable text, title and links."""
    from remit.builtin.worker.pages import fetch_page

    how = {"method": method, "headers": headers, "body": body, "raw": raw, "save": save}
    return await fetch_page(ctx, url, max_bytes=max_bytes, max_characters=max_characters, **how)


@agent("worker.web_search", isolation="process", workspace="none", effects=("network",))
async def web_search(
    ctx: Context,
    query: Annotated[str, Field(min_length=1, max_length=1000, description="As you would type it into a search page.")],
    max_results: Annotated[int, Field(ge=1, le=50, description="To hand back, at most.")] = 10,
) -> dict[str, Any]:
    """Search the web, by the first search provider that answers: titles, addresses and snippets."""
    from remit.builtin.worker.web_search import search_web

    return await search_web(ctx, query, max_results)
