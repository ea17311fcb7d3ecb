"""Remote agent as a process: it registers at the given socket, runs its orders, and registers again when its stream breaks.

Used by `test_serve_kill9`. It prints one line per order and per result.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import grpc.aio
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from remit import tasks_pb2 as pb
from remit import tasks_pb2_grpc as rpc


def say(*words: object) -> None:
    print(*words, flush=True)


def is_there(path: str) -> bool:
    return Path(path).exists()


async def work(stream: Any, order: Any) -> None:
    say("order", order.operation)
    await stream.write(pb.AgentMessage(progress=pb.WorkProgress(work_id=order.work_id, message="begun")))
    while not is_there(order.parameters["until"]):  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.02)
    await stream.write(pb.AgentMessage(done=pb.WorkDone(work_id=order.work_id, result=ParseDict({"by": os.getpid()}, Value()))))


async def serve(address: str) -> None:
    """Register and serve until the connection is lost."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        calls = rpc.AgentServiceStub(channel)
        offered = [pb.Operation(name="once")]
        known = await calls.Register(pb.RegisterRequest(name="far", operations=offered, slots=8))
        stream = calls.Work()
        await stream.write(pb.AgentMessage(hello=pb.Hello(agent_id=known.agent_id, secret=known.secret)))
        working: set[asyncio.Task[None]] = set()
        try:
            while (message := await stream.read()) is not grpc.aio.EOF:
                if message.WhichOneof("message") == "welcome":
                    say("welcome")
                elif message.WhichOneof("message") == "order":
                    working.add(asyncio.create_task(work(stream, message.order)))
        finally:
            for task in working:
                task.cancel()


async def main() -> None:
    while True:
        try:
            await serve(sys.argv[1])
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main())
