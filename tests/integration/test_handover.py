"""Handover: a runtime that stops leaves resumable delegations to the next process."""

import asyncio
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
