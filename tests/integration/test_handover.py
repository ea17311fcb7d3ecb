"""Handover: a runtime that stops leaves resumable delegations to the next process."""

import asyncio
import subprocess
import sys
from pathlib import Path

from remit import Context, Remit, agent


@agent("steps", resumable=True)
async def steps(ctx: Context, count: int = 3) -> str:
    done = ctx.saved or 0
    if done == 0:
        await ctx.checkpoint(1)
        await asyncio.sleep(30)
    return f"Went on from {done}."


async def test_queued_delegation_is_handed_over_without_being_started(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[steps, noted], slots=1) as remit:
        await remit.start("steps")
        waiting = await remit.start("steps", count=1)
        plain = await remit.start("noted")
        await asyncio.sleep(0.1)
        assert len(await remit.close(hand_over=True)) == 2
    assert not (tmp_path / "began").exists()
    async with Remit.open(tmp_path, agents=[steps, noted], recover=False) as looking:
        assert (await looking.describe(waiting.session_id)).state == "queued"
        assert (await looking.describe(plain.session_id)).state == "cancelled"


@agent("noted")
async def noted(ctx: Context) -> None:
    (ctx.root / "began").touch()


STUBBORN = """
import asyncio, sys
from remit import Context, Remit, agent

@agent("stubborn", resumable=True)
async def stubborn(ctx: Context) -> None:
    while True:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            pass

async def main():
    async with Remit.open(sys.argv[1], agents=[stubborn]) as remit:
        await remit.start("stubborn")
        await asyncio.sleep(0.1)
        print(len(await remit.close(hand_over=True)))

asyncio.run(main())
"""


def test_program_exits_although_a_handed_over_agent_ignores_cancellation(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", STUBBORN, str(tmp_path)], timeout=20, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
