"""What strangers may send to the gRPC API: it answers the next honest caller all the same."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc_harness import Stage, ask, bearer, grpc_harness, refusal, trailer

from support.pace import until

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS, PING, RST = 4, 1, 6, 3
REQUEST_BYTES = 256 * 1024


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with grpc_harness(tmp_path, addresses=["unix", "127.0.0.1:0"], request_bytes=REQUEST_BYTES) as stage:
        yield stage


def messages() -> Any:
    from remit.agents.proto.v1 import tasks_pb2

    return tasks_pb2


def frame(kind: int, payload: bytes = b"", *, stream: int = 0, flags: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def connected(stage: Stage, where: int) -> socket.socket:
    kind, _, path = stage.api.addresses[where].partition(":")
    if kind == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
    else:
        sock = socket.create_connection((kind, int(path)))
    sock.setblocking(False)
    return sock


async def works(stage: Stage) -> None:
    async with asyncio.timeout(60):
        assert (await (await stage.tasks()).ExecuteTask(ask("text.count", text="still here"))).task.data.number_value == 2


async def test_oversized_metadata_is_refused(stage: Stage) -> None:
    tasks, pb = await stage.tasks(), messages()
    for size in (100_000, 1_000_000):
        error = await refusal(tasks.Ping(pb.PingRequest(), metadata=(("x-much", "y" * size),)))
        assert error.code().name in ("RESOURCE_EXHAUSTED", "UNAVAILABLE", "INTERNAL")
        await works(stage)


async def test_oversized_message_is_refused_before_it_is_read(stage: Stage) -> None:
    tasks = await stage.tasks()
    error = await refusal(tasks.ExecuteTask(ask("echo", value="x" * (2 * REQUEST_BYTES))))
    assert error.code().name == "RESOURCE_EXHAUSTED"
    await works(stage)
    assert [record.agent for record in await stage.remit.history()] == ["text.count"]


async def test_malformed_message_is_a_client_error(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    channel = await stage.channel()
    for method in ("ExecuteTask", "GetTaskStatus", "ListTasks"):
        send = channel.unary_unary(f"/remit.v1.TaskService/{method}")
        error = await refusal(send(b"\xff\xff\xff\xff"))
        assert (error.code().name, trailer(error, "remit-code")) == ("INVALID_ARGUMENT", "INVALID_PARAMETERS")
    call = channel.unary_stream("/remit.v1.TaskService/StreamTask")(b"\x0a\xff")
    assert (await refusal(call.read())).code().name == "INVALID_ARGUMENT"
    deep = b""
    for _ in range(300):  # lists in lists, deeper than any reader goes
        inner = b"\x0a" + _varint(len(deep)) + deep
        deep = b"\x32" + _varint(len(inner)) + inner
    value = b"\x0a\x01a\x12" + _varint(len(deep)) + deep
    struct_ = b"\x0a" + _varint(len(value)) + value
    config = b"\x0a" + _varint(len(struct_)) + struct_
    request = b"\x1a" + _varint(len(config)) + config + b"\x22\x04echo"
    assert (await refusal(channel.unary_unary("/remit.v1.TaskService/ExecuteTask")(request))).code().name == "INVALID_ARGUMENT"
    assert (await refusal(channel.unary_unary("/remit.v1.TaskService/Nothing")(b""))).code().name == "UNIMPLEMENTED"
    assert (await refusal(channel.unary_unary("/no/such")(b""))).code().name == "UNIMPLEMENTED"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    await works(stage)


def _varint(number: int) -> bytes:
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


async def test_client_that_does_not_read_costs_no_memory(stage: Stage) -> None:
    """Back-pressure. What it has not read waits in the store, not in the server."""
    import grpc.aio

    pb, tasks = messages(), await stage.tasks(max_receive_message_length=-1)
    task_id = (await tasks.ExecuteTask(ask("loud", chunks=60, size=50_000))).task_id
    written: list[int] = []
    stream = stage.service.stream

    async def counted(*args: Any, **named: Any) -> Any:
        async with contextlib.aclosing(stream(*args, **named)) as chunks:
            async for chunk in chunks:
                written.append(chunk.number)
                yield chunk

    stage.service.stream = counted
    slow = await stage.tasks(**{"http2.lookahead_bytes": 65536, "http2.bdp_probe": 0})
    call = slow.StreamTask(pb.StreamTaskRequest(task_id=task_id))
    assert (await call.read()).task_id == task_id
    for _ in range(20):
        await works(stage)  # time passes, and others are served
    assert len(written) < 40  # of more than sixty: it waits until there is room
    rest = []
    while (chunk := await call.read()) is not grpc.aio.EOF:
        rest.append(chunk)
    assert len(rest) > 60
    assert rest[-1].complete.success


async def test_server_does_not_wait_for_a_missing_request(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow drops: a stranger is sent away before anything is read, anybody else after a while."""
    method = "/remit.v1.TaskService/ExecuteTask"
    port = (await stage.channel(address=stage.api.addresses[1])).stream_unary(method)
    async with asyncio.timeout(60):
        calls = [port() for _ in range(50)]
        told = {(await call.code()).name for call in calls}
    assert told == {"UNAUTHENTICATED", "RESOURCE_EXHAUSTED"}  # wrong too often, it is told to wait
    monkeypatch.setattr("remit.server.grpc.auth_interceptor.READ_SECONDS", 0.2)
    error = await refusal((await stage.channel()).stream_unary(method)())
    assert (error.code().name, trailer(error, "remit-code")) == ("DEADLINE_EXCEEDED", "TIMEOUT")
    ended = (await stage.channel()).stream_unary(method)()
    await ended.done_writing()
    assert (await refusal(ended)).code().name == "INVALID_ARGUMENT"
    await works(stage)


async def test_client_that_disconnects_early_is_not_logged(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    pb, tasks = messages(), await stage.tasks()
    task_id = (await tasks.ExecuteTask(ask("loud", chunks=40, size=50_000))).task_id
    for _ in range(10):
        channel = await stage.channel()
        call = channel.unary_stream("/remit.v1.TaskService/StreamTask")(pb.StreamTaskRequest(task_id=task_id).SerializeToString())
        await call.read()
        await channel.close()
    await until(lambda: stage.authenticator._streams.count("orchestrator") == 0)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_unauthorized_requests_start_nothing(stage: Stage) -> None:
    tasks = await stage.tasks(address=stage.api.addresses[1])
    for shown in ((), bearer("rmt_forged")):
        assert (await refusal(tasks.ExecuteTask(ask("echo"), metadata=shown))).code().name == "UNAUTHENTICATED"
        assert (await refusal(tasks.RunTask(ask("echo"), metadata=shown).read())).code().name == "UNAUTHENTICATED"
    assert await stage.remit.history() == []
    request = ask("echo")
    request.config.accept.append("touch accepted")
    error = await refusal(tasks.ExecuteTask(request, metadata=bearer(stage.token())))
    assert error.code().name == "PERMISSION_DENIED"
    assert await stage.remit.history() == []
