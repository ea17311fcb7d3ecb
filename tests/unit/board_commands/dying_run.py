"""A process that researches task 12 of the project at argv[1] and kills itself at the point named by argv[2]."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from remit import Board, Context, Remit, agent
from remit.board.research_plan import DocumentCommand, work_on

ROOT, POINT = Path(sys.argv[1]), sys.argv[2]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@agent("researcher")
async def researcher(ctx: Context, write_to: str) -> dict[str, Any]:
    (ctx.root / write_to).write_text("# From the killed run")
    if POINT == "while the agent runs":
        die()
    return {"status": "completed", "summary": "Looked. Done.", "artifacts": [{"type": "report", "path": write_to}]}


async def waiting(remit: Remit, handle: Any) -> Any:
    result = await handle.result()
    if POINT == "after the return":
        die()
    return result


class Dying(DocumentCommand):
    made = iter(range(10))

    def brief(self, *given: Any) -> Any:
        if next(Dying.made) == 1 and POINT == "after the marker":  # the first brief is made before anything is written
            die()
        return DocumentCommand.brief(self, *given)


async def main() -> None:
    async with Remit.open(ROOT, agents=[researcher]) as remit:
        await work_on(remit, Board(ROOT), Dying(name="research", number=12), waiting=waiting)


if (ROOT / ".git").is_dir():
    (ROOT / ".git" / "victim").write_text(str(os.getpid()))  # for the hook, which gets no variable from us
asyncio.run(main())
