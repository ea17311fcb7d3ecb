"""An HTTP server that sends exactly the bytes of a test, valid or not."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class FakeServer:
    url: str = ""
    requests: list[Request] = field(default_factory=list)

    async def until(self, count: int, seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            while len(self.requests) < count:  # noqa: ASYNC110 - a test that waits, once
                await asyncio.sleep(0.02)


async def respond(writer: asyncio.StreamWriter, status: int, body: bytes = b"", kind: str = "application/json", *more: str) -> None:
    head = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close", *more, "", ""]
    writer.write("\r\n".join(head).encode() + body)
    await writer.drain()


async def begin_stream(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    await writer.drain()


@contextlib.asynccontextmanager
async def hostile(answer: Answer, port: int = 0) -> AsyncIterator[FakeServer]:
    web = FakeServer()
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, path, _ = head[0].split(" ")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            request = Request(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))
            web.requests.append(request)
            await answer(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client disconnected, or the test ended
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    web.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield web
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
