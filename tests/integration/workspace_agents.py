"""Agents that hang during their work, in a folder of their own."""

import asyncio
import time

from remit import BlockingContext, Context, agent


def _inline(kind: str):  # type: ignore[no-untyped-def]
    @agent(f"hangs.{kind}.inline", workspace=kind, timeout=30)
    async def hangs(ctx: Context) -> str:
        (ctx.workspace / "half.txt").write_text("half")
        await asyncio.sleep(60)
        return "never"

    return hangs


@agent("hangs.worktree.process", workspace="worktree", isolation="process", timeout=30)
def hangs_worktree(ctx: BlockingContext) -> str:
    (ctx.workspace / "half.txt").write_text("half")
    time.sleep(60)
    return "never"


@agent("hangs.copy.process", workspace="copy", isolation="process", timeout=30)
def hangs_copy(ctx: BlockingContext) -> str:
    (ctx.workspace / "half.txt").write_text("half")
    time.sleep(60)
    return "never"


HANGING = [_inline("worktree"), _inline("copy"), hangs_worktree, hangs_copy]
