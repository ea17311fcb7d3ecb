"""The tutorial's second agent: it never finishes and never looks at the clock."""

import itertools
import time

from remit import BlockingContext, agent


@agent("slow", timeout=3, isolation="process")
def slow(ctx: BlockingContext) -> None:
    """Write a line each tenth of a second, for ever."""
    with (ctx.root / "slow.txt").open("w") as out:
        ctx.artifact("slow.txt", type="data")
        for number in itertools.count(1):
            print(f"line {number}", file=out, flush=True)
            time.sleep(0.1)
