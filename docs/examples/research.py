"""Ask a question of the files of a project, and put two sources side by side. Every passage is quoted with file and line."""

import asyncio
from pathlib import Path

from remit import Remit

HANDBOOK = """\
# Tea

Green tea is brewed at 80 °C for two minutes. Hotter water makes it bitter.

Black tea is brewed at 100 °C for four minutes.
"""
LETTER = "Dear Ann, black tea is brewed at 95 °C for four minutes, whatever the handbook says.\n"


async def main() -> None:
    async with Remit.open(".") as remit:
        done = await remit.delegate("researcher.deep_research", query="Why does green tea get bitter?")
        for passage in done.data["answer"]:
            source = done.data["citations"][passage["citation"] - 1]
            print(f"{source['path']}:{source['line']}: {passage['text']}")

        done = await remit.delegate("researcher.deep_research", query="How is coffee roasted?")
        print(done.status, done.errors[0].code)

        done = await remit.delegate("researcher.synthesize_sources", sources=["handbook.md", "letter.txt"])
        for source, passages in done.data["single"].items():
            print(f"{source}: {len(passages)} quoted, the last: {passages[-1]['text']}")
        print(done.artifacts[0].type, Path(done.artifacts[0].path).name)


if __name__ == "__main__":
    Path("handbook.md").write_text(HANDBOOK)
    Path("letter.txt").write_text(LETTER)
    asyncio.run(main())
