"""Let the idle limit of an agent that speaks be learned from its runs."""

import asyncio

from remit import Context, Remit, agent


@agent("talker")
async def talker(ctx: Context) -> int:
    for number in range(3):
        ctx.progress(f"step {number}")
        await asyncio.sleep(0.001)
    return 3


async def main() -> None:
    async with Remit.open(".", agents=[talker], settings={"adaptive_limits": "on"}) as remit:
        for _ in range(20):
            await remit.delegate("talker")
    async with Remit.open(".", agents=[talker], settings={"adaptive_limits": "on"}) as remit:
        done = await remit.delegate("talker")
        print((await remit.describe(done.session_id)).limits_reason)


asyncio.run(main())
