"""Who is asked for `worker.web_search`. Three come with remit; a package or a module of the project adds others.

A provider is made by a function of one argument, `Reaching`: the settings, and how to ask the web as far as the policy allows.
"""

import contextlib
import importlib
import importlib.metadata
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

from remit.agents.builtin.worker.reach.target import target_of
from remit.core.errors import Misused, RemitError
from remit.settings.values import Search

ENTRY_POINTS = "remit.search_providers"
DUCKDUCKGO = "https://html.duckduckgo.com/html/"
BRAVE = "https://api.search.brave.com/res/v1/web/search"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    title: str
    url: str
    snippet: str = ""
    date: str | None = None
    """As the provider writes it."""


class SearchProvider(Protocol):
    @property
    def name(self) -> str: ...
    async def search(self, query: str, max_results: int) -> list[Hit]:
        """Raises `Unanswered` when it cannot: the next provider is asked then."""
        ...


class Unanswered(Exception):
    """A provider gave no answer: why, in words that hold no key."""

    def __init__(self, message: str, *, back_off_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.back_off_seconds = back_off_seconds
        """It asked to be left alone for so long."""


class NotSetUp(Exception):
    """What must be set before it can be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaching:
    """What a provider is given."""

    settings: Search
    get_json: Callable[[str, Mapping[str, str]], Awaitable[Any]]
    """The JSON at an address, asked for with these headers: guarded like every fetch. Raises `Unanswered`, `Refused`."""
    permit: Callable[[str], Awaitable[None]]
    """For a client of its own that cannot be guarded: whether this address may be asked at all. Raises `Refused`, `Unanswered`."""
    blocking: Callable[[Callable[[], Any]], Awaitable[Any]]
    """Runs what blocks on a thread, never longer than there is time. Raises `Unanswered`."""
    environ: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearXNG:
    reaching: Reaching
    url: str
    name: str = "searxng"

    async def search(self, query: str, max_results: int) -> list[Hit]:
        asked = urlencode({"q": query, "format": "json"})
        found = await self.reaching.get_json(f"{self.url.rstrip('/')}/search?{asked}", {})
        results = found.get("results") if isinstance(found, dict) else None
        if not isinstance(results, list):
            raise Unanswered("it gave JSON without results: is `json` among the formats of its settings?")
        return _hits(results, title="title", url="url", snippet="content", date="publishedDate")[:max_results]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brave:
    reaching: Reaching
    key: str
    url: str = BRAVE
    name: str = "brave"

    def __repr__(self) -> str:
        return "Brave(…)"  # a traceback must not show the key

    async def search(self, query: str, max_results: int) -> list[Hit]:
        asked = urlencode({"q": query, "count": min(max_results, 20)})
        found = await self.reaching.get_json(f"{self.url}?{asked}", {"X-Subscription-Token": self.key})
        web = found.get("web") if isinstance(found, dict) else None
        results = web.get("results", []) if isinstance(web, dict) else []
        return _hits(results, title="title", url="url", snippet="description", date="page_age")[:max_results]


@dataclass(frozen=True, slots=True, kw_only=True)
class DuckDuckGo:
    """By the package ddgs, which has an HTTP client of its own: the policy is asked for its host, but the connection is that client's."""

    reaching: Reaching
    name: str = "duckduckgo"

    async def search(self, query: str, max_results: int) -> list[Hit]:
        await self.reaching.permit(DUCKDUCKGO)

        def ask() -> list[Any]:
            from ddgs import DDGS
            from ddgs.exceptions import DDGSException

            try:
                with _without_proxies():
                    return list(DDGS(timeout=10).text(query, max_results=max_results, backend="duckduckgo"))
            except DDGSException as error:
                if "No results" in str(error):
                    return []
                raise Unanswered(f"it could not be reached ({type(error).__name__}: {str(error)[:150]})", back_off_seconds=5) from None

        try:
            results = await self.reaching.blocking(ask)
        except ImportError:
            raise NotSetUp("install its client: pip install 'remit[web]'") from None
        return _hits(results, title="title", url="href", snippet="body", date="date")[:max_results]


@contextlib.contextmanager
def _without_proxies() -> Iterator[None]:
    """A client that takes a proxy from the environment would go past the policy."""
    hidden = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)


def searxng(reaching: Reaching) -> SearchProvider:
    if reaching.settings.searxng_url is None:
        raise NotSetUp("set search.searxng_url to the address of a SearXNG that gives JSON")
    return SearXNG(reaching=reaching, url=reaching.settings.searxng_url)


def brave(reaching: Reaching) -> SearchProvider:
    variable = reaching.settings.brave_key_variable
    key = reaching.environ.get(variable, "").strip()
    if not key:
        raise NotSetUp(f"set {variable} in the environment to a key of the Brave Search API")
    return Brave(reaching=reaching, key=key)


def duckduckgo(reaching: Reaching) -> SearchProvider:
    return DuckDuckGo(reaching=reaching)


Make = Callable[[Reaching], SearchProvider]
BUILT_IN: Mapping[str, Make] = {"searxng": searxng, "brave": brave, "duckduckgo": duckduckgo}


def provider(name: str, reaching: Reaching) -> SearchProvider:
    """The provider of that name: one of ours, one that a package offers, or `module:function`. Raises `NotSetUp`."""
    make = BUILT_IN.get(name) or _offered(name)
    try:
        return make(reaching)
    except (NotSetUp, RemitError):
        raise
    except Exception as error:  # noqa: BLE001 - users' code: a provider that cannot be made is passed over, and said to be
        raise NotSetUp(f"put its code right: it raised {type(error).__name__}: {str(error)[:150]}") from None


def _offered(name: str) -> Make:
    try:
        if ":" in name:
            module, _, function = name.partition(":")
            make: Make = getattr(importlib.import_module(module), function)
            return make
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS, name=name):
            loaded: Make = entry.load()
            return loaded
    except Exception as error:  # noqa: BLE001 - users' code again, at import
        raise NotSetUp(f"put its code right: it cannot be loaded ({type(error).__name__}: {str(error)[:150]})") from None
    known = [*BUILT_IN, *sorted(entry.name for entry in importlib.metadata.entry_points(group=ENTRY_POINTS))]
    raise NotSetUp(f"there is no such provider; known are {', '.join(known)}, or name a function as module:function")


def _hits(results: Any, *, title: str, url: str, snippet: str, date: str) -> list[Hit]:
    """What a provider answered, as far as it is of use: whatever it is, these are hits with whole addresses, each once."""
    hits: dict[str, Hit] = {}
    for one in results if isinstance(results, list) else ():
        if not isinstance(one, dict) or not isinstance(one.get(url), str):
            continue
        try:
            address = target_of(one[url]).url
        except Misused:
            continue
        said = one.get(date)
        hits.setdefault(
            address,
            Hit(
                title=_line(one.get(title))[:300] or address,
                url=address,
                snippet=_line(one.get(snippet))[:1000],
                date=_line(said)[:40] or None if isinstance(said, str) else None,
            ),
        )
    return list(hits.values())


def _line(value: object) -> str:
    return " ".join(value.replace("\x00", "").split()) if isinstance(value, str) else ""
