"""A bare gRPC client of `remit serve`: with nothing but the messages of `remit/agents/proto/v1/tasks.proto`, as any language has them."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import grpc.aio

from remit import tasks_pb2 as pb
from remit import tasks_pb2_grpc as rpc

SECOND = 10**9


async def main(tasks: Any) -> None:
    # Begin a task and wait for it in one call. No agent is named: any that can.
    writing = pb.ExecuteTaskRequest(type="write_file", wait_ns=30 * SECOND, session_id="a conversation of mine")
    writing.config.parameters.update({"path": "notes.txt", "content": "all is well"})
    answer = await tasks.ExecuteTask(writing)
    print(pb.TaskState.Name(answer.task.state), answer.task.agent_id)

    # Begin one and follow it; the first chunk tells its id.
    reading = pb.ExecuteTaskRequest(agent_id="worker", type="read_file")
    reading.config.parameters.update({"path": "notes.txt"})
    async for chunk in tasks.RunTask(reading):
        last = chunk
    print(last.WhichOneof("chunk"), last.complete.data.struct_value["content"])

    # A broken stream continues after the last chunk received, also with another server.
    again = [chunk async for chunk in tasks.StreamTask(pb.StreamTaskRequest(task_id=last.task_id, after=last.number - 1))]
    print("again:", again == [last])

    # Leaving ends nothing; this does, and answers when it has stopped.
    running = pb.ExecuteTaskRequest(agent_id="sleeper")
    running.config.parameters.update({"seconds": 60})
    task_id = (await tasks.ExecuteTask(running)).task_id
    stopped = await tasks.CancelTask(pb.CancelTaskRequest(task_id=task_id, reason="I changed my mind"))
    print(pb.TaskState.Name(stopped.state), stopped.cancelled)

    # What cannot be asked so is an error of gRPC's, with our own code and advice in the trailers.
    try:
        await tasks.ExecuteTask(pb.ExecuteTaskRequest(agent_id="worker", type="raed_file"))
    except grpc.aio.AioRpcError as error:
        trailers = dict(error.trailing_metadata() or ())
        print(error.code().name, trailers["remit-code"], str(trailers["remit-advice"]).partition("?")[0])


async def serving() -> None:
    command = [sys.executable, "-m", "remit", "serve", "--api", "grpc", "--json", "--root", "."]
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    said = json.loads(await server.stdout.readuntil(b"\n}\n"))
    try:
        async with grpc.aio.insecure_channel(said["apis"]["grpc"]) as channel:  # unix:/…/.remit/run/grpc.sock
            await main(rpc.TaskServiceStub(channel))
    finally:
        server.terminate()
        await server.wait()


if __name__ == "__main__":
    Path("remit.toml").write_text('[agents.sleeper]\ndescription = "Takes its time."\ncommand = ["sleep", "{seconds}"]\n')
    asyncio.run(serving())
