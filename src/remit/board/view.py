"""The board for display: dependencies of tasks, and the state of each: running, stopped, ready, waiting, blocked, done. Read only.

`cli.board` shows it in a terminal, `board.picture` draws it to a file."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from remit.board.archive import archived_tasks
from remit.board.board import Board
from remit.board.claims import Holder, holders
from remit.board.state_file import task_to_entry
from remit.board.task import ENDED, IN_PROGRESS, Priority, State, Status, Task, status_of

# ---- dependencies that are met or not. Pure


NEXT: Mapping[Status, str] = {
    Status.NOT_STARTED: "research",
    Status.RESEARCHING: "research",
    Status.RESEARCHED: "plan",
    Status.PLANNING: "plan",
    Status.PLANNED: "implement",
    Status.REVISING: "revise",
    Status.REVISED: "implement",
    Status.IMPLEMENTING: "implement",
    Status.PARTIAL: "implement",
}
"""The next command for a task with that status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The dependencies of a board; archived tasks count by how they ended."""

    tasks: Mapping[int, Task]
    archived: Mapping[int, Status] = field(default_factory=dict)
    parts: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Subtasks of divided tasks that are still on the board."""

    def is_met(self, number: int) -> bool:
        """Completed, on the board or in the archive; a divided task once none of its parts is open."""
        task = self.tasks.get(number)
        if task is None:
            return self.archived.get(number) is Status.COMPLETED
        if task.status is Status.EXPANDED:
            return not self.open_parts(number)
        return task.status is Status.COMPLETED

    def open_parts(self, number: int) -> list[int]:
        """Open parts of a divided task, recursively."""
        found, queue = [], list(self.parts.get(number, ()))
        seen = {number}
        for part in queue:  # grows during the loop
            if part in seen:
                continue
            seen.add(part)
            status = self.tasks[part].status
            if status is Status.EXPANDED:
                queue += self.parts.get(part, ())
            elif status not in ENDED:
                found.append(part)
        return found

    def unmet(self, task: Task) -> tuple[int, ...]:
        return tuple(number for number in task.dependencies if not self.is_met(number))


def graph_of(state: State, archived: Mapping[int, Status] | None = None) -> Graph:
    parts: dict[int, list[int]] = {}
    for task in state.tasks:
        if task.parent is not None:
            parts.setdefault(task.parent, []).append(task.number)
    return Graph(
        tasks={task.number: task for task in state.tasks},
        archived=archived or {},
        parts={number: tuple(found) for number, found in parts.items()},
    )


def review_verdict(task: Task) -> str:
    """The result of its last review: `review: 2 high, 1 low`; empty: no review, or only prose."""
    last = next((one for one in reversed(task.artifacts) if one.type == "review"), None)
    found = last.extra.get("findings") if last is not None else None
    if not isinstance(found, Mapping):
        return ""
    return f"review: {', '.join(f'{number} {severity}' for severity, number in found.items()) or 'no findings'}"


# ---- the view


_RANK = {priority: rank for rank, priority in enumerate(Priority)}


class TaskState(StrEnum):
    """In display order."""

    RUNNING = "running"
    STOPPED = "stopped"
    """Marked as in progress without a live process: the same command resumes it."""
    READY = "ready"
    WAITING = "waiting"
    BLOCKED = "blocked"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    tasks: tuple[Task, ...]
    """Selected tasks: by state, then by priority, then in board order."""
    states: Mapping[int, TaskState]
    """Of all tasks, selected or not."""
    graph: Graph
    holders: Mapping[int, Holder] = field(default_factory=dict)
    archived: frozenset[int] = frozenset()
    """Which of the tasks come from the archive."""
    notices: tuple[str, ...] = ()
    project: str = ""
    """Name of the project's folder."""
    exists: bool = True

    def group(self, state: TaskState) -> list[Task]:
        return [task for task in self.tasks if self.states[task.number] is state]

    def counts(self) -> dict[str, int]:
        """Number of tasks in each state, without archived ones."""
        found = dict.fromkeys(map(str, TaskState), 0)
        for number, state in self.states.items():
            found[state] += number not in self.archived
        return found

    def next_command(self, task: Task) -> str:
        """The command to type for it now; empty while it runs, waits or is done."""
        verb = NEXT.get(task.status) if self.states[task.number] in (TaskState.READY, TaskState.STOPPED) else ""
        return f"remit {verb} {task.number}" if verb else ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "counts": self.counts(),
            "notices": list(self.notices),
            "tasks": [self.entry(task) for task in self.tasks],
        }

    def entry(self, task: Task) -> dict[str, Any]:
        holder = self.holders.get(task.number)
        running = {"command": holder.command, "pid": holder.pid, "since": holder.since, "session_id": holder.session_id} if holder else None
        return {
            **task_to_entry(task),
            "standing": str(self.states[task.number]),
            "waits_for": list(self.graph.unmet(task)),
            "running": running,
            "next": self.next_command(task),
            "review": review_verdict(task),
            "archived": task.number in self.archived,
        }


def view_of(board: Board, *, with_archive: bool = False) -> View:
    """Archived tasks count for dependencies; they are included in the tasks only `with_archive`."""
    seen = board.look()
    away = archived_tasks(board)
    graph = graph_of(seen.state, {task.number: task.status for task in away})
    working = holders(board)
    shown = [*seen.state.tasks, *(away if with_archive else [])]
    archived = frozenset(task.number for task in away) - graph.tasks.keys()
    states = {task.number: _state_of(task, graph, working, archived) for task in shown}
    order = {one: place for place, one in enumerate(TaskState)}
    return View(
        tasks=tuple(sorted(shown, key=lambda task: (order[states[task.number]], _RANK[task.priority]))),
        states=states,
        graph=graph,
        holders=working,
        archived=archived,
        notices=seen.notices,
        project=board.root.name,
        exists=seen.exists,
    )


def chosen(view: View, status: str) -> View:
    """Filter by statuses or states separated by commas. Raises `Misused` for an unknown word."""
    words = [part.strip() for part in status.split(",") if part.strip()]
    if not words:
        return view
    states = {word.lower() for word in words} & ({*TaskState} - {TaskState.BLOCKED})
    statuses = {status_of(word) for word in words if word.lower() not in states}
    tasks = tuple(task for task in view.tasks if view.states[task.number] in states or task.status in statuses)
    return replace(view, tasks=tasks)


def _state_of(task: Task, graph: Graph, working: Collection[int], archived: Collection[int]) -> TaskState:
    if task.number in archived or (task.status in ENDED and not graph.open_parts(task.number)):
        return TaskState.DONE
    if task.number in working:
        return TaskState.RUNNING
    if task.status in IN_PROGRESS:
        return TaskState.STOPPED
    if task.status is Status.BLOCKED:
        return TaskState.BLOCKED
    return TaskState.WAITING if graph.unmet(task) or task.status in ENDED else TaskState.READY  # divided: it waits for its parts
