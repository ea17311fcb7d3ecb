"""The gRPC task service with a real client on the project's socket."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from grpc_harness import Harness, ask, grpc_harness, messages, refusal, trailer

from support.pace import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    async with grpc_harness(tmp_path_factory.mktemp("served")) as harness:
        yield harness


async def start_task(tasks: Any, type_: str = "slow", **requested: Any) -> str:
    answer = await tasks.ExecuteTask(ask(type_, wait=0, **requested))
    task_id: str = answer.task_id
    return task_id


# ---- requests


async def test_errors_carry_details(harness: Harness) -> None:
    tasks = await harness.tasks()
    error = await refusal(tasks.ExecuteTask(ask("read_file", agent_id="text")))
    assert trailer(error, "remit-code") == "INVALID_OPERATION"
    assert json.loads(trailer(error, "remit-details-bin"))["operations"] == ["count"]


# ---- cancellation


async def test_cancelled_process_may_tidy_up(tmp_path: Path) -> None:
    script = 'trap "touch tidied; exit" TERM; touch begun; while :; do sleep 0.02; done'
    (tmp_path / "remit.toml").write_text(f"[agents.tidy]\ndescription = 'Tidies up.'\ncommand = ['sh', '-c', '{script}']\n")
    async with grpc_harness(tmp_path) as harness:
        tasks, pb = await harness.tasks(), messages()
        task_id = await start_task(tasks, "tidy", task="Wait.")
        await until((tmp_path / "begun").exists)
        answer = await tasks.CancelTask(pb.CancelTaskRequest(task_id=task_id))
        assert (answer.state, answer.cancelled) == (pb.TASK_STATE_CANCELLED, True)
        assert (tmp_path / "tidied").exists()


# ---- the server itself


async def test_health_reports_serving_and_stopping(tmp_path: Path) -> None:
    async with grpc_harness(tmp_path) as harness:
        await check_health(harness)


async def check_health(harness: Harness) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

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
