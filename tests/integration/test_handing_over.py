"""A runtime that is told to stop hands over what can be run again (issue 7, item 4)."""

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


@agent("once")
async def once(ctx: Context) -> str:
    await asyncio.sleep(30)
    return "Never."


async def test_what_can_be_run_again_is_left_to_the_next_who_opens_the_project(tmp_path: Path) -> None:
    remit = Remit.open(tmp_path, agents=[steps, once])
    async with remit:
        handle = await remit.start("steps")
        other = await remit.start("once")
        await asyncio.sleep(0.1)
        await remit.close(hand_over=True)
    async with Remit.open(tmp_path, agents=[steps, once], recover=False) as looking:
        assert (await looking.describe(handle.session_id)).state == "running"
        assert (await looking.describe(other.session_id)).state == "cancelled"
    async with Remit.open(tmp_path, agents=[steps, once]) as after:
        assert after.recovered.resumed == [handle.session_id]
        done = await after.result(handle.session_id, wait_seconds=10)
        assert done is not None
        assert done.data == "Went on from 1."


async def test_whoever_waits_hears_that_it_was_handed_over(tmp_path: Path) -> None:
    remit = Remit.open(tmp_path, agents=[steps])
    async with remit:
        waiting = asyncio.ensure_future(remit.delegate("steps"))
        await asyncio.sleep(0.1)
        await remit.close(hand_over=True)
        (heard,) = await asyncio.gather(waiting, return_exceptions=True)
    assert "Handed over" in str(heard)
