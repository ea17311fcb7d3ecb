"""Every API passes every check of `support.apis.checks` through a client of its own protocol, with the same outcomes.

One server in this process serves one project with all APIs on loopback.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from remit import Remit
from support.apis.agents import API_AGENTS, POLICY, SETTINGS
from support.apis.checks import API_CHECKS, Check
from support.apis.client import ApiClient, Standing
from support.server import Apis, Grants, Permission, bound_apis

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Served:
    """Server with all APIs open."""

    root: Path
    apis: Any
    closing: contextlib.AsyncExitStack
    tokens: dict[str, tuple[Any, str]]

    def token(self, who: str) -> str:
        if who not in self.tokens:
            doing = frozenset({Permission.DELEGATE, Permission.RELAY}) if who == "relay" else frozenset({Permission.DELEGATE})
            self.tokens[who] = self.apis.authenticator.tokens.new(who, Grants(permissions=doing))
        return self.tokens[who][1]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    root = tmp_path_factory.mktemp("apis")
    (root / ".remit").mkdir()
    (root / ".remit" / "policy.cedar").write_text(POLICY)
    opened: asyncio.Future[Served] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    server = asyncio.create_task(_serve(root, opened, stop))  # a separate task: the task that opens the server must also close it
    await asyncio.wait([server, opened], return_when=asyncio.FIRST_COMPLETED)
    if server.done():
        await server
    yield opened.result()
    stop.set()
    await server


async def _serve(root: Path, opened: "asyncio.Future[Served]", stop: asyncio.Event) -> None:
    remit = Remit.open(root, agents=API_AGENTS, settings={**SETTINGS, "serve": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0"}})
    with bound_apis(remit.settings.serve, remit.root) as places:
        async with remit, Apis(remit, places) as apis:
            opened.set_result(Served(root, apis, contextlib.AsyncExitStack(), {}))
            await stop.wait()


async def by_grpc(served: Served, who: str, standing: Standing | None) -> ApiClient:
    import grpc.aio

    from support.apis.over_grpc import GrpcClient

    channel = await served.closing.enter_async_context(grpc.aio.insecure_channel(served.apis.grpc_address))
    return GrpcClient(channel, served.token(who))


async def by_http(served: Served, who: str, standing: Standing | None) -> ApiClient:
    import httpx

    from support.apis.over_http import HttpClient

    http = await served.closing.enter_async_context(httpx.AsyncClient(base_url=served.apis.http_address, timeout=30, verify=False))
    return HttpClient(http, served.token(who))


def by_a2a(binding: str) -> "Way":
    async def way(served: Served, who: str, standing: Standing | None) -> ApiClient:
        from support.apis.over_a2a import a2a_client

        return await a2a_client(served.closing, served.apis.http_address, served.token(who), binding, standing)

    return way


async def by_mcp(served: Served, who: str, standing: Standing | None) -> ApiClient:
    from support.apis.over_mcp import mcp_client

    return await mcp_client(served.closing, f"{served.apis.http_address}/mcp", served.token(who))


Way = Callable[[Served, str, Standing | None], Coroutine[Any, Any, ApiClient]]
WAYS: dict[str, Way] = {
    "grpc": by_grpc,
    "http": by_http,
    "a2a-jsonrpc": by_a2a("JSONRPC"),
    "a2a-rest": by_a2a("HTTP+JSON"),
    "mcp": by_mcp,
}


@dataclass
class Harness:
    root: Path
    served: Served
    way: Way

    async def client(self, who: str = "ann", standing: Standing | None = None) -> ApiClient:
        return await self.way(self.served, who, standing)


@pytest.mark.parametrize("check", API_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("api", WAYS)
async def test_api_passes_the_check(api: str, check: Check, served: Served) -> None:
    async with contextlib.AsyncExitStack() as closing, asyncio.timeout(60):
        await check(Harness(served.root, replace(served, closing=closing), WAYS[api]))
