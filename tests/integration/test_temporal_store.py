"""The engine on Temporal while PostgreSQL is away or does not answer: callers get their returns by the deadline, workers live on."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit import Remit, State, Status, Unavailable
from support.network import Proxy
from support.postgres import PostgresServer, new_schema
from support.processes import is_alive
from support.temporal_cluster import HEARTBEAT, Cluster, cluster
from support.temporal_server import TemporalServer
from support.worker_processes import WorkerForks

AGENTS = """
@agent("leaf", resumable=True, spread=True)
async def leaf(ctx: Context) -> int:
    note(ctx, "begin")
    while not (ctx.root / "go").exists():
        note(ctx, "works")
        await asyncio.sleep(0.02)
    return 1

@agent("trunk", resumable=True)
async def trunk(ctx: Context) -> int:
    return sum(one.data for one in await ctx.gather(call("leaf"), call("leaf")))
"""


@pytest.fixture
def line(postgres: PostgresServer) -> Iterator[Proxy]:
    with contextlib.closing(Proxy(postgres.port)) as line:
        yield line


@pytest.fixture
def made(temporal: TemporalServer, postgres: PostgresServer, forks: WorkerForks, tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, temporal.address, forks, AGENTS, store={"url": postgres.url, "schema": new_schema()}) as made:
        yield made


def through(line: Proxy, made: Cluster, postgres: PostgresServer) -> dict[str, dict[str, str]]:
    """Settings of a process that reaches the store by `line`."""
    store = made.settings()["store"]
    return {"store": {**store, "url": store["url"].replace(f":{postgres.port}/", f":{line.port}/")}}


async def settled(remit: Remit, session_id: str) -> State:
    while not (record := await remit.describe(session_id)).state.is_settled:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return record.state


@pytest.mark.parametrize("how", ["stall", "cut"])
async def test_callers_get_a_return_by_the_deadline_while_the_store_is_away(
    how: str, made: Cluster, line: Proxy, postgres: PostgresServer
) -> None:
    await made.start()
    async with made.open() as other, made.open(**through(line, made, postgres)) as caller:
        running = await caller.start("leaf", timeout=4)
        await made.until("works")
        getattr(line, how)()
        try:
            with contextlib.suppress(Unavailable):
                late = await asyncio.wait_for(caller.delegate("leaf", timeout=2), 60)
                assert how == "stall", "a store that is gone refuses the start"
                assert (late.errors[0].code, late.warnings) == ("TIMEOUT", ("It could not be recorded in time. It did not run.",))
            result = await asyncio.wait_for(running.result(), 60)
        finally:
            line.restore()
        assert (result.status, result.errors[0].code) == (Status.PARTIAL, "TIMEOUT")
        assert f"remit show {running.session_id}" in result.warnings[0]
        assert await settled(other, running.session_id) is State.TIMEOUT
        while other.store.live():  # noqa: ASYNC110 - also the one that was recorded late, if it was
            await asyncio.sleep(0.05)
    assert len(made.lines("begin")) == 1


async def test_worker_whose_store_does_not_answer_stops_its_agents_and_continues_them_when_it_does(
    made: Cluster, line: Proxy, postgres: PostgresServer
) -> None:
    (worker,) = await made.start(settings=through(line, made, postgres))
    async with made.open() as remit:
        handle = await remit.start("trunk", timeout=200)
        await made.until("begin", 2)
        line.stall()
        while (lines := made.lines("works"))[-1] != await _last_after(made, HEARTBEAT / 2):
            assert lines
        await asyncio.sleep(HEARTBEAT)
        line.restore()
        assert is_alive(worker.pid, None), "it could not record outcomes, and had nothing else to exit for"
        (made.root / "go").touch()
        assert (await handle.result()).data == 2
        assert await made.wrong(remit, handle) == []


async def _last_after(made: Cluster, seconds: float) -> object:
    await asyncio.sleep(seconds)
    return made.lines("works")[-1]
