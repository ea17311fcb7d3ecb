"""`worker.web_search`: tries the search providers in order until one answers, each rate-limited. Runs in its own process.

A provider is an object with a name and a method `search`, created by a function that takes a `SearchClient`, through which it reaches the
web, guarded like every fetch."""

import asyncio
import fcntl
import hashlib
import importlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

from remit.builtin.worker.pages import build_headers, build_network, decode_text, fetch, limit_memory, plain_text, read_json, utc_time
from remit.core.context import Context
from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.core.settings import Search
from remit.core.text import plural
from remit.system.beneath import open_regular
from remit.system.http import BodyError, Network, UnreachableError, WebRequest, check_target, parse_target
from remit.system.settings_files import load_settings
from remit.system.threads import off_loop

# ---- providers

DUCKDUCKGO = "https://html.duckduckgo.com/html/"
BRAVE = "https://api.search.brave.com/res/v1/web/search"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    title: str
    url: str
    snippet: str = ""
    date: str | None = None
    """In the provider's format."""


class SearchProvider(Protocol):
    @property
    def name(self) -> str: ...
    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """Raises `SearchFailed`; then the next provider is asked."""
        ...


class SearchFailed(Exception):
    """A provider gave no answer. The message never contains a key."""

    def __init__(self, message: str, *, back_off_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.back_off_seconds = back_off_seconds
        """The requested pause."""


class SearchNotConfigured(Exception):
    """Configuration that is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchClient:
    """The interface for providers."""

    settings: Search
    get_json: Callable[[str, Mapping[str, str]], Awaitable[Any]]
    """The JSON at a URL, requested with these headers: guarded like every fetch. Raises `SearchFailed`, `Refused`."""
    permit: Callable[[str], Awaitable[None]]
    """For a provider's own client that cannot be guarded: whether this URL may be requested. Raises `Refused`, `SearchFailed`."""
    blocking: Callable[[Callable[[], Any]], Awaitable[Any]]
    """Run blocking code on a thread, within the available time. Raises `SearchFailed`."""
    environ: Mapping[str, str]


class SearXNG:
    name = "searxng"

    def __init__(self, client: SearchClient) -> None:
        if client.settings.searxng_url is None:
            raise SearchNotConfigured("set search.searxng_url to the address of a SearXNG that gives JSON")
        self._client, self._url = client, client.settings.searxng_url.rstrip("/")

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        found = await self._client.get_json(f"{self._url}/search?{urlencode({'q': query, 'format': 'json'})}", {})
        results = found.get("results") if isinstance(found, dict) else None
        if not isinstance(results, list):
            raise SearchFailed("it gave JSON without results: is `json` among the formats of its settings?")
        return _hits(results, url="url", snippet="content", date="publishedDate")[:max_results]


class Brave:
    name = "brave"

    def __init__(self, client: SearchClient, url: str = BRAVE) -> None:
        variable = client.settings.brave_key_variable
        self._client, self._url, self._key = client, url, client.environ.get(variable, "").strip()
        if not self._key:
            raise SearchNotConfigured(f"set {variable} in the environment to a key of the Brave Search API")

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        asked = urlencode({"q": query, "count": min(max_results, 20)})
        found = await self._client.get_json(f"{self._url}?{asked}", {"X-Subscription-Token": self._key})
        web = found.get("web") if isinstance(found, dict) else None
        results = web.get("results", []) if isinstance(web, dict) else []
        return _hits(results, url="url", snippet="description", date="page_age")[:max_results]


class DuckDuckGo:
    """Uses the package ddgs, which has its own HTTP client: the policy is asked for its host, but the connection is that client's."""

    name = "duckduckgo"

    def __init__(self, client: SearchClient) -> None:
        self._client = client

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        await self._client.permit(DUCKDUCKGO)

        def ask() -> list[Any]:
            from ddgs import DDGS
            from ddgs.exceptions import DDGSException

            for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
                del os.environ[name]  # a proxy would bypass the policy; this process does nothing else
            try:
                return list(DDGS(timeout=10).text(query, max_results=max_results, backend="duckduckgo"))
            except DDGSException as error:
                if "No results" in str(error):
                    return []
                raise SearchFailed(f"it could not be reached ({type(error).__name__}: {str(error)[:150]})", back_off_seconds=5) from None

        try:
            results = await self._client.blocking(ask)
        except ImportError:
            raise SearchNotConfigured("install its client: pip install 'remit[web]'") from None
        return _hits(results, url="href", snippet="body", date="date")[:max_results]


Make = Callable[[SearchClient], SearchProvider]
BUILT_IN: Mapping[str, Make] = {"searxng": SearXNG, "brave": Brave, "duckduckgo": DuckDuckGo}


def make_provider(name: str, client: SearchClient) -> SearchProvider:
    """A built-in provider, or `module:function`. Raises `SearchNotConfigured`."""
    module, _, function = name.partition(":")
    if name not in BUILT_IN and not function:
        raise SearchNotConfigured(f"there is no such provider; known are {', '.join(BUILT_IN)}, or name a function as module:function")
    try:
        make: Make = BUILT_IN.get(name) or getattr(importlib.import_module(module), function)
        return make(client)
    except (SearchNotConfigured, RemitError):
        raise
    except Exception as error:  # noqa: BLE001 - user code
        raise SearchNotConfigured(f"it cannot be loaded ({type(error).__name__}: {str(error)[:150]})") from None


def _hits(results: Any, *, url: str, snippet: str, date: str) -> list[SearchHit]:
    """The usable part of a provider's answer: hits with absolute URLs, each once."""
    hits: dict[str, SearchHit] = {}
    for one in results if isinstance(results, list) else ():
        if not isinstance(one, dict) or not isinstance(one.get(url), str):
            continue
        try:
            address = parse_target(one[url]).url
        except Misused:
            continue
        said, text = _line(one.get(date))[:40], _line(one.get(snippet))[:1000]
        hits.setdefault(address, SearchHit(title=_line(one.get("title"))[:300] or address, url=address, snippet=text, date=said or None))
    return list(hits.values())


def _line(value: object) -> str:
    return " ".join(value.replace("\x00", "").split()) if isinstance(value, str) else ""


# ---- pace

LONGEST_WAIT = 3600.0
"""A turn that is further away is ignored: the clock was set back, or the file is damaged."""


class Pace:
    """Rate-limits requests to a provider across all processes of a project, through a file with the time of the next turn."""

    def __init__(self, folder: Path, provider: str) -> None:
        self._path = folder / f"search-{hashlib.sha256(provider.encode()).hexdigest()[:16]}"

    def take_turn(self, seconds_between: float, longest: float = LONGEST_WAIT) -> float:
        """Seconds to wait until this request may be sent. Its turn is taken unless that is longer than `longest`."""
        return self._move(lambda wait: wait + seconds_between if wait <= longest else wait)

    def back_off(self, seconds: float) -> None:
        """The provider reports too many requests: send none before that time."""
        self._move(lambda wait: max(wait, min(seconds, LONGEST_WAIT / 2)))

    def _move(self, following: Callable[[float], float]) -> float:
        """Seconds until the next turn; writes the time of the one after it, under a lock held for microseconds."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(open_regular(self._path, os.O_RDWR | os.O_CREAT), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            now = time.time()
            try:
                wait = max(0.0, float(file.read(64)) - now)
            except ValueError:
                wait = 0.0
            wait = wait if wait <= LONGEST_WAIT else 0.0
            file.seek(0)
            file.write(f"{now + following(wait):.3f}".encode())
            file.truncate()
        return wait


# ---- one search

MOST_BYTES = 2 * 1024 * 1024
SECONDS_EACH = 20.0
_TOO_MANY_SECONDS = 30.0
"""The pause after status 429 without Retry-After."""


@dataclass(slots=True)
class SearchOutcome:
    provider: str = ""
    hits: list[SearchHit] = field(default_factory=list)
    tried: dict[str, str] = field(default_factory=dict)
    """By provider: why it gave nothing."""
    refusals: list[Refused] = field(default_factory=list)
    """Of the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSearch:
    settings: Search
    network: Network
    run_folder: Path
    remaining: Callable[[], float]
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    async def search(self, query: str, max_results: int) -> SearchOutcome:
        """The result of the first provider that answers; `provider` is empty if none did."""
        found = SearchOutcome()
        client = SearchClient(
            settings=self.settings, get_json=self._get_json, permit=self._permit, blocking=off_loop, environ=self.environ
        )  # fmt: skip
        for name in self.settings.providers:
            try:
                provider = make_provider(name, client)
                await self._wait_for_turn(name)
                async with asyncio.timeout(self._seconds()):
                    found.hits = [hit for hit in await provider.search(query, max_results) if _is_hit(hit)][:max_results]
                found.provider = name
                break
            except SearchNotConfigured as missing:
                found.tried[name] = f"not set up: {missing}"
            except SearchFailed as error:
                found.tried[name] = str(error)
                if error.back_off_seconds:
                    await off_loop(Pace(self.run_folder, name).back_off, error.back_off_seconds)
            except Refused as refusal:
                found.tried[name] = refusal.message
                found.refusals.append(refusal)
            except RemitError:
                raise
            except Exception as error:  # noqa: BLE001 - a provider may be user code: the next one is asked
                found.tried[name] = f"it raised {type(error).__name__}"
        return found

    def _seconds(self) -> float:
        return max(0.1, min(SECONDS_EACH, self.remaining() * 0.6))

    async def _wait_for_turn(self, name: str) -> None:
        longest = self.remaining() * 0.5
        wait = await off_loop(Pace(self.run_folder, name).take_turn, self.settings.seconds_between, longest)
        if wait > longest:
            raise SearchFailed(f"too many requests wait for it already ({wait:.0f} s)")
        await asyncio.sleep(wait)

    async def _get_json(self, url: str, headers: Mapping[str, str]) -> Any:
        try:
            request = WebRequest(target=parse_target(url), headers=build_headers({"Accept": "application/json", **headers}))
            fetched = await fetch(request, self.network, most=MOST_BYTES, seconds=self._seconds())
        except (UnreachableError, BodyError, Misused) as error:
            raise SearchFailed(str(error)) from None
        if fetched.status == 429:
            said = fetched.headers.get("retry-after", "")
            seconds = float(said) if said.isascii() and said.isdigit() else _TOO_MANY_SECONDS
            raise SearchFailed("it reports too many requests (429)", back_off_seconds=seconds)
        value, fault = read_json(decode_text(fetched.body.content, fetched.content_type)[0])
        if fetched.status != 200 or fault or fetched.body.cut:
            said = fetched.body.cut or "its answer is not JSON"
            raise SearchFailed(said if fetched.status == 200 else f"it answers with status {fetched.status}: is the key right?")
        return value

    async def _permit(self, url: str) -> None:
        try:
            await check_target(parse_target(url), "GET", self.network)
        except (UnreachableError, Misused) as error:
            raise SearchFailed(str(error)) from None


def _is_hit(hit: object) -> bool:
    return isinstance(hit, SearchHit) and all(isinstance(text, str) for text in (hit.title, hit.url, hit.snippet, hit.date or ""))


# ---- the operation


async def search_web(ctx: Context, query: str, max_results: int) -> dict[str, Any]:
    settings = load_settings(ctx.root)
    query = " ".join(query.split())
    if not query:
        raise Misused("query: there is nothing to search for.", advice="Give some words.")
    with limit_memory():
        found = await WebSearch(
            settings=settings.search,
            network=build_network(ctx, settings.web),
            run_folder=ctx.root / ".remit" / "run",
            remaining=lambda: ctx.remaining,
        ).search(query, max_results)
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
    results = [{"title": hit.title, "url": hit.url, "snippet": hit.snippet, "date": hit.date} for hit in found.hits]
    first = f"The first is “{plain_text(results[0]['title'] or '', 100)}”." if results else "Other words may find more."
    return {
        "status": "completed",
        "summary": f"{found.provider} gave {plural(len(results), 'result')} for “{plain_text(query, 100)}”. {first}",
        "data": {"query": query, "provider": found.provider, "results": results, "tried": found.tried, "searchedAt": utc_time()},
        "artifacts": [],
        "errors": [],
    }
