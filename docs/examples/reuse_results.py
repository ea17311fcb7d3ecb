"""Use the result of an agent that only reads again, until a file that it reads changes or a delegation writes."""

import asyncio
from pathlib import Path

from remit import Context, Remit, agent


@agent("count", cache="1h", reads=("path",), effects=("read",))
async def count(ctx: Context, path: str) -> int:
    return len((ctx.workspace / path).read_text().split())


@agent("append", effects=("write",))
async def append(ctx: Context, path: str, text: str) -> None:
    with (ctx.workspace / path).open("a") as file:
        file.write(text)


async def main() -> None:
    async with Remit.open(".", agents=[count, append]) as remit:
        returns = [await remit.delegate("count", path="words.txt") for _ in range(2)]
        await remit.delegate("append", path="words.txt", text=" three")
        returns.append(await remit.delegate("count", path="words.txt"))
        returns.append(await remit.delegate("count", path="words.txt", cache="off"))
    for done in returns:
        print(done.data, "used again" if "cached_from" in done.metadata.extra else "run")


Path("words.txt").write_text("one two")
asyncio.run(main())
