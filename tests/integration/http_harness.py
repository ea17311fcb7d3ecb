"""A project served over HTTP on loopback, in this process: the real server and authenticator, an httpx client, and raw sockets."""

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpc_harness import TokenHarness, count, fails, loud, slow

from remit import Remit
from support.server import EVERYTHING, Permission

AGENTS = (count, slow, fails, loud)


@dataclass(kw_only=True)
class Harness(TokenHarness):
    service: Any
    server: Any
    address: Any
    url: str

    def token(self, name: str = "client", permissions: frozenset[Permission] = EVERYTHING - {Permission.RELAY}, **grants: Any) -> str:
        return super().token(name, permissions, **grants)

    async def client(self, token: str | None = None, **options: Any) -> Any:
        import httpx

        headers = {"Authorization": f"Bearer {token or self.token()}"}
        return await self.closing.enter_async_context(httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30, **options))

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self.address, limit=1 << 22)
        self.closing.callback(writer.close)
        return reader, writer

    async def send_raw(self, raw: bytes, *, seconds: float = 10) -> bytes:
        """Send bytes on a new connection and read until it is closed or idle."""
        reader, writer = await self.connect()
        writer.write(raw)
        response = b""
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    wait = seconds if b"\r\n\r\n" not in response else 0.4
                    more = await asyncio.wait_for(reader.read(1 << 16), wait)
                    if not more:
                        break
                    response += more
        writer.close()
        return response

    def head(self, method: str = "GET", path: str = "/v1/tasks", *more: str, token: str | None = None) -> bytes:
        """An incomplete header."""
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token or self.token()}", *more]
        return "".join(f"{line}\r\n" for line in lines).encode()


def status_of(response: bytes) -> int:
    assert response.startswith(b"HTTP/1.1 "), response[:200]
    return int(response.split(b" ", 2)[1])


def statuses_of(response: bytes) -> list[int]:
    """The status codes of all responses on one connection."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) [A-Z][\w ]*\r\n", response)]


def problem_of(response: bytes) -> Any:
    assert b"application/problem+json" in response, response[:400]
    return json.loads(response.partition(b"\r\n\r\n")[2])


@contextlib.asynccontextmanager
async def http_harness(
    root: Path,
    *,
    agents: Sequence[Any] = AGENTS,
    builtin_agents: Sequence[str] = (),
    **serve: Any,
) -> AsyncIterator[Harness]:
    from remit.server.http.api import http_app, routes
    from remit.server.http.http_server import HttpServer
    from support.server import Authenticator, Service

    async with contextlib.AsyncExitStack() as closing:
        remit = Remit.open(root, agents=agents, settings={"builtin_agents": list(builtin_agents)})
        remit.settings = replace(remit.settings, serve=remit.settings.serve._replace(**serve))
        await closing.enter_async_context(remit)
        authenticator = Authenticator(remit.folder, running=remit.engine.find)
        authenticator.open()
        service = Service(remit)
        app = http_app(routes(service), authenticator, remit.settings.serve, hosts=["127.0.0.1"])
        server = HttpServer(app)
        listening = socket.create_server(("127.0.0.1", 0))
        address = listening.getsockname()
        await server.start([listening])
        closing.push_async_callback(server.stop, 0.5)
        async with contextlib.AsyncExitStack() as clients:
            yield Harness(
                remit=remit, service=service, authenticator=authenticator, server=server, address=address,
                url=f"http://127.0.0.1:{address[1]}", closing=clients,
            )  # fmt: skip


async def events_of(answer: Any) -> list[tuple[str, str, Any]]:
    """(event, id, data) of each event of a stream."""
    found: list[tuple[str, str, Any]] = []
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
            continue
        if "event" in fields:
            found.append((fields["event"], fields.get("id", ""), json.loads(fields["data"])))
        fields = {}
    return found
