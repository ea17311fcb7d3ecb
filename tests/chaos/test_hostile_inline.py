"""Hostile agents on the event loop and on threads: unstoppable ones are abandoned and reported, and no caller waits for them."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remit import Isolation, Remit, Return, Status, StopReason, agent, run
from support.hostile import HOSTILE, hostile_agents
from support.pace import allowed

OVERRUN_SECONDS = 1.0
IN_HERE = [
    f"{name}.{isolation}"
    for name, (_, possible) in HOSTILE.items()
    for isolation in possible
    if isolation is not Isolation.PROCESS and (name, isolation) != ("busy-loop", Isolation.THREAD)
]


@pytest.fixture
async def remit(tmp_path: Path) -> AsyncIterator[Remit]:
    async with Remit.open(tmp_path, agents=hostile_agents(Isolation.INLINE, Isolation.THREAD)) as opened:
        yield opened


@pytest.mark.parametrize("name", IN_HERE)
async def test_hostile_agent_returns_by_its_hard_deadline(remit: Remit, name: str) -> None:
    began = time.monotonic()
    result = await remit.delegate(name, timeout=0.6)
    assert time.monotonic() - began - 0.6 < allowed(OVERRUN_SECONDS)
    assert (await remit.describe(result.session_id)).result == result
    assert (await remit.delegate("pong.inline")).ok


@pytest.mark.parametrize("name", ["busy-loop-async.inline", "sleep-on-the-loop.inline"])
async def test_watchdog_stops_the_agent_and_reports_its_line(remit: Remit, name: str) -> None:
    result = await remit.delegate(name, timeout=0.6)
    assert (result.status, result.stop_reason) == (Status.PARTIAL, StopReason.DEADLINE)
    message = result.errors[0].message
    assert name in message
    assert any(f"hostile.py:{line} in" in message for line in _lines_of(name))
    assert 'isolation="process"' in message
    assert remit.export_state()["abandoned"] == {}


def _lines_of(name: str) -> set[int]:
    function = HOSTILE[name.partition(".")[0]][0]
    first = function.__code__.co_firstlineno
    return {line for _, _, line in function.__code__.co_lines() if line and line > first}


async def test_agent_over_the_block_limit_is_stopped_before_its_deadline(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=hostile_agents(Isolation.INLINE), settings={"block_limit_seconds": 0.5}) as remit:
        began = time.monotonic()
        result = await remit.delegate("sleep-on-the-loop.inline", timeout=60)
        assert time.monotonic() - began < allowed(1.5)
        assert "blocked the event loop" in result.errors[0].message


async def test_short_block_is_not_stopped(tmp_path: Path) -> None:
    """Ended delegations do not change this: their deadlines no longer count."""

    @agent("hasty")
    async def hasty() -> None: ...

    @agent("slow")
    async def slow() -> str:
        time.sleep(0.6)  # noqa: ASYNC251 - the test needs a blocked loop
        return "done"

    async with Remit.open(tmp_path, agents=[slow, hasty]) as remit:
        await asyncio.gather(*(remit.delegate("hasty", timeout=0.1) for _ in range(20)))
        assert (await remit.delegate("slow")).data == "done"


@pytest.mark.parametrize(
    ("name", "reported"),
    [("swallow-cancellation.inline", "The inline agent"), ("sleep.thread", "The thread of"), ("swallow.thread", "The thread of")],
)
async def test_unstoppable_agent_is_abandoned_without_waiting_and_reported(remit: Remit, name: str, reported: str) -> None:
    result = await remit.delegate(name, timeout=0.3)
    assert (result.status, result.stop_reason) == (Status.PARTIAL, StopReason.DEADLINE)
    assert remit.export_state()["abandoned"] == {result.session_id: f"{reported} {name}"}


async def test_spinning_thread_is_stopped_and_ends(remit: Remit) -> None:
    result = await remit.delegate("busy-loop.thread", timeout=0.3)
    assert result.stop_reason is StopReason.DEADLINE
    assert remit.export_state()["abandoned"] == {}
    before = _agent_threads()
    for _ in range(8):
        await remit.delegate("busy-loop.thread", timeout=0.05)
    assert _agent_threads() <= before + 1  # one thread may still be exiting


def _agent_threads() -> int:
    return sum(thread.name == "remit-agent" for thread in threading.enumerate())


PROGRAM = """
import asyncio, sys
from remit import Remit
from support.hostile import hostile_agents

async def main():
    async with Remit.open(sys.argv[1], agents=hostile_agents()) as remit:
        names = ["swallow-cancellation.inline", "sleep.thread", "swallow.thread"]
        await asyncio.gather(*(remit.delegate(name, timeout=1.0) for name in names))
        print(len(remit.export_state()["abandoned"]))

asyncio.run(main())
"""


def test_program_exits_while_its_agents_still_run(tmp_path: Path) -> None:
    command, tests = [sys.executable, "-c", PROGRAM, str(tmp_path)], {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ended = subprocess.run(command, env=tests, capture_output=True, text=True, timeout=20, check=False)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "3", "")


@agent("spins", timeout=0.6)
async def spins() -> None:
    while True:
        pass


async def test_two_runtimes_in_one_program_stop_their_own_agents(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with Remit.open(tmp_path / "a", agents=[spins]) as one, Remit.open(tmp_path / "b", agents=[spins]) as other:
        for remit in (one, other):
            done = await remit.delegate("spins")
            assert done.status is Status.PARTIAL
            assert "test_hostile_inline.py" in done.summary


def test_busy_agent_is_stopped_on_a_loop_outside_the_main_thread(tmp_path: Path) -> None:
    thread = threading.Thread(target=lambda: found.append(run("spins", root=tmp_path, agents=[spins])))
    found: list[Return] = []
    thread.start()
    thread.join(20)
    assert found[0].status is Status.PARTIAL
    assert "spins blocked the event loop" in found[0].summary


@agent("blocks")
async def blocks() -> None:
    time.sleep(0.9)  # noqa: ASYNC251 - blocks the loop on purpose


@agent("works-a-little")
async def works_a_little() -> str:
    time.sleep(0.1)  # noqa: ASYNC251 - blocks the loop on purpose
    return "done"


async def test_block_limit_ignores_time_used_by_other_agents(tmp_path: Path) -> None:
    """The watchdog stops only an agent that blocks too long by itself. Many short turns in a row are not a block."""
    async with Remit.open(tmp_path, agents=[blocks, works_a_little], settings={"block_limit_seconds": 0.5}) as remit:
        everybody = await asyncio.gather(remit.delegate("blocks"), *(remit.delegate("works-a-little") for _ in range(8)))
    assert everybody[0].status is Status.PARTIAL
    assert [done.data for done in everybody[1:]] == ["done"] * 8
