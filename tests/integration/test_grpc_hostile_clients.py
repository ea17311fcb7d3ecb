"""Hostile gRPC clients: the server keeps answering the next honest caller."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from grpc_harness import Harness, ask, grpc_harness, messages, refusal, trailer

REQUEST_BYTES = 256 * 1024


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    async with grpc_harness(tmp_path_factory.mktemp("served"), addresses=["unix", "127.0.0.1:0"], request_bytes=REQUEST_BYTES) as harness:
        yield harness


async def works(harness: Harness) -> None:
    async with asyncio.timeout(60):
        assert (await (await harness.tasks()).ExecuteTask(ask("text.count", text="still here"))).task.data.number_value == 2


async def test_oversized_message_is_refused_before_it_is_read(harness: Harness) -> None:
    tasks = await harness.tasks()
    error = await refusal(tasks.ExecuteTask(ask("echo", value="x" * (2 * REQUEST_BYTES))))
    assert error.code().name == "RESOURCE_EXHAUSTED"
    await works(harness)
    assert [record.agent for record in await harness.remit.history()] == ["text.count"]


async def test_malformed_message_is_a_client_error(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    channel = await harness.channel()
    for method in ("ExecuteTask", "GetTaskStatus", "ListTasks"):
        send = channel.unary_unary(f"/remit.v1.TaskService/{method}")
        error = await refusal(send(b"\xff\xff\xff\xff"))
        assert (error.code().name, trailer(error, "remit-code")) == ("INVALID_ARGUMENT", "INVALID_PARAMETERS")
    call = channel.unary_stream("/remit.v1.TaskService/StreamTask")(b"\x0a\xff")
    assert (await refusal(call.read())).code().name == "INVALID_ARGUMENT"
    assert (await refusal(channel.unary_unary("/remit.v1.TaskService/Nothing")(b""))).code().name == "UNIMPLEMENTED"
    assert (await refusal(channel.unary_unary("/no/such")(b""))).code().name == "UNIMPLEMENTED"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    await works(harness)


async def test_client_that_does_not_read_costs_no_memory(harness: Harness) -> None:
    """Back-pressure: unread events stay in the store, not in the memory of the server."""
    import grpc.aio

    pb, tasks = messages(), await harness.tasks(max_receive_message_length=-1)
    task_id = (await tasks.ExecuteTask(ask("loud", chunks=60, size=50_000))).task_id
    written: list[int] = []
    stream = harness.service.stream

    async def counted(*args: Any, **named: Any) -> Any:
        async with contextlib.aclosing(stream(*args, **named)) as chunks:
            async for chunk in chunks:
                written.append(chunk.number)
                yield chunk

    harness.service.stream = counted
    slow = await harness.tasks(**{"http2.lookahead_bytes": 65536, "http2.bdp_probe": 0})
    call = slow.StreamTask(pb.StreamTaskRequest(task_id=task_id))
    assert (await call.read()).task_id == task_id
    for _ in range(20):
        await works(harness)  # others are served in the meantime
    assert len(written) < 40  # of more than sixty: the stream waits for the client
    rest = []
    while (chunk := await call.read()) is not grpc.aio.EOF:
        rest.append(chunk)
    assert len(rest) > 60
    assert rest[-1].complete.success


async def test_server_does_not_wait_for_a_missing_request(harness: Harness) -> None:
    """An unauthenticated client is disconnected before anything is read."""
    method = "/remit.v1.TaskService/ExecuteTask"
    port = (await harness.channel(address=harness.api.addresses[1])).stream_unary(method)
    async with asyncio.timeout(60):
        calls = [port() for _ in range(50)]
        reported = {(await call.code()).name for call in calls}
    assert reported == {"UNAUTHENTICATED"}
    finished = (await harness.channel()).stream_unary(method)()
    await finished.done_writing()
    assert (await refusal(finished)).code().name == "INVALID_ARGUMENT"
    await works(harness)
