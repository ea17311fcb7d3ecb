"""Which task waits for which: dependencies that are met or not, what is ready, circles found and named. Pure, and quick for thousands."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from remit.board.statuses import IN_PROGRESS, Status
from remit.board.task import State, Task
from remit.core.cycles import cyclic_components, shortest_cycle

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
    Status.ABANDONED: "task --recover",
}
"""What a person would type next for a task that stands there."""
CLOSED = frozenset({Status.COMPLETED, Status.EXPANDED, Status.ABANDONED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The dependencies of a board, archived tasks counted by how they ended."""

    tasks: Mapping[int, Task]
    archived: Mapping[int, Status] = field(default_factory=dict)
    parts: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Of each task that was divided: its subtasks that are still on the board."""

    def is_met(self, number: int) -> bool:
        """Completed, on the board or in the archive; a divided task when nothing of its parts is left to do."""
        task = self.tasks.get(number)
        if task is None:
            return self.archived.get(number) is Status.COMPLETED
        if task.status is Status.EXPANDED:
            return not self.open_parts(number)
        return task.status is Status.COMPLETED

    def open_parts(self, number: int) -> list[int]:
        """What of a divided task is still to be done: parts that are neither completed nor given up, parts of parts too."""
        found, queue = [], list(self.parts.get(number, ()))
        seen = {number}
        for part in queue:  # grows while it is gone through
            if part in seen:
                continue
            seen.add(part)
            status = self.tasks[part].status
            if status is Status.EXPANDED:
                queue += self.parts.get(part, ())
            elif status not in CLOSED:
                found.append(part)
        return found

    def unmet(self, task: Task) -> tuple[int, ...]:
        return tuple(number for number in task.dependencies if not self.is_met(number))

    def is_ready(self, task: Task) -> bool:
        """Somebody could go on with it now: it is open, not blocked, nobody's marker is on it, and all it depends on is completed."""
        return task.status not in CLOSED | IN_PROGRESS and task.status is not Status.BLOCKED and not self.unmet(task)


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


def next_command(task: Task) -> str:
    """What to type to go on with it; empty when nothing is to be done."""
    verb = NEXT.get(task.status)
    if task.status is Status.BLOCKED:
        verb = "implement" if task.has_plan else "plan" if any(one.type in ("report", "research") for one in task.artifacts) else "research"
    return f"remit {verb} {task.number}" if verb else ""


def cycles(tasks: Iterable[Task]) -> list[tuple[int, ...]]:
    """Tasks that wait for one another, each circle as one walks it: (3, 5, 9) when 3 depends on 5, 5 on 9 and 9 on 3."""
    after = {task.number: task.dependencies for task in tasks}
    return sorted(shortest_cycle(min(component), after, component) for component in cyclic_components(after))


def circle_words(circle: Sequence[int]) -> str:
    """`Tasks 3 → 5 → 3 wait for one another`, `Task 4 waits for itself`"""
    if len(circle) == 1:
        return f"Task {circle[0]} waits for itself"
    shown = [*map(str, circle[:12]), *(["…"] if len(circle) > 12 else []), str(circle[0])]
    return f"Tasks {' → '.join(shown)} wait for one another"


def closing(tasks: Iterable[Task], number: int, dependencies: Collection[int]) -> tuple[int, ...]:
    """The circle that task `number` would close by depending on these; empty: none."""
    after: dict[int, Sequence[int]] = {task.number: task.dependencies for task in tasks}
    after[number] = tuple(dependencies)
    return shortest_cycle(number, after, after)
