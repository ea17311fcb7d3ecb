"""An agent that hands in what it has at the soft deadline, and one that is stopped and harvested."""

import asyncio

from remit import Context, Remit, agent


@agent("polite", timeout=2)
async def polite(ctx: Context) -> dict[str, int]:
    found = 0
    while not ctx.hand_in:  # True from the soft deadline on
        await asyncio.sleep(0.05)
        found += 1
    return {"found": found}


@agent("rude", timeout=1)
async def rude(ctx: Context) -> None:
    report = ctx.scratch / "report.md"
    report.write_text("# Half a report\n")
    ctx.artifact(report, summary="As far as it got.")
    ctx.emit("first piece")
    await ctx.checkpoint({"page": 7})
    await asyncio.sleep(60)


async def main() -> None:
    async with Remit.open(".", agents=[polite, rude]) as remit:
        done = await remit.delegate("polite")
        print("polite:", done.status, done.stop_reason, done.data["found"] > 10)
        done = await remit.delegate("rude")
        print("rude:", done.status, done.stop_reason, done.data, len(done.artifacts))


if __name__ == "__main__":
    asyncio.run(main())
