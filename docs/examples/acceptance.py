"""The caller's own proof: commands that must exit 0 before the work counts as completed."""

import asyncio

from remit import Context, Remit, agent


@agent("write", timeout=30, requires_artifacts=True)
async def write(ctx: Context, text: str) -> str:
    (ctx.root / "answer.txt").write_text(text)
    ctx.artifact("answer.txt", type="data")
    return "Wrote the answer. It stands in answer.txt."


async def main() -> None:
    async with Remit.open(".", agents=[write]) as remit:
        good = await remit.delegate("write", text="42\n", accept=["grep -q 42 answer.txt"])
        print(good.status, good.evidence)
        bad = await remit.delegate("write", text="41\n", accept=["grep -q 42 answer.txt"])
        print(bad.status, bad.errors[0].code)


if __name__ == "__main__":
    asyncio.run(main())
