"""kill -9 at any moment loses nothing and repeats nothing, and no process takes over the work of a live process."""

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from remit import Owner, RecordDelegation, Remit, SqliteStore, State, Status, StopReason, agent
from remit.testing.store_suite import record
from support.lab import is_lab, rounds
from support.processes import pid_space, process_start

WORKLOAD = Path(__file__).with_name("crash_workload.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


def rounds_of(kind: str, folder: Path, rounds: int, *, at_once: int) -> list[dict[str, Any]]:
    """Run the rounds of the workload, divided among `at_once` launchers."""
    each = rounds // at_once
    launchers = [
        subprocess.Popen(
            [sys.executable, str(WORKLOAD), kind, str(folder), str(number * each), str(each)],
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        for number in range(at_once)
    ]
    try:
        said = [launcher.communicate(timeout=3000 if is_lab() else 110)[0] for launcher in launchers]
    finally:
        for launcher in launchers:
            launcher.kill()
    found = [json.loads(line) for text in said for line in text.splitlines()]
    assert len(found) == rounds
    return found


@pytest.mark.timeout(3200 if is_lab() else 120)
@pytest.mark.parametrize(
    ("kind", "number", "at_once"),
    [
        ("killed", rounds(24, lab=1000), 2),
        ("composed", rounds(10, lab=200), 2),
        ("raced", rounds(5, lab=50), 1),  # several recoveries at once
        ("crowded", rounds(3, lab=30), 1),  # beside live processes
    ],
)
def test_kill_at_any_moment_loses_repeats_and_takes_over_nothing(tmp_path: Path, kind: str, number: int, at_once: int) -> None:
    assert [r for r in rounds_of(kind, tmp_path, number, at_once=at_once) if r["faults"]] == []


# ---- owners


def left_behind(folder: Path, owner: Owner) -> str:
    """Create a project in which `owner` ran a delegation of `worker`."""
    left = record(1, agent="worker", parameters={}, owner=owner.owner_id, created_at=time.time())
    (folder / ".remit").mkdir()
    store = SqliteStore(folder / ".remit" / "remit.db")
    store.register_owner(owner)
    store.apply([RecordDelegation(left)])
    store.close()
    return left.session_id


def owner_of(pid: int, started: str | None) -> Owner:
    return Owner(owner_id=f"{pid}-cafe", pid=pid, pid_started=started or "", pid_space=pid_space(), host=os.uname().nodename, opened_at=1.0)


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[Remit]:
    @agent("worker")
    async def worker() -> str:
        return "ran"

    async with Remit.open(folder, agents=[worker], settings=settings) as remit:
        yield remit


async def test_reused_pid_is_not_mistaken_for_the_former_owner(tmp_path: Path) -> None:
    """The pid of this process is alive, but its start time differs from that of the recorded owner."""
    session_id = left_behind(tmp_path, owner_of(os.getpid(), "another-boot:12345"))
    async with opened(tmp_path) as remit:
        assert remit.recovered.settled == [session_id]
        record = await remit.describe(session_id)
        assert record.result is not None
        assert (record.result.status, record.result.stop_reason) == (Status.PARTIAL, StopReason.CRASHED)
        assert record.result.errors[0].code == "AGENT_CRASHED"
        assert record.result.errors[0].recoverable


@pytest.fixture
def living() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(["sleep", "30"])
    yield process
    process.kill()
    process.wait()


async def test_live_owner_keeps_its_delegations(tmp_path: Path, living: "subprocess.Popen[bytes]") -> None:
    session_id = left_behind(tmp_path, owner_of(living.pid, process_start(living.pid)))
    async with opened(tmp_path) as remit:
        assert remit.recovered.is_empty
        assert (await remit.describe(session_id)).state is State.RUNNING
        living.kill()
        living.wait()
        assert (await remit.recover()).settled == [session_id]
        assert (await remit.recover()).is_empty


# ---- budget of a resumed tree

RESUMED = """
import asyncio, os, sys
from remit import Context, Remit, agent

@agent("worker", resumable=True, timeout=30)
async def worker(ctx: Context) -> list:
    ctx.spend(tokens=3)
    results = [await ctx.delegate("child", n=n) for n in range(3)]
    if ctx.saved is None:
        await ctx.checkpoint(1)
        os.kill(os.getpid(), 9)
    results += [await ctx.delegate("child", n=n) for n in range(3, 6)]
    return [result.ok for result in results]

@agent("child")
async def child(n: int) -> int:
    return n

async def main():
    async with Remit.open(sys.argv[1], agents=[worker, child], slots=1) as remit:
        if len(sys.argv) > 2:
            result = await remit.result(remit.recovered.resumed[0], wait_seconds=10)
            print(result.data, len(await remit.children(result.session_id)))
        else:
            await remit.delegate("worker", budget={"delegations": 5})

asyncio.run(main())
"""


def test_resumed_tree_keeps_its_budget_and_does_not_deadlock_on_one_slot(tmp_path: Path) -> None:
    """Children draw on the budget and cannot refill it. A crash does not refill it either."""
    first = subprocess.run([sys.executable, "-c", RESUMED, str(tmp_path)], check=False, timeout=20)
    assert first.returncode == -9
    second = subprocess.run([sys.executable, "-c", RESUMED, str(tmp_path), "again"], capture_output=True, text=True, timeout=20, check=True)
    assert second.stdout.strip() == "[True, True, True, True, False, False] 6"
