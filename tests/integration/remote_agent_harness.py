"""A project whose gRPC API takes agents that register, and such an agent in this process, as any client of the protocol would be one."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from grpc_harness import Stage, grpc_harness

from support.pace import until

__all__ = ["Far", "joined", "remote_agent_harness", "until"]

Permission = Callable[["Far", Any], Awaitable[Any]]


def remote_agent_harness(root: Path, **options: Any) -> contextlib.AbstractAsyncContextManager[Stage]:
    root.mkdir(exist_ok=True)
    return grpc_harness(root, takes_agents=True, **options)


async def counted(far: "Far", order: Any) -> Any:
    """What most of them do."""
    text = order.parameters["text"]
    await far.say(progress=far.pb.WorkProgress(work_id=order.work_id, message="counting", fraction=0.5))
    return len(str(text).split())


class Far:
    """An agent elsewhere: registers, takes work, answers. `orders` has what it was given, `told` what else it was told."""

    def __init__(self, stage: Stage, token: str = "") -> None:
        from remit.agents.proto.v1 import tasks_pb2

        self.pb = tasks_pb2
        self.stage = stage
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.orders: list[Any] = []
        self.told: list[Any] = []
        self.does: Permission = counted
        self.registered: Any = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.heard = asyncio.Event()

    async def register(self, name: str = "words", operation: str = "count", *, slots: int = 1, **declared: Any) -> Any:
        from remit.agents.proto.v1 import tasks_pb2_grpc as rpc

        self.channel = await self.stage.channel()
        self.calls = rpc.AgentServiceStub(self.channel)
        if isinstance(schema := declared.pop("schema", None), dict):
            from remit.agents.proto.values import struct_of

            declared["parameters_schema"] = struct_of(schema)
        offered = self.pb.Operation(name=operation, description="Counts words.", **declared)
        request = self.pb.RegisterRequest(name=name, description="Words.", operations=[offered], slots=slots)
        self.registered = await self.calls.Register(request, metadata=self.metadata)
        return self.registered

    async def connect(self, **instead: Any) -> None:
        """Opens its stream, and is welcome."""
        known = {"agent_id": self.registered.agent_id, "secret": self.registered.secret, **instead}
        self.stream = self.calls.Work(metadata=self.metadata)
        await self.say(hello=self.pb.Hello(**known))
        first = await asyncio.wait_for(self.stream.read(), 10)
        assert first.WhichOneof("message") == "welcome", first
        self._spawn(self._listen())

    async def say(self, **message: Any) -> None:
        await self.stream.write(self.pb.AgentMessage(**message))

    async def _listen(self) -> None:
        import grpc.aio

        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            while (message := await self.stream.read()) is not grpc.aio.EOF:
                kind = message.WhichOneof("message")
                if kind == "order":
                    self.orders.append(message.order)
                    self._spawn(self._work(message.order))
                else:
                    self.told.append(getattr(message, kind))
                self.heard.set()

    async def _work(self, order: Any) -> None:
        from remit.agents.proto.values import value_of

        result = await self.does(self, order)
        if result is not None:
            await self.say(done=self.pb.WorkDone(work_id=order.work_id, result=value_of(result)))

    async def until(self, is_so: Callable[[], Any]) -> None:
        async with asyncio.timeout(10):
            while not is_so():
                self.heard.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.heard.wait(), 0.05)

    async def die(self) -> None:
        """Without a word, as one that is killed."""
        self.stream.cancel()
        await self.channel.close()

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())


async def joined(stage: Stage, token: str = "", does: Permission = counted, **declared: Any) -> Far:
    far = Far(stage, token)
    far.does = does
    await far.register(**declared)
    await far.connect()
    return far
