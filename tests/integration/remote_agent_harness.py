"""A project whose gRPC API accepts remote agents, and such an agent in this process."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from grpc_harness import Harness, grpc_harness

from support.pace import until

__all__ = ["RemoteAgent", "joined", "remote_agent_harness", "until"]

Behaviour = Callable[["RemoteAgent", Any], Awaitable[Any]]


def remote_agent_harness(root: Path, **options: Any) -> contextlib.AbstractAsyncContextManager[Harness]:
    root.mkdir(exist_ok=True)
    return grpc_harness(root, **options)


async def plural(remote: "RemoteAgent", order: Any) -> Any:
    """The default behaviour."""
    text = order.parameters["text"]
    await remote.send(progress=remote.pb.WorkProgress(work_id=order.work_id, message="counting", fraction=0.5))
    return len(str(text).split())


class RemoteAgent:
    """A remote agent that registers, takes work and answers. `orders` records its work, `messages` all other messages."""

    def __init__(self, harness: Harness, token: str = "") -> None:
        from remit import tasks_pb2

        self.pb = tasks_pb2
        self.harness = harness
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.orders: list[Any] = []
        self.messages: list[Any] = []
        self.does: Behaviour = plural
        self.registered: Any = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.received = asyncio.Event()

    async def register(self, name: str = "words", operation: str = "count", *, slots: int = 1, **declared: Any) -> Any:
        from remit import tasks_pb2_grpc as rpc

        self.channel = await self.harness.channel()
        self.calls = rpc.AgentServiceStub(self.channel)
        if isinstance(schema := declared.pop("schema", None), dict):
            from support.protobuf import struct_of

            declared["parameters_schema"] = struct_of(schema)
        offered = self.pb.Operation(name=operation, description="Counts words.", **declared)
        request = self.pb.RegisterRequest(name=name, description="Words.", operations=[offered], slots=slots)
        self.registered = await self.calls.Register(request, metadata=self.metadata)
        return self.registered

    async def connect(self, **instead: Any) -> None:
        """Open its stream and wait for the welcome."""
        known = {"agent_id": self.registered.agent_id, "secret": self.registered.secret, **instead}
        self.stream = self.calls.Work(metadata=self.metadata)
        await self.send(hello=self.pb.Hello(**known))
        first = await asyncio.wait_for(self.stream.read(), 60)
        assert first.WhichOneof("message") == "welcome", first
        self._spawn(self._listen())

    async def send(self, **message: Any) -> None:
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
                    self.messages.append(getattr(message, kind))
                self.received.set()

    async def _work(self, order: Any) -> None:
        from support.protobuf import value_of

        result = await self.does(self, order)
        if result is not None:
            await self.send(done=self.pb.WorkDone(work_id=order.work_id, result=value_of(result)))

    async def until(self, is_so: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not is_so():
                self.received.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.received.wait(), 0.05)

    async def die(self) -> None:
        """Disconnect without notice, like a killed process."""
        self.stream.cancel()
        await self.channel.close()

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())


async def joined(harness: Harness, token: str = "", does: Behaviour = plural, **declared: Any) -> RemoteAgent:
    remote = RemoteAgent(harness, token)
    remote.does = does
    await remote.register(**declared)
    await remote.connect()
    return remote
