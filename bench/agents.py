"""The agents that are measured. Imported by worker processes too, so nothing here runs by itself."""

import asyncio

from remit import Context, agent


@agent("noop")
async def noop() -> None:
    return None


@agent("level_one")
async def level_one(ctx: Context) -> None:
    await ctx.delegate("level_two")


@agent("level_two")
async def level_two(ctx: Context) -> None:
    await ctx.delegate("noop")


@agent("sleeper")
async def sleeper() -> None:
    await asyncio.sleep(3600)
