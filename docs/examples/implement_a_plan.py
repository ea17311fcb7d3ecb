"""A plan carried out phase by phase: the first run fails in its second phase, the next one goes on there."""

import asyncio
from pathlib import Path

from remit import Board, Context, Remit, Task, agent, implement_task

PLAN = """# Greetings

### Phase 1: Write the greeting [NOT STARTED]
- **Goal**: there is something to say
- **Accept**: `grep -q hello greeting.txt`

### Phase 2: Translate it [NOT STARTED]
- **Goal**: people in Bern understand it
"""
PLAN_PATH = "specs/001_greet/plans/implementation-001.md"
WORDS = {1: ("greeting.txt", "hello\n"), 2: ("bern.txt", "grüessech\n")}


@agent("implementer", timeout=30)
async def implementer(ctx: Context, task: str, phase: int, **more: object) -> dict[str, object]:
    path, words = WORDS[phase]
    if phase == 2 and not (ctx.root / "dictionary").exists():
        raise LookupError("There is no dictionary.")
    (ctx.root / path).write_text(words)
    return {"status": "completed", "summary": f"Wrote {path}. It is short.", "artifacts": [{"type": "implementation", "path": path}]}


async def main() -> None:
    board = Board(Path.cwd())
    with board.change(make=True) as draft:
        draft.write(PLAN_PATH, PLAN)
        draft.state = draft.state.with_task(Task(number=1, title="Greet", slug="greet", language="python", plan_path=PLAN_PATH))
    async with Remit.open(".", agents=[implementer]) as remit:
        first = await implement_task(remit, board, 1, show=print)
        print(first.status, first.task_status, first.data["phase_statuses"])
        (board.root / "dictionary").touch()
        second = await implement_task(remit, board, 1, show=print)
        print(second.status, second.task_status, [artifact.path for artifact in second.artifacts[:2]])


if __name__ == "__main__":
    asyncio.run(main())
