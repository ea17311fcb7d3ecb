"""A process that sends one message to the assistant and can be killed: `python assistant_project.py ROOT URL MESSAGE`.

Its agents record each run, so that repeated calls are visible.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from remit import Context, Remit, agent, ask


@agent("note")
async def note(ctx: Context, text: str) -> str:
    with (ctx.root / "runs.txt").open("a") as file:
        file.write(f"note {text}\n")
    return f"noted {text}"


@agent("hang")
async def hang(ctx: Context) -> str:
    with (ctx.root / "runs.txt").open("a") as file:
        file.write("hang\n")
    await asyncio.sleep(60)
    return "never"


def settings_for(url: str) -> dict[str, Any]:
    return {"model": "scripted", "models": {"scripted": {"kind": "openai", "url": url, "model": "scripted"}}}


async def main(root: Path, url: str, message: str) -> None:
    async with Remit.open(root, agents=[note, hang], settings=settings_for(url)) as remit:
        print((await ask(remit, message)).to_json(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
