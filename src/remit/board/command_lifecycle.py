"""One run of a board command on a task: claim, check, mark, delegate, file and commit; and its continuation after a crash.

The task's entry names the run from the moment the task is marked until the return is filed. If a run is still named there and its process
is dead, it was not filed: its return is found in the record by that name (the delegation's key), and nothing finished runs twice."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from remit.agents.definition import Kind
from remit.agents.role_bindings import UnavailableAgent, why_unavailable
from remit.app import Remit
from remit.board import claims
from remit.board.archive import archived_tasks
from remit.board.board import Board, Draft, no_board
from remit.board.outcome import Waiting, wait_for_result
from remit.board.phases import plan_of
from remit.board.task import BEGINS, IN_PROGRESS, State, Status, Task, check_move
from remit.board.view import graph_of
from remit.core.agents import is_built_in
from remit.core.context import LEVELS, RecordedHandle, level_of
from remit.core.deadline import allowed_timeout
from remit.core.errors import ErrorInfo, Refused
from remit.core.ports import AgentPort
from remit.core.record import Record
from remit.core.request import COMPOSE
from remit.core.result import Return, StopReason
from remit.core.routing import GENERAL, Route, RoutingTable, route
from remit.core.settings import Settings
from remit.runtime.accept import route_chain
from remit.runtime.deps import CURRENT, token_here
from remit.system.context_files import context_files
from remit.system.threads import off_loop

T = TypeVar("T")
Find = Callable[[str], AgentPort | None]
"""The agents of the project, by name."""
TaskChange = Callable[[Task, Draft], tuple[Task, Sequence[str]]]
"""Creates the task to file, and warnings."""
RUN = "run"
"""Key of the task's entry in state.json that names the unfiled run."""
MARGIN_SECONDS = 120.0
"""How long a claim outlasts the time limit of the work, for filing and committing."""
LEAST_SECONDS = 1.0
"""With less time nothing starts; what has just started has at least this."""
EXECUTOR, IMPLEMENTER = "task-executor", "implementer"
CONTEXT_FOLDER = ".remit/context"
MANY_DEPENDENCIES, MANY_SUBTASKS, MANY_PHASES = 4, 4, 5
"""From these counts on a task is complex."""


@dataclass(eq=False)
class TaskRun:
    """A task claimed by this process while one command works on it. Raises `Misused` for an invalid timeout."""

    remit: Remit
    board: Board
    number: int
    command: str
    routed_as: str = ""
    """Another command whose route and limits apply."""
    focus: str = ""
    """The user's own words."""
    force: bool = False
    timeout: float | None = None
    waiting: Waiting = wait_for_result
    run: str = ""
    """The name of this run, and the key of its delegation."""
    before: Task | None = None
    """The task before this run marked it; None: this run continues a killed one."""
    state: State = field(default_factory=State)
    """The board when the task was marked."""
    commit: str = ""
    """The last commit, abbreviated."""
    warnings: list[str] = field(default_factory=list)
    _claim: claims.Claim | None = None

    def __post_init__(self) -> None:
        self.routed_as = self.routed_as or self.command
        self.board = self.board.with_settings(self.remit.settings)
        limits = self.remit.settings.limits_for(self.routed_as)
        self.ends_at = time.monotonic() + allowed_timeout(self.timeout, limits)
        self._claim_seconds = (limits.maximum_seconds if self.timeout is None else self.timeout) + MARGIN_SECONDS

    @property
    def seconds_left(self) -> float:
        return self.ends_at - time.monotonic()

    def warn(self, *words: str) -> None:
        self.warnings += [one for one in words if one and one not in self.warnings]

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Claim the task. Raises `Refused` if another process has it."""
        with claims.claim(self.board, self.number, self.routed_as, seconds=self._claim_seconds) as self._claim:
            yield

    def must_hold(self) -> None:
        """Raise `Refused` if another process has taken the task over."""
        if self._claim is not None and self._claim.is_lost:
            raise Refused(
                f"The time limit of task {self.number} passed and another process took it over: the board was not changed.",
                code="INVALID_OPERATION",
                advice=f"The files are in the project, uncommitted. When the other command has ended: remit {self.command} {self.number}",
            )

    def task(self) -> Task:
        """The current task. Blocking."""
        return self.board.look().state.task(self.number)

    def mark(self, check: Callable[[State, Task], Sequence[str]]) -> None:
        """Mark the task as in progress, as one change. `check` may raise to refuse; it returns warnings. Blocking."""
        run = f"{_run_prefix(self.number, self.command)}{secrets.token_hex(6)}"
        with self.board.change() as draft:
            task = draft.state.task(self.number)
            warnings = (*check_entry(task, self.command, force=self.force), *check(draft.state, task))
            marked = replace(task.moved(BEGINS[self.command], at=draft.at), extra={**task.extra, RUN: run})
            words = f"Task {self.number}: {self.command} begun"
            draft.state = draft.state.with_task(marked).noting(draft.at, words, task_number=self.number)
        self.run, self.before, self.state = run, task, draft.state
        self.warn(*draft.warnings, *warnings)

    async def delegate(self, task: Task, parameters: Mapping[str, Any], *, key: str, **options: Any) -> Return:
        """Delegate the task and wait. `options`: those of `delegate_task`. The claim names the session."""

        async def begun(session_id: str) -> None:
            if self._claim is not None:  # so that others can wait for it or cancel it
                await off_loop(self._claim.name_session, session_id)

        options = {"begun": begun, **options}
        return await delegate_task(self.remit, self.routed_as, task, parameters, key=key, waiting=self.waiting, **options)

    async def delegate_again(self, task: Task, parameters: Mapping[str, Any], *, key: str, **options: Any) -> Return:
        """Delegate it once more under this key, for the time that is left; or the return that a killed process got for it."""
        found, record = await self.recover_return(key)
        if found is not None:
            return found
        key = key if record is None else f"{key}-{secrets.token_hex(4)}"
        return await self.delegate(task, parameters, key=key, timeout=max(LEAST_SECONDS, self.seconds_left), **options)

    def file(
        self,
        activity: str,
        change: TaskChange,
        *,
        session_id: str = "",
        files: Mapping[str, bytes] | None = None,
        subject: str = "",
        paths: Sequence[str] = (),
        ends_run: bool = True,
    ) -> Task | None:
        """File a result as one change of the board and commit it. Returns the current task; None if it was removed from the board.

        `files`: more files of the change. `subject` and `paths`: of the commit; no subject: no commit. The files are written and committed
        even if the task is gone. Blocking."""
        warnings: Sequence[str] = (f"Task {self.number} was removed from the board while it was in progress; its files are kept.",)
        with self.board.change() as draft:
            draft.files.update(files or {})
            task = draft.state.find(self.number)
            if task is not None:
                task, warnings = change(task, draft)
                extra = {key: value for key, value in task.extra.items() if key != RUN or not ends_run}
                task = replace(task, extra=extra, session_id=session_id or task.session_id, last_updated=draft.at)
                more = {"task_number": self.number, **({"session_id": session_id} if session_id else {})}
                draft.state = draft.state.with_task(task).noting(draft.at, activity, **more)
            if subject:
                self.board.commit_for(draft, subject, paths, session_id=session_id, command=self.command, task_number=self.number)
        self.commit = draft.commit_hash
        self.warn(*draft.notices, *warnings, draft.commit_warning)
        return task

    def move(self, task: Task, status: Status, at: str, *, reason: str = "") -> tuple[Task, tuple[str, ...]]:
        """The task moved from the marker of the command to `status`; unchanged, with a warning, if a person moved it meanwhile."""
        if task.status is not BEGINS[self.command]:
            return task, (f"Task {task.number} was set to [{task.status.marker}] while it was worked on: its status is not changed.",)
        return task.moved(status, at=at, reason=reason), ()

    def undo(self, task: Task) -> Task:
        """The task before it was marked, if nothing ran."""
        if self.before is None or task.status is not BEGINS[self.command]:
            return task
        return replace(task, status=self.before.status, started=self.before.started, blocking_reason=self.before.blocking_reason)

    async def recover_return(self, key: str) -> tuple[Return | None, Record | None]:
        """The return of an unfiled run whose agent had finished; and its record.

        A run of a dead process is settled first; one that resumes by itself after a crash is awaited."""
        record = await off_loop(self.remit.store.by_key, key)
        if record is None:
            return None, None
        found = record.result
        if found is None:
            await self.remit.recover()
            found = await self.waiting(self.remit, RecordedHandle(self.remit, record.session_id))
            record = await self.remit.describe(record.session_id)
        return (found if found.stop_reason is StopReason.FINISHED else None), record


def _run_prefix(number: int, command: str) -> str:
    return f"board-{number}-{command}-"


def unfiled_run(task: Task, command: str) -> str:
    """The name of an unfiled run of this command; empty: none. Valid only for the holder of the claim."""
    run = task.extra.get(RUN)
    is_of_it = isinstance(run, str) and run.startswith(_run_prefix(task.number, command))
    return str(run) if is_of_it and task.status is BEGINS[command] else ""


async def run_to_end(function: Callable[..., T], *args: Any) -> T:
    """Run off the loop to its end: a cancelled caller waits for it, since the task is released when the caller leaves."""
    work = asyncio.ensure_future(off_loop(function, *args))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        raise


# ---- checks before anything is changed


def must_exist(board: Board, *numbers: int) -> State:
    """The board with these tasks. Raises `Misused`."""
    seen = board.look()
    if not seen.exists:
        raise no_board()
    for number in numbers:
        seen.state.task(number)
    return seen.state


def require_route(settings: Settings, find: Find, command: str, task: Task | None, timeout: float | None = None) -> Route:
    """The route of a command. Raises `Refused` with the lines to add to remit.toml if no agent or model is configured for it; `Misused` for
    an invalid timeout."""
    allowed_timeout(timeout, settings.limits_for(command))
    chosen = route_task(settings.routing, command, task)
    for name in roles_of(find, chosen.agent):
        agent = find(name)
        if isinstance(agent, UnavailableAgent) and agent.definition.kind is Kind.PROFILE:
            why = why_unavailable(agent.definition)
            raise Refused(why.message, code=why.code, advice=why.advice)
    return chosen


def roles_of(find: Find, name: str | None) -> list[str]:
    """The agent of a route, and the implementer behind the built-in task-executor."""
    agent = find(name) if name is not None else None
    is_ours = agent is not None and agent.spec.kind == "function" and (is_built_in(agent.spec) or agent.spec.source.endswith(".md"))
    return ([name] if name is not None else []) + ([IMPLEMENTER] if name == EXECUTOR and is_ours else [])


def check_entry(task: Task, command: str, *, force: bool) -> tuple[str, ...]:
    """Whether `command` may start on it; returns the warning if only `force` allows it. Raises `Refused` (INVALID_STATUS_TRANSITION).

    The marker of the same command may be entered again: the holder of the claim knows that the earlier process is gone."""
    begins = BEGINS[command]
    if task.status is begins:
        return ()
    try:
        check_move(task.number, task.status, begins)
    except Refused as refused:
        if force:
            return (f"The status check was skipped (--force): {refused.message}",)
        other = next((one for one, status in BEGINS.items() if status is task.status), "") if task.status in IN_PROGRESS else ""
        advice = f"`remit {other} {task.number}` resumes the interrupted command. {refused.advice}".rstrip() if other else refused.advice
        raise Refused(refused.message, code=refused.code, advice=advice) from None
    return ()


def carried_by(agent: AgentPort | None) -> str:
    """What would execute it, and where that is declared; for a role as in `remit roles`."""
    if agent is None or agent.spec.kind == "profile":  # a role without an agent
        return "nobody"
    if agent.spec.kind == "function" and is_built_in(agent.spec):
        return "built-in"
    if executor := getattr(getattr(agent, "definition", None), "runs_on", None):
        return f"{executor} ({agent.spec.kind})"
    return f"{agent.spec.kind} ({agent.spec.source})" if agent.spec.source else agent.spec.kind


def new_error(kind: str, code: str, message: str, advice: str) -> ErrorInfo:
    return ErrorInfo(type=kind, code=code, message=message, recoverable=True, recommendation=advice)


# ---- delegation


async def delegate_task(
    remit: Remit,
    command: str,
    task: Task | None,
    parameters: Mapping[str, Any],
    *,
    state: State | None = None,
    phases: int = 0,
    extra: Mapping[str, Any] | None = None,
    accept: Sequence[str] = (),
    timeout: float | None = None,
    key: str | None = None,
    begun: Callable[[str], Awaitable[Any]] | None = None,
    waiting: Waiting = wait_for_result,
    agent: str = "",
    resume: str | None = None,
) -> Return:
    """Delegate `/command`, or to `agent`, and wait for its return. `begun` gets the session once it is recorded. `resume`: continue an
    earlier delegation to the same agent."""
    context = await off_loop(task_context, remit, task, state, phases, extra)
    target = agent or f"/{command}"
    chosen = route_task(remit.settings.routing, command, task)
    if not agent and not (token_here() is None and CURRENT.get() is None):
        # Inside an agent `accept` routes no command: call the agent of the route directly.
        context |= {"route": chosen.log_line, **({"mode": chosen.mode} if chosen.mode else {})}
        target = chosen.agent or target
    found = remit.directory.find(agent or chosen.agent or "")
    schema = found.spec.parameters_schema if found is not None else None
    if schema and schema.get("additionalProperties", True) is False:  # a user's own function need not accept all of them
        parameters = {key: value for key, value in parameters.items() if key in schema.get("properties", {})}
    if target == chosen.agent and (then := context.get("then", chosen.then)):
        target, parameters = COMPOSE, route_chain((target, *then), parameters, remit.directory.find).to_dict()
    options = {"accept": tuple(accept), "timeout": timeout, "key": key, "resume": resume}
    handle = await remit.start(target, task=context, parameters=dict(parameters), **options)
    if begun is not None:
        await begun(handle.session_id)
    return await waiting(remit, handle)


def route_task(table: RoutingTable, command: str, task: Task | None) -> Route:
    language, has_plan = (task.language or GENERAL, task.has_plan) if task is not None else (GENERAL, False)
    return route(command, language, has_plan, table, task_number=task.number if task is not None else None)


def task_context(remit: Remit, task: Task | None, state: State | None, phases: int, extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """The task for `runtime.accept`, with its complexity and context files. Blocking: reads files."""
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
    """Simple, moderate or complex, and the reason: the task's own field, else the number of its dependencies, subtasks and phases."""
    if task.complexity in LEVELS:
        return task.complexity, "the task says so"
    subtasks = sum(one.parent == task.number for one in state.tasks) if state is not None else 0
    counts = (
        (len(task.dependencies), MANY_DEPENDENCIES, "dependencies"),
        (subtasks, MANY_SUBTASKS, "subtasks"),
        (phases if phases > 1 else 0, MANY_PHASES, "phases"),
    )
    found = ", ".join(f"{number} {words}" for number, _, words in counts if number)
    if any(number >= many for number, many, _ in counts):
        return "complex", found
    return ("moderate", found) if found else ("simple", "one task, no dependencies, no plan of several phases")


def loaded_context(root: Path, complexity: str, reason: str, language: str | None) -> dict[str, Any]:
    """The context files for the agent: level and reason, files, size, omissions. Recorded with the delegation's task."""
    level = level_of(complexity)
    loaded = context_files(root / CONTEXT_FOLDER, level, language or GENERAL)
    return {
        "level": level,
        "reason": f"{complexity}: {reason}",
        "files": list(loaded.paths),
        "bytes": len(loaded.text.encode()),
        "left_out": list(loaded.warnings),
    }


# ---- the order in which tasks are implemented: their dependencies, what may start. Read only


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
