"""Hostile agents in separate processes: the caller gets its return in time and no process is left."""

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from remit import Isolation, Remit, Status, StopReason
from support.census import census, processes_left
from support.hostile import HOSTILE, hostile_agents
from support.lab import is_lab, rounds
from support.pace import allowed, until
from support.witness import Witness, late_by

pytestmark = pytest.mark.asyncio(loop_scope="module")
NAMES = [f"{name}.process" for name, (_, possible) in HOSTILE.items() if Isolation.PROCESS in possible]
TIMEOUT_SECONDS = 0.5
OVERRUN_SECONDS = 1.0
ANSWERS = {
    "leave-threads.process": "answered",
    "daemonise-and-answer.process": "answered",
    "shout.process": "answered",
    "kill-fork-server.process": "answered",
    "flood.process": "answered",
    "ping.process": "CYCLE_DETECTED",
    "call-itself.process": ["CYCLE_DETECTED"] * 50,
}
CRASHES = {
    "exit-in-the-middle.process": "exit code 3",
    "exit-politely.process": "exit code 3",
    "kill-supervisor.process": "supervisor",
    "garbage-on-the-pipe.process": "invalid message",
}


@pytest.fixture(scope="module")
def witness() -> Iterator[Witness]:
    with Witness() as watching:
        yield watching


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def remit(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Remit]:
    """Shared runtime: no agent affects the next one."""
    async with Remit.open(tmp_path_factory.mktemp("project"), agents=hostile_agents(Isolation.PROCESS, Isolation.INLINE)) as opened:
        assert (await opened.delegate("pong.process", timeout=20)).ok  # the first process start is not timed
        yield opened


@pytest.mark.parametrize("name", NAMES)
async def test_hostile_process_returns_by_its_deadline_and_leaves_no_process(remit: Remit, witness: Witness, name: str) -> None:
    timeout = 5.0 if name in ANSWERS else TIMEOUT_SECONDS
    began = time.monotonic()
    result = await remit.delegate(name, timeout=timeout)
    assert late_by(witness, began + timeout) < OVERRUN_SECONDS
    if remit.export_state()["abandoned"]:  # on a busy machine the kill is still in progress, and reported
        await until(lambda: not remit.export_state()["abandoned"], allowed(1.0))
    assert processes_left(remit) == []
    if name in ANSWERS:
        assert result.data == ANSWERS[name]
    elif name in CRASHES:
        assert (result.stop_reason, result.errors[0].code) == (StopReason.CRASHED, "AGENT_CRASHED")
        assert CRASHES[name] in result.errors[0].message
    elif result.stop_reason is StopReason.DEADLINE:
        assert (result.status, result.errors[0].code) == (Status.PARTIAL, "TIMEOUT")
    assert (await remit.describe(result.session_id)).result == result


async def test_cancel_stops_a_hostile_process_and_its_children(remit: Remit, witness: Witness) -> None:
    for name in ("busy-loop.process", "ignore-sigterm.process", "daemonise-with-exec.process", "stop-itself.process"):
        handle = await remit.start(name, timeout=60)
        await asyncio.sleep(0.15)
        began = time.monotonic()
        acknowledged = await remit.cancel(handle.session_id, "enough")
        assert late_by(witness, began) < OVERRUN_SECONDS
        assert [node["state"] for node in acknowledged] == ["killed"]
        assert (await handle.result()).stop_reason is StopReason.CANCELLED
        assert processes_left(remit) == []


@pytest.mark.timeout(2000 if is_lab() else 200)
async def test_many_hostile_processes_leave_nothing_and_remit_still_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, witness: Witness
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    project = tmp_path / "project"
    project.mkdir()
    late: list[tuple[str, float]] = []
    names = NAMES * rounds(1, lab=30)  # `bench` measures a thousand
    random.Random(7).shuffle(names)
    async with Remit.open(project, agents=hostile_agents(Isolation.PROCESS, Isolation.INLINE)) as remit:
        for _ in range(3):
            await asyncio.gather(*(remit.delegate("pong.process", timeout=20) for _ in range(6)))
        before = census(temporary)
        room = asyncio.Semaphore(6)

        async def let_loose(name: str) -> None:
            async with room:
                began = time.monotonic()
                await remit.delegate(name, timeout=TIMEOUT_SECONDS)
                over = late_by(witness, began + TIMEOUT_SECONDS)
                if over > OVERRUN_SECONDS:
                    late.append((name, over))

        await asyncio.gather(*(let_loose(name) for name in names))
        assert late == []
        assert processes_left(remit) == []
        assert (await remit.delegate("ping.process", timeout=5)).data == "CYCLE_DETECTED"
        after = census(temporary)
        assert after.threads <= before.threads + 2
        assert after.descriptors <= before.descriptors + 4
        assert after.temporary_files == before.temporary_files
        assert remit.export_state()["active"] == 0
    assert processes_left(remit) == []
