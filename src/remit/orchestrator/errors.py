"""`errors`: the open errors of the ledger become one task with a diagnosis and a plan to mend them (S6.9).

One task for a run, whose plan has its phases by the groups of errors: whoever mends them reads one thing and runs one command. The task is
written first and names its errors, so that however this ends no error gets a second task; run again, it goes on with a task that has no
plan yet. The parts of the common course (`working`, `processing`) do the rest; `error_tasks` keeps board and ledger in agreement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remit.app import Remit
from remit.board import claims
from remit.board.board import Board, Draft
from remit.board.pending_commits import owed, pay, pay_left
from remit.board.statuses import ENDED, Status, is_legal
from remit.board.task import Priority, State, Task, TaskArtifact
from remit.core.errors import Refused
from remit.core.result import Artifact, Return, StopReason
from remit.core.result import Status as Ending
from remit.flow.artifacts import seen_artifacts
from remit.ledger import Entry, ErrorLedger
from remit.orchestrator.chain import Links, chained, recorded
from remit.orchestrator.changing import changing
from remit.orchestrator.error_tasks import IDS, Group, chosen, grouped, ids_of, open_entries, presentable, settle_ledger
from remit.orchestrator.outcome import Outcome, Waiting, plainly
from remit.orchestrator.processing import Verdict, filed_task, judged_return, next_number, next_version
from remit.orchestrator.prompts import Brief, parameters_of
from remit.orchestrator.tasks import Wanted, numbered, one_line
from remit.orchestrator.working import Entered, claim_seconds, entered, note_session, run_left_by, settled, task_context
from remit.system.files import atomic_write
from remit.system.threads import off_loop

COMMAND = "errors"
MESSAGE_LENGTH = 200
NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is to be mended now."""

    groups: tuple[Group, ...]
    waiting: int = 0
    """Entries that are left for the next run."""
    task: Task | None = None
    """A task that was made for them before and has no plan yet."""

    @property
    def entries(self) -> list[Entry]:
        return [entry for group in self.groups for entry in group.entries]


async def errors(
    remit: Remit, board: Board, *, kind: str | None = None, timeout: float | None = None, waiting: Waiting = plainly
) -> Outcome:
    """`kind`: only errors of this type, or with this code."""
    paid = await off_loop(pay_left, board)
    await off_loop(settle_ledger, board, remit.ledger)
    found = await off_loop(found_in, board, remit.ledger, kind)
    if not found.groups:
        return replace(await off_loop(nothing_to_do, remit.ledger, kind), warnings=paid)
    task, said = (found.task, ()) if found.task is not None else await off_loop(_record, board, found)
    found = replace(found, groups=tuple(grouped([entry for entry in found.entries if entry.id in ids_of(task)])))
    await off_loop(settle_ledger, board, remit.ledger)
    with claims.claim(board, task.number, COMMAND, seconds=claim_seconds(remit, COMMAND, timeout)):
        mark = await off_loop(_entered, board, task.number)
        links = Links(
            command=COMMAND,
            context=await off_loop(task_context, remit, mark.before, mark.state),
            run=mark.run,
            timeout=timeout,
            begun=lambda session_id: off_loop(note_session, board, mark.task.number, session_id),
            waiting=waiting,
        )
        report, plan = await off_loop(_briefs, remit, board, mark, links)
        returns = await _diagnosed(remit, board, found, links, report, plan)
        outcome = await off_loop(_file, board, found, mark, (report, plan), returns)
    await off_loop(settle_ledger, board, remit.ledger)
    return replace(outcome, warnings=(*paid, *said, *outcome.warnings))


def found_in(board: Board, ledger: ErrorLedger, kind: str | None = None) -> Found:
    """What `errors` would take up: a task that it left without a plan, else what is open."""
    known = {entry.id: entry for entry in ledger.entries()}
    for task in board.look().state.tasks:
        mine = [known[one] for one in ids_of(task) if one in known]
        is_meant = kind is None or any(kind in (entry.type, entry.code) for entry in mine)
        can_be_planned = task.status is Status.PLANNING or is_legal(task.status, Status.PLANNING)  # else somebody else is at it
        is_left = not task.has_plan and can_be_planned and claims.holder_of(board, task.number) is None
        if mine and is_meant and is_left:
            return Found(groups=_presentable(mine), task=task)
    fitting = open_entries(list(known.values()), kind)
    taken = [entry for group in chosen(grouped(fitting)) for entry in group.entries]
    return Found(groups=_presentable(taken), waiting=len(fitting) - len(taken))


def _presentable(entries: Sequence[Entry]) -> tuple[Group, ...]:
    return tuple(grouped([presentable(entry) for entry in entries]))


def nothing_to_do(ledger: ErrorLedger, kind: str | None) -> Outcome:
    entries = [entry for entry in ledger.entries() if kind is None or kind in (entry.type, entry.code)]
    tasks = sorted({entry.fix_task_ref for entry in entries if entry.fix_status == "in_progress" and isinstance(entry.fix_task_ref, int)})
    of_kind = f" of type {kind}" if kind else ""
    if not entries:
        words = f"The error ledger holds no error{of_kind}. There is nothing to do."
    elif tasks:
        words = f"No error{of_kind} is open: those there are, are being mended by task {', '.join(map(str, tasks))}."
    else:
        words = f"No error{of_kind} is open: all {len(entries)} are settled."
    return Outcome(
        command=COMMAND,
        status="completed",
        summary=words,
        next_steps=f"`remit implement {tasks[0]}` carries out the plan." if tasks else "",
        data={"groups": [], "error_ids": [], "tasks": tasks},
    )


def rehearsed(board: Board, ledger: ErrorLedger, log_line: str, kind: str | None = None) -> Outcome:
    """What would be done; nothing is written."""
    found = found_in(board, ledger, kind)
    if not found.groups:
        return nothing_to_do(ledger, kind)
    whose = f"task {found.task.number}, which has no plan yet" if found.task else "one new task"
    return Outcome(
        command=COMMAND,
        status="completed",
        summary=f"{_many(len(found.groups), 'group')} of errors would be diagnosed and planned as {whose}.",
        data={**_data(found), "dry_run": True, "route": log_line},
    )


# ---- the task


def _record(board: Board, found: Found) -> tuple[Task, tuple[str, ...]]:
    def step(draft: Draft) -> Task:
        ours = _left_by_others(found, draft.state)
        task = numbered(board, draft.state, _wanted(ours), at=draft.at)
        task = replace(task, extra={**task.extra, IDS: [entry.id for entry in ours.entries]})
        draft.state = draft.state.with_task(task).noting(draft.at, f"Task {task.number} created: {task.title}", task_number=task.number)
        return task

    task, draft, debt = changing(board, step, lambda task: f"task {task.number}: create from errors", is_rehearsal=False, make=True)
    made = pay(board, debt)
    return task, (*draft.notices, *([made.warning] if made.warning else []))


def _left_by_others(found: Found, state: State) -> Found:
    """Under the board's lock: without what another `errors` has taken up a moment ago."""
    theirs = {one: task.number for task in state.tasks if task.status not in ENDED for one in ids_of(task)}
    if not any(entry.id in theirs for entry in found.entries):
        return found
    left = [entry for entry in found.entries if entry.id not in theirs]
    if not left:
        number = next(theirs[entry.id] for entry in found.entries)
        raise Refused(f"Task {number} was made for these errors a moment ago.", advice=f"`remit task {number}` shows it.")
    return replace(found, groups=tuple(grouped(left)))


def _wanted(found: Found) -> Wanted:
    names = [group.name for group in found.groups]
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    ids = [one_line(entry.id) for entry in found.entries]
    rest = f" and {len(ids) - NAMES_SHOWN} more" if len(ids) > NAMES_SHOWN else ""
    return Wanted(
        text="\n".join(_described(found.groups)),
        title=f"Fix {', '.join(names[:NAMES_SHOWN])}{more}",
        priority=Priority.HIGH if any(group.is_grave for group in found.groups) else Priority.MEDIUM,
        language="general",
        type="bugfix",
        source=f"error ledger: {', '.join(ids[:NAMES_SHOWN])}{rest}",
    )


def _described(groups: Sequence[Group]) -> list[str]:
    """A list: the plan takes its phases from it."""
    lines = [f"The error ledger (`remit ledger`) holds {_many(len(groups), 'group')} of errors without a fix:", ""]
    for group in groups:
        newest = group.entries[0]
        lines.append(f"- Fix {group.name}: {_short(newest.message)} (seen {_many(group.count, 'time')}, last {newest.last_seen[:10]})")
        if advice := str(newest.context.get("recommendation") or ""):
            lines.append(f"  - Advised then: {_short(advice)}")
        lines.append(f"  - See that it does not come again ({', '.join(one_line(entry.id) for entry in group.entries[:NAMES_SHOWN])})")
    return lines


# ---- the agents


def _entered(board: Board, number: int) -> Entered:
    """Marked as being planned. A run that ended before it was filed goes on under its name: what had completed in it is not run again."""
    state = board.look().state
    task = state.task(number)
    left = run_left_by(task, "plan")
    if not left:
        return entered(board, number, "plan")
    words = f"An earlier `remit {COMMAND}` ended before task {number} had its plan: it goes on from there."
    return Entered(task=task, before=task, state=state, run=left, warnings=(words,))


def _briefs(remit: Remit, board: Board, mark: Entered, links: Links) -> tuple[Brief, Brief]:
    """Of the diagnosis, which is filed as a report, and of the plan. A run that goes on writes where it was asked to write before."""
    task = mark.before
    before = [str(record.parameters.get("write_to") or "") if record is not None else "" for record in recorded(remit, links)]
    report, page = (
        next((one for one in before if one.startswith(f"{task.folder}/{folder}/{name}-")), "")
        or f"{task.folder}/{folder}/{name}-{next_number(board.root, task, folder, name):03d}.md"
        for folder, name in (("reports", "research"), ("plans", "implementation"))
    )
    known = [one.path for one in task.artifacts if one.type == "research" and (board.root / one.path).is_file()]
    at = board.clock.wall()
    diagnosis = Brief(command="research", task=task, write_to=report, begun_at=at)
    plan = Brief(
        command="plan",
        task=task,
        write_to=page,
        reports=tuple(dict.fromkeys((*known, report))),
        version=next_version(task),
        begun_at=at,
    )
    for brief in (diagnosis, plan):
        (board.root / brief.write_to).parent.mkdir(parents=True, exist_ok=True)
    return diagnosis, plan


async def _diagnosed(remit: Remit, board: Board, found: Found, links: Links, report: Brief, plan: Brief) -> list[Return]:
    async def ask(agent: str, before: Return | None) -> Mapping[str, Any]:
        if before is None:
            return _to_diagnose(found, report)
        await off_loop(_link_report, board, report, before)
        return {**await off_loop(parameters_of, plan, board.root), "diagnosis": before.summary}

    return await chained(remit, links, ask)


def _to_diagnose(found: Found, report: Brief) -> dict[str, Any]:
    words = [
        f"Diagnose the errors that task {report.task.number} is to mend: {report.task.title}.",
        "",
        *_described(found.groups),
        "",
        f"Write the report to `{report.write_to}` and name it as an artifact of type report. Put the groups into data.groups as well, each "
        "with its cause and what to do: a plan is made of them. Repair nothing now.",
    ]
    entries = [{**entry.to_dict(), "stack_trace": entry.stack_trace[-2_000:]} for entry in found.entries]
    return {"task": "\n".join(words), "number": report.task.number, "errors": entries, "write_to": report.write_to}


# ---- filing


def _link_report(board: Board, report: Brief, result: Return) -> Verdict:
    """The diagnosis where it was wanted, and linked, whatever comes after it."""
    verdict = judged_return(board.root, report, result)
    if verdict.found is None:
        return verdict
    if verdict.found.came_from:
        atomic_write(board.root / report.write_to, verdict.found.data)
    link = TaskArtifact(type="research", path=report.write_to, summary=verdict.found.summary or "Diagnosis of the errors")
    with board.change() as draft:
        task = draft.state.find(report.task.number)
        if task is not None and all(one.path != link.path for one in task.artifacts):
            draft.state = draft.state.with_task(replace(task, artifacts=(*task.artifacts, link)))
    return verdict


def _file(board: Board, found: Found, mark: Entered, briefs: tuple[Brief, Brief], returns: Sequence[Return]) -> Outcome:
    """As S6.6 says of a plan: it must be there and be one, else the task keeps its marker."""
    report, plan = briefs
    last, number = returns[-1], mark.task.number
    diagnosed = _link_report(board, report, returns[0])
    verdict = judged_return(board.root, plan, last) if len(returns) > 1 else _of_diagnosis(diagnosed)
    files = {plan.write_to: verdict.found.data} if verdict.found is not None and verdict.found.came_from else {}
    paths = [one.write_to for one, judged in ((report, diagnosed), (plan, verdict)) if judged.found is not None]
    is_done = verdict.status is Ending.COMPLETED
    subject = (
        f"task {number}: plan the fix of {_many(len(found.groups), 'group')} of errors" if is_done else f"task {number}: keep diagnosis"
    )
    debt = owed(board, subject, paths, session_id=last.session_id)
    moved: list[str] = []

    def change(task: Task, at: str) -> Task:
        task, warnings = filed_task(task, at, plan, verdict, mark.before.status)
        moved.extend(warnings)
        return task

    filed = settled(
        board,
        number,
        f"Task {number}: errors {verdict.status}",
        change,
        session_id=last.session_id,
        files={**files, debt.note: debt.to_bytes()},
    )
    made = pay(board, debt)
    warnings = (*mark.warnings, *verdict.warnings, *filed.warnings, *moved, *last.warnings, made.warning)
    return Outcome(
        command=COMMAND,
        status=str(verdict.status),
        summary=_summary(found, number, returns, verdict),
        task_number=number,
        task_status=filed.task.status.marker if filed.task else "",
        artifacts=seen_artifacts(board.root, [_artifact(path) for path in paths]),
        errors=verdict.errors,
        next_steps=_next_steps(number, verdict, is_done=is_done),
        warnings=tuple(dict.fromkeys(one for one in warnings if one)),
        commit=made.short,
        session_id=last.session_id,
        stop_reason=str(last.stop_reason if verdict.status is last.status else StopReason.INVALID_RETURN),
        data={**_data(found), "sessions": [one.session_id for one in returns]},
    )


def _of_diagnosis(diagnosed: Verdict) -> Verdict:
    """The chain ended there: it counts for the plan, which is not there."""
    moves_to = Status.BLOCKED if diagnosed.status is Ending.BLOCKED else None
    return replace(diagnosed, moves_to=moves_to, found=None, more=())


def _summary(found: Found, number: int, returns: Sequence[Return], verdict: Verdict) -> str:
    if verdict.status is not Ending.COMPLETED:
        why = verdict.errors[0].message if verdict.errors else returns[-1].summary
        return f"Task {number} was made for {_many(len(found.groups), 'group')} of errors; its plan is not there yet. {why}"
    left = f" {_many(found.waiting, 'error')} more wait for the next `remit errors`." if found.waiting else ""
    return f"Task {number} is there to mend what was open. {returns[0].summary} {returns[-1].summary}{left}"


def _next_steps(number: int, verdict: Verdict, *, is_done: bool) -> str:
    if is_done:
        return f"Read the plan; `remit implement {number}` carries it out."
    if verdict.errors and verdict.moves_to is Status.BLOCKED:
        return verdict.errors[0].recommendation or f"Settle what it is blocked by; then `remit {COMMAND}` again."
    return f"`remit {COMMAND}` goes on with task {number}."


def _artifact(path: str) -> Artifact:
    return Artifact(type="plan" if "/plans/" in path else "report", path=path)


def _data(found: Found) -> dict[str, Any]:
    return {
        "groups": [group.to_dict() for group in found.groups],
        "error_ids": [entry.id for entry in found.entries],
        "left_open": found.waiting,
    }


def _short(text: str) -> str:
    words = one_line(text)
    return words if len(words) <= MESSAGE_LENGTH else f"{words[: MESSAGE_LENGTH - 1].rstrip()}…"


def _many(count: int, one: str) -> str:
    return f"{count} {one}{'' if count == 1 else 's'}"
