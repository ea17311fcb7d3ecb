"""streams: many streams at one server. Active streams, each read to its end, are compared with a bare server that only streams. Idle
streams are measured by the server's CPU time, compared with the same server without streams.

The server is a separate process (`serving`); the client's streams share a few connections, as in a real program.
"""

import asyncio
import contextlib
import time
from typing import Any, NamedTuple

from bench.figures import Figure, median, milliseconds
from bench.serving import Served, serving, serving_bare, tasks_at
from bench.sizes import Sizes
from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.system.protobuf_values import struct_of

TARGET_IDLE_SHARE = 0.02
"""Share of one core, beyond the usage of the server without streams."""
_CONNECTIONS = 8
_OPEN_SECONDS = 60.0
_ROUNDS = 3


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    async with serving("grpc") as served, serving_bare() as bare_at, contextlib.AsyncExitStack() as channels:
        clients = [await channels.enter_async_context(tasks_at(served.grpc)) for _ in range(_CONNECTIONS)]
        bare = [await channels.enter_async_context(tasks_at(bare_at)) for _ in range(_CONNECTIONS)]
        figures = await _talking(clients, bare, sizes)
        figures += await _idling(served, clients, sizes)
    return figures


# ---- active streams


async def _talking(clients: list[Any], bare: list[Any], sizes: Sizes) -> list[Figure]:
    """The floor streams the same number of messages and does nothing else; remit's also report the state of each task."""
    ours, floor, whole = [], [], 0
    messages = [heard.messages for heard in (await _all(clients, 5, sizes.stream_chunks))[1]][-1]
    await _all(bare, 5, messages)
    for _ in range(min(_ROUNDS, sizes.rounds)):
        floor.append((await _all(bare, sizes.streams, messages))[0])
        seconds, heard = await _all(clients, sizes.streams, sizes.stream_chunks)
        ours.append(seconds)
        whole += sum(one.is_whole for one in heard)
    asked, times = sizes.streams * len(ours), median([one / least for one, least in zip(ours, floor, strict=True)])
    what = f"{sizes.streams} streams at once, {messages} messages each"
    return [
        Figure(section="streams", what=f"floor: {what}, from a bare gRPC server, to the last", measured=milliseconds(median(floor))),
        Figure(
            section="streams",
            what=f"remit, {what}, of as many tasks, to the last",
            measured=f"{milliseconds(median(ours))} ({times:.2f} times)",
        ),
        Figure(
            section="streams",
            what=f"{sizes.streams} streams at once: those that heard every chunk in order, and the end",
            measured=f"{whole:,} of {asked:,}",
            target="all",
            is_met=whole == asked,
        ),
    ]


class _Heard(NamedTuple):
    messages: int
    is_whole: bool


async def _all(clients: list[Any], count: int, chunks: int) -> tuple[float, list[_Heard]]:
    """Seconds until the last stream has ended."""
    began = time.perf_counter()
    done = await asyncio.gather(*(_listened(clients[number % len(clients)], chunks) for number in range(count)))
    return time.perf_counter() - began, done


async def _listened(client: Any, chunks: int) -> _Heard:
    config = pb.TaskConfig(parameters=struct_of({"chunks": chunks}))
    said: list[int] = []
    messages, last = 0, ""
    async for chunk in client.RunTask(pb.ExecuteTaskRequest(agent_id="talker", config=config)):
        messages, last = messages + 1, chunk.WhichOneof("chunk")
        if last == "output":
            said.append(int(chunk.output.chunk.struct_value.fields["number"].number_value))
    return _Heard(messages, said == list(range(chunks)) and last == "complete")


# ---- idle streams


async def _idling(served: Served, clients: list[Any], sizes: Sizes) -> list[Figure]:
    """All streams follow one delegation that emits nothing while they are watched."""
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
    """Share of one core that the server uses during this time."""
    used, began = served.cpu_seconds(), time.monotonic()
    await asyncio.sleep(seconds)
    return (served.cpu_seconds() - used) / (time.monotonic() - began)


async def _follow(client: Any, task_id: str, opened: asyncio.Semaphore) -> bool:
    """Follow until the end, which arrives as an error because the delegation is cancelled."""
    last = None
    async for chunk in client.StreamTask(pb.StreamTaskRequest(task_id=task_id)):
        if last is None:
            opened.release()
        last = chunk.WhichOneof("chunk")
    return last == "error"
