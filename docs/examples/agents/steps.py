"""The tutorial's third pair of agents: work that goes on after a crash."""

import asyncio

from remit import Context, agent


@agent("steps.one", timeout=10)
async def one(ctx: Context, number: int) -> int:
    """One step; it leaves a line, so that one can count how often it ran."""
    await asyncio.sleep(0.1)
    with (ctx.root / "steps.txt").open("a") as out:
        print(number, file=out)
    return number


@agent("steps.all", timeout=300, resumable=True)
async def all_steps(ctx: Context, steps: int = 50) -> str:
    """Every step in turn, each of them a child."""
    for number in range(1, steps + 1):
        (await ctx.delegate("steps.one", number=number)).unwrap()
        ctx.progress(f"step {number} of {steps}", number / steps)
    return f"All {steps} steps are done."
