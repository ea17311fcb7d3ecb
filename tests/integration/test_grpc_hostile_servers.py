"""Remote task services that lie, flood, hang or never end: the local delegation ends in time, and the remote task is cancelled."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from remit import Remit

TASK_ID = "sess_12345678_abcdef"


class Hostile:
    """Runs a task as scripted; `cancelled` and `keys` record the requests."""

    def __init__(self, path: Path, run: Callable[["Hostile", Any], AsyncIterator[Any]]) -> None:
        import grpc.aio

        from remit import tasks_pb2, tasks_pb2_grpc

        self.pb, self.address, self.cancelled, self.keys = tasks_pb2, f"unix:{path}", list[str](), list[str]()
        outer = self

        class Servicer(tasks_pb2_grpc.TaskServiceServicer):
            async def RunTask(self, request: Any, context: Any) -> Any:
                outer.keys.append(request.config.key)
                async for chunk in run(outer, context):
                    yield chunk

            async def StreamTask(self, request: Any, context: Any) -> Any:
                async for chunk in run(outer, context):
                    yield chunk

            async def ExecuteTask(self, request: Any, context: Any) -> Any:
                outer.keys.append(request.config.key)
                return outer.pb.ExecuteTaskResponse(task_id=TASK_ID, task=outer.pb.Task(task_id=TASK_ID, state=3))

            async def GetTaskStatus(self, request: Any, context: Any) -> Any:
                return outer.pb.GetTaskStatusResponse(task=outer.pb.Task(task_id=TASK_ID, state=3))

            async def CancelTask(self, request: Any, context: Any) -> Any:
                outer.cancelled.append(request.task_id)
                return outer.pb.CancelTaskResponse(state=7, cancelled=True, task=outer.pb.Task(task_id=TASK_ID, state=7))

            async def ListAgents(self, request: Any, context: Any) -> Any:
                await asyncio.sleep(0 if run is not stays_silent else 60)
                return outer.pb.ListAgentsResponse()

        self.server = grpc.aio.server()
        tasks_pb2_grpc.add_TaskServiceServicer_to_server(Servicer(), self.server)
        self.server.add_insecure_port(self.address)

    def chunk(self, number: int = 1, **body: Any) -> Any:
        return self.pb.TaskChunk(number=number, task_id=TASK_ID, **body)


async def stays_silent(service: Hostile, context: Any) -> AsyncIterator[Any]:
    await asyncio.sleep(60)
    yield service.chunk()


async def floods(service: Hostile, context: Any) -> AsyncIterator[Any]:
    number = 0
    while True:
        number += 1
        yield service.chunk(number, progress=service.pb.Progress(message="x" * 1000, fraction=float("nan")))


async def completes_without_result(service: Hostile, context: Any) -> AsyncIterator[Any]:
    yield service.chunk(2**62, complete=service.pb.Task(task_id=TASK_ID, state=3))


async def aborts(service: Hostile, context: Any) -> AsyncIterator[Any]:
    yield service.chunk(1, progress=service.pb.Progress(message="begun"))
    import grpc

    await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")


@contextlib.asynccontextmanager
async def hostile(tmp_path: Path, run: Any) -> AsyncIterator[tuple[Hostile, Remit]]:
    service = Hostile(tmp_path / "h.sock", run)
    await service.server.start()
    agents = {"far": {"grpc": service.address, "remote": "worker.read_file"}}
    try:
        async with Remit.open(tmp_path / "near", settings={"agents": agents, "builtin_agents": []}) as local:
            yield service, local
    finally:
        await service.server.stop(0)


@pytest.mark.parametrize("run", [stays_silent, floods, completes_without_result, aborts])
async def test_remote_task_ends_at_the_local_deadline_and_is_cancelled(tmp_path: Path, run: Any) -> None:
    (tmp_path / "near").mkdir()
    async with hostile(tmp_path, run) as (service, local):
        returned = await local.delegate("far", parameters={"path": "x"}, timeout=1.0)
        assert returned.status in ("partial", "failed")
        assert returned.errors
        async with asyncio.timeout(60):
            while TASK_ID not in service.cancelled:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.02)
        assert len(set(service.keys)) == 1  # however often it is requested, the remote task is one
