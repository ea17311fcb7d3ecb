"""Whether what a task depends on is completed, on the board or in the archive; and tasks put in the order of their dependencies.

Blocking: reads the archive.
"""

import json
from collections.abc import Mapping, Sequence

from remit.board.book import Board
from remit.board.graph import cycles, graph_of
from remit.board.statuses import Status, status_of
from remit.board.task import State, Task
from remit.core.errors import Misused, Refused


def check_dependencies(board: Board, state: State, task: Task, *, force: bool, sparing: Sequence[int] = ()) -> tuple[str, ...]:
    """The warning when only `force` lets it begin. Raises `Refused` and names what is not completed. `sparing`: done before it, by then."""
    waits_for = [number for number in unmet(board, state, task) if number not in sparing]
    if not waits_for:
        return ()
    named = ", ".join(_named(state, number) for number in waits_for)
    words = f"Task {task.number} depends on what is not completed: {named}."
    if force:
        return (f"The check of dependencies was skipped (--force): {words}",)
    first = f"{waits_for[0]}"
    raise Refused(words, code="INVALID_STATUS_TRANSITION", advice=f"Complete task {first} first, or use --force to go on all the same.")


def unmet(board: Board, state: State, task: Task) -> tuple[int, ...]:
    if not task.dependencies:
        return ()
    graph = graph_of(state)
    open_ = graph.unmet(task)
    return graph_of(state, archived(board)).unmet(task) if any(state.find(number) is None for number in open_) else open_


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


def archived(board: Board) -> dict[int, Status]:
    """How each archived task ended; what cannot be read counts as not there."""
    try:
        data = json.loads(board.archive_path.read_bytes())
    except (OSError, ValueError):
        return {}
    lists = (
        [value for key, value in data.items() if key.endswith("_projects") and isinstance(value, list)] if isinstance(data, dict) else []
    )
    found: dict[int, Status] = {}
    for entry in (one for some in lists for one in some if isinstance(one, Mapping)):
        try:
            found[int(entry["project_number"])] = status_of(str(entry["status"]))
        except (KeyError, TypeError, ValueError, Misused):
            continue
    return found


def _named(state: State, number: int) -> str:
    task = state.find(number)
    return f"task {number} [{task.status.marker}]" if task is not None else f"task {number} (not on the board)"
