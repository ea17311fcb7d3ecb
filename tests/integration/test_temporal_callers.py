"""Callers of remote delegations: none waits forever and no start is lost, whatever ends, is away or is late meanwhile."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit import Remit, Unavailable, agent
from remit.engines.embedded import events
from remit.engines.temporal import engine as temporal_engine
from remit.testing import Scripted, hang
from support.temporal_server import TemporalServer, temporal_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    with temporal_server(tmp_path_factory.mktemp("temporal") / "temporal.db") as server:
        yield server


@pytest.fixture
def settings(server: TemporalServer, tmp_path: Path) -> dict[str, Any]:
    temporal = {"address": server.address, "worker_wait_seconds": 60.0}
    return {"builtin_agents": (), "engine": {"kind": "temporal", "project": f"c{abs(hash(str(tmp_path)))}", "temporal": temporal}}


@agent("quick")
async def quick(n: int) -> int:
    return n


async def test_callers_get_their_results_while_others_wait(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more of them than are read, or started, at once. One of them is followed, too."""
    monkeypatch.setattr(events, "HEADS_AT_ONCE", 2)
    monkeypatch.setattr(temporal_engine, "STARTS_AT_ONCE", 2)
    sleeper = Scripted("sleeper", hang())
    async with (
        Remit.open(tmp_path, agents=[quick, sleeper], settings=settings) as caller,
        Remit.open(tmp_path, agents=[quick, sleeper], settings=settings) as worker,
    ):
        await worker.work()
        slow = await caller.start("sleeper", timeout=100)
        await sleeper.called.wait()
        followed = await caller.start("quick", n=9, timeout=100)
        following = asyncio.create_task(anext(aiter(followed.stream())))
        results = await asyncio.gather(*(caller.delegate("quick", n=n, timeout=100) for n in range(9)))
        assert [one.data for one in results] == list(range(9))
        assert (await followed.result()).data == 9
        await following
        await slow.cancel("not wanted")
        assert (await slow.result()).errors[0].code == "CANCELLED"
        assert caller.engine.remote == {}  # type: ignore[attr-defined]


async def test_delegations_wait_for_temporal_until_their_deadline(
    server: TemporalServer,
    settings: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Two at a time are offered to Temporal, so that most of them wait behind others; one is late before its turn. The client library,
    which would say for each poll that the server is away, says nothing."""
    monkeypatch.setattr(temporal_engine, "STARTS_AT_ONCE", 2)
    async with (
        Remit.open(tmp_path, agents=[quick], settings=settings) as caller,
        Remit.open(tmp_path, agents=[quick], settings=settings) as worker,
    ):
        await worker.work()
        server.kill()
        try:
            handles = [await caller.start("quick", n=n, timeout=100) for n in range(9)]
            late = await caller.delegate("quick", n=9, timeout=1)
        finally:
            server.start()
        assert late.errors[0].code == "TIMEOUT"
        assert "quick was not started by its deadline: it waited in the task queue remit:c" in late.errors[0].message
        assert [(await handle.result()).data for handle in handles] == list(range(9))
    assert "retried" not in capfd.readouterr().err


async def test_closing_answers_every_caller_and_another_process_starts_the_rest(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some callers wait for a notice of the outcome, one reads the record since it had one, and one is not started yet."""
    monkeypatch.setattr(temporal_engine, "LEFT_SECONDS", 0.0)
    async with Remit.open(tmp_path, agents=[quick], settings=settings) as other:
        async with Remit.open(tmp_path, agents=[quick], settings=settings) as caller:
            handle = await caller.start("quick", n=0, timeout=100)
            caller.engine.streams.watcher.tell(handle.session_id)  # type: ignore[attr-defined]
            monkeypatch.setattr(temporal_engine, "STARTS_AT_ONCE", 0)
            unstarted = await caller.start("quick", n=1, timeout=100)
            calls = (handle.result(), unstarted.result(), caller.delegate("quick", n=2, timeout=100))
            waiting = [asyncio.create_task(one) for one in calls]
            while len(other.store.live()) < len(waiting):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for answer in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(answer, Unavailable)
            assert "continues on a worker" in str(answer)
            assert "sess_" in answer.advice
        await other.work()
        await other.engine.sweep()  # type: ignore[attr-defined]
        found = [await other.engine.result(one.session_id, 60) for one in (handle, unstarted)]
        assert [one.data for one in found if one is not None] == [0, 1]
