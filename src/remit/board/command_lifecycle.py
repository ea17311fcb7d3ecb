"""What every command that works on a task does around its agent: check, mark, hand over, file.

`research_plan`, `phases` and `review` put the parts together. Whoever uses them holds the task's claim (`board.claims`) meanwhile.

A run is named in the task's entry from the moment it is marked until its return is filed. So a run that is named there and whose process
is dead was not filed: its return is taken from the record by that name (the delegation's key), and nothing that is finished runs twice.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from remit.agents.attach_client import token_here
from remit.agents.role_bindings import UnavailableAgent, why_unavailable
from remit.app import Remit
from remit.board import claims
from remit.board.archive import not_found
from remit.board.board import Board, Draft, no_board
from remit.board.outcome import Waiting, commit_debt, wait_for_result
from remit.board.pending_commits import owed
from remit.board.task import BEGINS, IN_PROGRESS, State, Status, Task, check_move
from remit.core.agents import is_built_in
from remit.core.errors import Refused
from remit.core.events import Event
from remit.core.ports import AgentPort
from remit.core.record import Record
from remit.core.result import Return, StopReason
from remit.core.routing import GENERAL, Route, RoutingTable, route
from remit.runtime.context import LEVELS, context_files, level_of
from remit.runtime.engine import CURRENT
from remit.system.threads import off_loop

T = TypeVar("T")
Find = Callable[[str], AgentPort | None]
"""The agents of the project, by name."""
RUN = "run"
"""The key of the task's entry in state.json that names the run whose return is not filed yet."""
MARGIN_SECONDS = 120.0
"""How long a claim outlasts the time limit of the work: for filing and committing."""
EXECUTOR, IMPLEMENTER = "task-executor", "implementer"
CONTEXT_FOLDER = ".remit/context"
MANY_DEPENDENCIES, MANY_SUBTASKS, MANY_PHASES = 4, 4, 5
"""From so many on a task is complex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedTask:
    """A task marked as being worked on."""

    task: Task
    before: Task
    state: State
    run: str
    """The name of this run, and the key of its delegation."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledTask:
    task: Task | None
    """None: it was taken off the board meanwhile."""
    warnings: tuple[str, ...] = ()
    commit: str = ""
    """Abbreviated; empty: none."""


# ---- before anything is touched


def must_exist(board: Board, *numbers: int) -> None:
    """Raises `Misused`: a project without a board has no task to work on, and archived tasks are not worked on either."""
    seen = board.look()
    if not seen.exists:
        raise no_board()
    for number in numbers:
        if seen.state.find(number) is None:
            raise not_found(board, number)


def require_agent(find: Find, chosen: Route) -> None:
    """Raises `Refused` with the lines to add to remit.toml where no agent or model is configured for the route."""
    for name in roles_of(find, chosen.agent):
        agent = find(name)
        if isinstance(agent, UnavailableAgent):
            why = why_unavailable(agent.definition)
            raise Refused(why.message, code=why.code, advice=why.advice)


def roles_of(find: Find, name: str | None) -> list[str]:
    """The agent of a route, and the implementer behind the built-in task-executor."""
    agent = find(name) if name is not None else None
    is_ours = agent is not None and agent.spec.kind == "function" and (is_built_in(agent.spec) or agent.spec.source.endswith(".md"))
    hands_on = name == EXECUTOR and is_ours
    return ([name] if name is not None else []) + ([IMPLEMENTER] if hands_on else [])


def check_entry(task: Task, command: str, *, force: bool) -> tuple[str, ...]:
    """Whether `command` may begin on it; the warning when only `force` lets it. Raises `Refused` (INVALID_STATUS_TRANSITION).

    The marker of the same command may be entered again: the holder of the claim knows that its owner is gone.
    """
    begins = BEGINS[command]
    if task.status is begins:
        return ()
    try:
        check_move(task.number, task.status, begins)
    except Refused as refused:
        if force:
            return (f"The status check was skipped (--force): {refused.message}",)
        goes_on = next((one for one, status in BEGINS.items() if status is task.status), "") if task.status in IN_PROGRESS else ""
        advice = f"`remit {goes_on} {task.number}` goes on with what was begun. {refused.advice}".rstrip() if goes_on else refused.advice
        raise Refused(refused.message, code=refused.code, advice=advice) from None
    return ()


def claim_seconds(remit: Remit, command: str, timeout: float | None) -> float:
    """For how long the task is claimed: the longest that the work may take, and a margin."""
    return (remit.settings.limits_for(command).maximum_seconds if timeout is None else timeout) + MARGIN_SECONDS


def claimed_now(board: Board, number: int) -> tuple[str, ...]:
    holder = claims.holder_of(board, number)
    return (f"It would be refused now: `remit {holder.command}` works on task {number} (process {holder.pid}).",) if holder else ()


def carried_by(agent: AgentPort | None) -> str:
    """What would carry it out, and where that is declared; of a role, in the words of `remit roles`."""
    if agent is None or agent.spec.kind == "profile":  # a role without an agent
        return "nobody"
    if agent.spec.kind == "function" and is_built_in(agent.spec):
        return "built-in"
    if carrier := getattr(getattr(agent, "definition", None), "runs_on", None):
        return f"{carrier} ({agent.spec.kind})"
    return f"{agent.spec.kind} ({agent.spec.source})" if agent.spec.source else agent.spec.kind


# ---- mark and file


def mark_begun(
    board: Board,
    number: int,
    command: str,
    *,
    force: bool = False,
    check: Callable[[State, Task], Sequence[str]] = lambda _state, _task: (),
) -> MarkedTask:
    """Mark the task as being worked on, as one change of the board. `check` may refuse by raising; it returns warnings. Blocking."""
    run = f"{_run_prefix(number, command)}{secrets.token_hex(6)}"
    with board.change() as draft:
        task = draft.state.task(number)
        warnings = (*check_entry(task, command, force=force), *check(draft.state, task))
        marked = replace(task.moved(BEGINS[command], at=draft.at), extra={**task.extra, RUN: run})
        draft.state = draft.state.with_task(marked).noting(draft.at, f"Task {number}: {command} begun", task_number=number)
    return MarkedTask(task=marked, before=task, state=draft.state, run=run, warnings=(*draft.notices, *warnings))


def note_session(board: Board, number: int, session_id: str) -> tuple[str, ...]:
    """Name on the board the delegation that works on the task now; returns notices about edits of TODO.md. Blocking."""
    with board.change() as draft:
        task = draft.state.find(number)
        if task is not None:
            draft.state = draft.state.with_task(replace(task, session_id=session_id))
    return draft.notices


def file_task(
    board: Board,
    number: int,
    command: str,
    activity: str,
    change: Callable[[Task, Draft], tuple[Task, Sequence[str]]],
    *,
    session_id: str = "",
    files: Mapping[str, bytes] | None = None,
    subject: str = "",
    paths: Sequence[str] = (),
    ends_run: bool = True,
) -> FiledTask:
    """File the result of a run as one change of the board, then commit it. `change` returns the task as it is to be, and warnings.

    `files`: more files of the same change, by path relative to the root. `subject` and `paths`: of the commit; no subject: none is made.
    A task that was taken off the board stays off; the files are written and committed all the same. Blocking.
    """
    warnings: Sequence[str] = (f"Task {number} was taken off the board while it was worked on; what was made for it is kept.",)
    with board.change() as draft:
        draft.files.update(files or {})
        task = draft.state.find(number)
        if task is not None:
            task, warnings = change(task, draft)
            task = replace(without_run(task) if ends_run else task, session_id=session_id or task.session_id, last_updated=draft.at)
            more = {"task_number": number, **({"session_id": session_id} if session_id else {})}
            draft.state = draft.state.with_task(task).noting(draft.at, activity, **more)
        debt = owed(board, subject, paths, session_id=session_id) if subject else None
        if debt is not None:
            draft.files[debt.note] = debt.to_bytes()
    made = commit_debt(board, debt, command, number)
    return FiledTask(task=task, warnings=(*draft.notices, *warnings, *([made.warning] if made.warning else [])), commit=made.short)


def without_run(task: Task) -> Task:
    return replace(task, extra={key: value for key, value in task.extra.items() if key != RUN})


def move_task(task: Task, begun: Status, status: Status, at: str, *, reason: str = "") -> tuple[Task, tuple[str, ...]]:
    """The task moved from the marker of the command to `status`; left alone, with a warning, when a person moved it meanwhile."""
    if task.status is not begun:
        return task, (f"Task {task.number} was set to [{task.status.marker}] while it was worked on: its status is left as it is.",)
    return task.moved(status, at=at, reason=reason), ()


async def run_to_end(function: Callable[..., T], *args: Any) -> T:
    """Off the loop, and not abandoned half-way: a caller that is cancelled waits for it, since the task is released when it leaves."""
    work = asyncio.ensure_future(off_loop(function, *args))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        raise


# ---- hand over


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
    begun: Callable[[str], Awaitable[Any]] | None = None,
    waiting: Waiting = wait_for_result,
    agent: str = "",
) -> Return:
    """Delegate `/command`, or to `agent`, and wait for its return. `begun` is told the session as soon as it is recorded."""
    context = await off_loop(task_context, remit, task, state, phases, extra)
    target = agent or f"/{command}"
    chosen = route_task(remit.settings.routing, command, task)
    if not agent and not (token_here() is None and CURRENT.get() is None):
        # Inside an agent the flow routes no command: the agent of the route is called itself.
        context |= {"route": chosen.log_line, **({"mode": chosen.mode} if chosen.mode else {})}
        target = chosen.agent or target
    found = remit.directory.find(agent or chosen.agent or "")
    schema = found.spec.parameters_schema if found is not None else None
    if schema and schema.get("additionalProperties", True) is False:  # a function of the user's own need not take all of them
        parameters = {key: value for key, value in parameters.items() if key in schema.get("properties", {})}
    handle = await remit.start(target, task=context, parameters=dict(parameters), accept=tuple(accept), timeout=timeout, key=key)
    if begun is not None:
        await begun(handle.session_id)
    return await waiting(remit, handle)


def route_task(table: RoutingTable, command: str, task: Task | None) -> Route:
    language, has_plan = (task.language or GENERAL, task.has_plan) if task is not None else (GENERAL, False)
    return route(command, language, has_plan, table, task_number=task.number if task is not None else None)


def task_context(
    remit: Remit, task: Task | None, state: State | None = None, phases: int = 0, extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The task as the flow takes it, with its complexity and the context files that this loads. Blocking: reads files."""
    if task is None:
        return dict(extra or {})
    complexity, reason = complexity_of(task, state, phases)
    return {
        "task_number": task.number,
        "title": task.title,
        "description": task.description,
        "language": task.language,
        "complexity": complexity,
        "has_plan": task.has_plan,
        "context": loaded_context(remit.root, complexity, reason, task.language),
        **(extra or {}),
    }


def complexity_of(task: Task, state: State | None = None, phases: int = 0) -> tuple[str, str]:
    """Simple, moderate or complex, and why: the task's own field, else the number of its dependencies, subtasks and phases."""
    if task.complexity in LEVELS:
        return task.complexity, "the task says so"
    unknown = f"; the task's own {task.complexity!r} is none of {', '.join(LEVELS)}" if task.complexity else ""
    subtasks = sum(one.parent == task.number for one in state.tasks) if state is not None else 0
    counts = (
        (len(task.dependencies), MANY_DEPENDENCIES, "dependency", "dependencies"),
        (subtasks, MANY_SUBTASKS, "subtask", "subtasks"),
        (phases, MANY_PHASES, "phase", "phases"),
    )
    for number, many, _, words in counts:
        if number >= many:
            return "complex", f"{number} {words}{unknown}"
    found = [f"{number} {one if number == 1 else words}" for number, _, one, words in counts if number > (1 if one == "phase" else 0)]
    if found:
        return "moderate", f"{', '.join(found)}{unknown}"
    return "simple", f"one task, no dependencies, no plan of several phases{unknown}"


def loaded_context(root: Path, complexity: str, reason: str, language: str | None) -> dict[str, Any]:
    """The context files that the agent is given: level and why, files, size, what was left out. Recorded with the delegation's task."""
    level = level_of(complexity)
    loaded = context_files(root / CONTEXT_FOLDER, level, language or GENERAL)
    return {
        "level": level,
        "reason": f"{complexity}: {reason}",
        "files": list(loaded.paths),
        "bytes": len(loaded.text.encode()),
        "left_out": list(loaded.warnings),
    }


def context_words(context: Mapping[str, Any]) -> str:
    """The loaded context in one line."""
    files = context.get("files") or ()
    shown = f"{', '.join(files)} ({context.get('bytes', 0):,} bytes)" if files else "no context files"
    left_out = "".join(f" {words}" for words in context.get("left_out") or ())
    return f"level {context.get('level')} ({context.get('reason')}): {shown}.{left_out}"


# ---- runs whose process ended


def _run_prefix(number: int, command: str) -> str:
    return f"board-{number}-{command}-"


def unfiled_run(task: Task, command: str) -> str:
    """The name of a run of this command that was begun and never filed; empty: there is none. Meaningful to the holder of the claim."""
    run = task.extra.get(RUN)
    is_of_it = isinstance(run, str) and run.startswith(_run_prefix(task.number, command))
    return str(run) if is_of_it and task.status is BEGINS[command] else ""


async def recovered_return(remit: Remit, run: str, waiting: Waiting = wait_for_result) -> tuple[Return | None, Record | None]:
    """The return of a run that was never filed, when its agent had finished; and its record.

    One that a dead process was running is settled first; one that goes on by itself after a crash is waited for.
    """
    record = await off_loop(remit.store.by_key, run)
    if record is None:
        return None, None
    found = record.result
    if found is None:
        await remit.recover()
        found = await waiting(remit, _RecordedHandle(remit, record.session_id))
        record = await remit.describe(record.session_id)
    return (found if found.stop_reason is StopReason.FINISHED else None), record


class _RecordedHandle:
    """The handle of a delegation that this call did not start."""

    def __init__(self, remit: Remit, session_id: str) -> None:
        self._remit = remit
        self.session_id = session_id

    async def result(self) -> Return:
        while True:
            found = await self._remit.result(self.session_id, wait_seconds=60.0)
            if found is not None:
                return found

    def stream(self) -> AsyncIterator[Event]:
        return self._remit.follow(self.session_id)

    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        return list(await self._remit.cancel(self.session_id, reason))
