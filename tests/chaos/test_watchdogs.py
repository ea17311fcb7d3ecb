"""Watchdog edge cases: two runtimes in one program, and a loop outside the main thread."""

import asyncio
import threading
import time
from pathlib import Path

from remit import Remit, Return, Status, agent
from support.pace import allowed


@agent("spins", timeout=0.6)
async def spins() -> None:
    turns = 0
    while True:
        turns += 1


@agent("naps", timeout=0.3)
async def naps() -> str:
    time.sleep(1.2)  # noqa: ASYNC251 - blocks the loop on purpose
    return "woke"


async def test_two_runtimes_in_one_program_stop_their_own_agents(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with Remit.open(tmp_path / "a", agents=[spins]) as one, Remit.open(tmp_path / "b", agents=[spins]) as other:
        for remit in (one, other):
            began = time.monotonic()
            done = await remit.delegate("spins")
            assert time.monotonic() - began < allowed(1.6)
            assert done.status is Status.PARTIAL
            assert "test_watchdogs.py" in done.summary


def on_another_thread(root: Path, name: str) -> tuple[Return, float]:
    answers: list[tuple[Return, float]] = []

    async def main() -> None:
        async with Remit.open(root, agents=[spins, naps]) as remit:
            began = time.monotonic()
            answers.append((await remit.delegate(name), time.monotonic() - began))

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    thread.join(20)
    return answers[0]


def test_busy_agent_is_stopped_on_a_loop_outside_the_main_thread(tmp_path: Path) -> None:
    done, seconds = on_another_thread(tmp_path, "spins")
    assert done.status is Status.PARTIAL
    assert "spins blocked the event loop" in done.summary
    assert seconds < allowed(1.6)


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
