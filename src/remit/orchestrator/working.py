"""What every command that works on a task does around its agent: enter (check, mark), hand over, settle (write the board once).

The parts; `research`, `plan` and `implement` put them together. Whoever uses them holds the task's claim (`board.claims`) meanwhile.

A run is named in the task's entry from the moment it is marked until its return is filed. So a run that is named there and whose process
is dead was not filed: what it returned is taken from the record by that name (the delegation's key), and nothing that is finished runs
twice.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from remit.app import Remit
from remit.board.archive import not_found
from remit.board.board import Board, no_board
from remit.board.statuses import BEGINS, IN_PROGRESS, Status, check_move
from remit.board.task import State, Task
from remit.core.errors import Misused, Refused
from remit.core.events import Event
from remit.core.record import Record
from remit.core.result import Return, StopReason
from remit.engine.embedded import CURRENT
from remit.flow.route import GENERAL, Route, RoutingTable, route
from remit.orchestrator.complexity import context_loaded, judged
from remit.orchestrator.outcome import Waiting, plainly
from remit.switchboard.here import token_here
from remit.system.threads import off_loop

T = TypeVar("T")
RUN = "run"
"""The key of the task's entry in state.json that names the run whose return is not filed yet."""
MARGIN_SECONDS = 120.0
"""How long a claim outlasts the time limit of the work: for filing and committing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """A task marked as being worked on."""

    task: Task
    """As it is now marked."""
    before: Task
    state: State
    run: str
    """The name of this run, and the key of its delegation."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filed:
    """The board after a return was filed."""

    task: Task | None
    """None: somebody took it off the board meanwhile."""
    warnings: tuple[str, ...] = ()


def run_left_by(task: Task, command: str) -> str:
    """The name of a run of this command that was begun and never filed; empty: there is none. Meaningful to the holder of the claim."""
    run = task.extra.get(RUN)
    is_of_it = isinstance(run, str) and run.startswith(_run_prefix(task.number, command))
    return str(run) if is_of_it and task.status is BEGINS[command] else ""


def check_entry(task: Task, command: str, *, force: bool) -> tuple[str, ...]:
    """Whether `command` may begin on it; the warning when only `force` lets it. Raises `Refused` (INVALID_STATUS_TRANSITION).

    The marker of the same command may be entered again: whoever holds the claim knows that its owner is gone.
    """
    begins = BEGINS[command]
    if task.status is begins:
        return ()
    try:
        check_move(task.number, task.status, begins)
    except Refused as refused:
        if not force:
            raise Refused(refused.message, code=refused.code, advice=_advice(task, refused.advice)) from None
        return (f"The status check was skipped (--force): {refused.message}",)
    return ()


def entered(
    board: Board,
    number: int,
    command: str,
    *,
    force: bool = False,
    check: Callable[[State, Task], Sequence[str]] = lambda _state, _task: (),
) -> Entered:
    """Mark the task as being worked on, as one change of the board. `check` may refuse by raising; what it gives are warnings. Blocking."""
    run = f"{_run_prefix(number, command)}{secrets.token_hex(6)}"
    with board.change() as draft:
        task = draft.state.task(number)
        warnings = (*check_entry(task, command, force=force), *check(draft.state, task))
        marked = task.moved(BEGINS[command], at=draft.at)
        marked = replace(marked, extra={**task.extra, RUN: run})
        draft.state = draft.state.with_task(marked).noting(draft.at, f"Task {number}: {command} begun", task_number=number)
    return Entered(task=marked, before=task, state=draft.state, run=run, warnings=(*draft.notices, *warnings))


def note_session(board: Board, number: int, session_id: str) -> None:
    """Name on the board the delegation that now works on the task: where one run is many delegations. Blocking."""
    session_noted(board, number, session_id)


def session_noted(board: Board, number: int, session_id: str) -> tuple[str, ...]:
    """The same; what a person's edit of TODO.md gave rise to meanwhile, a line each. Blocking."""
    with board.change() as draft:
        task = draft.state.find(number)
        if task is not None:
            draft.state = draft.state.with_task(replace(task, session_id=session_id))
    return draft.notices


def settled(
    board: Board,
    number: int,
    activity: str,
    change: Callable[[Task, str], Task],
    *,
    session_id: str = "",
    files: Mapping[str, bytes] | None = None,
) -> Filed:
    """File what became of the work, as one change of the board: `change(task, at)` gives the task as it is to be. The run is over with it.

    `files`: more files of the same change, by path relative to the root. A task that somebody took off the board stays off; the files are
    written all the same. Blocking.
    """
    with board.change() as draft:
        draft.files.update(files or {})
        task = draft.state.find(number)
        if task is None:
            gone = f"Task {number} was taken off the board while it was worked on; what was made for it is kept."
            return Filed(task=None, warnings=(*draft.notices, gone))
        done = change(task, draft.at)
        extra = {key: value for key, value in done.extra.items() if key != RUN}
        done = replace(done, extra=extra, session_id=session_id or done.session_id, last_updated=draft.at)
        more = {"task_number": number, **({"session_id": session_id} if session_id else {})}
        draft.state = draft.state.with_task(done).noting(draft.at, activity, **more)
    return Filed(task=done, warnings=draft.notices)


def moved_on(task: Task, begun: Status, status: Status, at: str, *, reason: str = "") -> tuple[Task, tuple[str, ...]]:
    """The task moved from the marker of the command to where its return leads; left alone, with a warning, when a person moved it
    meanwhile."""
    if task.status is not begun:
        words = f"Task {task.number} was set to [{task.status.marker}] while it was worked on: its status is left as it is."
        return task, (words,)
    return task.moved(status, at=at, reason=reason), ()


async def hand_over(
    remit: Remit,
    command: str,
    *,
    task: Task | None,
    parameters: Mapping[str, Any],
    state: State | None = None,
    phases: int = 0,
    extra: Mapping[str, Any] | None = None,
    accept: Sequence[str] = (),
    timeout: float | None = None,
    key: str | None = None,
    begun: Callable[[str], Awaitable[None]] | None = None,
    waiting: Waiting = plainly,
) -> Return:
    """Delegate `/command` and wait for its return. `begun` is told the session as soon as it is recorded."""
    context = await off_loop(task_context, remit, task, state, phases, extra)
    given = fitting(remit, command, task, parameters)
    handle = await remit.start(
        _target(remit, command, task, context), task=context, parameters=given, accept=tuple(accept), timeout=timeout, key=key
    )
    if begun is not None:
        await begun(handle.session_id)
    return await waiting(remit, handle)


def _target(remit: Remit, command: str, task: Task | None, context: dict[str, Any]) -> str:
    """The command, for the flow to route; from inside an agent, the agent itself: only a root caller's command is routed (S4)."""
    if token_here() is None and CURRENT.get() is None:
        return f"/{command}"
    found = routed(remit.settings.routing, command, task)
    context |= {"route": found.log_line, **({"mode": found.mode} if found.mode else {})}
    return found.agent or f"/{command}"


def task_context(
    remit: Remit, task: Task | None, state: State | None = None, phases: int = 0, extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The task as the flow takes it (S1.6), its complexity judged and what context that loads written down. Blocking: reads files."""
    if task is None:
        return dict(extra or {})
    found = judged(task, state, phases)
    return {
        "task_number": task.number,
        "title": task.title,
        "description": task.description,
        "language": task.language,
        "complexity": found.complexity,
        "has_plan": task.has_plan,
        "context": context_loaded(remit.root, found, task.language),
        **(extra or {}),
    }


def routed(table: RoutingTable, command: str, task: Task | None) -> Route:
    """Where the flow will route it to."""
    language, has_plan = (task.language or GENERAL, task.has_plan) if task is not None else (GENERAL, False)
    return route(command, language, has_plan, table, task_number=task.number if task is not None else None)


def fitting(remit: Remit, command: str, task: Task | None, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Those parameters that the agent takes: a function of the user's own need not know all we could tell it."""
    try:
        name = routed(remit.settings.routing, command, task).agent
    except Misused:
        return dict(parameters)  # the flow says what is wrong with the route
    found = remit.directory.find(name) if name is not None else None
    schema = found.spec.parameters_schema if found is not None else None
    if not schema or schema.get("additionalProperties", True) is not False:
        return dict(parameters)
    return {key: value for key, value in parameters.items() if key in schema.get("properties", {})}


async def to_the_end(function: Callable[..., T], *args: Any) -> T:
    """Off the loop, and not left half-way: a caller that is cancelled waits for it, since the task is released when it goes."""
    work = asyncio.ensure_future(off_loop(function, *args))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        raise


def claim_seconds(remit: Remit, command: str, timeout: float | None) -> float:
    """For how long the task is claimed: the longest that the work may take, and some more."""
    return (remit.settings.limits_for(command).maximum_seconds if timeout is None else timeout) + MARGIN_SECONDS


async def return_left(remit: Remit, run: str, waiting: Waiting = plainly) -> tuple[Return | None, Record | None]:
    """What a run that was never filed came to, by its name: its return, when the agent had finished; and what is on record of it.

    One that a dead process was running is settled first; one that goes on by itself after a crash is waited for.
    """
    record = await off_loop(remit.store.by_key, run)
    if record is None:
        return None, None
    if record.result is None:
        await remit.recover()
        handle = _Known(remit, record.session_id)
        found = await waiting(remit, handle)
        record = await remit.describe(record.session_id)
    else:
        found = record.result
    return (found if found.stop_reason is StopReason.FINISHED else None), record


class _Known:
    """A delegation by its session: the handle of one that was not started by this call."""

    def __init__(self, remit: Remit, session_id: str) -> None:
        self._remit = remit
        self._session_id = session_id

    @property
    def session_id(self) -> str:
        return self._session_id

    async def result(self) -> Return:
        while True:
            found = await self._remit.result(self._session_id, wait_seconds=60.0)
            if found is not None:
                return found

    def stream(self) -> AsyncIterator[Event]:
        return self._remit.follow(self._session_id)

    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        return list(await self._remit.cancel(self._session_id, reason))


def _run_prefix(number: int, command: str) -> str:
    return f"board-{number}-{command}-"


def _advice(task: Task, advice: str) -> str:
    """For a marker whose command was not finished: the command that goes on there."""
    goes_on = next((command for command, status in BEGINS.items() if status is task.status), "") if task.status in IN_PROGRESS else ""
    return f"`remit {goes_on} {task.number}` goes on with what was begun. {advice}".rstrip() if goes_on else advice


def must_exist(board: Board, *numbers: int) -> None:
    """Raises `Misused`: a project without a board has no task to work on, and what is in the archive is not worked on either."""
    seen = board.look()
    if not seen.exists:
        raise no_board()
    for number in numbers:
        if seen.state.find(number) is None:
            raise not_found(board, number)
