"""The order in which tasks are implemented: their dependencies, what may start, and the dry run. Read only."""

from collections.abc import Sequence

from remit.board.archive import archived_tasks
from remit.board.board import Board
from remit.board.command_lifecycle import Find, check_entry, must_exist, require_route, would_run
from remit.board.outcome import Outcome
from remit.board.phases import plan_of
from remit.board.task import State, Status, Task
from remit.board.view import graph_of
from remit.core.errors import Refused
from remit.core.settings import Settings


def order_tasks(board: Board, numbers: Sequence[int], force: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The order of the tasks after all were checked; and those already completed. Blocking."""
    state = must_exist(board, *numbers)
    order = sort_by_dependencies(state, numbers)
    done = tuple(number for number in order if state.task(number).status is Status.COMPLETED)
    left = tuple(number for number in order if number not in done)
    for number in left:
        task = state.task(number)
        check_entry(task, "implement", force=force)
        check_dependencies(board, state, task, force=force, sparing=left)
        plan_of(board, task)
    return left, done


# ---- dry run


def dry_run_implement(
    settings: Settings, board: Board, find: Find, numbers: Sequence[int], *, force: bool = False, timeout: float | None = None
) -> Outcome:
    """Which phases would run, and by whom."""
    order, done = order_tasks(board, numbers, force)
    state = board.look().state
    chosen = require_route(settings, find, "implement", state.task(next(iter(order), numbers[0])), timeout)
    lines = [f"Task {number} is completed already." for number in done]
    for task in map(state.task, order):
        phases = [f"\n  phase {phase.number}: {phase.name} [{phase.status}]" for phase in plan_of(board, task).open_phases]
        lines.append(f"Would implement task {task.number}: {task.title}{''.join(phases)}")
    only = state.task(numbers[0]) if len(numbers) == 1 else None
    warnings = check_entry(only, "implement", force=force) if only is not None and not done else ()
    return would_run(find, chosen, "implement", "\n".join(lines), task=only, warnings=warnings)


# ---- dependencies


def check_dependencies(board: Board, state: State, task: Task, *, force: bool, sparing: Sequence[int] = ()) -> tuple[str, ...]:
    """The warning if only `force` lets it start. Raises `Refused` with the incomplete ones. `sparing`: tasks
    completed before it by then."""
    waits_for = [number for number in unmet(board, state, task) if number not in sparing]
    if not waits_for:
        return ()
    named = ", ".join(_named(state, number) for number in waits_for)
    words = f"Task {task.number} depends on incomplete tasks: {named}."
    if force:
        return (f"The check of dependencies was skipped (--force): {words}",)
    advice = f"Complete task {waits_for[0]} first, or use --force to continue all the same."
    raise Refused(words, code="INVALID_STATUS_TRANSITION", advice=advice)


def unmet(board: Board, state: State, task: Task) -> tuple[int, ...]:
    if not task.dependencies:
        return ()
    waits_for = graph_of(state).unmet(task)
    if all(state.find(number) is not None for number in waits_for):
        return waits_for
    return graph_of(state, {one.number: one.status for one in archived_tasks(board)}).unmet(task)


def sort_by_dependencies(state: State, numbers: Sequence[int]) -> list[int]:
    """The same tasks, each after those it depends on; else in the given order. Raises `Refused` for a cycle."""
    tasks = [state.task(number) for number in dict.fromkeys(numbers)]
    left, ordered = {task.number: task for task in tasks}, list[int]()
    while left:
        ready = next((task for task in left.values() if not any(number in left for number in task.dependencies)), None)
        if ready is None:
            named = ", ".join(map(str, left))
            raise Refused(f"Of these tasks, some depend on one another in a cycle: {named}.", code="CYCLE_DETECTED", advice="Change one.")
        ordered.append(ready.number)
        del left[ready.number]
    return ordered


def _named(state: State, number: int) -> str:
    task = state.find(number)
    return f"task {number} [{task.status.marker}]" if task is not None else f"task {number} (not on the board)"
