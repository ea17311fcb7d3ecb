"""What a caller with a token tries at the HTTP and MCP APIs: others' work and names, the place of the owner."""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from http_harness import Stage, http_harness

from remit.core.errors import Misused, RemitError, Unavailable
from remit.server.service import Call, Service
from remit.server.tokens import Grants, Permission, Principal

ONLY = frozenset({Permission.DELEGATE})
MCP = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with http_harness(tmp_path_factory.mktemp("served")) as stage:
        yield stage


async def test_task_id_of_another_caller_is_not_accepted_as_page_token(stage: Stage) -> None:
    """An id that is not the caller's is as unknown there as one that never was."""
    ours, theirs = await stage.client(stage.token("a", ONLY)), await stage.client(stage.token("b", ONLY))
    task = (await ours.post("/v1/tasks?wait=5", json={"target": "text", "operation": "count", "parameters": {"text": "x"}})).json()
    answers = [await theirs.get("/v1/tasks", params={"cursor": one}) for one in (task["taskId"], "sess_1700000000_zzzzzz")]
    assert [(one.status_code, one.json()["detail"]) for one in answers] == [(400, "The page does not exist or has expired.")] * 2
    assert (await ours.get("/v1/tasks", params={"cursor": task["taskId"]})).status_code == 200


async def test_caller_sees_only_agents_it_may_use(stage: Stage) -> None:
    client = await stage.client(stage.token("eve", ONLY, agents=("text",)))
    for asked in (
        {"target": "nosuch"},
        {"target": "slow", "parameters": {"nosuch": 1}},
        {"target": "slow", "operation": "nosuch"},
        {"operation": "nosuch"},
    ):
        answer = await client.post("/v1/tasks", json={"parameters": {}, **asked})
        said = json.dumps({**answer.json(), "detail": ""})
        assert answer.status_code in (400, 404), said
        assert not any(f'"{name}"' in said or f"{name}," in said for name in ("slow", "loud", "fails", "seconds")), said
    assert (await client.post("/v1/tasks", json={"target": "slow", "parameters": {}})).status_code == 403


async def test_see_all_does_not_permit_continuing_tasks_of_others(stage: Stage) -> None:
    """`resume` takes over what the other one left, its workspace too."""
    counts = {"target": "text", "operation": "count", "parameters": {"text": "x"}}
    ours = Call(principal=Principal(name="token:a"), api="http")
    task_id = (await (await stage.service.begin(ours, counts)).result()).session_id
    for doing, words in ((ONLY, "There is no task"), (ONLY | {Permission.SEE_ALL}, "not token:b's to continue")):
        theirs = Call(principal=Principal(name="token:b", grants=Grants(permissions=doing)), api="http")
        with pytest.raises(RemitError, match=words):
            await stage.service.begin(theirs, {**counts, "resume": task_id})


async def test_http_socket_behind_a_proxy_requires_a_token(tmp_path: Path) -> None:
    """The proxy runs as the same user, or as root, and anybody may come through it."""
    import httpx

    async with http_harness(tmp_path, is_unix=True, behind_proxy=True) as stage:
        transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / "h"))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/v1/tasks")).status_code == 401
            shown = {"authorization": f"Bearer {stage.token('a')}"}
            assert (await client.get("/v1/tasks", headers=shown)).status_code == 200
            assert (await client.get("/v1/tasks", headers={**shown, "host": "evil.example"})).status_code == 421


async def test_mcp_routes_without_the_middleware_refuse_all_requests(stage: Stage) -> None:
    """A door that was put together wrongly makes nobody the owner."""
    import httpx
    from starlette.applications import Starlette

    from remit.server.mcp.server import ToolServer

    async with ToolServer(stage.service).routes() as routes:
        transport = httpx.ASGITransport(Starlette(routes=routes))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.post("/mcp", json=asked("list_agents"), headers=MCP)
    assert "not authenticated" in answer.text
    assert "text.count" not in answer.text


# ---- those that stay


async def test_long_polls_count_as_streams_and_end_on_token_revocation(stage: Stage) -> None:
    client = await stage.client(stage.token("waits", ONLY, streams=1))
    known = set(stage.remit.engine.live())
    waiting = asyncio.ensure_future(client.post("/v1/tasks?wait=30", json={"target": "slow", "parameters": {"seconds": 20}}))
    while not (new := set(stage.remit.engine.live()) - known):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)
    (task_id,) = new
    assert (await client.get(f"/v1/tasks/{task_id}?wait=30")).status_code == 429
    assert (await client.get(f"/v1/tasks/{task_id}")).status_code == 200
    stage.authenticator.tokens.revoke("waits")
    async with asyncio.timeout(60):
        assert (await waiting).status_code == 401
    await stage.remit.cancel(task_id)


# ---- the Unix socket of the HTTP API


def test_server_replaces_only_a_stale_socket(tmp_path: Path) -> None:
    from remit.server.addresses import Place, bound

    folder = tmp_path / "shared"
    folder.mkdir()
    os.chmod(folder, 0o755)
    path, place = folder / "h.sock", Place(path=folder / "h.sock")
    path.write_text("a file of somebody's")
    with pytest.raises(Misused, match="is not a socket"), bound(place):
        pass
    assert path.read_text() == "a file of somebody's"
    path.unlink()
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))
    with bound(place):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(Unavailable, match="Another server"), bound(place):
            pass
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as client:
            client.connect(str(path))
    assert os.listdir(folder) == []
    assert folder.stat().st_mode & 0o777 == 0o755
    with pytest.raises(RemitError), bound(place):  # it goes with the server, however that ends
        raise RemitError("it failed")
    assert os.listdir(folder) == []


# ---- mutual TLS, and `remit mcp --http` where other machines reach it


async def test_certificate_is_one_revocable_principal_over_grpc_and_mcp(tmp_path: Path) -> None:
    """Whatever stands in it beside its name, such as an address. Real handshakes with both."""
    import ssl

    import grpc
    import httpx
    from grpc_harness import Authority, ask, grpc_harness

    from remit.server.mcp.server import ToolServer, served_http

    authority = Authority(tmp_path)
    certificate, key = authority.issue("bot")  # for loopback too
    files = {"tls_certificate": str(certificate), "tls_key": str(key), "client_ca": str(authority.certificate)}
    async with grpc_harness(tmp_path, addresses=["127.0.0.1:0"], **files) as stage:
        stage.authenticator.tokens.new("anybody", Grants(permissions=ONLY), certificate="*")
        shown = grpc.ssl_channel_credentials(authority.certificate.read_bytes(), key.read_bytes(), certificate.read_bytes())
        task = (await (await stage.tasks(credentials=shown)).ExecuteTask(ask("echo"))).task
        assert task.principal == "cert:bot"
        stage.remit.settings = replace(stage.remit.settings, serve=replace(stage.remit.settings.serve, **files))
        context = ssl.create_default_context(cafile=str(authority.certificate))
        context.load_cert_chain(certificate, key)
        stranger = ssl.create_default_context(cafile=str(authority.certificate))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            url = f"https://127.0.0.1:{listening.getsockname()[1]}/mcp"
            async with served_http(stage.remit, ToolServer(Service(stage.remit), 5.0), listening, requires_auth=True):
                async with httpx.AsyncClient(verify=stranger, headers=MCP) as client:
                    assert (await client.post(url, json=asked("delegation_status"))).status_code == 401
                    assert (await client.get(url.replace("/mcp", "/healthz"))).status_code == 401
                    answer = await client.post(url, json=asked("list_agents"), headers={"authorization": f"Bearer {stage.token()}"})
                    assert answer.status_code == 200
                async with httpx.AsyncClient(verify=context, headers=MCP) as client:
                    answer = await client.post(url, json=asked("delegation_result", session_id=task.task_id))
                    assert '"status":"completed"' in answer.text, answer.text
                    answer = await client.post(url, json=asked("delegate", target="echo", parameters={}, accept=["true"]))
                    assert "may not have commands run here" in answer.text
                    stage.authenticator.tokens.revoke("anybody")
                    assert (await client.post(url, json=asked("list_agents"))).status_code == 401


def asked(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
