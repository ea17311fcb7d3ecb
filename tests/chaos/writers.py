"""Helper of `test_merge_queue.py`: a repository with a test suite, a board of tasks, and scripted writers whose changes conflict.

    python writers.py ROOT WIDTH WAIT_SECONDS

Implements all ready tasks. The number of a task selects its change: add an item for the current version of an interface (`new`), add
a line at the same place as the others (`line`: textual conflicts), raise the version of the interface and of all items (`api`: semantic
conflicts with `new`), or make a change that never passes (`bad`). Called again on merged or conflicting files, a writer corrects its
change.
"""

import asyncio
import random
import re
import sys
from pathlib import Path
from typing import Any

from remit import Board, Context, ParallelOptions, Remit, Task, agent, implement_parallel
from support.repository import all_committed

SUITE = """import unittest
from pathlib import Path


class Items(unittest.TestCase):
    def test_every_item_is_for_the_present_version(self):
        version = Path("api.txt").read_text()
        for path in Path("items").glob("*.txt"):
            self.assertEqual(path.read_text(), version, path)

    def test_the_list_is_complete(self):
        lines = Path("list.txt").read_text().splitlines()
        self.assertEqual(lines[-1], f"total {len(lines) - 1}")
        self.assertEqual(len(set(lines)), len(lines))
"""
ACCEPT = "python3 -B -m unittest -q test_items"


def kind_of(number: int, seed: int) -> str:
    return random.Random(seed * 100_003 + number).choices(["new", "line", "api", "bad"], weights=[60, 25, 12, 3])[0]


def make_repository(root: Path, count: int) -> Board:
    (root / "items").mkdir(parents=True)
    files = {"test_items.py": SUITE, "api.txt": "1", "list.txt": "total 0\n", ".gitignore": ".remit/\n", "items/0.txt": "1"}
    for name, text in files.items():
        (root / name).write_text(text)
    board = Board(root)
    with board.change(make=True) as draft:
        numbers = range(1, count + 1)
        tasks = (Task(number=one, title=f"Change {one}", slug=f"change_{one}", language="python") for one in numbers)
        draft.state = draft.state.with_tasks(tasks)
    all_committed(root)
    return board


def write_change(folder: Path, number: int, kind: str) -> None:
    """Write the correct change of a task, regardless of the state of the folder."""
    version = folder / "api.txt"
    if kind == "line":
        lines = (folder / "list.txt").read_text().splitlines()
        items = dict.fromkeys(line for line in lines if line.startswith("item "))
        items[f"item {number}"] = None
        (folder / "list.txt").write_text("".join(f"{line}\n" for line in (*items, f"total {len(items)}")))
    elif kind == "api":
        versions = re.findall(r"\d+", re.sub(r"[<>]{7} .*", "", version.read_text()))
        own = folder / "items" / f"{number}.txt"
        raised = max(map(int, versions)) + (not own.exists())
        own.touch()
        version.write_text(str(raised))
        for path in (folder / "items").glob("*.txt"):
            path.write_text(str(raised))
    else:
        (folder / "items" / f"{number}.txt").write_text(version.read_text() if kind == "new" else "never")


def writer(seed: int, wait: float) -> list[Any]:
    async def write(ctx: Context, task: str, number: int, **more: Any) -> dict[str, Any]:
        """Writes its change after a delay."""
        await asyncio.sleep(wait)
        await asyncio.to_thread(write_change, ctx.workspace, number, kind_of(number, seed))
        with (ctx.root / ".remit" / "asked").open("a") as log:
            log.write(f"{number} {'again' if 'cannot be merged yet' in task else 'first'}\n")
        return {"status": "completed", "summary": f"Made change {number}.", "artifacts": []}

    return [agent("implementer", workspace="worktree", merge="queue")(write)]


async def implement_all(root: Path, numbers: "list[int]", *, width: int, wait: float, seed: int) -> Any:
    settings = {"workspace": {"accept": [ACCEPT]}, "budget": {"delegations": 1000}}
    async with Remit.open(root, agents=writer(seed, wait), settings=settings) as remit:
        return await implement_parallel(remit, Board(root), numbers, ParallelOptions(width=width))


def main() -> None:
    root, width, wait, seed = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    from support.boards import ready_tasks, remove_landed

    numbers = list(ready_tasks(Board(root)))
    remove_landed(Board(root))  # every command does this; here also without remaining tasks
    print("begun", flush=True)
    if numbers:
        outcome = asyncio.run(implement_all(root, numbers, width=width, wait=wait, seed=seed))
        print(outcome.summary)


if __name__ == "__main__":
    main()
