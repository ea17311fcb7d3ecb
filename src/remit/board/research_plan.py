"""`research N [focus]`, `plan N` and `revise N [reason]`: a report or plan by an agent, checked, filed and committed.

A `DocumentCommand` defines what differs between them. `command_lifecycle` has the steps around the agent, `verdicts` the checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remit.app import Remit
from remit.board.board import Board
from remit.board.command_lifecycle import (
    Find,
    TaskRun,
    carried_by,
    must_exist,
    require_route,
    route_task,
    run_to_end,
    unfiled_run,
)
from remit.board.outcome import Outcome, Waiting, wait_for_result
from remit.board.task import BEGINS, PlanVersion, State, Status, Task, TaskArtifact
from remit.board.task_landing import remove_copy
from remit.board.task_prompts import Brief, brief_parameters, depends_on, faulty_plan_request, plan_at
from remit.board.verdicts import KINDS, MAX_BYTES, Verdict, judge_document, next_path, stays_inside
from remit.core.deadline import allowed_timeout
from remit.core.errors import Misused, RemitError
from remit.core.result import Artifact, Return, StopReason
from remit.core.result import Status as ReturnStatus
from remit.core.routing import Route
from remit.core.settings import Settings
from remit.runtime.workspaces import UNMERGED
from remit.system.artifact_files import checked_artifacts, read_bounded
from remit.system.threads import off_loop

REMEMBERED = ("write_to", "version", "focus")
"""Parts of a brief recorded with every delegation, so that another process can file its return."""
NEXT = {"research": "`remit plan {number}` plans it.", "plan": "`remit implement {number}` carries it out."}
NEXT["revise"] = NEXT["plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentCommand:
    """The user's request."""

    name: str
    number: int
    focus: str = ""
    force: bool = False
    timeout: float | None = None
    """Seconds."""
    route: str = ""
    """Another command whose route and limits apply."""
    agent: str = ""
    """Replaces the agent of the route."""
    request: str = ""
    """Replaces the usual request of the command."""
    more: tuple[tuple[str, Any], ...] = ()
    """More parameters for the agent."""

    @property
    def routed_as(self) -> str:
        return self.route or self.name

    def brief(self, board: Board, state: State, task: Task) -> Brief:
        """Raises `Misused` where the task does not allow it."""
        if self.name == "revise" and not task.has_plan:
            raise Misused(f"Task {task.number} has no plan. Use plan instead.", advice=f"`remit plan {task.number}`")
        if self.name == "revise" and not (board.root / task.plan_path).is_file():
            advice = f"Restore it, or make a new one: `remit plan {task.number} --force`."
            raise Misused(f"The plan of task {task.number}, {task.plan_path}, does not exist.", advice=advice)
        is_study = self.name == "research"
        folder, name = ("reports", "research") if is_study else ("plans", "implementation")
        brief = Brief(
            command=self.name,
            task=task,
            focus=self.focus,
            write_to=next_path(board.root, task, f"{task.folder}/{folder}", name),
            reports=tuple(path for path in task.reports if (board.root / path).is_file()),
            plan=task.plan_path if task.plan_path and (board.root / task.plan_path).is_file() else "",
            version=0 if is_study else 1 + max([1 if task.plan_path else 0, *(one.version for one in task.plan_versions)]),
            depends=depends_on(state, task),
            request=self.request,
            more=self.more,
            begun_at=board.clock.wall(),
        )
        if not stays_inside(board.root, brief.write_to):
            advice = "Correct the task's project_name, or remove the link."
            raise Misused(f"{brief.write_to} leads out of {board.specs.name}/.", advice=advice)
        return brief

    def extra(self, brief: Brief) -> dict[str, Any]:
        """Facts recorded with its delegations."""
        known = {name: value for name in REMEMBERED if (value := getattr(brief, name))}
        return {**known, UNMERGED: True, **({"then": []} if self.route else {})}


async def research(remit: Remit, board: Board, number: int, *, waiting: Waiting = wait_for_result, **options: Any) -> Outcome:
    """`options`: focus, force, timeout."""
    return await work_on(remit, board, DocumentCommand(name="research", number=number, **options), waiting=waiting)


async def plan(remit: Remit, board: Board, number: int, *, waiting: Waiting = wait_for_result, **options: Any) -> Outcome:
    """`options`: focus, force, timeout."""
    return await work_on(remit, board, DocumentCommand(name="plan", number=number, **options), waiting=waiting)


async def revise(
    remit: Remit, board: Board, number: int, *, reason: str = "", waiting: Waiting = wait_for_result, **options: Any
) -> Outcome:
    """`options`: force, timeout."""
    return await work_on(remit, board, DocumentCommand(name="revise", number=number, focus=reason, **options), waiting=waiting)


async def work_on(remit: Remit, board: Board, command: DocumentCommand, *, waiting: Waiting = wait_for_result) -> Outcome:
    """Run one command on a task. The board is consistent afterwards, whatever the agent does or returns."""
    await off_loop(check, board, remit.settings, remit.directory.find, command)
    run = TaskRun(
        remit, board, command.number, command.name, routed_as=command.route, force=command.force, timeout=command.timeout, waiting=waiting
    )
    with run.claimed():
        unfiled = await _find_unfiled(run, command)
        if unfiled is not None:
            brief, finished, name = unfiled
            return await run_to_end(_file, run, *await _repair_plan(run, command, brief, finished, name))
        await off_loop(run.mark, open_dependencies)
        assert run.before is not None
        brief = await off_loop(command.brief, board, run.state, run.before)
        earlier = await off_loop(_read_all, board.root, brief.reports)
        (board.root / brief.write_to).parent.mkdir(parents=True, exist_ok=True)
        result = await run.delegate(
            run.before,
            await off_loop(brief_parameters, brief, board.root),
            key=run.run,
            state=run.state,
            phases=len((await off_loop(plan_at, board.root, brief.plan)).phases),
            extra=command.extra(brief),
            timeout=command.timeout,
            agent=command.agent,
        )
        return await run_to_end(_file, run, *await _repair_plan(run, command, brief, result, run.run), earlier)


def check(board: Board, settings: Settings, find: Find, command: DocumentCommand) -> tuple[State, Task, Brief, Route]:
    """All checks before anything is changed. Blocking."""
    state = must_exist(board, command.number)
    task = state.task(command.number)
    brief = command.brief(board, state, task)
    if not command.agent:
        return state, task, brief, require_route(settings, find, command.routed_as, task, command.timeout)
    allowed_timeout(command.timeout, settings.limits_for(command.routed_as))
    return state, task, brief, route_task(settings.routing, command.routed_as, task)


def open_dependencies(state: State, task: Task) -> Sequence[str]:
    """Research and plan may start before them, with a warning."""
    others = [other for number in task.dependencies if (other := state.find(number)) is not None]
    unfinished = [f"{other.number} [{other.status.marker}]" for other in others if other.status is not Status.COMPLETED]
    return (f"Task {task.number} depends on unfinished tasks: {', '.join(unfinished)}.",) if unfinished else ()


def _read_all(root: Path, paths: Sequence[str]) -> dict[str, bytes]:
    return {path: data for path in paths if (data := read_bounded(root / path, MAX_BYTES)) is not None}


async def _find_unfiled(run: TaskRun, command: DocumentCommand) -> tuple[Brief, Return, str] | None:
    """A finished return that a killed process did not file, with its brief and the name of its run."""
    state = (await off_loop(run.board.look)).state
    task = state.task(command.number)
    name = unfiled_run(task, command.name)
    if not name:
        return None
    finished, record = await run.recover_return(name)
    if record is None or finished is None:
        which = f" ({record.session_id})" if record is not None else ""
        run.warn(f"An earlier run of `remit {command.routed_as}`{which} ended before its agent had finished: it runs again.")
        return None
    run.warn(f"An earlier run had finished ({record.session_id}) but was killed before its return was filed: that return is used.")
    asked = record.task.extra if record.task is not None else {}
    remembered = {name: asked[name] for name in REMEMBERED if name in asked}
    brief = replace(command, focus="").brief(run.board, state, task)
    return replace(brief, **remembered, begun_at=record.created_at), finished, name


async def _repair_plan(run: TaskRun, command: DocumentCommand, brief: Brief, result: Return, name: str) -> tuple[Brief, Return]:
    """Brief and return to file. A faulty plan is returned to its agent once. `name`: of the run."""
    root = run.board.root
    chosen = route_task(run.remit.settings.routing, command.routed_as, brief.task)
    is_template = not chosen.then and carried_by(run.remit.directory.find(command.agent or chosen.agent or "")) == "built-in"
    brief = replace(brief, is_checked=KINDS[brief.command] == "plan" and not is_template)
    verdict = await off_loop(judge_document, root, brief, result)
    if not brief.is_checked or verdict.document is None or not verdict.faults:
        return brief, result
    refused = replace(brief, refused=verdict.document.data)
    request = replace(refused, request=faulty_plan_request(refused, verdict.faults))
    try:
        is_kept = await off_loop(run.remit.store.checkpoint, result.session_id) is not None
        again = await run.delegate_again(
            brief.task,
            await off_loop(brief_parameters, request, root),
            key=f"{name}-again",
            state=(await off_loop(run.board.look)).state,
            extra=command.extra(brief),
            agent=command.agent,
            resume=result.session_id if is_kept else None,  # in its own session if it kept one
        )
    except RemitError as error:
        run.warn(f"The plan could not be handed back to its agent: {error.message}")
        return brief, result
    if again.status is ReturnStatus.COMPLETED:
        found = (await off_loop(judge_document, root, refused, again)).document
        run.warn("The first plan had faults and was handed back." if found is not None else "The plan was handed back and is unchanged.")
        return (refused, again) if found is not None else (brief, result)
    run.warn(*(f"The plan has a fault: {fault}" for fault in verdict.faults))
    return brief, result if again.stop_reason is StopReason.REFUSED else again


# ---- filing


def _file(run: TaskRun, brief: Brief, result: Return, earlier: Mapping[str, bytes] | None = None) -> Outcome:
    """Check the return, write the board once, commit. `earlier`: the reports before the run; changed ones are restored."""
    run.must_hold()
    root, number = run.board.root, run.number
    verdict = judge_document(root, brief, result)
    found = verdict.document
    files = {path: data for path, data in (earlier or {}).items() if _read_all(root, [path]).get(path) != data}
    restored = [f"{path} was changed by the run: it was restored." for path in files]
    if found is not None and found.came_from:
        files[brief.write_to] = found.data
    task = run.file(
        f"Task {number}: {brief.command} {verdict.status}",
        lambda task, draft: _apply(run, task, draft.at, brief, verdict),
        session_id=result.session_id,
        files=files,
        subject=_subject(brief, verdict),
        paths=[brief.write_to] if found is not None else [],
    )
    if found is not None and found.came_from and verdict.is_done:
        if not remove_copy(root, result.session_id, found.came_from):
            run.warn(f"The {KINDS[brief.command]} was taken from {found.came_from}.")
        elif result.session_id in result.next_steps:  # they name the worktree
            result = replace(result, next_steps="")
    run.warn(*restored, *result.warnings)
    return _outcome(run, brief, result, verdict, task)


def _apply(run: TaskRun, task: Task, at: str, brief: Brief, verdict: Verdict) -> tuple[Task, tuple[str, ...]]:
    """The task with its new marker, link and plan version; a warning if a person moved it meanwhile."""
    warnings: tuple[str, ...] = ()
    if verdict.is_undone:
        task = run.undo(task)
    elif verdict.moves_to is not None:
        task, warnings = run.move(task, verdict.moves_to, at, reason=verdict.reason)
    if verdict.document is not None:
        kind = "research" if brief.command == "research" else "plan"
        extra = {} if verdict.is_done else {"partial": True}
        link = TaskArtifact(type=kind, path=brief.write_to, summary=verdict.document.summary, extra=extra)
        task = replace(task, artifacts=(*(one for one in task.artifacts if one.path != link.path), link))
        if verdict.is_done and kind == "plan":
            task = _with_plan(task, at, brief)
    return task, warnings


def _with_plan(task: Task, at: str, brief: Brief) -> Task:
    """The current plan and its version; the first plan of an older board is recorded as version 1."""
    versions = task.plan_versions
    if task.plan_path and task.plan_path != brief.write_to and not any(one.path == task.plan_path for one in versions):
        versions = (*versions, PlanVersion(version=max(1, brief.version - 1), path=task.plan_path))
    if all(one.path != brief.write_to for one in versions):
        versions = (*versions, PlanVersion(version=brief.version, path=brief.write_to, created=at, reason=brief.focus))
    return replace(task, plan_path=brief.write_to, plan_versions=versions)


def _subject(brief: Brief, verdict: Verdict) -> str:
    """Subject of the commit; empty: no commit."""
    made = {"research": "complete research", "plan": "create implementation plan", "revise": f"revise plan to version {brief.version}"}
    if verdict.is_done:
        return f"task {brief.task.number}: {made[brief.command]}"
    if verdict.moves_to is Status.BLOCKED:
        return f"task {brief.task.number}: block at {brief.command}"
    return f"task {brief.task.number}: keep unfinished {brief.command}" if verdict.document is not None else ""


def _outcome(run: TaskRun, brief: Brief, result: Return, verdict: Verdict, task: Task | None) -> Outcome:
    root, found = run.board.root, verdict.document
    data: dict[str, Any] = {"agent": result.metadata.agent_type, "duration_seconds": result.metadata.duration_seconds}
    if verdict.is_done and brief.version:
        data |= {"plan_version": brief.version, "phase_count": len(plan_at(root, brief.write_to).phases)}
    made = [Artifact(type=KINDS[brief.command], path=brief.write_to, summary=found.summary)] if found is not None else []
    return Outcome.of_return(
        brief.command,
        result,
        status=str(verdict.status),
        summary=verdict.summary,
        task_number=brief.task.number,
        task_status=task.status.marker if task is not None else "",
        artifacts=checked_artifacts(root, made),
        errors=verdict.errors,
        next_steps=_next_steps(brief, result, verdict),
        warnings=tuple(run.warnings),
        commit=run.commit,
        stop_reason=str(result.stop_reason if verdict.status is result.status else StopReason.INVALID_RETURN),
        data=data,
    )


def _next_steps(brief: Brief, result: Return, verdict: Verdict) -> str:
    again = f"`remit {brief.command} {brief.task.number}`"
    advice = verdict.errors[0].recommendation if verdict.errors else ""
    if verdict.is_done:
        own = f"{result.next_steps.strip().rstrip('.')}. " if result.next_steps.strip() else ""
        return own + NEXT[brief.command].format(number=brief.task.number)
    if verdict.moves_to is Status.BLOCKED:
        advice = advice or "Resolve what it is blocked by"
        return advice if again.strip("`") in advice else f"{advice.rstrip('. ')}; then {again} again."
    if verdict.is_undone or verdict.status is not result.status:
        return advice
    longer = " --timeout gives it longer." if result.stop_reason is StopReason.DEADLINE else ""
    return f"The task stays [{BEGINS[brief.command].marker}]: {again} resumes it.{longer}"
