"""`worker.web_search`: asks the search providers in order until one answers. Runs in its own process."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from remit.builtin.worker.pages import build_headers, build_network, decode_text, fetch, limit_memory, plain_text, read_json, utc_time
from remit.core.context import Context
from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.core.settings import Search
from remit.core.text import plural
from remit.system.http import BodyError, Network, UnreachableError, WebRequest, check_target, parse_target
from remit.system.settings_files import load_settings
from remit.system.threads import off_loop

BRAVE = "https://api.search.brave.com/res/v1/web/search"
DUCKDUCKGO = "https://html.duckduckgo.com/html/"
MOST_BYTES = 2 * 1024 * 1024
SECONDS_EACH = 20.0
Hit = dict[str, str | None]
"""`title`, `url`, `snippet`, and `date` in the provider's format."""


class SearchFailed(Exception):
    """A provider gave no answer, or is not set up. The message never contains a key."""


@dataclass(slots=True)
class SearchOutcome:
    provider: str = ""
    hits: list[Hit] = field(default_factory=list)
    tried: dict[str, str] = field(default_factory=dict)
    """By provider: why it gave nothing."""
    refusals: list[Refused] = field(default_factory=list)
    """Of the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSearch:
    settings: Search
    network: Network
    remaining: Callable[[], float]
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    brave_url: str = BRAVE

    async def search(self, query: str, max_results: int) -> SearchOutcome:
        """The result of the first provider that answers; `provider` is empty if none did."""
        found = SearchOutcome()
        providers = {"searxng": self._searxng, "brave": self._brave, "duckduckgo": self._duckduckgo}
        for name in self.settings.providers:
            try:
                if name not in providers:
                    raise SearchFailed(f"there is no such provider; known are {', '.join(providers)}")
                async with asyncio.timeout(self._seconds()):
                    found.hits = (await providers[name](query, max_results))[:max_results]
                found.provider = name
                break
            except SearchFailed as error:
                found.tried[name] = str(error)
            except TimeoutError:
                found.tried[name] = "it did not answer in time"
            except Refused as refusal:
                found.tried[name] = refusal.message
                found.refusals.append(refusal)
        return found

    def _seconds(self) -> float:
        return max(0.1, min(SECONDS_EACH, self.remaining() * 0.6))

    async def _searxng(self, query: str, max_results: int) -> list[Hit]:
        if self.settings.searxng_url is None:
            raise SearchFailed("not set up: set search.searxng_url to the address of a SearXNG that gives JSON")
        asked = urlencode({"q": query, "format": "json"})
        found = await self._get_json(f"{self.settings.searxng_url.rstrip('/')}/search?{asked}", {})
        results = found.get("results") if isinstance(found, dict) else None
        if not isinstance(results, list):
            raise SearchFailed("it gave JSON without results: is `json` among the formats of its settings?")
        return _hits(results, url="url", snippet="content", date="publishedDate")

    async def _brave(self, query: str, max_results: int) -> list[Hit]:
        variable = self.settings.brave_key_variable
        key = self.environ.get(variable, "").strip()
        if not key:
            raise SearchFailed(f"not set up: set {variable} in the environment to a key of the Brave Search API")
        asked = urlencode({"q": query, "count": min(max_results, 20)})
        found = await self._get_json(f"{self.brave_url}?{asked}", {"X-Subscription-Token": key})
        web = found.get("web") if isinstance(found, dict) else None
        return _hits(web.get("results") if isinstance(web, dict) else None, url="url", snippet="description", date="page_age")

    async def _duckduckgo(self, query: str, max_results: int) -> list[Hit]:
        """Uses the package ddgs, which has its own HTTP client: the policy is asked for its host, but the connection is that client's."""
        try:
            await check_target(parse_target(DUCKDUCKGO), "GET", self.network)
        except UnreachableError as error:
            raise SearchFailed(str(error)) from None

        def ask() -> list[Any]:
            from ddgs import DDGS

            for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
                del os.environ[name]  # a proxy would bypass the policy; this process does nothing else
            return list(DDGS(timeout=10).text(query, max_results=max_results, backend="duckduckgo"))

        try:
            results = await off_loop(ask)
        except ImportError:
            raise SearchFailed("not set up: install its client: pip install 'remit[web]'") from None
        except RemitError:
            raise
        except Exception as error:  # noqa: BLE001 - its client raises anything; without results too
            if "No results" in str(error):
                return []
            raise SearchFailed(f"it could not be reached ({type(error).__name__}: {str(error)[:150]})") from None
        return _hits(results, url="href", snippet="body", date="date")

    async def _get_json(self, url: str, headers: Mapping[str, str]) -> Any:
        """The JSON at a URL, guarded like every fetch."""
        try:
            request = WebRequest(target=parse_target(url), headers=build_headers({"Accept": "application/json", **headers}))
            fetched = await fetch(request, self.network, most=MOST_BYTES, seconds=self._seconds())
        except (UnreachableError, BodyError, Misused) as error:
            raise SearchFailed(str(error)) from None
        if fetched.status != 200:
            why = "it takes no more requests for now" if fetched.status == 429 else "is the key right?"
            raise SearchFailed(f"it answers with status {fetched.status}: {why}")
        value, fault = read_json(decode_text(fetched.body.content, fetched.content_type)[0])
        if fault or fetched.body.cut:
            raise SearchFailed(fetched.body.cut or "its answer is not JSON")
        return value


def _hits(results: Any, *, url: str, snippet: str, date: str) -> list[Hit]:
    """The usable part of a provider's answer: hits with absolute URLs, each once."""
    hits: dict[str, Hit] = {}
    for one in results if isinstance(results, list) else ():
        if not isinstance(one, dict) or not isinstance(one.get(url), str):
            continue
        try:
            address = parse_target(one[url]).url
        except Misused:
            continue
        title, text, said = _line(one.get("title"), 300), _line(one.get(snippet), 1000), _line(one.get(date), 40)
        hits.setdefault(address, {"title": title or address, "url": address, "snippet": text, "date": said or None})
    return list(hits.values())


def _line(value: object, most: int) -> str:
    return " ".join(value.replace("\x00", "").split())[:most] if isinstance(value, str) else ""


async def search_web(ctx: Context, query: str, max_results: int) -> dict[str, Any]:
    settings = load_settings(ctx.root)
    query = " ".join(query.split())
    if not query:
        raise Misused("query: there is nothing to search for.", advice="Give some words.")
    limit_memory()
    searching = WebSearch(settings=settings.search, network=build_network(ctx, settings.web), remaining=lambda: ctx.remaining)
    found = await searching.search(query, max_results)
    if found.refusals and len(found.refusals) == len(found.tried):
        raise found.refusals[0]
    if not found.provider:
        tried = "; ".join(f"{name}: {why.rstrip('.')}" for name, why in found.tried.items()) or "search.providers is empty"
        raise Unavailable(
            f"No search provider could be asked. {tried}.",
            code="TOOL_UNAVAILABLE",
            advice="Set search.searxng_url in remit.toml to a SearXNG, or put a key of the Brave Search API into the environment as "
            f"{settings.search.brave_key_variable}, or see that this machine reaches html.duckduckgo.com and the policy permits it.",
        )
    first = f"The first is “{plain_text(found.hits[0]['title'] or '', 100)}”." if found.hits else "Other words may find more."
    return {
        "status": "completed",
        "summary": f"{found.provider} gave {plural(len(found.hits), 'result')} for “{plain_text(query, 100)}”. {first}",
        "data": {"query": query, "provider": found.provider, "results": found.hits, "tried": found.tried, "searchedAt": utc_time()},
        "artifacts": [],
        "errors": [],
    }
