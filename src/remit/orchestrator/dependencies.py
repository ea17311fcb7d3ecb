"""Whether what a task depends on is completed, on the board or in the archive; and tasks put in the order of their dependencies.

Blocking: reads the archive.
"""

from collections.abc import Sequence

from remit.board.archive import archived_tasks
from remit.board.board import Board
from remit.board.graph import cycles, graph_of
from remit.board.task import State, Task
from remit.core.errors import Refused


def check_dependencies(board: Board, state: State, task: Task, *, force: bool, sparing: Sequence[int] = ()) -> tuple[str, ...]:
    """The warning when only `force` lets it begin. Raises `Refused` and names what is not completed. `sparing`: done before it, by then."""
    waits_for = [number for number in unmet(board, state, task) if number not in sparing]
    if not waits_for:
        return ()
    named = ", ".join(_named(state, number) for number in waits_for)
    words = f"Task {task.number} depends on what is not completed: {named}."
    if force:
        return (f"The check of dependencies was skipped (--force): {words}",)
    advice = f"Complete task {waits_for[0]} first, or use --force to go on all the same."
    raise Refused(words, code="INVALID_STATUS_TRANSITION", advice=advice)


def unmet(board: Board, state: State, task: Task) -> tuple[int, ...]:
    if not task.dependencies:
        return ()
    waits_for = graph_of(state).unmet(task)
    if all(state.find(number) is not None for number in waits_for):
        return waits_for
    return graph_of(state, {one.number: one.status for one in archived_tasks(board)}).unmet(task)


def in_turn(state: State, numbers: Sequence[int]) -> list[int]:
    """The same tasks, each after those of them that it depends on; else in the order given. Raises `Refused` for a circle."""
    tasks = [state.task(number) for number in dict.fromkeys(numbers)]
    if found := cycles(tasks):
        circle = " → ".join(map(str, (*found[0], found[0][0])))
        raise Refused(f"These tasks depend on one another in a circle: {circle}.", code="CYCLE_DETECTED", advice="Change one of them.")
    left, ordered = {task.number: task for task in tasks}, list[int]()
    while left:
        ready = next(task for task in left.values() if not any(number in left for number in task.dependencies))
        ordered.append(ready.number)
        del left[ready.number]
    return ordered


def _named(state: State, number: int) -> str:
    task = state.find(number)
    return f"task {number} [{task.status.marker}]" if task is not None else f"task {number} (not on the board)"
