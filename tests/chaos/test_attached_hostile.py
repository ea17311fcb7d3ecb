"""Attached processes are untrusted: no message from a connected process stops the owner or its answers."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json, to_json

from remit import Context, Remit, State, Stopped, agent
from remit.agents import attach_server
from remit.core.ids import CALLER, decode
from remit.system.unix_sockets import connect_to


class Wire:
    """Raw connection that can send arbitrary bytes."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        sock.setblocking(True)
        sock.settimeout(10.0)
        self._number = 0

    def write(self, data: bytes) -> None:
        self._sock.sendall(data)

    def send(self, message: Any) -> None:
        body = to_json(message)
        self.write(len(body).to_bytes(4, "big") + body)

    def read(self) -> Any:
        """Return the next message, or None at the end of the stream."""
        with contextlib.suppress(OSError):
            if len(head := self._exactly(4)) == 4:
                return from_json(self._exactly(int.from_bytes(head, "big")))
        return None

    def _exactly(self, size: int) -> bytes:
        """Read `size` bytes, or fewer at the end of the stream. A socket with a timeout may return any part of a message."""
        data = b""
        while len(data) < size and (more := self._sock.recv(size - len(data))):
            data += more
        return data

    def ask(self, name: str, **body: Any) -> Any:
        self._number += 1
        self.send({"k": "call", "id": self._number, "name": name, "body": body})
        return self.read()

    def is_cut(self) -> bool:
        while self.read() is not None:
            pass
        return True


@agent("echo")
async def echo(word: str) -> str:
    return word


@agent("holder", timeout=60)
async def holder(ctx: Context) -> str:
    """Runs on the loop of the test, so that the test process may act for it."""
    tokens.put_nowait(ctx.environment()[CALLER])
    await asyncio.sleep(50)
    return "held"


tokens: "asyncio.Queue[str]"


@pytest.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Remit]:
    async with Remit.open(tmp_path, agents=[echo, holder]) as remit:
        yield remit
        assert (await remit.delegate("echo", word="still here")).data == "still here"


async def let_in(owner: Remit) -> tuple[Any, Wire]:
    global tokens
    tokens = asyncio.Queue()
    handle = await owner.start("holder")
    token = await asyncio.wait_for(tokens.get(), 10)
    wire = Wire(await asyncio.to_thread(connect_to, Path(decode(token).address), 5.0))
    hello = await asyncio.to_thread(wire.ask, "hello", token=token)
    assert hello["value"]["session_id"] == handle.session_id
    return handle, wire


async def test_invalid_requests_are_answered_with_errors(owner: Remit) -> None:
    _, wire = await let_in(owner)
    for name, body in (
        ("nonsense", {}),
        ("delegate", {"request": 5}),
        ("delegate", {"request": {"agent": "echo", "parameters": {}}, "deps": 5}),
        ("next", {"stream": []}),
        ("cancel", {"session_id": 7}),
        ("budget", {"more": 99}),
    ):
        answer = await asyncio.to_thread(wire.ask, name, **body)
        assert "error" in answer, (name, body, answer)
        assert "traceback" not in answer["error"], (name, body, answer)
    answer = await asyncio.to_thread(wire.ask, "delegate", request={"agent": "echo", "parameters": {"word": "w"}})
    assert answer["value"]["data"] == "w"


@pytest.mark.parametrize(
    "data",
    [
        (100 * 1024 * 1024).to_bytes(4, "big"),
        (5).to_bytes(4, "big") + b"hello",
        *(
            len(body).to_bytes(4, "big") + body
            for body in (
                b"7",
                b"{}",
                b'{"k":"call","id":"x","name":"budget","body":{}}',
                b'{"k":"x","id":1}',
                b'{"k":"call","id":1,"name":[1]}',
            )
        ),
    ],
)
async def test_malformed_message_closes_only_its_connection(owner: Remit, data: bytes) -> None:
    handle, wire = await let_in(owner)
    await asyncio.to_thread(wire.write, data)
    assert await asyncio.to_thread(wire.is_cut)
    assert (await owner.describe(handle.session_id)).state is State.RUNNING, "the delegation still runs"


async def test_client_that_floods_without_reading_is_disconnected(owner: Remit) -> None:
    _, wire = await let_in(owner)
    large = "x" * 1_000_000
    body = to_json({"k": "call", "id": 0, "name": "delegate", "body": {"request": {"agent": "echo", "parameters": {"word": large}}}})

    def flood() -> None:
        with contextlib.suppress(OSError):
            for number in range(2, 400):
                message = body.replace(b'"id":0', b'"id":%d' % number)
                wire.write(len(message).to_bytes(4, "big") + message)

    flooding = asyncio.create_task(asyncio.to_thread(flood))
    while not flooding.done():
        assert (await asyncio.wait_for(owner.delegate("echo", word="w"), 10)).ok
        await asyncio.sleep(0.1)


async def test_request_after_the_delegation_ended_is_answered_with_stopped(owner: Remit) -> None:
    handle, wire = await let_in(owner)
    await handle.cancel("enough")
    answer = await asyncio.to_thread(wire.ask, "delegate", request={"agent": "echo", "parameters": {"word": "w"}})
    assert answer["error"]["branch"] == Stopped.__name__
    assert [r.agent for r in await owner.tree(handle.session_id)] == ["holder"]


async def test_connections_of_ended_delegations_free_their_slots(owner: Remit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach_server, "CONNECTIONS_AT_ONCE", 2)
    left = []
    for _ in range(2):
        handle, wire = await let_in(owner)
        left.append(wire)
        await handle.cancel()
    handle, _ = await let_in(owner)
    assert all([await asyncio.to_thread(wire.is_cut) for wire in left])
    await handle.cancel()
