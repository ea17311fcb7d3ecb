"""Ask a question of the files of a project, and compare two sources. Every sentence of the answer is quoted, with file and line."""

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
        for sentence in done.data["answer"]:
            source = done.data["citations"][sentence["citation"] - 1]
            print(f"{source['path']}:{source['line']}: {sentence['text']}")

        done = await remit.delegate("researcher.deep_research", query="How is coffee roasted?")
        print(done.status, done.errors[0].code)

        done = await remit.delegate("researcher.synthesize_sources", sources=["handbook.md", "letter.txt"])
        for statement in done.data["differing"][0]:
            print(f"{statement['source']}: {statement['text']}")
        print(done.artifacts[0].type, Path(done.artifacts[0].path).name)


if __name__ == "__main__":
    Path("handbook.md").write_text(HANDBOOK)
    Path("letter.txt").write_text(LETTER)
    asyncio.run(main())
