"""The HTTP API over a real port: authentication, Host and Origin checks, tasks and their streams, and what each caller may see."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import pytest_asyncio
from http_harness import Harness, events_of, http_harness, status_of, statuses_of

from remit import RemitError
from support.server import OWNER, Call, Delegations, Grants, Permission, Principal, Progress

pytestmark = pytest.mark.asyncio(loop_scope="module")
ONLY = frozenset({Permission.DELEGATE})
COUNT = {"target": "text", "operation": "count", "parameters": {"text": "one two three"}}
SLOW = {"target": "slow", "parameters": {"seconds": 30}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    async with http_harness(tmp_path_factory.mktemp("served"), allow_hosts=("build.example.org",)) as opened:
        yield opened


# ---- authentication


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


async def test_revoking_a_token_ends_its_streams(harness: Harness) -> None:
    client = await harness.client(harness.token("leaving", ONLY))
    async with asyncio.timeout(60), client.stream("POST", "/v1/tasks", json=SLOW, headers={"Accept": "text/event-stream"}) as answer:
        lines = answer.aiter_lines()
        assert [line async for line in until(lines, "event: data")]
        harness.authenticator.tokens.revoke("leaving")
        assert not [line async for line in lines if line.startswith("event: complete")]
    assert (await client.get("/v1/tasks")).status_code == 401


# ---- tasks


async def test_post_without_wait_returns_202_and_the_location(harness: Harness) -> None:
    client = await harness.client()
    answer = await client.post("/v1/tasks", json=SLOW)
    assert (answer.status_code, answer.json()["success"]) == (202, False)
    assert answer.json()["taskState"] in ("QUEUED", "RUNNING")
    assert (await client.get(answer.headers["location"])).json()["taskState"] == "RUNNING"


@pytest.mark.parametrize(("body", "status", "code"), [({"target": "unknown"}, 404, "INVALID_TARGET"), ([], 400, "INVALID_PARAMETERS")])
async def test_invalid_request_is_a_problem_document(harness: Harness, body: Any, status: int, code: str) -> None:
    """RFC 9457."""
    answer = await (await harness.client()).post("/v1/tasks", json=body)
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["detail"]
    assert problem["details"]


async def test_post_can_start_and_stream_a_task_and_its_events_can_be_read_again(harness: Harness) -> None:
    client = await harness.client()
    async with client.stream("POST", "/v1/tasks", json=COUNT, headers={"Accept": "text/event-stream"}) as answer:
        assert answer.status_code == 200
        events = await events_of(answer)
    assert events[0][2]["taskId"] == answer.headers["location"].rpartition("/")[2]
    assert (events[-1][0], events[-1][2]["data"]["result"]["data"]) == ("complete", 3)
    async with client.stream("GET", f"{answer.headers['location']}/events?after=0") as answer:
        assert [number for _, number, _ in await events_of(answer)] == [number for _, number, _ in events]
    faulty = await client.post("/v1/tasks", json={"target": "unknown"}, headers={"Accept": "text/event-stream"})
    assert (faulty.status_code, faulty.json()["code"]) == (404, "INVALID_TARGET")


async def test_trailing_slash_and_empty_json_body_make_no_difference(harness: Harness) -> None:
    client = await harness.client()
    task_id = (await client.post("/v1/tasks/", json=SLOW)).json()["taskId"]
    assert (await client.get(f"/v1/tasks/{task_id}/")).json()["taskId"] == task_id
    for headers in ({"Content-Type": "application/json"}, {}):
        cancelled = await client.post(f"/v1/tasks/{task_id}/cancel", headers=headers)
        assert (cancelled.status_code, cancelled.json()["task"]["taskState"]) == (200, "CANCELLED")


async def test_stopping_server_refuses_tasks_and_ends_streams(tmp_path: Path) -> None:
    async with http_harness(tmp_path) as harness:
        client = await harness.client()
        task_id = (await client.post("/v1/tasks", json=SLOW)).json()["taskId"]
        assert [(await client.get(path)).status_code for path in ("/healthz", "/readyz")] == [200, 200]
        harness.service.is_stopping = True
        assert [(await client.get(path)).status_code for path in ("/healthz", "/readyz")] == [200, 503]
        refused = await client.post("/v1/tasks", json=COUNT)
        assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (503, "STOPPING", "1")
        async with client.stream("GET", f"/v1/tasks/{task_id}/events") as answer:
            lines = answer.aiter_lines()
            async for line in lines:
                if line == "event: data":
                    break
            stopping = asyncio.create_task(harness.server.stop(grace_seconds=20))
            rest = [line async for line in lines]
            await stopping
        assert not any(line.startswith(("event: complete", "event: error")) for line in rest)
        assert harness.server.connections == 0


# ---- work and agents of other callers


async def test_caller_sees_only_agents_it_may_use(harness: Harness) -> None:
    client = await harness.client(harness.token("eve", ONLY, agents=("text",)))
    for request in (
        {"target": "nosuch"},
        {"target": "slow", "parameters": {"nosuch": 1}},
        {"target": "slow", "operation": "nosuch"},
        {"operation": "nosuch"},
    ):
        answer = await client.post("/v1/tasks", json={"parameters": {}, **request})
        output = json.dumps({**answer.json(), "detail": ""})
        assert answer.status_code in (400, 404), output
        assert not any(f'"{name}"' in output or f"{name}," in output for name in ("slow", "loud", "fails", "seconds")), output
    assert (await client.post("/v1/tasks", json={"target": "slow", "parameters": {}})).status_code == 403


async def test_text_of_internal_errors_reaches_only_the_owner(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(*given: object) -> NoReturn:
        raise ValueError("cannot open /srv/private/records.db")

    tools = Delegations(harness.service, 5.0)
    tools.tools["list_agents"] = broken
    for principal, is_visible in ((Principal(name="token:a"), False), (OWNER, True)):
        answer = await tools.call("list_agents", {}, Progress(None, None), Call(principal=principal, api="mcp"))
        assert answer.is_error
        assert ("/srv/private" in str(answer)) is is_visible
        assert ("Internal server error" in str(answer)) is not is_visible
    assert "/srv/private" in caplog.text


async def test_see_all_does_not_permit_continuing_tasks_of_others(harness: Harness) -> None:
    """`resume` would take over the workspace of the other caller."""
    counts = {"target": "text", "operation": "count", "parameters": {"text": "x"}}
    own = Call(principal=Principal(name="token:a"), api="http")
    task_id = (await (await harness.service.begin(own, counts)).result()).session_id
    for doing, message in ((ONLY, "There is no task"), (ONLY | {Permission.SEE_ALL}, "not token:b's to continue")):
        other = Call(principal=Principal(name="token:b", grants=Grants(permissions=doing)), api="http")
        with pytest.raises(RemitError, match=message):
            await harness.service.begin(other, {**counts, "resume": task_id})


async def test_grant_of_an_agent_covers_no_agent_file_whose_name_begins_with_it(tmp_path: Path) -> None:
    """A project file chooses its own name; only operations of a target are covered by the name of the target."""
    folder = tmp_path / ".remit" / "agents"
    folder.mkdir(parents=True)
    for name in ("helper", "helper.x", "text.more"):
        (folder / f"{name}.md").write_text(f"---\nname: {name}\ndescription: Helps.\nremit: {{command: [cat]}}\n---\nHelp.\n")
    (folder / "other.py").write_text('from remit import agent\n\n\n@agent("helper.y")\nasync def y() -> int:\n    return 1\n')
    async with http_harness(tmp_path) as harness:
        client = await harness.client(harness.token("eve", ONLY, agents=("helper", "text")))
        listed = {one["name"] for one in (await client.get("/v1/agents")).json()["agents"]}
        assert listed == {"helper", "text.count"}
        for operation in ("x", "y"):
            answer = await client.post("/v1/tasks", json={"target": "helper", "operation": operation, "parameters": {"task": "Help."}})
            assert answer.status_code in (400, 403), answer.text
        full = await harness.client(harness.token("ada", ONLY, agents=("helper.x",)))
        assert [one["name"] for one in (await full.get("/v1/agents")).json()["agents"]] == ["helper.x"]
