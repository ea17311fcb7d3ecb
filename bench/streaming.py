"""streams: many streams at one server. Those that say something, each heard to its end beside calls that only wait as long; and those
that idle, by the processor time of the server while they do, beside the same server with none.

The server is a process of its own (`serving`); the client's streams share a few connections, as a program's would.
"""

import asyncio
import contextlib
import time
from typing import Any

from bench.figures import Figure, median, milliseconds
from bench.serving import Served, serving, tasks_at
from bench.sizes import Sizes
from remit.proto.v1 import tasks_pb2 as pb
from remit.proto.values import struct_of

TARGET_IDLE_SHARE = 0.02
"""Of one core, beyond what the server takes with no stream at all."""
_CONNECTIONS = 8
_OPEN_SECONDS = 60.0
_ROUNDS = 3


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    async with serving("grpc") as served, contextlib.AsyncExitStack() as channels:
        clients = [await channels.enter_async_context(tasks_at(served.grpc)) for _ in range(_CONNECTIONS)]
        figures = await _talking(clients, sizes)
        figures += await _idling(served, clients, sizes)
    return figures


# ---- those that say something


async def _talking(clients: list[Any], sizes: Sizes) -> list[Figure]:
    """The floor is the same work without a stream: begun and waited for in one call each, its words kept and told to nobody."""
    streamed, waited, whole = [], [], 0
    await _all(clients, 5, lambda client: _heard(client, sizes.stream_chunks))
    for _ in range(min(_ROUNDS, sizes.rounds)):
        waited.append((await _all(clients, sizes.streams, lambda client: _waited(client, sizes.stream_chunks)))[0])
        seconds, heard = await _all(clients, sizes.streams, lambda client: _heard(client, sizes.stream_chunks))
        streamed.append(seconds)
        whole += sum(heard)
    asked = sizes.streams * len(streamed)
    what = f"{sizes.streams} tasks at once, {sizes.stream_chunks} chunks each"
    return [
        Figure(section="streams", what=f"floor: {what}, waited for without a stream, to the last", measured=milliseconds(median(waited))),
        Figure(section="streams", what=f"remit, {what}, streamed, to the last", measured=milliseconds(median(streamed))),
        Figure(
            section="streams",
            what=f"{sizes.streams} streams at once: those that heard every chunk in order, and the end",
            measured=f"{whole:,} of {asked:,}",
            target="all",
            is_met=whole == asked,
        ),
    ]


async def _all(clients: list[Any], count: int, one: Any) -> tuple[float, list[bool]]:
    """Seconds until the last of them has ended."""
    began = time.perf_counter()
    done = await asyncio.gather(*(one(clients[number % len(clients)]) for number in range(count)))
    return time.perf_counter() - began, done


def _task(chunks: int, wait_ns: int = 0) -> pb.ExecuteTaskRequest:
    config = pb.TaskConfig(parameters=struct_of({"chunks": chunks}))
    return pb.ExecuteTaskRequest(agent_id="talker", config=config, wait_ns=wait_ns)


async def _heard(client: Any, chunks: int) -> bool:
    said: list[int] = []
    last = ""
    async for chunk in client.RunTask(_task(chunks)):
        last = chunk.WhichOneof("chunk")
        if last == "output":
            said.append(int(chunk.output.chunk.struct_value.fields["number"].number_value))
    return said == list(range(chunks)) and last == "complete"


async def _waited(client: Any, chunks: int) -> bool:
    answer = await client.ExecuteTask(_task(chunks, wait_ns=60 * 10**9))
    assert answer.task.success, answer
    return True


# ---- those that idle


async def _idling(served: Served, clients: list[Any], sizes: Sizes) -> list[Figure]:
    """All of one delegation that says nothing for as long as they are watched."""
    begun = await clients[0].ExecuteTask(pb.ExecuteTaskRequest(agent_id="quiet"))
    await asyncio.sleep(sizes.idle_seconds / 10)
    alone, memory = await _share(served, sizes.idle_seconds), served.resident_bytes()
    opened = asyncio.Semaphore(0)
    readers = [asyncio.create_task(_follow(clients[number % len(clients)], begun.task_id, opened)) for number in range(sizes.idle_streams)]
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            for _ in readers:
                await opened.acquire()
        await asyncio.sleep(sizes.idle_seconds / 10)
        beside, each = await _share(served, sizes.idle_seconds), (served.resident_bytes() - memory) / len(readers)
        await clients[0].CancelTask(pb.CancelTaskRequest(task_id=begun.task_id))
        ended = sum(await asyncio.wait_for(asyncio.gather(*readers), _OPEN_SECONDS))
    finally:
        for reader in readers:
            reader.cancel()
    return [
        Figure(section="streams", what="floor: the server with no stream, share of one core", measured=f"{alone:.1%}"),
        Figure(
            section="streams",
            what=f"remit, {sizes.idle_streams:,} idle streams: share of one core beyond that",
            measured=f"{max(0.0, beside - alone):.1%}",
            target=f"≤ {TARGET_IDLE_SHARE:.0%}",
            is_met=beside - alone <= TARGET_IDLE_SHARE,
        ),
        Figure(section="streams", what=f"{sizes.idle_streams:,} idle streams: resident memory each", measured=f"{each / 1024:.1f} KB"),
        Figure(
            section="streams",
            what=f"{sizes.idle_streams:,} idle streams: those that heard the end when it came",
            measured=f"{ended:,} of {len(readers):,}",
            target="all",
            is_met=ended == len(readers),
        ),
    ]


async def _share(served: Served, seconds: float) -> float:
    """Of one core, that the server takes while so long passes."""
    used, began = served.cpu_seconds(), time.monotonic()
    await asyncio.sleep(seconds)
    return (served.cpu_seconds() - used) / (time.monotonic() - began)


async def _follow(client: Any, task_id: str, opened: asyncio.Semaphore) -> bool:
    """Until the end, which is told as an error: it is cancelled."""
    last = None
    async for chunk in client.StreamTask(pb.StreamTaskRequest(task_id=task_id)):
        if last is None:
            opened.release()
        last = chunk.WhichOneof("chunk")
    return last == "error"
