"""The engine on Temporal with real worker processes: cut off, drained and crowded. Nothing is lost, nothing runs twice, nothing overlaps.

Workers that are killed are in `tests/chaos/test_temporal_kill9.py`."""

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from remit import Misused, Record, Remit, State, Status, Unavailable, agent
from remit.engines.temporal import engine as temporal_engine
from remit.engines.temporal.workflow import DelegationWorkflow
from remit.testing import Scripted, hang
from support.lab import is_lab
from support.network import Proxy
from support.pace import allowed
from support.processes import is_alive
from support.temporal_cluster import HEARTBEAT, Cluster, cluster
from support.temporal_server import TemporalServer
from support.worker_processes import WorkerForks

SDK_SECONDS = 6.0
"""So long after the heartbeat timeout Temporal's SDK cancels an activity by itself if it takes it for lost."""
AGENTS = """
@agent("child")
async def child(ctx: Context, n: int) -> int:
    note(ctx, "child")
    return n

@agent("steps", resumable=True)
async def steps(ctx: Context, seconds: float = 60.0) -> int:
    note(ctx, "begin")
    first = (await ctx.delegate("child", n=1)).data
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (ctx.root / "go").exists():
        note(ctx, "works")
        await asyncio.sleep(0.02)
    note(ctx, "end")
    return first + (await ctx.delegate("child", n=2)).data

@agent("deaf", resumable=True, isolation="thread")
def deaf(ctx) -> str:
    note(ctx, "begin")
    root = ctx.root
    while not (root / "go").exists():
        try:
            note(ctx, "works")
            time.sleep(0.02)
        except BaseException:
            pass
    return "done"

@agent("quick")
async def quick(ctx: Context, n: int) -> int:
    await asyncio.sleep(0.02)
    note(ctx, "quick")
    return n

@agent("busy", spread=True)
async def busy(ctx: Context) -> None:
    note(ctx, "busy")
    await asyncio.sleep(0.1)
    note(ctx, "done")

@agent("leaf", isolation="process", spread=True)
def leaf(ctx, n: int) -> None:
    note(ctx, "leaf")
    time.sleep(60)

@agent("tree")
async def tree(ctx: Context) -> None:
    await ctx.gather(*(call("leaf", n=n) for n in range(3)))

@agent("spends", spread=True)
async def spends(ctx: Context, tokens: int) -> None:
    ctx.spend(tokens=tokens)

@agent("draws", spread=True)
async def draws(ctx: Context) -> None:
    for n in range(100):
        ctx.spend(tokens=10)
        await ctx.checkpoint(n)

@agent("branch", spread=True)
async def branch(ctx: Context, agent: str, count: int, **given) -> list:
    note(ctx, "branch")
    results = await asyncio.gather(*(ctx.delegate(agent, **given) for _ in range(count)))
    note(ctx, "branched")
    return [one.errors[0].code if one.errors else "ok" for one in results]

@agent("trunk")
async def trunk(ctx: Context, agent: str, count: int, given: dict) -> list:
    note(ctx, "trunk")
    found = await asyncio.gather(*(ctx.delegate("branch", agent=agent, count=count, **given) for _ in range(3)))
    note(ctx, "grown")
    return [code for one in found for code in one.data]

@agent("deep", spread=True)
async def deep(ctx: Context, is_cycle: bool = False) -> list:
    below = await ctx.delegate("deep" if is_cycle else "deeper")
    return [os.getpid(), *(below.data or []), *(one.code for one in below.errors)]

@agent("deeper", spread=True)
async def deeper(ctx: Context) -> list:
    below = await ctx.delegate("deepest")
    return [os.getpid(), *below.data]

@agent("deepest", spread=True)
async def deepest(ctx: Context) -> list:
    refused = await ctx.delegate("child", n=1)
    return [os.getpid(), ctx.depth, list(ctx.path), ctx.remaining, refused.errors[0].code]
"""


@pytest.fixture
def made(temporal: TemporalServer, forks: WorkerForks, tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, temporal.address, forks, AGENTS) as made:
        yield made


# ---- the command, as a process of its own


async def test_drained_worker_hands_resumable_work_to_another(made: Cluster) -> None:
    engine = made.settings()["engine"]
    chosen = {f"REMIT_ENGINE__TEMPORAL__{key.upper()}": str(value) for key, value in engine["temporal"].items()}
    environment = {**os.environ, **chosen, "REMIT_ENGINE__KIND": "temporal", "REMIT_ENGINE__PROJECT": engine["project"]}
    words = [sys.executable, "-m", "remit", "worker", "--json"]
    first = await asyncio.create_subprocess_exec(*words, cwd=made.root, env=environment, stdout=asyncio.subprocess.PIPE)
    assert first.stdout is not None
    assert json.loads(await first.stdout.readuntil(b"\n}\n"))["event"] == "working"
    async with made.open() as remit:
        handle = await remit.start("steps", timeout=100)
        await made.until("works", 2)
        (second,) = await made.start()
        first.send_signal(signal.SIGTERM)
        await made.until("begin", 2)
        (made.root / "go").touch()
        assert (await handle.result()).data == 3
        assert await asyncio.wait_for(first.wait(), 30) == 0
        assert await made.wrong(remit, handle) == []
    assert [line.pid for line in made.lines("begin")] == [first.pid, second.pid]
    assert len(made.lines("child")) == 2, "each child once"


# ---- cut off


async def test_disconnected_worker_stops_before_another_starts(temporal: TemporalServer, forks: WorkerForks, tmp_path: Path) -> None:
    """`deaf` is a thread that cannot be stopped: its worker ends itself. The first worker's clock is an hour fast, the second's slow.

    The two clusters wait for the same timeouts side by side."""
    with ExitStack() as stack:
        clusters = {name: stack.enter_context(cluster(tmp_path / name, temporal.address, forks, AGENTS)) for name in ("steps", "deaf")}
        await asyncio.gather(*(_disconnect(name, made, temporal) for name, made in clusters.items()))


async def _disconnect(name: str, made: Cluster, temporal: TemporalServer) -> None:
    with contextlib.closing(Proxy(temporal.port)) as line:
        (first,) = await made.start(address=f"127.0.0.1:{line.port}", clock_offset=3600.0)
        async with made.open() as remit:
            handle = await remit.start(name, timeout=100)
            await made.until("works", 2)
            (second,) = await made.start(clock_offset=-3600.0)
            line.stall()
            await made.until("begin", 2)
            (made.root / "go").touch()
            assert (await handle.result()).status is Status.COMPLETED
            assert made.overlaps() == []
            line.restore()
            await asyncio.sleep(HEARTBEAT / 4)
            assert (await remit.describe(handle.session_id)).owner.startswith(f"{second.pid}-"), "the outcome of the late one is refused"
            assert is_alive(first.pid, None) is (name == "steps")


async def test_caller_with_a_wrong_clock_sees_workers_and_results(made: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await made.start(2)
    for offset in (3600.0, -3600.0):
        with monkeypatch.context() as changed:
            real = time.time
            changed.setattr(time, "time", lambda real=real, offset=offset: real() + offset)
            async with made.open() as remit:
                result = await remit.delegate("trunk", agent="quick", count=1, given={"n": 1}, timeout=60, budget={"seconds": 50})
                assert result.data == ["ok"] * 3
                assert len(await remit.engine.workers()) == 2


# ---- limits across workers


async def test_depth_cycles_and_deadlines_are_exact_across_workers(made: Cluster) -> None:
    await made.start(2, slots=1)
    async with made.open() as remit:
        result = await remit.delegate("deep", timeout=60)
        *pids, depth, path, remaining, refused = result.data
        assert (depth, path) == (3, ["orchestrator", "deep", "deeper", "deepest"])
        assert refused == "MAX_DEPTH_EXCEEDED"
        assert remaining < 60
        assert len(pids) == 3
        assert (await remit.delegate("deep", is_cycle=True, timeout=60)).data[-1] == "CYCLE_DETECTED"
        assert await made.wrong(remit) == []


async def test_budgets_are_exact_across_workers(made: Cluster) -> None:
    """Three workers draw from one budget at the same time."""
    await made.start(3, slots=6)
    async with made.open() as remit:

        async def tree(*, agent: str, count: int, given: dict[str, Any], **budget: int) -> tuple[Counter[str], list[Record]]:
            result = await remit.delegate("trunk", agent=agent, count=count, given=given, timeout=100, budget=budget)
            assert await made.wrong(remit) == []
            found = await remit.tree(result.session_id)
            return Counter(result.data), [one for one in found if one.state is not State.REFUSED]

        codes, drawn = await tree(agent="quick", count=4, given={"n": 1}, delegations=9)
        assert codes == {"ok": 5, "BUDGET_EXCEEDED": 7}, "trunk and three branches are four of nine"
        assert len(drawn) == 9
        codes, drawn = await tree(agent="busy", count=4, given={}, alive=6)
        assert len(drawn) == 4 + codes["ok"], "one that is refused draws nothing"
        spans = [[line.at for line in made.lines() if line.session_id == one.session_id] for one in drawn]
        assert max(sum(began <= at <= ended for began, ended in spans) for at, _ in spans) <= 6
        codes, drawn = await tree(agent="spends", count=2, given={"tokens": 10}, tokens=35)
        assert codes == {"ok": 3, "BUDGET_EXCEEDED": 3}, "the fourth passes the limit, and none is allowed after it"
        codes, drawn = await tree(agent="draws", count=2, given={}, tokens=400)
        assert codes == {"BUDGET_EXCEEDED": 6}
        total = 400 + 10 * sum(one.tokens > 0 for one in drawn)
        assert sum(one.tokens for one in drawn) == total, "each is stopped by its first draw that passes the limit"
        root = drawn[0].session_id
        assert remit.store.spent_below(root, root).tokens == total
        later = await remit.delegate("trunk", agent="quick", count=1, given={}, timeout=100, budget={"tokens": 0})
        assert later.errors[0].code == "BUDGET_EXCEEDED"


async def test_cancelling_a_tree_ends_all_processes_of_three_workers(made: Cluster) -> None:
    await made.start(3, slots=2)
    async with made.open() as remit:
        handle = await remit.start("tree", timeout=100)
        leaves = await made.until("leaf", 3)
        limit, began = allowed(1.0), time.monotonic()
        await remit.cancel(handle.session_id, "not wanted")
        while [line.pid for line in leaves if is_alive(line.pid, None)]:
            assert time.monotonic() - began < limit, "a process is alive"
            await asyncio.sleep(0.005)
        print(f"cancelled in {time.monotonic() - began:.3f} s")
        await handle.result()
        assert await made.wrong(remit, handle) == []
        assert {one.state for one in await remit.tree(handle.session_id)} == {State.CANCELLED}


# ---- many


@pytest.mark.timeout(400 if is_lab() else 120)
async def test_workers_share_the_work_and_each_delegation_runs_once(made: Cluster) -> None:
    count = 300 if is_lab() else 60
    made.heartbeat_seconds = 30.0
    await made.start(3, slots=4)
    async with made.open() as remit:
        results = await asyncio.gather(*(remit.delegate("quick", n=n, timeout=300) for n in range(count)))
        assert sorted(result.data for result in results) == list(range(count))
    done = made.lines("quick")
    assert len({line.session_id for line in done}) == len(done) == count
    shares = Counter(line.pid for line in done)
    assert len(shares) == 3
    assert min(shares.values()) >= count / 5, shares


@pytest.mark.lab
@pytest.mark.timeout(900)
async def test_two_thousand_delegations_complete_in_bounded_memory(made: Cluster) -> None:
    made.heartbeat_seconds = 30.0
    await made.start(2, slots=64)
    async with made.open() as remit:
        await asyncio.gather(*(remit.delegate("quick", n=n, timeout=800) for n in range(50)))  # loads what is used
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        results = await asyncio.gather(*(remit.delegate("quick", n=n, timeout=800) for n in range(2000)))
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert [result.data for result in results] == list(range(2000))
    done = made.lines("quick")
    assert len({line.session_id for line in done}) == len(done) == 2050
    print(f"the caller grew by {grown:.0f} MB")
    assert grown <= 100


async def test_two_callers_with_one_key_get_one_delegation(made: Cluster) -> None:
    await made.start(2)
    async with made.open() as one, made.open() as other:
        results = await asyncio.gather(*(remit.delegate("quick", n=1, key="k", timeout=60) for remit in (one, other)))
        assert results[0].session_id == results[1].session_id
    assert len(made.lines("quick")) == 1


async def test_attempt_delivered_twice_runs_once(made: Cluster) -> None:
    """The same start twice is refused by Temporal; the same attempt twice, by another workflow here, is claimed once."""
    await made.start(2)
    async with made.open() as remit:
        handle = await remit.start("steps", timeout=60)
        await made.until("works", 1)
        client = await Client.connect(made.settings()["engine"]["temporal"]["address"])
        order = next(iter([e async for e in client.get_workflow_handle(handle.session_id).fetch_history_events()]))
        (given,) = order.workflow_execution_started_event_attributes.input.payloads
        queue = order.workflow_execution_started_event_attributes.task_queue.name
        again = await client.start_workflow("remit.delegation", json.loads(given.data), id=f"{handle.session_id}-again", task_queue=queue)
        assert await asyncio.wait_for(again.result(), 30) == "settled, or claimed by another worker"
        await asyncio.sleep(HEARTBEAT + SDK_SECONDS if is_lab() else HEARTBEAT)
        assert len(made.lines("begin")) == 1
        (made.root / "go").touch()
        assert (await handle.result()).data == 3
        assert await made.wrong(remit, handle) == []


async def test_an_outcome_whose_process_died_before_it_was_recorded_is_recorded_by_another(made: Cluster) -> None:
    """One that claimed the delegation to settle it, and one that claimed it to cancel it."""
    async with made.open() as caller, made.open() as other:
        settling = await caller.start("quick", n=1, timeout=3)
        cancelling = await caller.start("quick", n=2, timeout=100)
        assert caller.store.claim(settling.session_id, ticket=temporal_engine.LAST_TICKET, owner="1-gone") is not None
        assert caller.store.claim(cancelling.session_id, ticket=1, owner="1-gone") is not None
        await made.start()
        assert (await settling.result()).errors[0].code == "TIMEOUT"
        while (await other.describe(cancelling.session_id)).result is None:
            await other.engine.sweep()  # type: ignore[attr-defined]
            await asyncio.sleep(0.1)
        assert (await cancelling.result()).errors[0].code == "AGENT_CRASHED"
    assert made.lines("quick") == []


# ---- bad input: one sentence, with what to do, and nothing started


@pytest.mark.parametrize(
    ("engine", "said", "advice"),
    [
        ({}, "needs a name for the project", "project"),
        ({"project": "p", "temporal": {"namespace": "absent"}}, "no namespace 'absent'", "temporal operator namespace create"),
        ({"project": "p", "temporal": {"address": "10.255.255.1:7233"}}, "SQLite database of this machine", "one_machine"),
        ({"project": "p", "temporal": {"files": "shipped"}}, "requires an object store", "shared"),
        ({"project": "p", "temporal": {"heartbeat_seconds": 1.0}}, "heartbeat_seconds must be", "config"),
    ],
    ids=["project", "namespace", "sqlite", "files", "heartbeat"],
)
async def test_bad_input_is_refused_with_advice(
    engine: dict[str, Any], said: str, advice: str, temporal: TemporalServer, tmp_path: Path
) -> None:
    temporal = {"address": temporal.address, **engine.get("temporal", {})}
    with pytest.raises((Misused, Unavailable)) as refused:
        async with Remit.open(tmp_path, settings={"engine": {"kind": "temporal", **engine, "temporal": temporal}}):
            pass
    assert said in str(refused.value)
    assert advice in refused.value.advice


def _settings(temporal: TemporalServer, root: Path) -> dict[str, Any]:
    temporal = {"address": temporal.address, "heartbeat_seconds": HEARTBEAT, "worker_wait_seconds": 2.0}
    return {"engine": {"kind": "temporal", "project": f"q{abs(hash(str(root)))}", "temporal": temporal}}


async def test_worker_with_another_definition_refuses_and_names_both(temporal: TemporalServer, tmp_path: Path) -> None:
    ran: list[str] = []

    @agent("same")
    async def old() -> None:
        ran.append("old")

    @agent("same", description="changed")
    async def new() -> None:
        ran.append("new")

    settings = _settings(temporal, tmp_path)
    async with (
        Remit.open(tmp_path, agents=[old], settings=settings) as worker,
        Remit.open(tmp_path, agents=[new], settings=settings) as caller,
    ):
        await worker.work(["same"])
        result = await caller.delegate("same", timeout=60)
        theirs, ours = (remit.directory.definition_hash("same") for remit in (worker, caller))
    assert (result.errors[0].code, ran) == ("AGENT_UNAVAILABLE", [])
    assert theirs in result.errors[0].message
    assert ours in result.errors[0].message


async def test_delegation_without_a_worker_warns_and_is_unavailable(
    temporal: TemporalServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = _settings(temporal, tmp_path)
    async with Remit.open(tmp_path, agents=[Scripted("lonely")], settings=settings) as remit:
        handle = await remit.start("lonely", timeout=60)
        queue = f"remit:{settings['engine']['project']}:lonely"
        while not any(queue in said and "remit worker --agents lonely" in said for said in caplog.messages):
            assert (await remit.describe(handle.session_id)).result is None, "the warning comes at once"
            await asyncio.sleep(0.01)
        result = await handle.result()
    assert result.errors[0].code == "AGENT_UNAVAILABLE"
    assert "remit worker --agents lonely" in result.errors[0].message


async def test_projects_with_one_name_and_different_stores_are_refused(temporal: TemporalServer, tmp_path: Path) -> None:
    settings = _settings(temporal, tmp_path)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    async with Remit.open(tmp_path / "one", agents=[Scripted("a")], settings=settings) as remit:
        await remit.work(["a"])
        assert (await remit.delegate("a", timeout=60)).ok
        with pytest.raises(Misused, match="Two projects are named") as refused:
            async with Remit.open(tmp_path / "other", agents=[Scripted("a")], settings=settings):
                pass
    for name in ("one", "other"):
        assert str(tmp_path / name) in str(refused.value)
    assert "another [engine] project" in refused.value.advice


async def test_workflow_terminated_in_temporal_is_a_cancelled_delegation(temporal: TemporalServer, tmp_path: Path) -> None:
    sleeper = Scripted("sleeper", hang())
    async with Remit.open(tmp_path, agents=[sleeper], settings=_settings(temporal, tmp_path)) as remit:
        await remit.work(["sleeper"])
        handle = await remit.start("sleeper", timeout=60)
        await sleeper.called.wait()
        client = await Client.connect(temporal.address)
        await client.get_workflow_handle(handle.session_id).terminate("by a person")
        result = await handle.result()
    assert result.errors[0].code == "CANCELLED"
    assert "terminated in Temporal" in result.errors[0].message


async def test_secrets_are_not_sent_to_workers(temporal: TemporalServer, tmp_path: Path) -> None:
    worker = Scripted("worker-of-secrets")
    async with Remit.open(tmp_path, agents=[worker], settings=_settings(temporal, tmp_path)) as remit:
        result = await remit.delegate("worker-of-secrets", password="correct horse battery")
    assert (result.errors[0].code, worker.calls) == ("INVALID_PARAMETERS", [])
    assert "environment variable" in result.errors[0].recommendation


HISTORIES = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "temporal_histories").glob("*.json"))}


@pytest.mark.parametrize("name", HISTORIES)
async def test_histories_of_released_versions_replay(name: str) -> None:
    replayer = Replayer(workflows=[DelegationWorkflow], workflow_runner=UnsandboxedWorkflowRunner())
    await replayer.replay_workflow(WorkflowHistory.from_json(name, HISTORIES[name]))
