"""Work that is stopped halfway: a second delegation goes on from what the first had finished."""

import asyncio

from remit import Context, Remit, agent


@agent("fetch", timeout=10)
async def fetch(page: int) -> str:
    print("fetched page", page)
    return f"text of page {page}"


@agent("book", timeout=1, resumable=True)
async def book(ctx: Context, pages: int) -> str:
    run = (ctx.saved or 0) + 1
    await ctx.checkpoint(run)
    for page in range(1, pages + 1):
        (await ctx.delegate("fetch", page=page)).unwrap()
        if page == 2 and run == 1:
            await asyncio.sleep(60)  # a slow day: the deadline comes first
    return f"{pages} pages in {run} runs."


async def main() -> None:
    async with Remit.open(".", agents=[fetch, book]) as remit:
        stopped = await remit.delegate("book", pages=3)
        print(stopped.status, stopped.stop_reason)
        done = await remit.delegate("book", pages=3, resume=stopped.session_id)
        print(done.status, done.summary)


if __name__ == "__main__":
    asyncio.run(main())
