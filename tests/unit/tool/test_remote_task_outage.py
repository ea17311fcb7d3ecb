"""Following a task on another server through a long outage."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from remit import Chunk, Failed
from remit import tasks_pb2 as pb
from remit.agents.grpc.task_service import ConnectionLost, RemoteTask, TaskOrder
from remit.core.delegate_results import final_chunk, result_of_error, started_chunk

OUTAGE = 1_100
"""Consecutive failures: with a pause of a second each, the server is unreachable for less than 20 minutes."""


class Server:
    """Starts the task, is unreachable for a long time, then reports the end of the task."""

    address = "unix:/gone"
    failures = 0

    async def run(self, _request: Any, _more: Any) -> AsyncGenerator[Chunk]:
        yield started_chunk("task_1", "worker")

    async def stream(self, *_: Any) -> AsyncGenerator[Chunk]:
        yield final_chunk(await self.look())

    async def look(self, *_: Any) -> Any:
        self.failures += 1
        if self.failures <= OUTAGE:
            raise ConnectionLost("It could not be reached.")
        return result_of_error(Failed("It failed."), "worker", 0.0, 1.0, "task_1")


async def test_task_is_followed_through_a_long_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    order = TaskOrder(request=pb.ExecuteTaskRequest(), until=time.monotonic() + 3600)
    chunks = [chunk async for chunk in RemoteTask(Server(), order).chunks()]  # type: ignore[arg-type]
    assert chunks[-1].result is not None
    assert max(pauses) < 2
