"""grpc and http: what a delegation to an agent that does nothing costs through the doors of `remit serve`, beside a call that is empty.

The server is the real one, a process of its own, reached as clients reach it: over its Unix socket by gRPC, over loopback by HTTP. Two
floors for gRPC, asked in turns in the same run, of which the better one counts: `Ping` at the same server, and an empty call at a bare
server of the same library that knows nothing of remit, in a process of its own too. Run as a module this is that bare server. `Served`,
the server's process as it can be looked at from outside, is used by `streaming` and `held` too.
"""

import asyncio
import contextlib
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import httpx

from bench.figures import Figure, median, microseconds, percentile
from bench.sizes import Sizes
from bench.speed import One, timed_sequence
from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.proto.v1 import tasks_pb2_grpc as rpc
from remit.agents.proto.values import value_of
from remit.server.discovery import ServerEntry, announced

TARGET_SECONDS = 0.001
AGENTS = """
import asyncio
from remit import Context, agent

@agent("noop")
async def noop() -> None:
    return None

@agent("talker", timeout=100)
async def talker(ctx: Context, chunks: int) -> str:
    for number in range(chunks):
        ctx.emit({"number": number})
        await asyncio.sleep(0.001)
    return "said"

@agent("quiet", timeout=100)
async def quiet(ctx: Context) -> None:
    await asyncio.sleep(90)
"""
_ROOT = Path(__file__).parents[1]
_WARM = 100
_READY_SECONDS = 30.0
_STOP_SECONDS = 10.0
_WAIT_NS = 30 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server that runs, seen from outside."""

    process: asyncio.subprocess.Process
    at: ServerEntry

    @property
    def grpc(self) -> str:
        assert self.at.grpc is not None
        return self.at.grpc

    @property
    def http(self) -> str:
        assert self.at.http is not None
        return self.at.http

    @property
    def token(self) -> str:
        assert self.at.token_file is not None
        return Path(self.at.token_file).read_text().strip()

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def serving(*apis: str) -> AsyncIterator[Served]:
    """`remit serve` of a project of its own with these APIs; ended by its process id."""
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        agents = Path(folder) / ".remit" / "agents"
        agents.mkdir(parents=True)
        (agents / "bench.py").write_text(AGENTS)
        options = [part for api in apis for part in ("--api", api)]
        async with _process("-m", "remit", "serve", "--root", folder, "--http", "127.0.0.1:0", *options) as process:
            yield Served(process=process, at=await _ready(process, Path(folder) / ".remit" / "run"))


@contextlib.asynccontextmanager
async def tasks_at(address: str) -> AsyncIterator[Any]:
    """The client that protoc makes, on a channel of its own."""
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield rpc.TaskServiceStub(channel)  # type: ignore[no-untyped-call]


def noop_of(tasks: Any) -> One:
    """One delegation to an agent that does nothing, begun and waited for in one call."""
    request = pb.ExecuteTaskRequest(agent_id="noop", wait_ns=_WAIT_NS)

    async def delegate() -> None:
        answer = await tasks.ExecuteTask(request)
        assert answer.task.success, answer  # a refusal would be quick, and would look like speed

    return delegate


@contextlib.asynccontextmanager
async def serving_bare() -> AsyncIterator[str]:
    """A server of gRPC that knows nothing of remit: where it listens."""
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        address = f"unix:{folder}/bare.sock"
        async with _process("-m", "bench.serving", address):
            async with tasks_at(address) as bare:
                await bare.Ping(pb.PingRequest(), wait_for_ready=True, timeout=_READY_SECONDS)
            yield address


async def measure_grpc(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    ping = pb.PingRequest()
    async with serving("grpc") as served, serving_bare() as bare_at, tasks_at(served.grpc) as tasks, tasks_at(bare_at) as bare:
        taken = await _in_turns({"bare": lambda: bare.Ping(ping), "ping": lambda: tasks.Ping(ping), "remit": noop_of(tasks)}, sizes)
    added = taken.added("remit", "bare", "ping")
    return [
        taken.figure("grpc", "floor: an empty call at a bare gRPC server, Unix socket, p50", "bare"),
        taken.figure("grpc", "floor: Ping at remit's gRPC door, Unix socket, p50", "ping"),
        taken.figure("grpc", "remit, a delegation to an agent that does nothing, begun and waited for, p50", "remit"),
        Figure(
            section="grpc",
            what="added by remit to the better floor, p50",
            measured=microseconds(added),
            target=f"≤ {TARGET_SECONDS * 1e3:g} ms",
            is_met=added <= TARGET_SECONDS,
        ),
    ]


async def measure_http(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    async with serving("http") as served:
        headers = {"authorization": f"Bearer {served.token}"}
        async with httpx.AsyncClient(base_url=served.http, headers=headers, timeout=30, trust_env=False) as client:

            async def health() -> None:
                assert (await client.get("/healthz")).status_code == httpx.codes.OK

            async def delegate() -> None:
                answer = await client.post("/v1/tasks?wait=30", json={"target": "noop"})
                assert answer.json()["success"], answer.text  # the same

            taken = await _in_turns({"health": health, "remit": delegate}, sizes)
    return [
        taken.figure("http", "floor: GET /healthz, loopback, connection kept, p50", "health"),
        taken.figure("http", "remit, a delegation to an agent that does nothing, begun and waited for, p50", "remit"),
        Figure(section="http", what="added by remit, p50", measured=microseconds(taken.added("remit", "health"))),
    ]


@dataclass(frozen=True, slots=True)
class _Taken:
    """Seconds that each contender took: in the middle and at the tail of each round."""

    middle: dict[str, list[float]]
    tail: dict[str, list[float]]

    def added(self, ours: str, *floors: str) -> float:
        rounds = zip(self.middle[ours], *(self.middle[floor] for floor in floors), strict=True)
        return median([one - min(least) for one, *least in rounds])

    def figure(self, section: str, what: str, name: str) -> Figure:
        shown = f"{microseconds(median(self.middle[name]))} (p99 {microseconds(median(self.tail[name]))})"
        return Figure(section=section, what=what, measured=shown)


async def _in_turns(contenders: dict[str, One], sizes: Sizes) -> _Taken:
    taken = _Taken({name: [] for name in contenders}, {name: [] for name in contenders})
    for one in contenders.values():
        await timed_sequence(one, min(_WARM, sizes.served_calls))
    for _ in range(sizes.rounds):
        for name, one in contenders.items():
            seconds = await timed_sequence(one, sizes.served_calls)
            taken.middle[name].append(percentile(seconds, 0.5))
            taken.tail[name].append(percentile(seconds, 0.99))
    return taken


@contextlib.asynccontextmanager
async def _process(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=quiet, stdout=quiet, stderr=quiet, env={**os.environ, "PYTHONPATH": path}
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _ready(process: asyncio.subprocess.Process, run_folder: Path) -> ServerEntry:
    give_up = time.monotonic() + _READY_SECONDS
    while process.returncode is None and time.monotonic() < give_up:
        found = announced(run_folder)
        if found is not None and found.pid == process.pid:
            return found
        await asyncio.sleep(0.02)
    raise RuntimeError("The server did not get ready.")


class _Bare(rpc.TaskServiceServicer):
    async def Ping(self, request: pb.PingRequest, context: Any) -> pb.PingResponse:
        return pb.PingResponse()

    async def RunTask(self, request: pb.ExecuteTaskRequest, context: Any) -> AsyncIterator[pb.TaskChunk]:
        """As many chunks as it is asked for, at the pace of `talker`; nothing is done, and nothing kept."""
        for number in range(int(request.config.parameters.fields["chunks"].number_value)):
            yield pb.TaskChunk(number=number, task_id="bare", output=pb.Output(chunk=value_of({"number": number})))
            await asyncio.sleep(0.001)


async def _serve_bare(address: str) -> None:
    server = grpc.aio.server()
    rpc.add_TaskServiceServicer_to_server(_Bare(), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve_bare(sys.argv[1]))
