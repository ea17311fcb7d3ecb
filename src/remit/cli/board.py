"""`remit board`: show tasks in the terminal or as a picture, and import another board."""

import time
from pathlib import Path
from typing import Annotated

from rich.text import Text
from typer import Argument, Option

from remit.board.board import Board
from remit.board.task import Priority, Status, Task
from remit.board.view import TaskState, View, chosen, review_verdict, view_of
from remit.cli.completion import tasks
from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import count, duration, painted, say, say_table, short
from remit.cli.results import answer_outcome
from remit.cli.task import show_task
from remit.core.errors import Misused
from remit.core.text import list_some


def board(
    project: Project,
    number: Annotated[str | None, Argument(metavar="N", help="Show task N in full.", autocompletion=tasks)] = None,
    status: Annotated[str, Option(help="Only tasks with these, like planned,blocked; or running, ready, waiting.")] = "",
    every: Annotated[bool, Option("--all", help="All of them, the archive too, however many there are.")] = False,
    svg: Annotated[Path | None, Option(metavar="FILE", help="Draw the dependencies into an SVG file.")] = None,
    html: Annotated[Path | None, Option(metavar="FILE", help="The same with the list of tasks as a web page.")] = None,
) -> Exit:
    """Show the tasks: running, ready, waiting. `remit board N` shows one in full, `--svg` and `--html` draw them."""
    board = Board(project.root)
    if number is not None:
        return show_task(project, board, number)
    view = view_of(board, with_archive=every)
    view = chosen(view, status)
    written = [str(_drawn(view, path, kind)) for path, kind in ((svg, "svg"), (html, "html")) if path is not None]
    text = "\n".join(f"{path}: {count(len(view.tasks), 'task')}" for path in written) or (lambda: print_board(view, every=every))
    return project.answer(lambda: {**view.to_dict(), **({"written": written} if written else {})}, text)


def _drawn(view: "View", path: Path, kind: str) -> Path:
    """Write the picture atomically."""
    from remit.board.picture import draw, page
    from remit.system.files import atomic_write

    text = (draw if kind == "svg" else page)(view, f"Tasks of {view.project}")
    if path.exists() and not path.is_file():  # a folder, pipe or device would be replaced
        raise Misused(f"{path} is not a file.", advice="Name the file to write.")
    if not path.parent.is_dir():
        raise Misused(f"There is no folder {path.parent}.", advice="Create it first.")
    atomic_write(path, text.encode("utf-8", "replace"))
    return path


SHOWN = 15
DONE_SHOWN = 5
"""Tasks shown per group without --all."""
_HEADINGS = {
    TaskState.RUNNING: ("● Running now", "cyan"),
    TaskState.STOPPED: ("◌ Stopped: no process works on these", "yellow"),
    TaskState.READY: ("○ Ready", "green"),
    TaskState.WAITING: ("◔ Waiting for others", "blue"),
    TaskState.BLOCKED: ("■ Blocked", "magenta"),
    TaskState.DONE: ("✓ Done", "dim"),
}
_MARKS = {Priority.HIGH: "!", Priority.MEDIUM: " ", Priority.LOW: "·"}


def print_board(view: View, *, every: bool = False) -> None:
    if not view.exists:
        say('This project has no board yet. `remit task "TEXT"` records the first task and makes it.')
        return
    counts = [f"{number:,} {name}" for name, number in view.counts().items() if number]
    counts += [f"{len(view.archived):,} in the archive"] if view.archived else []
    say(f"{count(sum(view.counts().values()), 'task')}: {' · '.join(counts)}".rstrip(": "))
    for state, (heading, style) in _HEADINGS.items():
        if tasks := view.group(state):
            print(f"\n{painted(heading, f'bold {style}')}{painted(f'  {len(tasks):,}', 'dim')}")
            _print_group(view, state, tasks, every=every)
    if not view.tasks:
        say('No such tasks: remit task "TEXT" records one.')
    for notice in view.notices[:SHOWN]:
        say(notice)


def _print_group(view: View, state: TaskState, tasks: list[Task], *, every: bool) -> None:
    limit = len(tasks) if every else DONE_SHOWN if state is TaskState.DONE else SHOWN
    if state is TaskState.DONE and not every:
        tasks = sorted(tasks, key=lambda task: (task.completed or task.last_updated, task.number), reverse=True)  # the latest first
    rows = [
        {
            "number": Text(f"{_MARKS[task.priority]} {task.number}"),
            "marker": f"[{task.status.marker}]",
            "title": task.title,
            "note": " · ".join(filter(None, (_standing(view, task), review_verdict(task)))),
        }
        for task in tasks[:limit]
    ]
    say_table(rows, shrinking=("title", "note"), has_header=False)
    if len(tasks) > limit:
        say(f"  … and {len(tasks) - limit:,} more (--all)")


def _standing(view: View, task: Task) -> str:
    """The most important fact about its state."""
    state = view.states[task.number]
    if state is TaskState.RUNNING:
        holder = view.holders[task.number]
        session = f" · {short(holder.session_id)}" if holder.session_id else ""
        return f"{holder.command} · {duration(time.time() - holder.since)}{session}"
    if task.status is Status.EXPANDED:
        left = view.graph.open_parts(task.number)
        return f"divided; open: {list_some(left, 6)}" if left else "divided; all parts done"
    if state is TaskState.WAITING:
        return f"waits for {list_some([_waited(view, number) for number in view.graph.unmet(task)], 6)}"
    if state is TaskState.BLOCKED or task.status is Status.ABANDONED:
        return task.blocking_reason or "no reason given"
    command = view.next_command(task)
    return f"→ {command}" if command else task.completed[:10]


def _waited(view: View, number: int) -> str:
    """The tasks it waits for, with the reason if one of them can never be completed."""
    task = view.graph.tasks.get(number)
    status = task.status if task is not None else view.graph.archived.get(number)
    return f"{number} (abandoned)" if status is Status.ABANDONED else f"{number} (unknown)" if status is None else str(number)


def import_(
    project: Project,
    folder: Annotated[Path | None, Argument(metavar="FOLDER", help="Default: .opencode/specs, .claude/specs or specs.")] = None,
) -> Exit:
    """Import the TODO.md and state.json of FOLDER as the board of this project, also where they differ."""
    from remit.board.importer import import_board

    return answer_outcome(project, import_board(Board(project.root), folder))
