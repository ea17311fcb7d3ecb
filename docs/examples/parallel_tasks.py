"""Three tasks at once, each in its own worktree: two land, and one that breaks the project goes back to its agent until it does not."""

import asyncio
import subprocess
from pathlib import Path

from remit import Board, Context, ParallelOptions, Remit, Task, agent, implement_parallel

PRICES = {1: "tea = 3\n", 2: "milk = 2\n", 3: "cake = none\n"}


@agent("implementer", workspace="worktree", merge="queue", timeout=30)
async def implementer(ctx: Context, task: str, number: int, **more: object) -> dict[str, object]:
    price = "cake = 4\n" if "cannot be merged yet" in task else PRICES[number]
    (ctx.workspace / f"price{number}").write_text(price)
    return {"status": "completed", "summary": f"Wrote the price: {price.strip()}.", "artifacts": []}


async def main() -> None:
    board = Board(Path("shop"))
    with board.change(make=True) as draft:
        for number in PRICES:
            draft.state = draft.state.with_task(Task(number=number, title=f"Price {number}", slug=f"price_{number}", language="python"))
    git("add", "specs")
    git("commit", "-q", "-m", "Record three tasks")
    settings = {"workspace": {"accept": ["! grep -r none price*"]}}
    async with Remit.open("shop", agents=[implementer], settings=settings) as remit:
        outcome = await implement_parallel(remit, board, [1, 2, 3], ParallelOptions(width=2))
    print(outcome.summary)


def git(*command: str) -> None:
    someone = ("-c", "user.name=you", "-c", "user.email=you@example.org")
    subprocess.run(["git", *someone, *command], cwd="shop", check=True)


if __name__ == "__main__":
    Path("shop").mkdir()
    Path("shop/price0").write_text("water = 0\n")
    git("init", "-q", "-b", "main")
    git("config", "user.name", "you")
    git("config", "user.email", "you@example.org")
    git("add", ".")
    git("commit", "-q", "-m", "Open the shop")
    asyncio.run(main())
    print(*sorted(path.read_text().strip() for path in Path("shop").glob("price*")), sep=", ")
