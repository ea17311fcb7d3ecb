"""board: board commands that run no agent, on a board of 1,000 tasks, compared with an idle interpreter.

Each runs as a separate process in a git checkout, as a user starts it, and the commit is included. The figure is the CPU time of the
process and its children minus that of a bare interpreter; the two alternate.
"""

import asyncio
import itertools
import os
import random
import resource
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import replace
from pathlib import Path

from bench.figures import Figure, median, milliseconds
from bench.sizes import Sizes
from remit.board.board import Board
from remit.board.task import Priority, Status, Task, slug_of

TARGET_SECONDS = 0.3
REMIT = (str(Path(sys.executable).with_name("remit")),)
"""The command line as typed."""
NOTHING = (sys.executable, "-c", "pass")
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "task TEXT": (("task", "Look into the reader. It is slow.", "--depends", "1,3-5"),),
    "task --abandon, --recover": (("task", "--abandon", "2", "--reason", "not now"), ("task", "--recover", "2")),
    "task --sync": (("task", "--sync"),),
    "todo --dry-run": (("todo", "--dry-run"),),
    "board": (("board",),),
    "board N": (("board", "77"),),
    "board --json": (("board", "--json"),),
    "board --svg": (("board", "--svg", "board.svg"),),
    "board --html": (("board", "--html", "board.html"),),
    "board, TODO.md edited": (("board",),),
    "task TEXT, TODO.md edited": (("task", "Look into the writer. It is slow."),),
}
"""Command lines of each command, run in turn."""
EDITED = "TODO.md edited"
"""Before each of these the user changes a line of TODO.md, which the command reads back."""
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Modules are compiled once, as in daily use; the first rounds are not counted."""
_WORDS = ("reader", "writer", "parser", "index", "cache", "report", "protocol", "queue", "clock", "printer")
_STATUSES = (
    *(Status.NOT_STARTED,) * 5, *(Status.COMPLETED,) * 4,
    Status.RESEARCHED, Status.PLANNED, Status.PARTIAL, Status.BLOCKED, Status.ABANDONED,
)  # fmt: skip


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        root = Path(folder)
        make_board(root, sizes.board_tasks)
        await _git(root)
        commands = {name: itertools.cycle(words) for name, words in COMMANDS.items()}
        beyond: dict[str, list[float]] = {name: [] for name in commands}
        floors: list[float] = []
        for number in range(-sizes.board_warm, sizes.board_rounds):
            floor = await _timed(root, *NOTHING)
            floors += [floor] if number >= 0 else []
            for name, turns in commands.items():
                if name.endswith(EDITED):
                    edit(root, number)
                took = await _timed(root, *REMIT, *next(turns))
                beyond[name] += [took - floor] if number >= 0 else []
        await _timed(
            root, "git", "diff", "--quiet", "HEAD", "--", "specs"
        )  # check that everything was committed: skipping commits would look fast
    return [
        Figure(section="board", what="floor: CPU of the interpreter doing nothing, p50", measured=milliseconds(median(floors))),
        *(
            Figure(
                section="board",
                what=f"remit {name}, {sizes.board_tasks:,} tasks: CPU beyond that, p50",
                measured=milliseconds(median(times)),
                target=f"< {TARGET_SECONDS * 1e3:g} ms",
                is_met=median(times) < TARGET_SECONDS,
            )
            for name, times in beyond.items()
        ),
    ]


def make_board(root: Path, count: int) -> None:
    """Create a board with years of history."""
    chance = random.Random(5)
    board = Board(root)
    with board.change(make=True) as draft:
        tasks = tuple(_task(chance, number, draft.at) for number in range(1, count + 1))
        draft.state = replace(draft.state, tasks=tasks, next_number=count + 1)


def _task(chance: random.Random, number: int, at: str) -> Task:
    title = f"Make the {chance.choice(_WORDS)} agree with the {chance.choice(_WORDS)} of part {number}"
    status = Status.NOT_STARTED if number <= 5 else chance.choice(_STATUSES)
    many = min(number - 1, chance.choice((0, 0, 1, 2)))
    return Task(
        number=number,
        title=title,
        slug=slug_of(title),
        status=status,
        priority=chance.choice(tuple(Priority)),
        language=chance.choice(("python", "lean", None)),
        description=f"{title}. " + "What is expected of it is told here in some words. " * chance.randint(1, 8),
        effort=chance.choice(("2h", "1d", "")),
        dependencies=tuple(sorted(chance.sample(range(max(1, number - 40), number), many))),
        created=at,
        last_updated=at,
        blocking_reason="waiting for somebody" if status in (Status.BLOCKED, Status.ABANDONED) else "",
    )


def edit(root: Path, number: int) -> None:
    """Edit a few words of one task in the middle, like a user."""
    path = root / "specs" / "TODO.md"
    before, mark, after = path.read_text().partition("of part 500")
    path.write_text(f"{before}{mark}{number + 100} {after}" if mark else f"{before}\n")


async def _git(root: Path) -> None:
    """Create a checkout with the board committed by a neutral identity."""
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.com")
    for words in (("init", "-q"), ("config", "user.name", "bench"), ("config", "user.email", "bench@example.com"), ("add", "specs")):
        await _timed(root, "git", *words)
    await _timed(root, "git", *who, "commit", "-q", "-m", "The board")


async def _timed(root: Path, *command: str) -> float:
    """CPU seconds of the command and its children."""
    began = _children_seconds()
    process = await asyncio.create_subprocess_exec(*command, cwd=root, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env=_ENVIRONMENT)
    _, said = await process.communicate()
    assert process.returncode == 0, (command, said.decode(errors="replace")[-500:])  # a refusal would be quick, and would look like speed
    return _children_seconds() - began


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
