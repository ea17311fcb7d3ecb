"""`remit.Client` against the real gRPC server, and against servers that break, hang or cannot stream."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc_harness import Authority, Harness, grpc_harness, tls_proxy

from remit import Client, DelegateError, discover
from support.pace import until
from support.server import Credentials

READ: Any = {"target": "worker", "operation": "read_file", "parameters": {"path": "a.txt"}}


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    (tmp_path / "a.txt").write_text("some words")
    async with grpc_harness(tmp_path) as harness:
        yield harness


# ---- the real server


async def test_streaming_and_polling_give_the_same_result(harness: Harness) -> None:
    async with Client(harness.address) as streaming, Client(harness.address, streaming=False, poll_seconds=0.02) as polling:
        streamed = await streaming.delegate(**READ, session_id="conversation-1")
        polled = await polling.delegate(**READ, session_id="conversation-1")
        chunks = [chunk async for chunk in streaming.stream(**READ)]
    assert streamed.success
    assert streamed.data["content"] == "some words"
    for result in (polled, chunks[-1].result):
        assert (result.success, result.task_state, result.data, result.output) == (True, "COMPLETED", streamed.data, streamed.output)
        assert (result.metadata.target, result.metadata.operation) == ("worker", "read_file")
    record = await harness.remit.describe(streamed.task_id)
    assert record.caller_info is not None
    assert record.caller_info.session == "conversation-1"


async def test_invalid_request_raises_the_code_of_the_delegate_tool(harness: Harness) -> None:
    async with Client(harness.address) as client:
        for request, code in (
            ({**READ, "target": "nobody"}, "INVALID_TARGET"),
            ({**READ, "operation": "fly"}, "INVALID_OPERATION"),
            ({**READ, "parameters": {}}, "INVALID_PARAMETERS"),
            ({**READ, "surprise": 1}, "INVALID_PARAMETERS"),
        ):
            with pytest.raises(DelegateError) as found:
                await client.delegate(**request)
            assert found.value.code == code, request


async def test_server_of_a_project_is_found_by_its_folder(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from remit import Unavailable
    from support.server import announce, withdraw

    with pytest.raises(Unavailable, match="remit serve"):
        discover(tmp_path)
    announce(tmp_path / ".remit" / "run", grpc=harness.address, http=None, token_file=None)
    (tmp_path / "deep" / "down").mkdir(parents=True)
    found = discover(tmp_path / "deep" / "down")
    assert (found.address, found.token) == (harness.address, None)
    monkeypatch.chdir(tmp_path / "deep")
    async with Client() as client:
        assert (await client.delegate(**READ)).success
    announce(tmp_path / ".remit" / "run", grpc="127.0.0.1:50051", http=None, token_file=None)
    token = discover(tmp_path).token
    assert token is not None
    assert harness.authenticator.authenticate(Credentials(authorization=f"Bearer {token}")).is_local
    withdraw(tmp_path / ".remit" / "run")


# ---- misbehaving servers


class Breaking:
    """A task service that breaks as scripted; `requests` records the requests."""

    def __init__(self, path: Path) -> None:
        import grpc.aio

        from remit import tasks_pb2, tasks_pb2_grpc

        self.pb, self.requests, self.keys, self.cancelled = tasks_pb2, [], list[str](), list[str]()
        self.address = f"unix:{path}"
        outer = self

        class Servicer(tasks_pb2_grpc.TaskServiceServicer):
            async def RunTask(self, request: Any, context: Any) -> Any:
                outer.keys.append(request.config.key)
                async for chunk in outer.run(request, context):
                    yield chunk

            async def StreamTask(self, request: Any, context: Any) -> Any:
                outer.requests.append(("stream", request.after))
                async for chunk in outer.stream(request, context):
                    yield chunk

            async def ExecuteTask(self, request: Any, context: Any) -> Any:
                outer.requests.append(("execute", request.config.key))
                return await outer.execute(request, context)

            async def GetTaskStatus(self, request: Any, context: Any) -> Any:
                outer.requests.append(("status", time.monotonic()))
                return outer.pb.GetTaskStatusResponse(task=await outer.status(request, context))

            async def CancelTask(self, request: Any, context: Any) -> Any:
                outer.cancelled.append(request.task_id)
                return outer.pb.CancelTaskResponse(state=7, cancelled=True, task=outer.pb.Task(task_id=request.task_id, state=7))

            async def ListAgents(self, request: Any, context: Any) -> Any:
                return outer.pb.ListAgentsResponse()

        self.server = grpc.aio.server()
        tasks_pb2_grpc.add_TaskServiceServicer_to_server(Servicer(), self.server)
        self.server.add_insecure_port(self.address)

    def done(self) -> Any:
        return self.pb.Task(
            task_id="sess_12345678_abcdef", state=self.pb.TASK_STATE_COMPLETED, success=True, output="Done.", target="worker"
        )

    def running(self) -> Any:
        return self.pb.Task(task_id="sess_12345678_abcdef", state=self.pb.TASK_STATE_RUNNING)

    def chunk(self, number: int, **body: Any) -> Any:
        return self.pb.TaskChunk(number=number, task_id="sess_12345678_abcdef", **body)

    def progress(self, number: int) -> Any:
        return self.chunk(number, progress=self.pb.Progress(message=f"{number}"))

    async def abort(self, context: Any) -> None:
        import grpc

        await context.abort(grpc.StatusCode.UNAVAILABLE, "the network is gone")

    async def unimplemented(self, request: Any, context: Any) -> Any:
        import grpc

        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no streams here")
        yield

    run = stream = unimplemented

    async def execute(self, request: Any, context: Any) -> Any:
        return self.pb.ExecuteTaskResponse(task_id="sess_12345678_abcdef", task=await self.status(request, context))

    async def status(self, request: Any, context: Any) -> Any:
        return self.done()


@pytest.fixture
async def breaking(tmp_path: Path) -> AsyncIterator[Breaking]:
    breaking = Breaking(tmp_path / "b.sock")
    await breaking.server.start()
    yield breaking
    await breaking.server.stop(0)


async def test_broken_stream_resumes_and_a_lost_first_response_runs_once(breaking: Breaking) -> None:
    keys = []

    async def run(request: Any, context: Any) -> Any:
        keys.append(request.config.key)
        if len(keys) > 1:  # the first response, which contains the id, is lost
            yield breaking.progress(1)
            yield breaking.progress(2)
        await breaking.abort(context)

    async def stream(request: Any, context: Any) -> Any:
        yield breaking.progress(request.after)  # repeated
        yield breaking.progress(request.after + 1)
        if request.after < 3:
            await breaking.abort(context)
        yield breaking.chunk(9, complete=breaking.done())

    breaking.run, breaking.stream = run, stream
    async with Client(breaking.address) as client:
        chunks = [chunk async for chunk in client.stream(**READ)]
    assert [chunk.number for chunk in chunks] == [1, 2, 3, 4, 9]
    assert chunks[-1].result.success
    assert len(keys) == 2
    assert keys[0] == keys[1]
    assert keys[0]
    assert breaking.requests == [("stream", 2), ("stream", 3)]


async def test_client_waits_at_most_the_timeout_and_its_grace(breaking: Breaking) -> None:
    async def run(request: Any, context: Any) -> Any:
        yield breaking.progress(1)
        await asyncio.sleep(60)

    breaking.run = run
    async with Client(breaking.address, grace_seconds=0.1) as client:
        result = await asyncio.wait_for(client.delegate(**READ, timeout=300), 30)  # the server would take 60 s
        assert (result.task_state, result.error.code, result.task_id) == ("TIMEOUT", "TASK_TIMEOUT", "sess_12345678_abcdef")


async def stays_silent(service: Breaking, context: Any) -> AsyncIterator[Any]:
    await asyncio.sleep(60)
    yield service.progress(1)


async def floods(service: Breaking, context: Any) -> AsyncIterator[Any]:
    for number in itertools.count(1):
        yield service.chunk(number, progress=service.pb.Progress(message="x" * 1000, fraction=float("nan")))


async def completes_without_result(service: Breaking, context: Any) -> AsyncIterator[Any]:
    yield service.chunk(2**62, complete=service.running())


async def aborts(service: Breaking, context: Any) -> AsyncIterator[Any]:
    yield service.progress(1)
    await service.abort(context)


@pytest.mark.parametrize("how", [stays_silent, floods, completes_without_result, aborts])
async def test_hostile_server_is_left_at_the_timeout_with_one_task(breaking: Breaking, how: Any) -> None:
    async def status(request: Any, context: Any) -> Any:
        return breaking.running()

    breaking.run = breaking.stream = lambda _request, context: how(breaking, context)
    breaking.status = status  # type: ignore[method-assign]
    async with Client(breaking.address, grace_seconds=0.1) as client:
        result = await asyncio.wait_for(client.delegate(**READ, timeout=700), 30)
    assert not result.success
    assert result.error is not None
    assert len(set(breaking.keys)) == 1  # however often it is requested, the remote task is one


async def test_cancelled_call_cancels_its_task(breaking: Breaking) -> None:
    breaking.run = lambda _request, context: floods(breaking, context)
    async with Client(breaking.address) as client:
        call = asyncio.ensure_future(client.delegate(**READ))
        await until(lambda: breaking.keys)
        await asyncio.sleep(0.2)
        call.cancel()
        await until(lambda: "sess_12345678_abcdef" in breaking.cancelled)


async def test_tls_is_used_with_an_authority_and_the_token_only_reaches_its_server(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "far").mkdir()
    async with (
        grpc_harness(tmp_path / "far", addresses=["127.0.0.1:0"]) as far,
        tls_proxy(lambda: far.address, authority.issue("server")) as address,
        Client(address, token=far.token(), ca_file=authority.certificate, connect_seconds=2.0) as trusting,
        Client(address, token=far.token(), ca_file=Authority(tmp_path / "far").certificate, connect_seconds=0.5) as mistrusting,
    ):
        assert (await trusting.delegate("text", "count", {"text": "a b"})).data == 2
        assert (await mistrusting.delegate("text", "count", {"text": "a b"})).error.code == "AGENT_UNAVAILABLE"
