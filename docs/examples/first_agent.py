import asyncio

from remit import Context, Remit, agent


@agent("digest", timeout=60)
async def digest(ctx: Context, path: str) -> str:
    text = (ctx.root / path).read_text()
    ctx.progress("read", 0.5)
    return f"{path} has {len(text.split())} words."


async def main() -> None:
    async with Remit.open(".", agents=[digest]) as remit:
        done = await remit.delegate("digest", path="README.md", timeout=30)
        print(done.status, done.summary, sep=": ")


if __name__ == "__main__":
    asyncio.run(main())
