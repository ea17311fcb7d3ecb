"""`research N [focus]`, `plan N` and `revise N [reason]`: claim, mark, hand over, judge, file, commit. Read `work_on` first.

A `Command` says what is particular to one of them. `lifecycle` has the parts around the agent, `verdicts` the judgement of its return.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remit.app import Remit
from remit.board import claims
from remit.board.board import Board
from remit.board.command_lifecycle import (
    FiledTask,
    Find,
    MarkedTask,
    carried_by,
    check_entry,
    claim_seconds,
    claimed_now,
    complexity_of,
    context_words,
    file_task,
    hand_over,
    loaded_context,
    mark_begun,
    must_exist,
    recovered_return,
    require_agent,
    route_task,
    run_to_end,
    unfiled_run,
)
from remit.board.outcome import Outcome, Waiting, wait_for_result
from remit.board.pending_commits import pay_left
from remit.board.plans import read_plan
from remit.board.task import BEGINS, State, Status, Task
from remit.board.task_prompts import Brief, brief_parameters, depends_on, read_text
from remit.board.verdicts import (
    MAX_BYTES,
    DocumentVerdict,
    apply_verdict,
    document_artifacts,
    judge_document,
    next_path,
    next_version,
    stays_inside,
)
from remit.core import result as returns
from remit.core.deadline import allowed_timeout
from remit.core.errors import Misused
from remit.core.record import Record
from remit.core.result import Return, StopReason
from remit.core.routing import Route
from remit.core.settings import Settings
from remit.runtime.artifacts import read_bounded
from remit.system.threads import off_loop

PLAN_CHARACTERS = 2_000_000
REMEMBERED = ("write_to", "version", "focus")
"""Of a brief, recorded with the delegation whatever its agent takes: by them its return can be filed by another process."""
MADE = {"research": "complete research", "plan": "create implementation plan"}
NEXT = {"research": "`remit plan {number}` plans it.", "plan": "`remit implement {number}` carries it out."}
NEXT["revise"] = NEXT["plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What the user asked for."""

    name: str
    number: int
    focus: str = ""
    force: bool = False
    timeout: float | None = None
    """Seconds."""
    route: str = ""
    """Another command by whose route and limits it goes."""
    agent: str = ""
    """Instead of the one of the route."""
    request: str = ""
    """Instead of what the command usually asks for."""
    more: tuple[tuple[str, Any], ...] = ()
    """More parameters for the agent."""

    @property
    def routed_as(self) -> str:
        return self.route or self.name

    def brief(self, board: Board, state: State, task: Task) -> Brief:
        """Raises `Misused` where the task does not allow it."""
        if self.name == "revise":
            _must_have_plan(board, task)
        is_study = self.name == "research"
        folder, name = ("reports", "research") if is_study else ("plans", "implementation")
        return Brief(
            command=self.name,
            task=task,
            focus=self.focus,
            write_to=next_path(board.root, task, f"{task.folder}/{folder}", name),
            reports=reports_of(board.root, task),
            plan=task.plan_path if task.plan_path and (board.root / task.plan_path).is_file() else "",
            version=0 if is_study else next_version(task),
            depends=depends_on(state, task),
            request=self.request,
            more=self.more,
        )


async def research(remit: Remit, board: Board, number: int, *, waiting: Waiting = wait_for_result, **options: Any) -> Outcome:
    """`options`: focus, force, timeout."""
    return await work_on(remit, board, Command(name="research", number=number, **options), waiting=waiting)


async def plan(remit: Remit, board: Board, number: int, *, waiting: Waiting = wait_for_result, **options: Any) -> Outcome:
    """`options`: focus, force, timeout."""
    return await work_on(remit, board, Command(name="plan", number=number, **options), waiting=waiting)


async def revise(
    remit: Remit, board: Board, number: int, *, reason: str = "", waiting: Waiting = wait_for_result, **options: Any
) -> Outcome:
    """`options`: force, timeout."""
    return await work_on(remit, board, Command(name="revise", number=number, focus=reason, **options), waiting=waiting)


async def work_on(remit: Remit, board: Board, command: Command, *, waiting: Waiting = wait_for_result) -> Outcome:
    """Carry a task through one command. Whatever the agent does or returns, the board is true afterwards."""
    await off_loop(check, board, remit.settings, remit.directory.find, command)
    seconds = claim_seconds(remit, command.routed_as, command.timeout)
    with claims.claim(board, command.number, command.routed_as, seconds=seconds) as held:
        notices = await off_loop(pay_left, board)
        unfiled, warnings = await _unfiled(remit, board, command, waiting)
        notices += warnings
        if unfiled is not None:
            return await run_to_end(_file, held, board, unfiled[0], unfiled[1], None, notices)
        mark = await off_loop(lambda: mark_begun(board, command.number, command.name, force=command.force, check=open_dependencies))
        brief = await off_loop(_prepare, board, mark, command)
        earlier = await off_loop(_read_all, board.root, brief.reports)
        result = await hand_over(
            remit,
            command.routed_as,
            task=mark.before,
            state=mark.state,
            phases=await off_loop(phase_count, board.root, brief.plan),
            parameters=await off_loop(brief_parameters, brief, board.root),
            extra={name: value for name in REMEMBERED if (value := getattr(brief, name))},
            timeout=command.timeout,
            key=mark.run,
            begun=lambda session_id: off_loop(held.session, session_id),
            waiting=waiting,
            agent=command.agent,
        )
        return await run_to_end(_file, held, board, brief, result, mark.before.status, (*notices, *mark.warnings), earlier)


def check(board: Board, settings: Settings, find: Find, command: Command) -> tuple[State, Task, Brief, Route]:
    """Everything that can be refused before anything is touched. Blocking."""
    must_exist(board, command.number)
    state = board.look().state
    task = state.task(command.number)
    brief = command.brief(board, state, task)
    _must_stay_inside(board, brief)
    chosen = route_task(settings.routing, command.routed_as, task)
    if not command.agent:
        require_agent(find, chosen)
    if command.timeout is not None:
        allowed_timeout(command.timeout, settings.limits_for(command.routed_as))
    return state, task, brief, chosen


def dry_run(board: Board, settings: Settings, find: Find, command: Command) -> Outcome:
    """What the command would do with the task. Refuses whatever it would refuse; writes nothing and opens no record. Blocking."""
    state, task, brief, chosen = check(board, settings, find, command)
    skipped = check_entry(task, command.name, force=command.force)
    agent = find(chosen.agent) if chosen.agent is not None else None
    complexity, reason = complexity_of(task, state, phase_count(board.root, brief.plan))
    context = loaded_context(board.root, complexity, reason, task.language)
    missing = () if agent is not None else (f"There is no agent named {chosen.agent!r}: `remit agents` lists those there are.",)
    return Outcome(
        command=command.name,
        status="completed",
        summary=f"Would hand task {command.number} to {chosen.agent}, which writes {brief.write_to}.",
        task_number=command.number,
        task_status=task.status.marker,
        warnings=(*board.look().notices, *skipped, *open_dependencies(state, task), *claimed_now(board, command.number), *missing),
        data={
            "dry_run": True,
            "route": chosen.log_line,
            "agent": chosen.agent,
            "carried_by": carried_by(agent),
            "status_now": task.status.marker,
            "status_meanwhile": BEGINS[command.name].marker,
            "context": context,
            "context_words": context_words(context),
            "write_to": brief.write_to,
            "reports": list(brief.reports),
            "plan": brief.plan,
            "timeout_seconds": allowed_timeout(command.timeout, settings.limits_for(command.name)),
        },
    )


def phase_count(root: Path, plan: str) -> int:
    text = read_text(root, plan, PLAN_CHARACTERS) if plan else None
    return len(read_plan(text).phases) if text else 0


def reports_of(root: Path, task: Task) -> tuple[str, ...]:
    """The reports of the task that exist, the oldest first."""
    paths = [one.path for one in task.artifacts if one.type in ("research", "report")]
    return tuple(path for path in dict.fromkeys(paths) if (root / path).is_file())


def open_dependencies(state: State, task: Task) -> Sequence[str]:
    """Research and plan may begin before them, with a warning."""
    others = [other for number in task.dependencies if (other := state.find(number)) is not None]
    unfinished = [f"{other.number} [{other.status.marker}]" for other in others if other.status is not Status.COMPLETED]
    return (f"Task {task.number} depends on what is not completed yet: {', '.join(unfinished)}.",) if unfinished else ()


def _must_have_plan(board: Board, task: Task) -> None:
    if not task.has_plan:
        raise Misused(f"Task {task.number} has no plan. Use plan instead.", advice=f"`remit plan {task.number}`")
    if not (board.root / task.plan_path).is_file():
        advice = f"Bring it back, or make a new one: `remit plan {task.number} --force`."
        raise Misused(f"The plan of task {task.number}, {task.plan_path}, does not exist.", advice=advice)


def _prepare(board: Board, mark: MarkedTask, command: Command) -> Brief:
    """The brief, with the folder for its work made."""
    brief = replace(command.brief(board, mark.state, mark.before), begun_at=board.clock.wall())
    _must_stay_inside(board, brief)
    (board.root / brief.write_to).parent.mkdir(parents=True, exist_ok=True)
    return brief


def _must_stay_inside(board: Board, brief: Brief) -> None:
    if not stays_inside(board.root, brief.write_to):
        advice = "Correct the task's project_name, or remove the link."
        raise Misused(f"{brief.write_to} leads out of {board.specs.name}/.", advice=advice)


def _read_all(root: Path, paths: Sequence[str]) -> dict[str, bytes]:
    return {path: data for path in paths if (data := read_bounded(root / path, MAX_BYTES)) is not None}


# ---- what a process that ended has left


async def _unfiled(remit: Remit, board: Board, command: Command, waiting: Waiting) -> tuple[tuple[Brief, Return] | None, tuple[str, ...]]:
    """A finished return that was never filed, with its brief; and warnings. Only the holder of the claim may look."""
    state = (await off_loop(board.look)).state
    task = state.task(command.number)
    run = unfiled_run(task, command.name)
    if not run:
        return None, ()
    finished, record = await recovered_return(remit, run, waiting)
    if record is None:
        return None, (
            f"An earlier `remit {command.routed_as}` of task {command.number} ended before its agent was called: it begins again.",
        )
    brief = _brief_of_record(replace(command, focus="").brief(board, state, task), record)
    if finished is not None:
        words = f"An earlier run had finished ({record.session_id}) but ended before its return was filed: that is used, nothing ran again."
        return (brief, finished), (words,)
    words = f"An earlier run ({record.session_id}) ended before it had finished: it begins again."
    if record.result is not None:
        kept = await off_loop(_keep_unfinished, board, brief, record.result)
        words += f" What it left is kept: {kept}." if kept else ""
    return None, (words,)


def _brief_of_record(brief: Brief, record: Record) -> Brief:
    asked = record.task.extra if record.task is not None else {}
    remembered = {name: asked[name] for name in REMEMBERED if name in asked}
    return replace(brief, **remembered, begun_at=record.created_at)


def _keep_unfinished(board: Board, brief: Brief, result: Return) -> str:
    """Link what an interrupted run left; the path, empty when there is nothing."""
    verdict = replace(judge_document(board.root, brief, result), moves_to=None, is_undone=False, status=returns.Status.PARTIAL)
    if verdict.found is None:
        return ""
    _write(board, brief, result, verdict, None, subject="")
    return brief.write_to


# ---- filing


def _file(
    held: claims.Held,
    board: Board,
    brief: Brief,
    result: Return,
    before: Status | None,
    notices: tuple[str, ...],
    earlier: Mapping[str, bytes] | None = None,
) -> Outcome:
    """Judge the return, write the board once, commit. `earlier`: the reports before the run; one that was changed is put back."""
    verdict = judge_document(board.root, brief, result)
    if held.is_lost:
        lost = f"The time for task {brief.task.number} had run out and another took it over: the board is left to them."
        return _outcome(board, brief, result, verdict, FiledTask(task=None), (*notices, lost))
    changed = {path: data for path, data in (earlier or {}).items() if _read_all(board.root, [path]).get(path) != data}
    restored = tuple(f"{path} was changed by the run: it was put back as it was." for path in changed)
    filed = _write(board, brief, result, verdict, before, subject=_subject(brief, verdict), files=changed)
    warnings = tuple(dict.fromkeys((*notices, *verdict.warnings, *restored, *filed.warnings, *result.warnings)))
    return _outcome(board, brief, result, verdict, filed, warnings)


def _write(
    board: Board,
    brief: Brief,
    result: Return,
    verdict: DocumentVerdict,
    before: Status | None,
    *,
    subject: str,
    files: Mapping[str, bytes] | None = None,
) -> FiledTask:
    found = verdict.found
    taken_over = {brief.write_to: found.data} if found is not None and found.came_from else {}
    return file_task(
        board,
        brief.task.number,
        brief.command,
        f"Task {brief.task.number}: {brief.command} {verdict.status}",
        lambda task, draft: apply_verdict(task, draft.at, brief, verdict, before),
        session_id=result.session_id,
        files={**(files or {}), **taken_over},
        subject=subject,
        paths=[*([brief.write_to] if found is not None else []), *(one.path for one in verdict.more)],
    )


def _subject(brief: Brief, verdict: DocumentVerdict) -> str:
    """Of the commit; empty: nothing worth one."""
    number = brief.task.number
    if verdict.status is returns.Status.COMPLETED:
        made = f"revise plan to version {brief.version}" if brief.command == "revise" else MADE[brief.command]
        return f"task {number}: {made}"
    if verdict.moves_to is Status.BLOCKED:
        return f"task {number}: block at {brief.command}"
    return f"task {number}: keep unfinished {brief.command}" if verdict.found is not None else ""


def _outcome(board: Board, brief: Brief, result: Return, verdict: DocumentVerdict, filed: FiledTask, warnings: tuple[str, ...]) -> Outcome:
    was_believed = verdict.status is result.status
    data: dict[str, Any] = {"agent": result.metadata.agent_type, "duration_seconds": result.metadata.duration_seconds}
    if verdict.status is returns.Status.COMPLETED and brief.version:
        data |= {"plan_version": brief.version, "phase_count": phase_count(board.root, brief.write_to)}
    return Outcome(
        command=brief.command,
        status=str(verdict.status),
        summary=result.summary if was_believed else f"{verdict.errors[0].message}",
        task_number=brief.task.number,
        task_status=filed.task.status.marker if filed.task is not None else "",
        artifacts=document_artifacts(board.root, brief, verdict),
        errors=verdict.errors,
        next_steps=_next_steps(brief, result, verdict),
        warnings=warnings,
        commit=filed.commit,
        session_id=result.session_id,
        stop_reason=str(result.stop_reason if was_believed else StopReason.INVALID_RETURN),
        data=data,
    )


def _next_steps(brief: Brief, result: Return, verdict: DocumentVerdict) -> str:
    again = f"`remit {brief.command} {brief.task.number}`"
    advice = verdict.errors[0].recommendation if verdict.errors else ""
    if verdict.status is returns.Status.COMPLETED:
        own = f"{result.next_steps.strip().rstrip('.')}. " if result.next_steps.strip() else ""
        return own + NEXT[brief.command].format(number=brief.task.number)
    if verdict.moves_to is Status.BLOCKED:
        advice = advice or "Settle what it is blocked by"
        return advice if again.strip("`") in advice else f"{advice.rstrip('. ')}; then {again} again."
    if verdict.is_undone or verdict.status is not result.status:
        return advice
    longer = " --timeout gives it longer." if result.stop_reason is StopReason.DEADLINE else ""
    return f"The task stays [{BEGINS[brief.command].marker}]: {again} takes it up again.{longer}"
