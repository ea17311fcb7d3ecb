"""A task of the board studied and planned by agents of one's own; status, links and versions are kept by remit."""

import asyncio
from pathlib import Path
from typing import Any

from remit import Board, BoardState, Context, Remit, Task, agent, plan_task, research_task, revise_plan


@agent("researcher")
async def researcher(ctx: Context, task: str, write_to: str) -> dict[str, Any]:
    """`task` has the words: number, title, description, focus, earlier reports. `write_to` is where the report is wanted."""
    (ctx.root / write_to).write_text(f"# Report\n\nAsked for:\n\n{task}\n")
    return {"status": "completed", "summary": "Read the parser. Tabs are split twice.", "artifacts": [{"type": "report", "path": write_to}]}


@agent("planner")
async def planner(task: str) -> dict[str, Any]:
    """One that cannot write files hands the text in."""
    text = "### Phase 1: Split once [NOT STARTED]\n- **Goal**: tabs are split once\n- **Accept**: `test -s splitter.py`\n"
    return {"status": "completed", "summary": "Planned it. One phase is enough.", "data": {"plan": text}}


async def main() -> None:
    board = Board(Path())
    with board.change(make=True) as draft:
        draft.state = BoardState(tasks=(Task(number=1, title="Fix the parser", slug="fix_the_parser", language="python"),), next_number=2)
    async with Remit.open(".", agents=[researcher, planner]) as remit:
        for outcome in (
            await research_task(remit, board, 1, focus="only tabs"),
            await plan_task(remit, board, 1),
            await revise_plan(remit, board, 1, reason="spaces too"),
        ):
            print(f"{outcome.command}: {outcome.status}, task 1 is [{outcome.task_status}], {outcome.artifacts[0].path}")


asyncio.run(main())
