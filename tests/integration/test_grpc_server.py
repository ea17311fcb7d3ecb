"""The gRPC API with a real client: authentication, addresses, the task service, and hostile clients."""

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from grpc_harness import Harness, ask, bearer, grpc_api, grpc_harness, messages, refusal, trailer

from remit import Misused, Settings, Unavailable
from support.pace import until
from support.server import bound_apis

pytestmark = pytest.mark.asyncio(loop_scope="module")
REQUEST_BYTES = 2 << 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    """A server on the socket and on a loopback port."""
    addresses = ["unix", "127.0.0.1:0"]
    async with grpc_harness(tmp_path_factory.mktemp("served"), addresses=addresses, request_bytes=REQUEST_BYTES) as harness:
        yield harness


# ---- authentication


async def test_socket_authenticates_its_owner_and_a_port_requires_a_token(harness: Harness) -> None:
    assert (await (await harness.tasks()).ExecuteTask(ask("echo"))).task.principal == "orchestrator"
    port = await harness.tasks(address=harness.api.addresses[1])
    error = await refusal(port.ExecuteTask(ask("echo")))
    assert (error.code().name, trailer(error, "remit-code")) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
    task = (await port.ExecuteTask(ask("echo"), metadata=bearer(harness.token()))).task
    assert task.principal == "token:client"
    local = (harness.remit.folder / "run" / "serve.token").read_text().strip()
    assert (await port.ExecuteTask(ask("echo"), metadata=bearer(local))).task.principal == "orchestrator"


async def test_streams_and_calls_that_wait_end_on_token_revocation(harness: Harness) -> None:
    tasks = await harness.tasks()
    metadata = bearer(harness.token("leaving"))
    stream = tasks.RunTask(ask("slow"), metadata=metadata)
    assert (await stream.read()).task_id
    waiting = tasks.ExecuteTask(ask("slow", wait=60), metadata=metadata)
    while len(harness.remit.engine.live()) < 2:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)
    harness.authenticator.tokens.revoke("leaving")

    async def read_all() -> None:
        while await stream.read():
            pass

    for call in (read_all(), waiting):
        error = await refusal(call)
        assert (error.code().name, trailer(error, "remit-code")) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
    assert len(harness.remit.engine.live()) == 2  # a client that disconnects or is refused does not stop the task


async def test_only_health_checks_need_no_authentication(harness: Harness) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    channel = await harness.channel(address=harness.api.addresses[1])
    await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    assert (await refusal(watch.read())).code().name == "UNAUTHENTICATED"


async def test_grpc_socket_behind_a_proxy_requires_a_token(tmp_path: Path) -> None:
    async with grpc_harness(tmp_path, behind_proxy=True) as harness:
        tasks, pb = await harness.tasks(), messages()
        assert (await refusal(tasks.Ping(pb.PingRequest()))).code().name == "UNAUTHENTICATED"
        await tasks.Ping(pb.PingRequest(), metadata=bearer(harness.token()))


# ---- addresses


async def test_socket_is_private_and_removed_with_the_server(tmp_path: Path) -> None:
    before = os.umask(0)  # other users may share the project folder
    try:
        async with grpc_harness(tmp_path) as harness:
            path = harness.remit.folder / "run" / "grpc.sock"
            assert harness.address == f"unix:{path}"
            mode = path.lstat().st_mode
            assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
            assert not list(path.parent.glob(".grpc-*"))
    finally:
        os.umask(before)
    assert not path.exists()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
@pytest.mark.parametrize("api", ["grpc", "http"])
async def test_non_loopback_address_without_a_proxy_is_refused(tmp_path: Path, api: str, address: str) -> None:
    settings = Settings().serve._replace(apis=(api,), **{api: address})
    with pytest.raises(Misused, match="other machines"), bound_apis(settings, tmp_path):
        pass


async def test_server_replaces_only_a_stale_socket(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "other" / "run" / "g.sock"
    path.parent.mkdir(parents=True)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))
    settings = harness.remit.settings.serve
    again = await grpc_api(harness.service, harness.authenticator, settings, f"unix:{path}")
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Unavailable, match="another server"):
        await grpc_api(harness.service, harness.authenticator, settings, f"unix:{path}")
    await again.stop(0.0)
    assert not path.exists()


# ---- tasks and health


async def test_errors_carry_details(harness: Harness) -> None:
    tasks = await harness.tasks()
    error = await refusal(tasks.ExecuteTask(ask("read_file", agent_id="text")))
    assert trailer(error, "remit-code") == "INVALID_OPERATION"
    assert json.loads(trailer(error, "remit-details-bin"))["operations"] == ["count"]


async def test_cancelled_process_may_tidy_up(tmp_path: Path) -> None:
    script = 'trap "touch tidied; exit" TERM; touch begun; while :; do sleep 0.02; done'
    (tmp_path / "remit.toml").write_text(f"[agents.tidy]\ndescription = 'Tidies up.'\ncommand = ['sh', '-c', '{script}']\n")
    async with grpc_harness(tmp_path) as harness:
        tasks, pb = await harness.tasks(), messages()
        task_id = (await tasks.ExecuteTask(ask("tidy", wait=0, task="Wait."))).task_id
        await until((tmp_path / "begun").exists)
        answer = await tasks.CancelTask(pb.CancelTaskRequest(task_id=task_id))
        assert (answer.state, answer.cancelled) == (pb.TASK_STATE_CANCELLED, True)
        assert (tmp_path / "tidied").exists()


async def test_health_reports_serving_and_stopping(tmp_path: Path) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    async with grpc_harness(tmp_path) as harness:
        health = health_pb2_grpc.HealthStub(await harness.channel())
        serving, stopping = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", "remit.v1.TaskService"):
            assert (await health.Check(health_pb2.HealthCheckRequest(service=name))).status == serving
        assert (await refusal(health.Check(health_pb2.HealthCheckRequest(service="nobody")))).code().name == "NOT_FOUND"
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == serving
        harness.api.stop_taking()
        assert (await watch.read()).status == stopping
        assert (await (await harness.tasks()).ExecuteTask(ask("echo"))).task.success  # the service decides whether it accepts new work
        watch.cancel()
        await harness.api.stop(0.0)
        assert not (harness.remit.folder / "run" / "grpc.sock").exists()


async def test_list_contains_summaries_of_large_results(harness: Harness) -> None:
    """With the default limit of clients: 4 MiB for one message."""
    tasks, pb = await harness.tasks(), messages()
    large = [(await tasks.ExecuteTask(ask("echo", session="large", value="x" * 1_500_000))).task_id for _ in range(4)]
    listed = await tasks.ListTasks(pb.ListTasksRequest(session_id="large"))
    assert {task.task_id for task in listed.tasks} == set(large)
    assert listed.ByteSize() < 10_000


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_lists_the_services(harness: Harness, version: str) -> None:
    from grpc_reflection.v1alpha import reflection_pb2

    call = (await harness.channel()).stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    listed = {one.name for one in (await call.read()).list_services_response.service}
    await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol="remit.v1.TaskService"))
    described = (await call.read()).file_descriptor_response.file_descriptor_proto
    await call.done_writing()
    assert {"remit.v1.TaskService", "grpc.health.v1.Health"} <= listed
    assert b"ExecuteTask" in b"".join(described)


# ---- hostile clients: the next honest caller is answered


async def works(harness: Harness) -> None:
    async with asyncio.timeout(60):
        assert (await (await harness.tasks()).ExecuteTask(ask("text.count", text="still here"))).task.data.number_value == 2


async def test_oversized_message_is_refused_before_it_is_read(harness: Harness) -> None:
    tasks, before = await harness.tasks(), len(await harness.remit.history(limit=100))
    error = await refusal(tasks.ExecuteTask(ask("echo", value="x" * (2 * REQUEST_BYTES))))
    assert error.code().name == "RESOURCE_EXHAUSTED"
    await works(harness)
    assert len(await harness.remit.history(limit=100)) == before + 1


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
