"""The board in a terminal: what runs, what stopped, what is ready and what to type for it, what waits for what, what is blocked and why.

Fits 40 to 200 columns: where there is room a line for each task, else two. Much is shortened visibly; `--all` shows everything.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from remit.board.graph import circle_words
from remit.board.statuses import Status
from remit.board.task import Priority, Task
from remit.board.view import Standing, View
from remit.cli.cells import columns, cut, padded, painted, width
from remit.cli.words import count, duration, short, wrapped

SHOWN = 15
DONE_SHOWN = 5
"""Of each group, when not all is asked for."""
ROOMY = 72
"""From so many columns on a task takes one line."""
CIRCLES_SHOWN = 5
_HEADINGS = {
    Standing.RUNNING: ("● Running now", "cyan"),
    Standing.STOPPED: ("◌ Stopped: nobody works on these any more", "yellow"),
    Standing.READY: ("○ Ready", "green"),
    Standing.WAITING: ("◔ Waiting for others", "blue"),
    Standing.BLOCKED: ("■ Blocked", "magenta"),
    Standing.DONE: ("✓ Done", "dim"),
}
_MARKS = {Priority.HIGH: ("!", "red"), Priority.MEDIUM: (" ", ""), Priority.LOW: ("·", "dim")}
_STYLES = {Status.COMPLETED: "green", Status.ABANDONED: "dim", Status.EXPANDED: "dim", Status.BLOCKED: "magenta", Status.PARTIAL: "yellow"}


@dataclass(frozen=True, slots=True)
class Room:
    columns: int
    number: int
    marker: int
    title: int
    note: int
    """0: it stands on a line of its own."""


def print_board(view: View, *, every: bool = False) -> None:
    print("\n".join(lines_of(view, columns(), every=every)), flush=True)


def lines_of(view: View, wide: int, *, every: bool = False) -> Iterator[str]:
    """What is shown, line by line; none is wider than the terminal."""
    if not view.exists:
        yield from wrapped('This project has no board yet. `remit task "TEXT"` records the first task and makes it.', wide).split("\n")
        return
    yield from _head(view, wide)
    room = _room(view, wide)
    for standing in Standing:
        tasks = view.group(standing)
        if tasks:
            yield ""
            yield from _group(view, standing, tasks, room, every=every)
    if not view.tasks:
        yield "No task fits." if view.is_chosen else 'No tasks: remit task "TEXT" records one.'
    yield from _foot(view, wide)


def _head(view: View, wide: int) -> Iterator[str]:
    counts = {name: number for name, number in view.counts().items() if number}
    tasks = count(sum(counts.values()), "task")
    parts = [f"{number:,} {name}" for name, number in counts.items()]
    parts += [f"{len(view.archived):,} in the archive"] if view.archived else []
    yield painted(cut(f"{tasks}: {' · '.join(parts)}".rstrip(": "), wide), "bold")


def _room(view: View, wide: int) -> Room:
    number = max((len(str(task.number)) for task in view.tasks), default=1)
    marker = max((len(task.status.marker) for task in view.tasks), default=0) + 2
    left = wide - number - marker - 6
    if wide < ROOMY:
        return Room(wide, number, marker, wide - number - 4, 0)
    note = min(max((width(_note(view, task)) for task in view.tasks[:1000]), default=0), max(24, left * 2 // 5))
    return Room(wide, number, marker, left - note - 2, note)


def _group(view: View, standing: Standing, tasks: list[Task], room: Room, *, every: bool) -> Iterator[str]:
    heading, style = _HEADINGS[standing]
    yield painted(cut(heading, room.columns - 8), f"bold {style}") + painted(f"  {len(tasks):,}", "dim")
    limit = len(tasks) if every else DONE_SHOWN if standing is Standing.DONE else SHOWN
    ordered = _latest_first(tasks) if standing is Standing.DONE and not every else tasks
    for task in ordered[:limit]:
        yield from _task(view, task, room)
    if len(tasks) > limit:
        yield painted(f"  … and {len(tasks) - limit:,} more (--all)", "dim")


def _latest_first(tasks: list[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: (task.completed or task.last_updated, task.number), reverse=True)


def _task(view: View, task: Task, room: Room) -> Iterator[str]:
    mark, mark_style = _MARKS[task.priority]
    begin = f"{painted(mark, mark_style)} {painted(f'{task.number:>{room.number}}', 'bold')}  "
    marker = painted(padded(f"[{task.status.marker}]", room.marker), _STYLES.get(task.status, ""))
    note = _note(view, task)
    style = "cyan" if view.next_command(task) else "dim"
    if room.note:
        title = padded(cut(task.title, room.title), room.title)
        yield f"{begin}{marker}  {title}  {painted(cut(note, room.note), style)}".rstrip()
        return
    yield begin + cut(task.title, room.title)
    indent = " " * (room.number + 4)
    yield f"{indent}{marker.rstrip()} {painted(cut(note, room.columns - len(indent) - len(task.status.marker) - 3), style)}".rstrip()


def _note(view: View, task: Task) -> str:
    """What matters most of how it stands."""
    standing = view.standing[task.number]
    if standing is Standing.RUNNING:
        holder = view.holders[task.number]
        session = f" · {short(task.session_id)}" if task.session_id else ""
        return f"{holder.command} · {duration(time.time() - holder.since)}{session}"
    if task.status is Status.EXPANDED:
        left = view.graph.open_parts(task.number)
        return f"divided; open: {_numbers(left)}" if left else "divided; all parts done"
    if standing is Standing.WAITING:
        return f"waits for {_numbers([_waited(view, number) for number in view.graph.unmet(task)])}"
    if standing is Standing.BLOCKED or task.status is Status.ABANDONED:
        return task.blocking_reason or "no reason given"
    command = view.next_command(task)
    return f"→ {command}" if command else task.completed[:10]


def _waited(view: View, number: int) -> str:
    """With what keeps it from ever being completed, when something does."""
    task = view.graph.tasks.get(number)
    status = task.status if task is not None else view.graph.archived.get(number)
    return f"{number} (abandoned)" if status is Status.ABANDONED else f"{number} (unknown)" if status is None else str(number)


def _numbers(numbers: Sequence[object]) -> str:
    shown = ", ".join(map(str, numbers[:6]))
    return shown + (f" and {len(numbers) - 6} more" if len(numbers) > 6 else "")


def _foot(view: View, wide: int) -> Iterator[str]:
    for circle in view.circles[:CIRCLES_SHOWN]:
        yield ""
        yield from _several(f"! {circle_words(circle)}: none of them can begin.", wide, "bold red")
    if len(view.circles) > CIRCLES_SHOWN:
        yield painted(f"! … and {count(len(view.circles) - CIRCLES_SHOWN, 'more circle')} (--json)", "bold red")
    for notice in view.notices[:SHOWN]:
        yield from _several(notice, wide, "yellow")


def _several(text: str, wide: int, style: str) -> Iterator[str]:
    """As many lines as it takes, for what must not be cut."""
    yield from (painted(cut(line, wide), style) for line in wrapped(cut(text, 10 * wide), wide).split("\n"))
