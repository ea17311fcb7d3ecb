"""`worker.web_search`: order of providers, policy, and advice if none answers."""

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from web_server import WebServer, answer, redirect, web_server

from remit import Refused, Remit
from remit.builtin.worker.web_search import SearchOutcome, WebSearch
from remit.core.settings import Search
from remit.system.http import Address, Network, UnreachableError

RESULTS = [
    {"title": "Owls  hunt\nat night", "url": "https://owls.example/hunt", "content": "An owl hears.", "publishedDate": "2024-03-02"},
    {"title": "The same again", "url": "https://owls.example/hunt", "content": ""},
    {"title": None, "url": "https://owls.example/eyes", "content": None},
    {"title": "Not the web", "url": "javascript:alert(1)"},
    {"title": "With a password", "url": "https://ann:pw@owls.example/"},
    "no result at all",
]
HITS = [
    {"title": "Owls hunt at night", "url": "https://owls.example/hunt", "snippet": "An owl hears.", "date": "2024-03-02"},
    {"title": "https://owls.example/eyes", "url": "https://owls.example/eyes", "snippet": "", "date": None},
]


async def search(settings: Search, query: str = "owls", *, environ: Mapping[str, str] | None = None, brave_url: str = "") -> SearchOutcome:
    """Search without a project; only loopback is permitted, and no name is resolved."""

    async def permit(action: str = "", /, **facts: Any) -> None:
        if facts["address"] != "loopback":
            raise Refused(f"{facts['host']} is not allowed", code="POLICY_DENIED")

    async def resolve(host: str, _port: int) -> Sequence[Address]:
        raise UnreachableError(f"The name {host} cannot be resolved.")

    network = Network(permit=permit, tls=ssl.create_default_context, resolve=resolve)
    searching = WebSearch(settings=settings, network=network, remaining=lambda: 20.0, environ=environ or {}, brave_url=brave_url)
    return await searching.search(query, 10)


def searxng(server: WebServer, **more: Any) -> Search:
    return Search(providers=("searxng",), searxng_url=server.url, **more)


async def test_searxng_results_are_parsed() -> None:
    with web_server({"/search": answer(json.dumps({"results": RESULTS}), type_="application/json")}) as server:
        found = await search(searxng(server), "owls & mice")
        assert (found.provider, found.hits) == ("searxng", HITS)
        assert server.requests[0].path == "/search?q=owls+%26+mice&format=json"


async def test_brave_key_is_sent_to_brave_only() -> None:
    names = {"title": "title", "url": "url", "content": "description", "publishedDate": "page_age"}
    results = [{names[key]: value for key, value in one.items()} for one in RESULTS if isinstance(one, dict)]
    with web_server({}) as other, web_server({"/brave": answer(json.dumps({"web": {"results": results}}))}) as server:
        url = f"{server.url}/brave"
        settings = Search(providers=("brave",), brave_key_variable="MY_KEY")
        found = await search(settings, environ={"MY_KEY": "brave-key-123"}, brave_url=url)
        assert (found.provider, found.hits) == ("brave", HITS)
        assert server.requests[0].headers["x-subscription-token"] == "brave-key-123"
        server.routes["/brave"] = redirect(f"{other.url}/")
        found = await search(settings, environ={"MY_KEY": "brave-key-123"}, brave_url=url)
        assert "404" in found.tried["brave"]
        assert "x-subscription-token" not in other.requests[0].headers


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (answer("<html>", type_="text/html"), "not JSON"),
        (answer('{"answers": []}'), "without results"),
        (answer("[]"), "without results"),
        (answer("no", status="403 Forbidden"), "403"),
        (answer("no", status="500 Oh"), "500"),
        (answer("[" * 1000), "not JSON"),
        (redirect("http://169.254.169.254/"), "not allowed"),
    ],
)
async def test_invalid_response_of_a_provider_is_reported(response: Any, why: str) -> None:
    with web_server({"/search": response}) as server:
        found = await search(searxng(server))
        assert (found.provider, found.hits) == ("", [])
        assert why in found.tried["searxng"]


async def test_search_without_a_provider_is_blocked_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRAVE_API_KEY", raising=False)
    (tmp_path / "remit.toml").write_text('[search]\nproviders = ["searxng", "brave"]\n')
    async with Remit.open(tmp_path) as remit:
        result = await remit.delegate("worker.web_search", query="owls")
    assert (result.status, result.errors[0].code, result.errors[0].type) == ("blocked", "TOOL_UNAVAILABLE", "tool_unavailable")
    assert "searxng: not set up" in result.errors[0].message
    assert "brave: not set up" in result.errors[0].message
    assert "search.searxng_url" in result.errors[0].recommendation
    assert "BRAVE_API_KEY" in result.errors[0].recommendation


async def test_search_uses_settings_and_policy_of_the_project(tmp_path: Path) -> None:
    with web_server({"/search": answer(json.dumps({"results": RESULTS}))}) as server:
        (tmp_path / "remit.toml").write_text(f'[search]\nproviders = ["searxng"]\nsearxng_url = "{server.url}"\n')
        async with Remit.open(tmp_path) as remit:
            refused = await remit.delegate("worker.web_search", query="owls")
        assert (refused.errors[0].code, server.requests) == ("POLICY_DENIED", [])
        (tmp_path / ".remit" / "policy.cedar").write_text("permit (principal, action, resource);\n")
        async with Remit.open(tmp_path) as remit:
            found, empty = await asyncio.gather(
                remit.delegate("worker.web_search", query="owls", maxResults=1), remit.delegate("worker.web_search", query=" ")
            )
        assert found.status == "completed"
        assert found.data["results"] == [
            {"title": "Owls hunt at night", "url": "https://owls.example/hunt", "snippet": "An owl hears.", "date": "2024-03-02"}
        ]
        assert found.summary == "searxng gave 1 result for “owls”. The first is “Owls hunt at night”."
        assert empty.errors[0].code == "INVALID_PARAMETERS"


async def test_first_provider_that_answers_is_used() -> None:
    with web_server({"/search": answer(json.dumps({"results": RESULTS}))}) as server:
        settings = Search(providers=("brave", "no-such", "searxng", "duckduckgo"), searxng_url=server.url)
        found = await search(settings)
        assert found.provider == "searxng"
        assert "set BRAVE_API_KEY" in found.tried["brave"]
        assert "no such provider; known are searxng, brave, duckduckgo" in found.tried["no-such"]
        assert "duckduckgo" not in found.tried


async def test_duckduckgo_is_asked_only_if_the_policy_allows_its_host() -> None:
    """Its client connects by itself, so the policy judges the name first; here it does not resolve."""
    found = await search(Search(providers=("duckduckgo",)))
    assert "html.duckduckgo.com cannot be resolved" in found.tried["duckduckgo"]
