"""The board as somebody looks at it: each task with how it stands: running, stopped, ready, waiting, blocked, done. Reads, writes nothing.

For drawing: `cli.board_drawing` puts it into a terminal, `board.picture` into a file.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from remit.board.board import Board
from remit.board.claims import Holder, holders
from remit.board.graph import CLOSED, Graph, cycles, graph_of, next_command
from remit.board.state_file import task_to_entry
from remit.board.statuses import IN_PROGRESS, Status, status_of
from remit.board.task import Priority, Task
from remit.core.errors import Misused

_RANK = {priority: rank for rank, priority in enumerate(Priority)}


class Standing(StrEnum):
    """In the order in which they are shown."""

    RUNNING = "running"
    STOPPED = "stopped"
    """Marked as in progress, and nobody alive works on it: the same command goes on."""
    READY = "ready"
    WAITING = "waiting"
    BLOCKED = "blocked"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    tasks: tuple[Task, ...]
    """Those that were asked for: by standing, then by priority, then as they stand on the board."""
    standing: Mapping[int, Standing]
    """Of all tasks, shown or not."""
    graph: Graph
    holders: Mapping[int, Holder] = field(default_factory=dict)
    circles: tuple[tuple[int, ...], ...] = ()
    archived: frozenset[int] = frozenset()
    """Which of the tasks come from the archive."""
    notices: tuple[str, ...] = ()
    project: str = ""
    """The name of its folder."""
    exists: bool = True
    is_chosen: bool = False
    """Some were left out because of what was asked for."""

    def group(self, standing: Standing) -> list[Task]:
        return [task for task in self.tasks if self.standing[task.number] is standing]

    def counts(self) -> dict[str, int]:
        """How many tasks of the board stand how; those of the archive are not among them."""
        found = dict.fromkeys(map(str, Standing), 0)
        for number, standing in self.standing.items():
            found[standing] += number not in self.archived
        return found

    def next_command(self, task: Task) -> str:
        """What to type for it now; empty while it runs, waits or is done."""
        return next_command(task) if self.standing[task.number] in (Standing.READY, Standing.STOPPED) else ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "counts": self.counts(),
            "cycles": [list(circle) for circle in self.circles],
            "notices": list(self.notices),
            "tasks": [self.entry(task) for task in self.tasks],
        }

    def entry(self, task: Task) -> dict[str, Any]:
        holder = self.holders.get(task.number)
        running = {"command": holder.command, "pid": holder.pid, "since": holder.since, "session_id": task.session_id} if holder else None
        return {
            **task_to_entry(task),
            "standing": str(self.standing[task.number]),
            "waits_for": list(self.graph.unmet(task)),
            "running": running,
            "next": self.next_command(task),
            "archived": task.number in self.archived,
        }


def view_of(board: Board, archive: Iterable[Task] = (), *, with_archive: bool = False) -> View:
    """`archive`: the archived tasks, which decide what is met; they are among the tasks only `with_archive`."""
    seen = board.look()
    away = list(archive)
    graph = graph_of(seen.state, {task.number: task.status for task in away})
    working = holders(board)
    shown = [*seen.state.tasks, *(away if with_archive else [])]
    archived = frozenset(task.number for task in away) - graph.tasks.keys()
    standing = {task.number: _standing(task, graph, working, archived) for task in shown}
    order = {one: place for place, one in enumerate(Standing)}
    return View(
        tasks=tuple(sorted(shown, key=lambda task: (order[standing[task.number]], _RANK[task.priority]))),
        standing=standing,
        graph=graph,
        holders=working,
        circles=tuple(cycles(task for task in seen.state.tasks if task.status not in CLOSED)),
        archived=archived,
        notices=seen.notices,
        project=board.root.name,
        exists=seen.exists,
    )


def chosen(view: View, *, status: str = "", priority: str = "", language: str = "") -> View:
    """Only what was asked for: statuses or standings separated by commas. Raises `Misused` for a word that is neither."""
    if not (status or priority or language):
        return view
    standings, statuses = _asked_statuses(status)
    priorities = {_priority(part) for part in _parts(priority)}
    languages = {part.casefold() for part in _parts(language)}

    def fits(task: Task) -> bool:
        stands = not (standings or statuses) or view.standing[task.number] in standings or task.status in statuses
        is_urgent = not priorities or task.priority in priorities
        return stands and is_urgent and (not languages or (task.language or "general").casefold() in languages)

    return replace(view, tasks=tuple(filter(fits, view.tasks)), is_chosen=True)


def _standing(task: Task, graph: Graph, working: Collection[int], archived: Collection[int]) -> Standing:
    if task.number in archived or (task.status in CLOSED and not graph.open_parts(task.number)):
        return Standing.DONE
    if task.number in working:
        return Standing.RUNNING
    if task.status in IN_PROGRESS:
        return Standing.STOPPED
    if task.status is Status.BLOCKED:
        return Standing.BLOCKED
    return Standing.WAITING if graph.unmet(task) or task.status in CLOSED else Standing.READY  # divided: it waits for its parts


def _asked_statuses(text: str) -> tuple[set[Standing], set[Status]]:
    standings, statuses = set(), set()
    for part in _parts(text):
        word = part.lower()
        if word in set(Standing) and word != Standing.BLOCKED:
            standings.add(Standing(word))
            continue
        try:
            statuses.add(status_of(part))
        except Misused as misused:
            more = ", ".join(one for one in Standing if one != Standing.BLOCKED)
            raise Misused(misused.message, advice=f"{misused.advice} Or how tasks stand: {more}.") from None
    return standings, statuses


def _priority(text: str) -> Priority:
    try:
        return Priority(text.lower())
    except ValueError:
        raise Misused(f"Unknown priority {text!r}.", advice="Use high, medium or low.") from None


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
