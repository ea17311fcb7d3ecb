"""pushed: latency from a request until a remote agent has received its order.

The agent is registered at the server's gRPC API and keeps its stream open. Agent and client share this process, so that one clock measures
both; the server is a separate process. Compared with `Ping` at the same server, which is a round trip: an order goes to the server and on
to the agent, and is recorded in between.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from bench.figures import Figure, median, microseconds, milliseconds, percentile
from bench.serving import serving, tasks_at
from bench.sizes import Sizes
from bench.speed import timed_sequence
from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.proto.v1 import tasks_pb2_grpc as rpc

TARGET_SECONDS = 0.010
"""An order arrives within milliseconds, not with the next heartbeat."""
_WARM = 20
_WAIT_NS = 30 * 10**9


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    pings: list[float] = []
    orders: list[float] = []
    tails: list[float] = []
    async with serving("grpc") as served, tasks_at(served.grpc) as tasks, grpc.aio.insecure_channel(served.grpc) as channel:
        agent = _Agent(rpc.AgentServiceStub(channel))  # type: ignore[no-untyped-call]
        async with asyncio.TaskGroup() as group:
            working = group.create_task(agent.work())
            await agent.is_ready.wait()
            await _ordered(tasks, agent, _WARM)
            for _ in range(sizes.rounds):
                pings.append(percentile(await timed_sequence(lambda: tasks.Ping(pb.PingRequest()), sizes.served_calls), 0.5))
                late = await _ordered(tasks, agent, sizes.served_calls)
                orders.append(percentile(late, 0.5))
                tails.append(percentile(late, 0.99))
            working.cancel()
    late_by = median(orders)
    return [
        Figure(section="pushed", what="floor: Ping at the same server, there and back, p50", measured=microseconds(median(pings))),
        Figure(
            section="pushed",
            what="remit, from a request until the registered agent has the order, p50",
            measured=f"{milliseconds(late_by)} (p99 {milliseconds(median(tails))})",
            target=f"≤ {milliseconds(TARGET_SECONDS)}",
            is_met=late_by <= TARGET_SECONDS,
        ),
    ]


async def _ordered(tasks: Any, agent: "_Agent", count: int) -> list[float]:
    """Seconds from each request until its order arrives."""
    late = []
    for _ in range(count):
        began = time.perf_counter()
        answer = await tasks.ExecuteTask(pb.ExecuteTaskRequest(agent_id="remote", wait_ns=_WAIT_NS))
        assert answer.task.success, answer
        late.append(agent.ordered_at - began)
    return late


class _Agent:
    """Ignores its orders and reports them as done."""

    def __init__(self, service: Any) -> None:
        self._service = service
        self._said: asyncio.Queue[pb.AgentMessage] = asyncio.Queue()
        self.is_ready = asyncio.Event()
        self.ordered_at = 0.0

    async def work(self) -> None:
        known = await self._service.Register(pb.RegisterRequest(name="remote", operations=[pb.Operation(description="Does nothing.")]))
        self._said.put_nowait(pb.AgentMessage(hello=pb.Hello(agent_id=known.agent_id, secret=known.secret)))
        async for message in self._service.Work(self._words()):
            kind = message.WhichOneof("message")
            if kind == "welcome":
                self.is_ready.set()
            elif kind == "order":
                self.ordered_at = time.perf_counter()
                self._said.put_nowait(pb.AgentMessage(done=pb.WorkDone(work_id=message.order.work_id)))

    async def _words(self) -> AsyncIterator[pb.AgentMessage]:
        while True:
            yield await self._said.get()
