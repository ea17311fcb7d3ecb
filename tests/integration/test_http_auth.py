"""HTTP authentication: tokens; Host and Origin checks; headers of every response."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from http_harness import Harness, http_harness, status_of, statuses_of

from support.server import Permission

DELEGATES = frozenset({Permission.DELEGATE})


in_module_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    async with http_harness(tmp_path_factory.mktemp("served"), allow_hosts=("build.example.org",)) as opened:
        yield opened


@in_module_loop
async def test_requests_without_a_valid_token_are_refused(harness: Harness) -> None:
    """RFC 6750: a challenge that does not say what is wrong with the token."""
    import httpx

    async with httpx.AsyncClient(base_url=harness.url) as anonymous:
        for path in ("/v1/tasks", "/v1/agents", "/openapi.json", "/v1/nowhere", "/v1/tasks/x/events"):
            answer = await anonymous.get(path)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="remit"')
            assert answer.json()["code"] == "UNAUTHENTICATED"
        harness.token("gone")
        harness.authenticator.tokens.revoke("gone")
        bodies = set()
        for wrong in ("Bearer x", f"Bearer {harness.token('gone')}", f"Bearer {harness.token()}x", "Bearer", "Basic YTpi", "x" * 3000):
            answer = await anonymous.get("/v1/tasks", headers={"Authorization": wrong})
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="remit", error="invalid_token"')
            bodies.add(answer.json()["detail"])
        assert len(bodies) == 1
        in_address = await anonymous.get(f"/v1/tasks?access_token={harness.token()}")
        assert in_address.status_code == 401
    twice = await harness.send_raw(harness.head("GET", "/v1/tasks", "Authorization: Bearer x") + b"\r\n")
    assert status_of(twice) == 400
    assert b'error="invalid_request"' in twice


@in_module_loop
async def test_unknown_host_names_are_refused(harness: Harness) -> None:
    """DNS rebinding: names are compared whole."""
    port = harness.address[1]
    good = ("127.0.0.1", f"127.0.0.1:{port}", "localhost", "LOCALHOST:1", "[::1]:80", "build.example.org", f"build.example.org:{port}")
    evil = (
        "evil.example", "localhost:1.evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:80", "localhost@evil",
        "localhost:", "localhost:99999", "", "[::1", "127.0.0.1 ", "127.1", "2130706433", "localhost/", "localhost:80:80", "user@localhost",
        "localhost.", "::1", "[::1]evil.example", "evil.example[::1]:80",
    )  # fmt: skip
    for host in (*good, *evil):
        request = f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        expected = 200 if host in good or host == "127.0.0.1 " else 421  # white space around a header value is ignored
        assert statuses_of(await harness.send_raw(request.encode())) == [expected], host
    assert statuses_of(await harness.send_raw(b"GET /healthz HTTP/1.0\r\n\r\n")) == [421]


@in_module_loop
async def test_requests_of_other_origins_are_refused(harness: Harness) -> None:
    client = await harness.client()
    for origin in (
        "https://evil.example",
        "null",
        "http://localhost.evil.example",
        "http://127.0.0.1:1@evil.example",
        "file://",
        "localhost",
    ):
        answer = await client.get("/v1/agents", headers={"Origin": origin})
        assert (answer.status_code, answer.json()["code"]) == (403, "WRONG_ORIGIN"), origin
    same = await client.get("/v1/agents", headers={"Origin": harness.url})
    assert same.status_code == 200
    asks = {"Origin": harness.url, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    preflight = await client.options("/v1/tasks", headers=asks)
    assert preflight.status_code == 405
    assert not [name for answer in (same, preflight) for name in answer.headers if name.startswith("access-control")]


@in_module_loop
async def test_every_response_has_security_headers(harness: Harness) -> None:
    client = await harness.client()
    for path in ("/healthz", "/v1/agents", "/v1/nowhere"):
        headers = (await client.get(path)).headers
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "server" not in headers


async def until(lines: AsyncIterator[str], wanted: str) -> AsyncIterator[str]:
    while (line := await anext(lines)) != wanted:
        yield line
    yield line


@in_module_loop
async def test_revoking_a_token_ends_its_streams(harness: Harness) -> None:
    client = await harness.client(harness.token("leaving", DELEGATES))
    begin = {"target": "slow", "parameters": {"seconds": 30}}
    async with asyncio.timeout(60), client.stream("POST", "/v1/tasks", json=begin, headers={"Accept": "text/event-stream"}) as answer:
        lines = answer.aiter_lines()
        assert [line async for line in until(lines, "event: data")]
        harness.authenticator.tokens.revoke("leaving")
        assert not [line async for line in lines if line.startswith("event: complete")]
    assert (await client.get("/v1/tasks")).status_code == 401
