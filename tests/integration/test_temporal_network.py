"""Workers, Temporal and PostgreSQL on hosts of their own (network namespaces), with cuts between them: nothing runs twice or is lost."""

import asyncio
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from remit import Remit, Status, Unavailable
from support.network import Network, missing, network
from support.postgres import PostgresServer, new_schema
from support.temporal_cluster import HEARTBEAT, Cluster, cluster
from support.temporal_server import TemporalServer, free_port
from support.worker_processes import WorkerForks

pytestmark = pytest.mark.skipif(missing() != "", reason=missing())
AGENTS = """
@agent("part")
async def part(ctx: Context, n: int) -> int:
    note(ctx, "part")
    return n

@agent("steps", resumable=True, isolation="process")
def steps(ctx) -> int:
    note(ctx, "begin")
    first = ctx.delegate("part", n=1).data
    while not (ctx.root / "go").exists():
        note(ctx, "works")
        time.sleep(0.02)
    return first + ctx.delegate("part", n=2).data

@agent("once")
async def once(ctx: Context) -> int:
    note(ctx, "begin")
    ctx.emit("begun")
    while not (ctx.root / "go").exists():
        note(ctx, "works")
        await asyncio.sleep(0.02)
    return 1
"""


@dataclass(frozen=True)
class Hosts:
    network: Network
    temporal: TemporalServer
    postgres: PostgresServer


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with network("temporal", "postgres", "one", "other") as made:
        temporal = TemporalServer(free_port(), ip=made.address("temporal"))
        made.run("temporal", temporal.start)
        postgres = made.run("postgres", lambda: PostgresServer(made.address("postgres")))
        try:
            made.run("postgres", postgres.start)
            temporal.wait_ready()
            yield Hosts(made, temporal, postgres)
        finally:
            temporal.kill()
            postgres.remove()


@pytest.fixture
def made(hosts: Hosts, forks: WorkerForks, tmp_path: Path) -> Iterator[Cluster]:
    store = {"url": hosts.postgres.url, "schema": new_schema()}
    with cluster(tmp_path, hosts.temporal.address, forks, AGENTS, store=store) as made:
        yield made


async def begun_on_one(made: Cluster, hosts: Hosts, remit: Remit, agent: str) -> tuple[int, str]:
    """The process of the worker on host `one`, and the delegation that it runs; the worker on `other` is there since."""
    (first,) = await made.start(host=hosts.network.name("one"))
    handle = await remit.start(agent, timeout=200)
    await made.until("works", 2)
    await made.start(host=hosts.network.name("other"))
    return first.pid, handle.session_id


@pytest.mark.parametrize("lost", ["postgres", "temporal", "everything"])
async def test_a_worker_that_is_cut_off_stops_and_another_goes_on(lost: str, made: Cluster, hosts: Hosts) -> None:
    async with made.open() as remit:
        _, session_id = await begun_on_one(made, hosts, remit, "steps")
        cut_at = time.monotonic()
        if lost == "everything":
            hosts.network.unplug("one")
        else:
            hosts.network.cut("one", lost)
        try:
            first, second = (await made.until("begin", 2))[:2]
            assert first.pid != second.pid
            last = max(line.at for line in made.lines() if line.pid == first.pid)
            print(f"cut from {lost}: stopped after {last - cut_at:.2f} s, continued after {second.at - cut_at:.2f} s; H is {HEARTBEAT:g} s")
            (made.root / "go").touch()
            result = await remit.engine.result(session_id, 100)
        finally:
            hosts.network.plug("one") if lost == "everything" else hosts.network.restore("one", lost)
        assert result is not None
        assert (result.status, result.data) == (Status.COMPLETED, 3)
        assert made.overlaps() == []
        assert len(made.lines("part")) == 2, "each child once"
        await asyncio.sleep(HEARTBEAT / 2)  # a late outcome of the first one would come now
        assert (await remit.describe(session_id)).result == result


async def _quiet(made: Cluster, session_id: str) -> None:
    """Its agent has stopped."""
    while True:
        lines = [line for line in made.lines() if line.session_id == session_id]
        if time.monotonic() - lines[-1].at > 0.5 * HEARTBEAT:
            return
        await asyncio.sleep(0.05)


async def test_a_store_that_is_away_for_a_moment_delays_outcomes_and_refuses_starts(made: Cluster, hosts: Hosts) -> None:
    made.heartbeat_seconds = 60.0  # a moment is short against it, also on a busy machine
    await made.start(host=hosts.network.name("one"))
    async with made.open() as remit:
        handles = [await remit.start("once", timeout=200) for _ in range(20)]
        await made.until("begin", 20)
        hosts.postgres.stop(signal.SIGINT)
        try:
            with pytest.raises(Unavailable) as refused:
                await remit.delegate("once", timeout=100)
            (made.root / "go").touch()  # all of them end while the store is away
            await asyncio.sleep(0.5)
        finally:
            hosts.network.run("postgres", hosts.postgres.start)
        results = [await handle.result() for handle in handles]
    assert refused.value.code == "STORE_UNAVAILABLE"
    assert [(one.status, one.data) for one in results] == [(Status.COMPLETED, 1)] * 20
    begun = made.lines("begin")
    assert len(begun) == len({line.session_id for line in begun}) == 20, "each once, and what was refused not at all"


async def test_a_store_that_is_away_for_long_stops_all_agents_and_resumable_ones_go_on(made: Cluster, hosts: Hosts) -> None:
    for host in ("one", "other"):
        await made.start(host=hosts.network.name(host))
    async with made.open() as remit:
        handles = {name: await remit.start(name, timeout=200) for name in ("steps", "once")}
        await made.until("begin", 2)
        async for event in handles["once"].stream():
            if event.kind == "data":
                break  # recorded; what an agent emits while the store is away is lost with it
        hosts.postgres.stop(signal.SIGQUIT)
        try:
            for handle in handles.values():
                await _quiet(made, handle.session_id)
        finally:
            hosts.network.run("postgres", hosts.postgres.start)
        (made.root / "go").touch()
        resumed, ended = [await handles[name].result() for name in ("steps", "once")]
    assert (resumed.status, resumed.data) == (Status.COMPLETED, 3)
    assert (ended.status, ended.errors[0].code, ended.data) == (Status.PARTIAL, "AGENT_CRASHED", {"chunks": ["begun"]})
    assert made.overlaps() == []
