"""`remit board`: show tasks in the terminal or as a picture, and import another board."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from remit.board.board import Board
from remit.board.task import Priority, Status, Task
from remit.board.view import TaskState, View, chosen, review_verdict, view_of
from remit.cli.arguments import DryRun
from remit.cli.completion import tasks
from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import columns, count, cut_cells, duration, padded, painted, say, short, width, wrapped
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
    if [str(svg), str(html), "-" if project.as_json else ""].count("-") > 1:
        raise Misused("Only one of --svg -, --html - and --json can go to stdout.", advice="Name a file for the others.")
    view = view_of(board, with_archive=every)
    view = chosen(view, status)
    written = [str(_drawn(view, path, kind)) for path, kind in ((svg, "svg"), (html, "html")) if path is not None]
    text = (lambda: _print_written(view, written)) if written else (lambda: print("\n".join(lines_of(view, columns(), every=every))))
    return project.answer(lambda: {**view.to_dict(), **({"written": written} if written else {})}, text)


def _drawn(view: "View", path: Path, kind: str) -> Path:
    """Write the picture atomically; `-` writes it to stdout."""
    from remit.board.picture import draw, page
    from remit.system.files import atomic_write

    text = (draw if kind == "svg" else page)(view, f"Tasks of {view.project}")
    if str(path) == "-":
        sys.stdout.write(text)
        return path
    if path.exists() and not path.is_file():  # a folder, pipe or device would be replaced
        raise Misused(f"{path} is not a file.", advice="Name the file to write, or - for stdout.")
    if not path.parent.is_dir():
        raise Misused(f"There is no folder {path.parent}.", advice="Create it first.")
    atomic_write(path, text.encode("utf-8", "replace"))
    return path


def _print_written(view: "View", written: list[str]) -> None:
    for path in written:
        if path != "-":
            say(f"{path}: {count(len(view.tasks), 'task')}")


SHOWN = 15
DONE_SHOWN = 5
"""Tasks shown per group without --all."""
ROOMY = 72
"""Terminal width from which a task takes one line."""
_HEADINGS = {
    TaskState.RUNNING: ("● Running now", "cyan"),
    TaskState.STOPPED: ("◌ Stopped: no process works on these", "yellow"),
    TaskState.READY: ("○ Ready", "green"),
    TaskState.WAITING: ("◔ Waiting for others", "blue"),
    TaskState.BLOCKED: ("■ Blocked", "magenta"),
    TaskState.DONE: ("✓ Done", "dim"),
}
_MARKS = {Priority.HIGH: ("!", "red"), Priority.MEDIUM: (" ", ""), Priority.LOW: ("·", "dim")}
_STYLES = {Status.COMPLETED: "green", Status.ABANDONED: "dim", Status.EXPANDED: "dim", Status.BLOCKED: "magenta", Status.PARTIAL: "yellow"}


@dataclass(frozen=True, slots=True)
class Layout:
    columns: int
    number: int
    marker: int
    title: int
    note: int
    """0: the note has its own line."""


def lines_of(view: View, wide: int, *, every: bool = False) -> Iterator[str]:
    """The lines to show; none is wider than the terminal."""
    if not view.exists:
        yield from wrapped('This project has no board yet. `remit task "TEXT"` records the first task and makes it.', wide).split("\n")
        return
    yield from _head(view, wide)
    layout = _layout(view, wide)
    for state in TaskState:
        tasks = view.group(state)
        if tasks:
            yield ""
            yield from _group(view, state, tasks, layout, every=every)
    if not view.tasks:
        yield "No task matches." if view.is_chosen else 'No tasks: remit task "TEXT" records one.'
    yield from _foot(view, wide)


def _head(view: View, wide: int) -> Iterator[str]:
    counts = {name: number for name, number in view.counts().items() if number}
    tasks = count(sum(counts.values()), "task")
    parts = [f"{number:,} {name}" for name, number in counts.items()]
    parts += [f"{len(view.archived):,} in the archive"] if view.archived else []
    yield painted(cut_cells(f"{tasks}: {' · '.join(parts)}".rstrip(": "), wide), "bold")


def _layout(view: View, wide: int) -> Layout:
    number = max((len(str(task.number)) for task in view.tasks), default=1)
    marker = max((len(task.status.marker) for task in view.tasks), default=0) + 2
    left = wide - number - marker - 6
    if wide < ROOMY:
        return Layout(wide, number, marker, wide - number - 4, 0)
    note = min(max((width(_note(view, task)) for task in view.tasks[:1000]), default=0), max(24, left * 2 // 5))
    return Layout(wide, number, marker, left - note - 2, note)


def _group(view: View, state: TaskState, tasks: list[Task], layout: Layout, *, every: bool) -> Iterator[str]:
    heading, style = _HEADINGS[state]
    yield painted(cut_cells(heading, layout.columns - 8), f"bold {style}") + painted(f"  {len(tasks):,}", "dim")
    limit = len(tasks) if every else DONE_SHOWN if state is TaskState.DONE else SHOWN
    if state is TaskState.DONE and not every:
        tasks = sorted(tasks, key=lambda task: (task.completed or task.last_updated, task.number), reverse=True)  # the latest first
    for task in tasks[:limit]:
        yield from _task(view, task, layout)
    if len(tasks) > limit:
        yield painted(f"  … and {len(tasks) - limit:,} more (--all)", "dim")


def _task(view: View, task: Task, layout: Layout) -> Iterator[str]:
    mark, mark_style = _MARKS[task.priority]
    begin = f"{painted(mark, mark_style)} {painted(f'{task.number:>{layout.number}}', 'bold')}  "
    marker = painted(padded(f"[{task.status.marker}]", layout.marker), _STYLES.get(task.status, ""))
    note = _note(view, task)
    style = "cyan" if view.next_command(task) else "dim"
    if layout.note:
        title = padded(cut_cells(task.title, layout.title), layout.title)
        yield f"{begin}{marker}  {title}  {painted(cut_cells(note, layout.note), style)}".rstrip()
        return
    yield begin + cut_cells(task.title, layout.title)
    indent = " " * (layout.number + 4)
    left = layout.columns - len(indent) - len(task.status.marker) - 3
    yield f"{indent}{marker.rstrip()} {painted(cut_cells(note, left), style)}".rstrip()


def _note(view: View, task: Task) -> str:
    """The most important fact about its state, and the verdict of its review."""
    return " · ".join(filter(None, (_standing(view, task), review_verdict(task))))


def _standing(view: View, task: Task) -> str:
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


def _foot(view: View, wide: int) -> Iterator[str]:
    for notice in view.notices[:SHOWN]:
        yield from _several(notice, wide, "yellow")


def _several(text: str, wide: int, style: str) -> Iterator[str]:
    """Wrap text that must not be cut."""
    yield from (painted(cut_cells(line, wide), style) for line in wrapped(cut_cells(text, 10 * wide), wide).split("\n"))


def import_(
    project: Project,
    folder: Annotated[Path | None, Argument(metavar="FOLDER", help="Default: .opencode/specs, .claude/specs or specs.")] = None,
    dry_run: DryRun = False,
) -> Exit:
    """Import the TODO.md and state.json of FOLDER as the board of this project, also where they differ."""
    from remit.board.importer import import_board

    return answer_outcome(project, import_board(Board(project.root), folder, dry_run=dry_run))
