"""The course of research, plan and revise: claim, enter, hand over, judge, file, commit. One function tells it; read `work_on` first.

What is particular to a command is its `Errand` and the brief made of it (`research`, `plan`); the parts are in `working`, the judgement in
`processing`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remit.app import Remit
from remit.board import claims
from remit.board.board import Board
from remit.board.pending_commits import Debt, owed, pay, pay_left
from remit.board.plans import read_plan
from remit.board.statuses import BEGINS, Status
from remit.board.task import State, Task
from remit.core import result as returns
from remit.core.deadline import allowed_timeout
from remit.core.errors import Misused
from remit.core.record import Record
from remit.core.result import Return, StopReason
from remit.orchestrator.outcome import Outcome, Waiting, plainly
from remit.orchestrator.processing import Verdict, checked, filed_task, judged_return, stays_inside
from remit.orchestrator.prompts import Brief, parameters_of, text_of
from remit.orchestrator.working import (
    Entered,
    Filed,
    claim_seconds,
    entered,
    hand_over,
    must_exist,
    return_left,
    run_left_by,
    settled,
)
from remit.system.threads import off_loop

PLAN_CHARACTERS = 2_000_000
REMEMBERED = ("write_to", "version", "focus")
"""Of a brief, recorded with the delegation whatever its agent takes: by them its return can be filed by another process."""
MADE = {"research": "complete research", "plan": "create implementation plan"}
NEXT = {"research": "`remit plan {number}` plans it.", "plan": "`remit implement {number}` carries it out."}
NEXT["revise"] = NEXT["plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What the user asked for."""

    command: str
    number: int
    brief_of: Callable[[Board, State, Task, "Errand"], Brief]
    """What the agent is asked for; raises where the task does not allow it."""
    focus: str = ""
    force: bool = False
    timeout: float | None = None
    """Seconds."""


async def work_on(remit: Remit, board: Board, errand: Errand, *, waiting: Waiting = plainly) -> Outcome:
    """Carry a task through one command. Whatever the agent does or returns, the board says what is true afterwards."""
    await off_loop(check, remit, board, errand)
    with claims.claim(board, errand.number, errand.command, seconds=claim_seconds(remit, errand.command, errand.timeout)) as held:
        said = await off_loop(pay_left, board)
        unfiled, warnings = await _left_by_the_dead(remit, board, errand, waiting)
        said += warnings
        if unfiled is not None:
            return await _file(held, board, unfiled[0], unfiled[1], None, said)
        mark = await off_loop(lambda: entered(board, errand.number, errand.command, force=errand.force, check=open_dependencies))
        brief = await off_loop(lambda: _prepared(board, mark, errand))
        result = await hand_over(
            remit,
            errand.command,
            task=mark.before,
            state=mark.state,
            phases=await off_loop(phases_of, board.root, brief.plan),
            parameters=await off_loop(parameters_of, brief, board.root),
            extra={name: value for name in REMEMBERED if (value := getattr(brief, name))},
            timeout=errand.timeout,
            key=mark.run,
            begun=lambda session_id: off_loop(held.session, session_id),
            waiting=waiting,
        )
        return await _file(held, board, brief, result, mark.before.status, (*said, *mark.warnings))


def check(remit: Remit, board: Board, errand: Errand) -> None:
    """What can be said before anything is touched. Blocking."""
    must_exist(board, errand.number)
    state = board.look().state
    task = state.task(errand.number)
    _must_stay_inside(board, errand.brief_of(board, state, task, errand))
    if errand.timeout is not None:
        allowed_timeout(errand.timeout, remit.settings.limits_for(errand.command))


def phases_of(root: Path, plan: str) -> int:
    """How many phases the plan has; 0 without one."""
    text = text_of(root, plan, PLAN_CHARACTERS) if plan else None
    return len(read_plan(text).phases) if text else 0


def reports_of(root: Path, task: Task) -> tuple[str, ...]:
    """The reports of the task that are there, the oldest first."""
    paths = [one.path for one in task.artifacts if one.type in ("research", "report")]
    return tuple(path for path in dict.fromkeys(paths) if (root / path).is_file())


def open_dependencies(state: State, task: Task) -> Sequence[str]:
    """Study and plan may begin; whoever does is told."""
    others = [other for number in task.dependencies if (other := state.find(number)) is not None]
    unfinished = [f"{other.number} [{other.status.marker}]" for other in others if other.status is not Status.COMPLETED]
    return (f"Task {task.number} depends on what is not completed yet: {', '.join(unfinished)}.",) if unfinished else ()


def _prepared(board: Board, mark: Entered, errand: Errand) -> Brief:
    """The brief, with the folder for its work made (S6.5: when first needed)."""
    brief = replace(errand.brief_of(board, mark.state, mark.before, errand), begun_at=board.clock.wall())
    _must_stay_inside(board, brief)
    (board.root / brief.write_to).parent.mkdir(parents=True, exist_ok=True)
    return brief


def _must_stay_inside(board: Board, brief: Brief) -> None:
    if not stays_inside(board.root, brief.write_to):
        raise Misused(f"{brief.write_to} leads out of {board.specs.name}/.", advice="Mend the task's project_name, or take the link away.")


# ---- what a process that ended has left


async def _left_by_the_dead(
    remit: Remit, board: Board, errand: Errand, waiting: Waiting
) -> tuple[tuple[Brief, Return] | None, tuple[str, ...]]:
    """A finished return that was never filed, with what had been asked for; and words for the user. Whoever holds the claim may look."""
    state = (await off_loop(board.look)).state
    task = state.task(errand.number)
    run = run_left_by(task, errand.command)
    if not run:
        return None, ()
    finished, record = await return_left(remit, run, waiting)
    if record is None:
        return None, (f"An earlier `remit {errand.command} {errand.number}` ended before its agent was called: it begins again.",)
    brief = _asked_before(errand.brief_of(board, state, task, replace(errand, focus="")), record)
    if finished is not None:
        words = f"An earlier run had finished ({record.session_id}) but ended before its return was filed: that is used, nothing ran again."
        return (brief, finished), (words,)
    words = f"An earlier run ({record.session_id}) ended before it had finished: it begins again."
    if record.result is not None:
        kept = await off_loop(_keep_unfinished, board, brief, record.result)
        words += f" What it left is kept: {kept}." if kept else ""
    return None, (words,)


def _asked_before(brief: Brief, record: Record) -> Brief:
    """The brief of that run, by what was recorded of it."""
    asked = record.task.extra if record.task is not None else {}
    remembered = {name: asked[name] for name in REMEMBERED if name in asked}
    return replace(brief, **{"focus": "", **remembered}, begun_at=record.created_at)


def _keep_unfinished(board: Board, brief: Brief, result: Return) -> str:
    """Link what an interrupted run left; the path, empty when there is nothing."""
    verdict = replace(judged_return(board.root, brief, result), moves_to=None, is_undone=False, status=returns.Status.PARTIAL)
    if verdict.found is None:
        return ""
    _settle(board, brief, result, verdict, None, {brief.write_to: verdict.found.data} if verdict.found.came_from else {})
    return brief.write_to


# ---- filing


async def _file(held: claims.Held, board: Board, brief: Brief, result: Return, before: Status | None, said: tuple[str, ...]) -> Outcome:
    """Judge the return, write the board once, commit. Not interrupted half-way: a cancelled caller waits for it."""
    filing = asyncio.ensure_future(off_loop(_filed, held, board, brief, result, before, said))
    try:
        return await asyncio.shield(filing)
    except asyncio.CancelledError:
        await asyncio.wait({filing})
        raise


def _filed(held: claims.Held, board: Board, brief: Brief, result: Return, before: Status | None, said: tuple[str, ...]) -> Outcome:
    verdict = judged_return(board.root, brief, result)
    if held.is_lost:
        lost = f"The time for task {brief.task.number} had run out and another took it over: the board is left to them."
        return _outcome(board, brief, result, verdict, Filed(task=None), (*said, lost), "")
    files: dict[str, bytes] = {}
    if verdict.found is not None and verdict.found.came_from:
        files[brief.write_to] = verdict.found.data
    debt = _debt(board, brief, result, verdict)
    if debt is not None:
        files[debt.note] = debt.to_bytes()
    filed, moved = _settle(board, brief, result, verdict, before, files)
    made = pay(board, debt)
    warnings = (*said, *verdict.warnings, *filed.warnings, *moved, *result.warnings, *((made.warning,) if made.warning else ()))
    return _outcome(board, brief, result, verdict, filed, tuple(dict.fromkeys(warnings)), made.short)


def _settle(
    board: Board, brief: Brief, result: Return, verdict: Verdict, before: Status | None, files: dict[str, bytes]
) -> tuple[Filed, tuple[str, ...]]:
    moved: list[str] = []

    def change(task: Task, at: str) -> Task:
        task, warnings = filed_task(task, at, brief, verdict, before)
        moved.extend(warnings)
        return task

    words = f"Task {brief.task.number}: {brief.command} {verdict.status}"
    return settled(board, brief.task.number, words, change, session_id=result.session_id, files=files), tuple(moved)


def _debt(board: Board, brief: Brief, result: Return, verdict: Verdict) -> Debt | None:
    subject = subject_of(brief, verdict)
    paths = [brief.write_to] if verdict.found is not None else []
    return owed(board, subject, [*paths, *(one.path for one in verdict.more)], session_id=result.session_id) if subject else None


def subject_of(brief: Brief, verdict: Verdict) -> str:
    """Of the commit; empty: nothing worth one."""
    number = brief.task.number
    if verdict.status is returns.Status.COMPLETED:
        made = f"revise plan to version {brief.version}" if brief.command == "revise" else MADE[brief.command]
        return f"task {number}: {made}"
    if verdict.moves_to is Status.BLOCKED:
        return f"task {number}: block at {brief.command}"
    return f"task {number}: keep unfinished {brief.command}" if verdict.found is not None else ""


def _outcome(board: Board, brief: Brief, result: Return, verdict: Verdict, filed: Filed, warnings: tuple[str, ...], commit: str) -> Outcome:
    number = brief.task.number
    is_done = verdict.status is returns.Status.COMPLETED
    was_believed = verdict.status is result.status
    marker = filed.task.status.marker if filed.task is not None else ""
    data: dict[str, Any] = {"agent": result.metadata.agent_type, "duration_seconds": result.metadata.duration_seconds}
    if is_done and brief.version:
        data |= {"plan_version": brief.version, "phase_count": phases_of(board.root, brief.write_to)}
    return Outcome(
        command=brief.command,
        status=str(verdict.status),
        summary=result.summary if was_believed else f"{verdict.errors[0].message}",
        task_number=number,
        task_status=marker,
        artifacts=checked(board.root, brief, verdict),
        errors=verdict.errors,
        next_steps=_next_steps(brief, result, verdict),
        warnings=warnings,
        commit=commit,
        session_id=result.session_id,
        stop_reason=str(result.stop_reason if was_believed else StopReason.INVALID_RETURN),
        data=data,
    )


def _next_steps(brief: Brief, result: Return, verdict: Verdict) -> str:
    again = f"`remit {brief.command} {brief.task.number}`"
    if verdict.status is returns.Status.COMPLETED:
        own = f"{result.next_steps.strip().rstrip('.')}. " if result.next_steps.strip() else ""
        return own + NEXT[brief.command].format(number=brief.task.number)
    if verdict.moves_to is Status.BLOCKED:
        advice = (verdict.errors[0].recommendation if verdict.errors else "") or "Settle what it is blocked by"
        return advice if again.strip("`") in advice else f"{advice.rstrip('. ')}; then {again} again."
    if verdict.is_undone:
        return verdict.errors[0].recommendation if verdict.errors else ""
    if verdict.status is not result.status:
        return verdict.errors[0].recommendation
    longer = " --timeout gives it longer." if result.stop_reason is StopReason.DEADLINE else ""
    return f"The task stays [{BEGINS[brief.command].marker}]: {again} takes it up again.{longer}"
