"""Agents that hang during their work, in a folder of their own."""

import asyncio
import time

from remit import BlockingContext, Context, agent


@agent("hangs.worktree.inline", workspace="worktree", timeout=30)
async def hangs_inline(ctx: Context) -> str:
    (ctx.workspace / "half.txt").write_text("half")
    await asyncio.sleep(60)
    return "never"


@agent("hangs.worktree.process", workspace="worktree", isolation="process", timeout=30)
def hangs_process(ctx: BlockingContext) -> str:
    (ctx.workspace / "half.txt").write_text("half")
    time.sleep(60)
    return "never"


HANGING = [hangs_inline, hangs_process]
