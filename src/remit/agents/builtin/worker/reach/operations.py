"""What `worker.web_fetch` and `worker.web_search` do, from checked parameters to a return. Loaded in the processes that do it.

The declarations are in `worker.web`, which stays light.
"""

import ssl
from functools import cache
from pathlib import Path
from typing import Any

from remit.agents.builtin.worker.reach import fetch as fetching
from remit.agents.builtin.worker.reach.fetch import Fetched, Reading, Undecodable, Unreached
from remit.agents.builtin.worker.reach.follow import Asking, Network, Trail
from remit.agents.builtin.worker.reach.limits import bounded_memory
from remit.agents.builtin.worker.reach.pinned import trusted
from remit.agents.builtin.worker.reach.searching import Found, Searching, now_text
from remit.agents.builtin.worker.reach.target import target_of
from remit.agents.builtin.worker.reach.telling import fetched_return, kept_as, searched_return, unreached_return
from remit.core.errors import Misused, Unavailable
from remit.flow.context import Context
from remit.settings import Settings, load_settings
from remit.settings.values import Web
from remit.system.threads import off_loop

_READING_SHARE = 0.25
"""Of the time there is, kept for reading what was fetched."""


async def fetched(
    ctx: Context, url: str, *, method: str, headers: Any, body: Any, max_bytes: int | None, max_characters: int, raw: bool, save: bool
) -> dict[str, Any]:
    settings = load_settings(ctx.root).web
    method = _method(method)
    data, sent = fetching.body_of(body, fetching.headers_of(headers))
    asking = Asking(target=target_of(url), method=method, headers=sent, body=data)
    most = min(max_bytes or settings.max_bytes, settings.max_bytes)
    trail = Trail()
    with bounded_memory():
        try:
            seconds = ctx.remaining * (1 - _READING_SHARE)
            answer = await fetching.fetch(asking, _network(ctx, settings), most=most, seconds=seconds, trail=trail)
        except (Unreached, Undecodable, TimeoutError) as error:
            return unreached_return(asking.target, trail, error)
        ctx.progress(f"{answer.body.wire_bytes} bytes came from {answer.target.authority}.")
        reading: Reading = fetching.read_out(answer, raw=raw, seconds=max(0.2, ctx.remaining * 0.8))
    file = await _saved(ctx, answer) if save else None
    return fetched_return(asking.target, answer, reading, max_characters, file)


async def searched(ctx: Context, query: str, max_results: int) -> dict[str, Any]:
    settings = load_settings(ctx.root)
    query = " ".join(query.split())
    if not query:
        raise Misused("query: there is nothing to search for.", advice="Give some words.")
    with bounded_memory():
        found = await Searching(
            settings=settings.search,
            network=_network(ctx, settings.web),
            run_folder=ctx.root / ".remit" / "run",
            remaining=lambda: ctx.remaining,
        ).search(query, max_results)
    if not found.provider:
        raise _unsearched(found, settings)
    return searched_return(query, found, now_text())


def _method(method: str) -> str:
    if method.upper() not in fetching.METHODS:
        raise Misused(f"method: {method[:20]!r} is not one that is sent.", advice=f"Use {', '.join(fetching.METHODS)}.")
    return method.upper()


def _network(ctx: Context, settings: Web) -> Network:
    file = ctx.root / settings.ca_file if settings.ca_file is not None else None

    @cache
    def tls() -> ssl.SSLContext:
        return trusted(file)

    return Network(permit=ctx.permit, tls=tls)


async def _saved(ctx: Context, answer: Fetched) -> Path:
    path = ctx.scratch / kept_as(answer)
    await off_loop(path.write_bytes, answer.body.content)
    ctx.artifact(path, "data", f"What {answer.target.authority} answered, {len(answer.body.content)} bytes.")
    return path


def _unsearched(found: Found, settings: Settings) -> Exception:
    if found.refusals and len(found.refusals) == len(found.tried):
        return found.refusals[0]
    tried = "; ".join(f"{name}: {why.rstrip('.')}" for name, why in found.tried.items()) or "search.providers is empty"
    return Unavailable(
        f"No search provider could be asked. {tried}.",
        code="TOOL_UNAVAILABLE",
        advice="Set search.searxng_url in remit.toml to a SearXNG, or put a key of the Brave Search API into the environment as "
        f"{settings.search.brave_key_variable}, or see that this machine reaches html.duckduckgo.com and the policy permits it.",
    )
