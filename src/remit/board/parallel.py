"""Implements several tasks: in turn, or at once, each in its own worktree, merged through one merge queue.

At once, a task begins when all it depends on has landed, and while no other one runs whose plan names the same files. One that fails
stops only those that depend on it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remit.app import Remit
from remit.board.board import Board
from remit.board.claims import holders
from remit.board.command_lifecycle import LEAST_SECONDS, order_tasks, unmet
from remit.board.implement import check_agents, implement, refused_outcome, show_nothing
from remit.board.outcome import Outcome, Waiting, name_tasks, wait_for_result
from remit.board.phases import plan_of
from remit.board.task import ENDED, IN_PROGRESS, Status
from remit.board.task_landing import QUEUE, LandingOptions, check_acceptance
from remit.core.budget import Budget, Limits
from remit.core.deadline import allowed_timeout
from remit.core.delegation import ORIGIN, ROOT_CALLER, CallerInfo, Origin
from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.runtime.merge_queue import MergeQueue
from remit.system.threads import off_loop


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelOptions:
    """Of several tasks; those for all tasks together only for tasks at once."""

    width: int = 4
    """Maximum parallel agents."""
    force: bool = False
    timeout: float | None = None
    """Of each task."""
    timeout_all: float | None = None
    """Of all tasks together."""
    budget: Limits | None = None
    """Of all tasks together, beside that of each tree."""
    focus: str = ""
    is_accepting: bool = True
    waiting: Waiting = wait_for_result
    show: Callable[[str], None] = show_nothing
    each: Callable[[Outcome], None] | None = None
    """Gets the outcome of a task as soon as it is known."""
    is_stopped: Callable[[], bool] = lambda: False
    """Whether to start no further task."""


def ready_tasks(board: Board) -> tuple[int, ...]:
    """All tasks that can be implemented now, or after others of them. Blocking."""
    state, held = board.look().state, holders(board)
    never = ENDED | {Status.BLOCKED} | IN_PROGRESS - {Status.IMPLEMENTING}
    open_ones = {task.number: task for task in state.tasks if task.status not in never and task.number not in held}
    while True:
        waits = [number for number, task in open_ones.items() if any(one not in open_ones for one in unmet(board, state, task))]
        if not waits:
            return tuple(open_ones)
        for number in waits:
            del open_ones[number]


async def implement_each(remit: Remit, board: Board, numbers: Sequence[int], options: ParallelOptions) -> Outcome:
    """Implement these tasks in turn, up to the first that is not completed. All are checked before one starts: raises `Refused` or
    `Misused`. The outcome of one task is its own."""
    more: dict[str, Any] = {"timeout": options.timeout, "landing": LandingOptions(is_accepting=options.is_accepting), "show": options.show}
    if len(numbers) == 1:
        return await implement(remit, board, numbers[0], **more, **_common(options))
    await off_loop(check_agents, remit, board, numbers)
    order, done = await off_loop(order_tasks, board, numbers, options.force)
    outcomes = list[Outcome]()
    for at, number in enumerate(order, 1):
        options.show(f"task {number} ({at} of {len(order)})")
        try:
            outcome = await implement(remit, board, number, **more, **_common(options))
        except RemitError as error:  # it may be claimed, or changed, since it was checked
            outcome = refused_outcome(number, error)
        outcomes.append(outcome)
        if options.each is not None:
            options.each(outcome)
        if outcome.status != "completed":
            break
    return combined_outcome(outcomes, done, order[len(outcomes) :])


async def implement_parallel(remit: Remit, board: Board, numbers: Sequence[int], options: ParallelOptions) -> Outcome:
    """Implement these tasks. All are checked before one starts: raises `Refused` or `Misused`."""
    if options.width < 1:
        raise Misused(f"--parallel takes a number of at least 1, not {options.width}.")
    allowed_timeout(options.timeout, remit.settings.limits_for("implement"))
    await off_loop(check_agents, remit, board, numbers)
    run = _ParallelRun(remit, board, options)
    return await run.carry_out(*await off_loop(run.check, numbers))


class _ParallelRun:
    def __init__(self, remit: Remit, board: Board, options: ParallelOptions) -> None:
        self._remit = remit
        self._board = board
        self._options = options
        self._landing = LandingOptions(
            queue=MergeQueue(remit.root, remit.settings, is_accepting=options.is_accepting, marks=remit.process_marks),
            mode=QUEUE,
            is_accepting=options.is_accepting,
            slots=asyncio.Semaphore(options.width),
        )
        self._ends_at = None if options.timeout_all is None else time.monotonic() + options.timeout_all
        self._pending: list[int] = []
        self._needs: dict[int, tuple[int, ...]] = {}
        """By number: the tasks of the run it depends on."""
        self._files: dict[int, set[str]] = {}
        """By number: the files that its plan names."""
        self._running: dict[asyncio.Task[Outcome], int] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._stopped = ""
        """Why no further task starts."""

    def check(self, numbers: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The order of the tasks, and those already completed. Blocking."""
        board = self._board
        order, done = order_tasks(board, numbers, self._options.force)
        for task in map(board.look().state.task, order):
            plan = plan_of(board, task)
            check_acceptance(self._remit.settings, task, plan, self._landing)
            self._needs[task.number] = tuple(one for one in task.dependencies if one in order)
            self._files[task.number] = {path for phase in plan.phases for path in phase.files}
        return order, done

    async def carry_out(self, order: Sequence[int], done: Sequence[int]) -> Outcome:
        if self._options.budget is not None:
            budget = Budget(self._options.budget, opened_at=asyncio.get_running_loop().time())
            ORIGIN.set(Origin(caller_info=CallerInfo(ROOT_CALLER), budget=budget))
        self._pending = list(order)
        try:
            while self._pending or self._running:
                self._begin()
                if not self._running:
                    break
                ended, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    outcome = self._outcomes[self._running.pop(task)] = task.result()
                    if self._options.each is not None:
                        self._options.each(outcome)
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
        outcomes = [self._outcomes[number] for number in order if number in self._outcomes]
        why = self._stopped or "they depend on a task that is not completed"
        outcome = combined_outcome(outcomes, done, self._pending, why=why)
        return replace(outcome, status="partial") if outcome.status != "completed" and outcome.data["completed"] else outcome

    def _begin(self) -> None:
        """Start as many as may run now. Work that waits for its merge takes no agent slot."""
        if self._options.is_stopped():
            self._stopped = "it was interrupted"
        elif self._ends_at is not None and self._ends_at - time.monotonic() < LEAST_SECONDS:
            self._stopped = "the time limit for all tasks was reached"
        for number in list(self._pending):
            busy = set(self._running.values())
            if self._stopped or len(busy) >= 2 * self._options.width:
                return
            needs = [self._outcomes.get(one) for one in self._needs[number]]
            is_free = not any(self._files[number] & self._files[one] for one in busy)
            if is_free and all(one is not None and one.status == "completed" for one in needs):
                self._pending.remove(number)
                self._options.show(f"task {number}: begun")
                self._running[asyncio.create_task(self._implement(number))] = number

    async def _implement(self, number: int) -> Outcome:
        options = self._options
        timeout = options.timeout
        if self._ends_at is not None:
            left = max(LEAST_SECONDS, self._ends_at - time.monotonic())
            timeout = min(left, allowed_timeout(timeout, self._remit.settings.limits_for("implement")))

        def show(words: str) -> None:
            options.show(words if words.startswith(f"task {number}") else f"task {number}: {words}")

        try:
            board = Board(self._board.root, clock=self._board.clock)
            return await implement(self._remit, board, number, timeout=timeout, landing=self._landing, show=show, **_common(options))
        except RemitError as error:
            if error.code == "MERGE_RED" and isinstance(error, Refused):
                self._stopped = error.message
            return refused_outcome(number, error)
        except OSError as error:
            return refused_outcome(number, Unavailable(f"Task {number} could not be worked on: {error}"))


def _common(options: ParallelOptions) -> dict[str, Any]:
    """Options of `implement` that are the same for all tasks."""
    return {"focus": options.focus, "force": options.force, "waiting": options.waiting}


def combined_outcome(outcomes: Sequence[Outcome], done: Sequence[int], pending: Sequence[int], *, why: str = "") -> Outcome:
    """One outcome of several tasks. `done`: completed before; `pending`: not begun, and `why`."""
    completed = [one.task_number for one in outcomes if one.status == "completed" and one.task_number is not None]
    others = [one for one in outcomes if one.status != "completed"]
    listed = (("Already completed", done), ("Completed", completed), ("Not begun", pending))
    parts = [f"{what}: {name_tasks(numbers).lower()}." for what, numbers in listed if numbers]
    parts += [f"Not begun because {why}."] if pending and why else []
    parts += [f"Task {one.task_number} is {one.status}: {one.summary}" for one in others]
    return Outcome(
        command="implement",
        status=others[0].status if others else "failed" if pending else "completed",
        summary="\n".join(parts) or "There was nothing to do.",
        errors=tuple(error for one in others for error in one.errors),
        next_steps=others[0].next_steps if others else "`remit review N` reviews the work of one; `remit todo` archives them.",
        session_id=next((one.session_id for one in (*others, *reversed(outcomes))), ""),
        stop_reason=others[0].stop_reason if others else "finished",
        data={
            "completed": completed, "already_completed": list(done), "not_begun": list(pending),
            "outcomes": [one.to_dict() for one in outcomes],
        },
    )  # fmt: skip
