"""A target with two operations, registered by being given; the delegate tool lists and calls them with nothing else changed."""

import asyncio
from pathlib import Path

from remit import Context, DelegateError, DelegateTool, Remit, agent


@agent("letters.count", workspace="none")
async def count(ctx: Context, path: str, min_length: int = 1) -> int:
    """Count the words of a file that are at least so long."""
    return sum(len(word) >= min_length for word in (ctx.workspace / path).read_text().split())


@agent("letters.first", workspace="none")
async def first(ctx: Context, path: str, lines: int = 1) -> list[str]:
    """The first lines of a file."""
    ctx.progress(f"reading {path}")
    return (ctx.workspace / path).read_text().splitlines()[:lines]


async def main() -> None:
    async with Remit.open(".", agents=[count, first]) as remit:
        tool = DelegateTool(remit)
        print("letters" in tool.schema()["inputSchema"]["properties"]["target"]["enum"])

        done = await tool.call({"target": "letters", "operation": "count", "parameters": {"path": "letter.txt", "minLength": 4}})
        print(done.success, done.task_state, done.data, done.metadata.agent_id)

        async for chunk in tool.stream({"target": "letters", "operation": "first", "parameters": {"path": "letter.txt"}}):
            print(chunk.type, chunk.data["message"] if chunk.result is None else chunk.result.data)

        try:
            await tool.call({"target": "letters", "operation": "cuont", "parameters": {"path": "letter.txt"}})
        except DelegateError as error:
            print(error.code, error.details)


if __name__ == "__main__":
    Path("letter.txt").write_text("Dear reader,\nall is well.\n")
    asyncio.run(main())
