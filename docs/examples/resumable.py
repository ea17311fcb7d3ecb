"""An agent that goes on after a crash: finished children are replayed, the checkpoint keeps the rest."""

import asyncio
import os
import sys

from remit import Context, Remit, agent


@agent("fetch", timeout=10)
async def fetch(page: int) -> str:
    print("fetched page", page, flush=True)
    return f"text of page {page}"


@agent("book", timeout=60, resumable=True)
async def book(ctx: Context, pages: int, crash: bool) -> str:
    kept = ctx.saved or {"attempt": 0}
    await ctx.checkpoint({"attempt": kept["attempt"] + 1})
    texts = []
    for page in range(1, pages + 1):
        texts.append((await ctx.delegate("fetch", page=page)).unwrap())
        if crash and kept["attempt"] == 0 and page == 2:
            os.kill(os.getpid(), 9)  # the worst that can happen to us
    return f"{len(texts)} pages in attempt {kept['attempt'] + 1}."


async def main() -> None:
    async with Remit.open(".", agents=[fetch, book]) as remit:
        if "crash" in sys.argv:
            await remit.delegate("book", pages=3, crash=True)
        for session_id in remit.recovered.resumed:
            done = await remit.result(session_id, wait_seconds=30)
            print("resumed:", done.summary if done else "it still runs")


if __name__ == "__main__":
    asyncio.run(main())
