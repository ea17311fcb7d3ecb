"""Several processes on one project, some of which die: live work is never taken over, and work of dead processes is never lost."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from remit import Context, Handle, Owner, Record, Remit, SqliteStore, State, Status, StopReason, agent
from remit.testing import Scripted, answer
from support.pace import allowed

# ---- live processes


class PausedStore(SqliteStore):
    """Runs a callback between the two reads of a recovery, in either order."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.between: Callable[[], None] | None = None

    def live(self) -> list[Record]:
        found = super().live()
        self._pause()
        return found

    def owners(self) -> list[Owner]:
        found = super().owners()
        self._pause()
        return found

    def _pause(self) -> None:
        between, self.between = self.between, None
        if between is not None:
            between()


async def test_process_that_starts_during_a_recovery_counts_as_live(tmp_path: Path) -> None:
    go = asyncio.Event()
    worker = Scripted("worker", _after(go))
    loop = asyncio.get_running_loop()
    (tmp_path / ".remit").mkdir()
    store = PausedStore(tmp_path / ".remit" / "remit.db")
    newcomer = Remit.open(tmp_path, agents=[worker])
    started: list[Handle] = []

    async def come() -> None:
        await newcomer.__aenter__()
        started.append(await newcomer.start("worker"))

    async with Remit.open(tmp_path, agents=[worker], store=store) as remit:
        store.between = lambda: asyncio.run_coroutine_threadsafe(come(), loop).result(5)
        assert (await remit.recover()).is_empty
        assert started
        go.set()
        assert (await started[0].result()).data == "mine"
        await newcomer.close()
    store.close()


def _after(go: asyncio.Event) -> Any:
    async def turn(_ctx: Context, _arguments: dict[str, Any]) -> str:
        await go.wait()
        return "mine"

    return turn


# ---- dead processes

DYING = """
import asyncio, json, sys
from remit import Context, Remit, agent

async def work(ctx: Context, n: int = 0):
    (ctx.root / "report.md").write_text("work")
    ctx.artifact("report.md")
    (ctx.scratch / "note.txt").write_text("note")
    ctx.emit("before the crash")
    ctx.spend(tokens=80)
    await ctx.delegate("child")
    await ctx.checkpoint({"left": ctx.budget.tokens})
    print("ready", flush=True)
    await asyncio.sleep(60)

@agent("child")
async def child():
    return "child"

async def main():
    terms = json.loads(sys.argv[2])
    agents = [agent("worker", resumable=True)(work), child]
    async with Remit.open(sys.argv[1], agents=agents) as remit:
        await remit.delegate("worker", timeout=60, **terms)

asyncio.run(main())
"""


class Dying:
    """Another process that runs `worker` until it is killed."""

    def __init__(self, root: Path, **terms: Any) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", DYING, str(root), json.dumps(terms)], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.said = self.process.stdout
        assert self.said.readline() == "ready\n"

    def die(self) -> None:
        self.process.kill()
        self.process.wait()
        self.said.close()


def left_behind(root: Path, **terms: Any) -> None:
    Dying(root, **terms).die()


@asynccontextmanager
async def living(root: Path, **terms: Any) -> AsyncIterator[Dying]:
    other = await asyncio.to_thread(lambda: Dying(root, **terms))
    try:
        yield other
    finally:
        other.die()


async def outcome_of(remit: Remit, session_id: str) -> Any:
    result = await remit.result(session_id, wait_seconds=5)
    assert result is not None
    return result


async def test_project_opens_when_a_resumable_agent_changed_its_signature(tmp_path: Path) -> None:
    left_behind(tmp_path, n=3)

    @agent("worker", resumable=True)
    async def worker(count: int) -> int:
        return count

    async with Remit.open(tmp_path, agents=[worker]) as remit:
        (session_id,) = remit.recovered.settled
        result = await outcome_of(remit, session_id)
        assert (result.status, result.stop_reason, result.errors[0].code) == (Status.PARTIAL, StopReason.CRASHED, "AGENT_CRASHED")
        assert "report.md" in {artifact.path for artifact in result.artifacts}
        assert (await remit.delegate("worker", count=1)).data == 1
        assert await remit.live() == []


async def test_close_during_recovery_leaves_nothing_running(tmp_path: Path) -> None:
    """An agent that resumes after `close` would run in this process and in the next one."""
    runs: list[str] = []

    @agent("worker", resumable=True)
    async def worker(ctx: Context, n: int = 0) -> None:
        runs.append(ctx.session_id)
        try:
            await asyncio.sleep(60)
        finally:
            runs.remove(ctx.session_id)

    for turns in range(0, 60, 6):
        root = tmp_path / str(turns)
        root.mkdir()
        remit = await Remit.open(root, agents=[worker]).__aenter__()
        await asyncio.to_thread(left_behind, root)
        recovering = asyncio.create_task(remit.recover())
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        await remit.close()
        await asyncio.gather(recovering, return_exceptions=True)
        assert runs == []


async def test_drained_work_is_not_settled_by_a_late_recovery(tmp_path: Path) -> None:
    @agent("worker", resumable=True)
    async def worker() -> None:
        await asyncio.sleep(60)

    async with Remit.open(tmp_path, agents=[worker]) as remit:
        handle = await remit.start("worker")
        assert await remit.engine.drain() == [handle.session_id]
        assert (await remit.recover()).is_empty
        assert (await remit.describe(handle.session_id)).state is State.RUNNING


@pytest.mark.parametrize("chunk_limit_bytes", [4096, 0])
async def test_crash_does_not_refill_the_token_budget(tmp_path: Path, chunk_limit_bytes: int) -> None:
    """This includes an agent whose output exceeds the chunk limit."""
    (tmp_path / "remit.toml").write_text(f"chunk_limit_bytes = {chunk_limit_bytes}\n")
    left_behind(tmp_path, budget={"tokens": 100})

    @agent("worker", resumable=True)
    async def worker(ctx: Context) -> dict[str, Any]:
        before = ctx.budget.tokens
        ctx.spend(tokens=5)
        return {"saved": ctx.saved, "left": before, "then": ctx.budget.tokens}

    async with Remit.open(tmp_path, agents=[worker]) as remit:
        (session_id,) = remit.recovered.resumed
        assert (await outcome_of(remit, session_id)).data == {"saved": {"left": 20}, "left": 20, "then": 15}
        assert (await remit.describe(session_id)).tokens == 85


async def test_resumed_run_keeps_its_files_chunks_and_scratch_folder(tmp_path: Path) -> None:
    left_behind(tmp_path)

    @agent("worker", resumable=True)
    async def worker(ctx: Context) -> str:
        ctx.emit("after the crash")
        return (ctx.scratch / "note.txt").read_text()

    async with Remit.open(tmp_path, agents=[worker]) as remit:
        (session_id,) = remit.recovered.resumed
        result = await outcome_of(remit, session_id)
        assert (result.status, result.data) == (Status.COMPLETED, "note")
        assert [artifact.path for artifact in result.artifacts] == ["report.md"]
        events = await remit.events(session_id)
        assert [event.body["chunk"] for event in events if event.kind == "data"] == ["before the crash", "after the crash"]
        assert len({event.number for event in events}) == len(events)


async def test_cancel_settles_work_of_a_dead_process_without_running_it(tmp_path: Path) -> None:
    left_behind(tmp_path)
    worker = Scripted("worker", answer("ran again"), resumable=True)
    async with Remit.open(tmp_path, agents=[worker], recover=False) as remit:
        (record,) = await remit.live()
        began = time.monotonic()
        assert [node["state"] for node in await remit.cancel(record.session_id, "not wanted")] == ["stopped"]
        assert time.monotonic() - began < allowed(2)
        known = await remit.describe(record.session_id)
        assert (known.state, known.attempt) == (State.CANCELLED, record.attempt)
        assert known.result is not None
        assert known.result.stop_reason is StopReason.CANCELLED
        assert "report.md" in {artifact.path for artifact in known.result.artifacts}
    async with Remit.open(tmp_path, agents=[worker]) as remit:
        assert remit.recovered.is_empty
    assert worker.calls == []


# ---- keys of another process


async def test_waiter_on_a_key_gets_recovered_work_when_the_owner_dies(tmp_path: Path) -> None:
    worker = Scripted("worker", answer("resumed"), resumable=True)
    async with Remit.open(tmp_path, agents=[worker]) as remit, living(tmp_path, key="k") as other:
        waiting = asyncio.create_task(remit.delegate("worker", key="k", timeout=10))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        other.die()
        assert (await asyncio.wait_for(waiting, 4)).data == "resumed"
        assert len(worker.calls) == 1


async def test_waiter_on_a_key_of_a_live_process_times_out_by_its_own_deadline(tmp_path: Path) -> None:
    worker = Scripted("worker")
    async with Remit.open(tmp_path, agents=[worker]) as remit, living(tmp_path, key="k"):
        began = time.monotonic()
        result = await remit.delegate("worker", key="k", timeout=0.4)
        assert time.monotonic() - began < allowed(1.4)
        assert (result.status, result.errors[0].code) == (Status.PARTIAL, "TIMEOUT")
        assert "still runs" in result.summary
        (holder,) = [record for record in await remit.live() if record.agent == "worker"]
        assert result.session_id == holder.session_id, "the result names the running delegation"
    assert worker.calls == []
