"""kill -9 of workers, the Temporal server and the caller: one outcome per delegation, no repeated child, no process left."""

import asyncio
import json
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit import EventKind, Handle, Remit, Return, State, Status, StopReason
from support.lab import is_lab, rounds
from support.temporal_cluster import HEARTBEAT, Cluster, cluster
from support.temporal_server import TemporalServer, temporal_server
from support.worker_processes import WorkerForks

AGENTS = """
@agent("part", resumable=True)
async def part(ctx: Context, n: int, seconds: float) -> int:
    note(ctx, "begin")
    await asyncio.sleep(seconds)
    note(ctx, "end")
    return n

@agent("leaf", resumable=True, isolation="process", spread=True)
def leaf(ctx, n: int, seconds: float) -> int:
    note(ctx, "begin")
    time.sleep(seconds)
    note(ctx, "end")
    return n

async def parts(ctx, seconds):
    note(ctx, "begin")
    ctx.emit("begun")
    first = await ctx.delegate("part", n=1, seconds=0)
    rest = await ctx.gather(call("part", n=2, seconds=seconds), call("leaf", n=3, seconds=seconds))
    note(ctx, "end")
    return sum(one.data for one in (first, *rest))

@agent("again", resumable=True)
async def again(ctx: Context, seconds: float) -> int:
    return await parts(ctx, seconds)

@agent("once")
async def once(ctx: Context, seconds: float) -> int:
    return await parts(ctx, seconds)
"""
PHASES = ("queued", "starting", "running with finished and running children")


async def phase_of(made: Cluster, remit: Remit, session_id: str, victim: int) -> str:
    """Return the phase of a delegation whose worker is about to be killed. Empty: it is on another worker, or has ended."""
    tree = await remit.tree(session_id)
    root, said = tree[0], {line.what for line in made.lines() if line.session_id == session_id}
    if root.state.is_settled:
        return ""
    if root.ticket == 0:
        return "queued"
    if not root.owner.startswith(f"{victim}-"):
        return ""
    if "begin" not in said:
        return "starting"
    if "end" in said:
        return "settling"
    states = {one.state.is_settled for one in tree[1:]}
    return "running with finished and running children" if states == {True, False} else "running"


async def checked(remit: Remit, result: Return, agent: str) -> str:
    """Return the fault of an outcome, or an empty string. A delegation killed before its first recorded chunk has no chunks."""
    status, data, errors = result.status, result.data, [one.code for one in result.errors]
    if (await remit.describe(result.session_id)).result != result:
        return f"{agent}: the record has another outcome"
    said = [event.body["chunk"] for event in remit.store.events(result.session_id) if event.kind is EventKind.DATA]
    if status is Status.COMPLETED and data == 6:
        return ""
    if agent == "once" and status is Status.PARTIAL and errors[0] == "AGENT_CRASHED" and (data or {}).get("chunks", []) == said:
        return ""
    return f"{agent} ended as {status} with {data}, {errors}"


async def kill_a_worker(made: Cluster, seed: int) -> tuple[list[str], Counter[str]]:
    """Start delegations in all phases, kill one of two workers at a seeded moment and replace it. Return faults and phases at the kill."""
    chance = random.Random(seed)
    met: Counter[str] = Counter()
    async with made.restarting(2, slots=3), made.open() as remit:
        victim = made.workers[0]
        handles: list[tuple[str, Handle]] = []
        for _ in range(6):
            agent = chance.choice(("again", "once"))
            handles.append((agent, await remit.start(agent, seconds=chance.uniform(0.05, 1.0), timeout=100)))
            await asyncio.sleep(chance.uniform(0, 0.1))
        await asyncio.sleep(chance.uniform(0, 1.0))
        for agent, handle in handles:
            if phase := await phase_of(made, remit, handle.session_id, victim.pid):
                met[f"{phase}, {agent}"] += 1
        victim.kill()
        results = [await handle.result() for _, handle in handles]
        faults = []
        for (agent, handle), result in zip(handles, results, strict=True):
            faults.append(await checked(remit, result, agent))
            begun = {line.pid for line in made.lines("begin") if line.session_id == handle.session_id}
            if agent == "once" and len(begun) > 1:
                faults.append(f"{handle.session_id} of once began {len(begun)} times")
        faults += await made.wrong(remit, *(handle for _, handle in handles))
    return [f"seed {seed}: {fault}" for fault in faults if fault], met


@pytest.mark.timeout(3000 if is_lab() else 120)
async def test_worker_killed_at_any_moment_loses_and_repeats_nothing(temporal: TemporalServer, forks: WorkerForks, tmp_path: Path) -> None:
    met: Counter[str] = Counter()
    wrong: list[str] = []

    async def one(seed: int) -> None:
        with cluster(tmp_path / f"seed{seed}", temporal.address, forks, AGENTS) as made:
            faults, phases = await kill_a_worker(made, seed)
        wrong.extend(faults)
        met.update(phases)
        print(f"seed {seed}: {dict(phases)} {faults}", flush=True)  # visible with -s and on failure

    for seed in range(0, rounds(2, lab=50), 2):
        await asyncio.gather(one(seed), one(seed + 1))
    assert wrong == []
    if is_lab():
        assert [f"{phase}, {agent}" for phase in PHASES for agent in ("again", "once") if not met[f"{phase}, {agent}"]] == []


async def cancel_while_taken_over(made: Cluster, seed: int) -> list[str]:
    """Kill or drain one of two workers, and cancel each delegation at a seeded moment until the other one has taken all of them over."""
    chance = random.Random(seed)
    faults: list[str] = []
    async with made.restarting(2, slots=3), made.open() as remit:
        handles = [(agent, await remit.start(agent, seconds=chance.uniform(0.5, 3), timeout=100)) for agent in ("again", "once") * 2]
        await made.until("begin", 2)
        await asyncio.sleep(chance.uniform(0, 0.5))
        made.workers[0].send(chance.choice((signal.SIGKILL, signal.SIGSTOP)))

        async def cancelled(agent: str, handle: Handle) -> None:
            await asyncio.sleep(chance.uniform(0, HEARTBEAT + 2))
            await remit.cancel(handle.session_id, "not wanted")
            result = await handle.result()
            if result.stop_reason is not StopReason.CANCELLED:
                faults.append(await checked(remit, result, agent))
            elif (await remit.describe(handle.session_id)).result != result:
                faults.append(f"{agent}: the record has another outcome")

        await asyncio.gather(*(cancelled(agent, handle) for agent, handle in handles))
        made.workers[0].kill()
        faults += await made.wrong(remit, *(handle for _, handle in handles))
    return [f"seed {seed}: {fault}" for fault in faults if fault]


@pytest.mark.timeout(1500 if is_lab() else 120)
async def test_delegations_cancelled_during_a_takeover_end_once(temporal: TemporalServer, forks: WorkerForks, tmp_path: Path) -> None:
    async def one(seed: int) -> list[str]:
        with cluster(tmp_path / f"seed{seed}", temporal.address, forks, AGENTS) as made:
            return await cancel_while_taken_over(made, seed)

    for seed in range(0, rounds(2, lab=30), 2):
        assert await asyncio.gather(one(seed), one(seed + 1)) == [[], []]


async def reached(phase: str, made: Cluster, remit: Remit, session_id: str) -> None:
    while True:
        if phase == "starting" and (await remit.describe(session_id)).ticket > 0:
            return
        if phase == "settling" and any(line[:2] == ("end", session_id) for line in made.lines()):
            return
        await asyncio.sleep(0.001)


async def test_worker_killed_while_claiming_or_settling_loses_nothing(temporal: TemporalServer, forks: WorkerForks, tmp_path: Path) -> None:
    """These two phases last milliseconds."""

    async def one(phase: str, agent: str) -> list[str]:
        with cluster(tmp_path / f"{phase}-{agent}", temporal.address, forks, AGENTS) as made:
            (victim,) = await made.start()
            async with made.open() as remit:
                handle = await remit.start(agent, seconds=0, timeout=100)
                await reached(phase, made, remit, handle.session_id)
                victim.kill()
                await made.start()
                fault = await checked(remit, await handle.result(), agent)
                return [*([fault] if fault else []), *await made.wrong(remit, handle)]

    cases = [(phase, agent) for phase in ("starting", "settling") for agent in ("again", "once")]
    assert dict(zip(cases, await asyncio.gather(*(one(*case) for case in cases)), strict=True)) == {case: [] for case in cases}


@pytest.fixture
def kept_server(tmp_path: Path) -> Iterator[TemporalServer]:
    """Temporal server that keeps its data over a kill and restart."""
    with temporal_server(tmp_path / "temporal.db") as server:
        yield server


@pytest.mark.parametrize("away", [0.2 * HEARTBEAT, 1.5 * HEARTBEAT], ids=["shorter than the heartbeat", "longer"])
async def test_killed_temporal_server_loses_nothing(away: float, kept_server: TemporalServer, forks: WorkerForks, tmp_path: Path) -> None:
    with cluster(tmp_path / "project", kept_server.address, forks, AGENTS) as made:
        await made.start(2)
        async with made.open() as remit:
            handles = [await remit.start("again", seconds=HEARTBEAT, timeout=100) for _ in range(3)]
            await made.until("begin", 3)
            kept_server.kill()
            await asyncio.sleep(away)
            late = await remit.start("again", seconds=0, timeout=100)
            kept_server.start()
            for handle in (*handles, late):
                result = await handle.result()
                assert (result.status, result.data) == (Status.COMPLETED, 6), result
            assert await made.wrong(remit, *handles, late) == []


CALLER = """
import asyncio, json, sys
from remit import Remit
async def main():
    async with Remit.open(sys.argv[1], settings=json.loads(sys.argv[2])) as remit:
        handle = await remit.start("again", seconds=0.5, timeout=100, key="mine")
        print(handle.session_id, flush=True)
        await handle.result()
asyncio.run(main())
"""


async def test_work_of_a_killed_caller_completes_and_is_found_by_id_and_key(
    temporal: TemporalServer, forks: WorkerForks, tmp_path: Path
) -> None:
    with cluster(tmp_path, temporal.address, forks, AGENTS) as made:
        words = [sys.executable, "-c", CALLER, str(tmp_path), json.dumps(made.settings())]
        caller = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        assert caller.stdout is not None
        session_id = (await caller.stdout.readline()).decode().strip()
        caller.kill()  # before a worker starts
        await caller.wait()
        await made.start()
        async with made.open() as remit:
            same = await remit.start("again", seconds=0.5, timeout=100, key="mine")
            assert same.session_id == session_id
            assert (await same.result()).data == 6
            assert (await remit.describe(session_id)).state is State.COMPLETED
            assert await made.wrong(remit, same) == []
