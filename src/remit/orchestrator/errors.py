"""`errors`: the open errors of the ledger become one task with a diagnosis and a plan to fix them.

The task is written first and names its errors, so that no error gets a second task, however this ends. Diagnosis and plan are then made and
filed as any research and plan are (`research_plan.work_on`), by the agents of the route; run again, it continues with a task that has no
plan yet. `error_tasks` keeps board and ledger in agreement.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from remit.app import Remit
from remit.board import claims
from remit.board.board import Board, Draft
from remit.board.pending_commits import pay_left
from remit.board.statuses import ENDED, Status, is_legal
from remit.board.task import Priority, State, Task
from remit.core.deadline import allowed_timeout
from remit.core.errors import Refused
from remit.flow.route import Route
from remit.ledger import Entry, ErrorLedger
from remit.orchestrator.changes import change_board, commit_debt
from remit.orchestrator.error_tasks import IDS, Group, choose_groups, group_entries, ids_of, open_entries, presentable, settle_ledger
from remit.orchestrator.lifecycle import Find, require_agent, route_task
from remit.orchestrator.outcome import Outcome, Waiting, wait_for_result
from remit.orchestrator.research_plan import Command, work_on
from remit.orchestrator.tasks import Wanted, number_task, one_line
from remit.settings import Settings
from remit.system.threads import off_loop

COMMAND = "errors"
MESSAGE_LENGTH = 200
MAX_NAMES = 3
TRACE_LENGTH = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenErrors:
    """What is to be fixed now."""

    groups: tuple[Group, ...]
    waiting: int = 0
    """Entries that are left for the next run."""
    task: Task | None = None
    """A task that was made for them before and has no plan yet."""

    @property
    def entries(self) -> list[Entry]:
        return [entry for group in self.groups for entry in group.entries]

    def to_dict(self) -> dict[str, Any]:
        groups = [group.to_dict() for group in self.groups]
        return {"groups": groups, "error_ids": [entry.id for entry in self.entries], "left_open": self.waiting}


async def errors(
    remit: Remit, board: Board, *, kind: str | None = None, timeout: float | None = None, waiting: Waiting = wait_for_result
) -> Outcome:
    """`kind`: only errors of this type, or with this code. Raises `Refused` before anything is written where no agent can diagnose them."""
    seconds = allowed_timeout(timeout, remit.settings.limits_for(COMMAND))
    ends_at = time.monotonic() + seconds
    found = await off_loop(find_errors, board, remit.ledger, kind)
    if found.groups:
        require_agent(remit.directory.find, _route(remit.settings, found.task))
    paid = await off_loop(pay_left, board)
    await off_loop(settle_ledger, board, remit.ledger)
    found = await off_loop(find_errors, board, remit.ledger, kind)
    if not found.groups:
        return replace(await off_loop(nothing_to_do, remit.ledger, kind), warnings=paid)
    chosen = _route(remit.settings, found.task)
    require_agent(remit.directory.find, chosen)
    task, notices = (found.task, ()) if found.task is not None else await off_loop(_record, board, found)
    found = replace(found, groups=tuple(group_entries([entry for entry in found.entries if entry.id in ids_of(task)])))
    await off_loop(settle_ledger, board, remit.ledger)
    outcomes: list[Outcome] = []
    is_diagnosed = any(one.type == "research" and not one.extra.get("partial") for one in task.artifacts)
    if not is_diagnosed and task.status is not Status.PLANNING:
        outcomes.append(await work_on(remit, board, _diagnosis(task, found, timeout), waiting=waiting))
    for agent in chosen.then:
        if outcomes and outcomes[-1].status != "completed":
            break
        now = (await off_loop(board.look)).state.task(task.number)
        diagnosis = outcomes[0].summary if outcomes else ""
        left = max(1.0, min(ends_at - time.monotonic(), remit.settings.limits_for(agent).maximum_seconds))
        name = "revise" if now.has_plan else "plan"
        command = Command(name=name, number=task.number, timeout=left, route=COMMAND, agent=agent, more=(("diagnosis", diagnosis),))
        outcomes.append(await work_on(remit, board, command, waiting=waiting))
    await off_loop(settle_ledger, board, remit.ledger)
    return _outcome(found, task.number, outcomes, (*paid, *notices))


def _route(settings: Settings, task: Task | None) -> Route:
    return route_task(settings.routing, COMMAND, task)


def find_errors(board: Board, ledger: ErrorLedger, kind: str | None = None) -> OpenErrors:
    """What `errors` would take up: a task that it left without a plan, else what is open."""
    known = {entry.id: entry for entry in ledger.entries()}
    for task in board.look().state.tasks:
        mine = [known[one] for one in ids_of(task) if one in known]
        is_meant = kind is None or any(kind in (entry.type, entry.code) for entry in mine)
        can_be_planned = task.status in (Status.RESEARCHING, Status.PLANNING) or is_legal(task.status, Status.PLANNING)
        if mine and is_meant and can_be_planned and not task.has_plan and claims.holder_of(board, task.number) is None:
            return OpenErrors(groups=_presentable(mine), task=task)
    fitting = open_entries(list(known.values()), kind)
    taken = [entry for group in choose_groups(group_entries(fitting)) for entry in group.entries]
    return OpenErrors(groups=_presentable(taken), waiting=len(fitting) - len(taken))


def _presentable(entries: Sequence[Entry]) -> tuple[Group, ...]:
    return tuple(group_entries([presentable(entry) for entry in entries]))


def nothing_to_do(ledger: ErrorLedger, kind: str | None) -> Outcome:
    entries = [entry for entry in ledger.entries() if kind is None or kind in (entry.type, entry.code)]
    tasks = sorted({entry.fix_task_ref for entry in entries if entry.fix_status == "in_progress" and isinstance(entry.fix_task_ref, int)})
    of_kind = f" of type {kind}" if kind else ""
    if not entries:
        words = f"The error ledger has no error{of_kind}. There is nothing to do."
    elif tasks:
        words = f"No error{of_kind} is open: task {', '.join(map(str, tasks))} fixes those in the ledger."
    else:
        words = f"No error{of_kind} is open: all {len(entries)} are settled."
    return Outcome(
        command=COMMAND,
        status="completed",
        summary=words,
        next_steps=f"`remit implement {tasks[0]}` carries out the plan." if tasks else "",
        data={"groups": [], "error_ids": [], "tasks": tasks},
    )


def dry_run_errors(
    board: Board, ledger: ErrorLedger, settings: Settings, find: Find, kind: str | None = None, timeout: float | None = None
) -> Outcome:
    """What would be done; nothing is written."""
    allowed_timeout(timeout, settings.limits_for(COMMAND))
    found = find_errors(board, ledger, kind)
    if not found.groups:
        return nothing_to_do(ledger, kind)
    chosen = _route(settings, found.task)
    require_agent(find, chosen)
    whose = f"task {found.task.number}, which has no plan yet" if found.task else "one new task"
    return Outcome(
        command=COMMAND,
        status="completed",
        summary=f"{_count(len(found.groups), 'group')} of errors would be diagnosed and planned as {whose}.",
        data={**found.to_dict(), "dry_run": True, "route": chosen.log_line},
    )


# ---- the task


def _record(board: Board, found: OpenErrors) -> tuple[Task, tuple[str, ...]]:
    def step(draft: Draft) -> Task:
        ours = _without_taken(found, draft.state)
        task = number_task(board, draft.state, _wanted(ours), at=draft.at)
        task = replace(task, extra={**task.extra, IDS: [entry.id for entry in ours.entries]})
        draft.state = draft.state.with_task(task).noting(draft.at, f"Task {task.number} created: {task.title}", task_number=task.number)
        return task

    task, draft, debt = change_board(board, step, lambda task: f"task {task.number}: create from errors", dry_run=False, make=True)
    made = commit_debt(board, debt, COMMAND, task.number)
    return task, (*draft.notices, *([made.warning] if made.warning else []))


def _without_taken(found: OpenErrors, state: State) -> OpenErrors:
    """Under the board's lock: without what another `errors` has taken up a moment ago."""
    theirs = {one: task.number for task in state.tasks if task.status not in ENDED for one in ids_of(task)}
    left = [entry for entry in found.entries if entry.id not in theirs]
    if not left:
        number = next(theirs[entry.id] for entry in found.entries)
        raise Refused(f"Task {number} was made for these errors a moment ago.", advice=f"`remit task {number}` shows it.")
    return replace(found, groups=tuple(group_entries(left)))


def _wanted(found: OpenErrors) -> Wanted:
    names = [group.name for group in found.groups]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    ids = [one_line(entry.id) for entry in found.entries]
    rest = f" and {len(ids) - MAX_NAMES} more" if len(ids) > MAX_NAMES else ""
    return Wanted(
        text=_description(found.groups),
        title=f"Fix {', '.join(names[:MAX_NAMES])}{more}",
        priority=Priority.HIGH if any(group.is_grave for group in found.groups) else Priority.MEDIUM,
        language="general",
        type="bugfix",
        source=f"error ledger: {', '.join(ids[:MAX_NAMES])}{rest}",
    )


def _description(groups: Sequence[Group]) -> str:
    lines = [f"The error ledger (`remit ledger`) has {_count(len(groups), 'group')} of errors without a fix:", ""]
    for group in groups:
        newest = group.entries[0]
        lines.append(f"- Fix {group.name}: {_short(newest.message)} (seen {_count(group.count, 'time')}, last {newest.last_seen[:10]})")
        if advice := str(newest.context.get("recommendation") or ""):
            lines.append(f"  - Recommended then: {_short(advice)}")
        lines.append(f"  - Ledger: {', '.join(one_line(entry.id) for entry in group.entries[:MAX_NAMES])}")
    return "\n".join(lines)


def _diagnosis(task: Task, found: OpenErrors, timeout: float | None) -> Command:
    request = (
        "Find out why the errors of the task below happen, and what removes the cause of each. Repair nothing now. Put the groups "
        "of errors into data.groups as well, each with its cause and what to do: a plan is made of them."
    )
    entries = [{**entry.to_dict(), "stack_trace": entry.stack_trace[-TRACE_LENGTH:]} for entry in found.entries]
    return Command(name="research", number=task.number, timeout=timeout, route=COMMAND, request=request, more=(("errors", entries),))


def _outcome(found: OpenErrors, number: int, outcomes: Sequence[Outcome], notices: tuple[str, ...]) -> Outcome:
    last = outcomes[-1]
    if last.status == "completed":
        left = f" {_count(found.waiting, 'error')} more wait for the next `remit errors`." if found.waiting else ""
        summary = f"Task {number} fixes what was open. {' '.join(one.summary for one in outcomes)}{left}"
        steps = f"Read the plan; `remit implement {number}` carries it out."
    else:
        summary = f"Task {number} was made for {_count(len(found.groups), 'group')} of errors; it has no plan yet. {last.summary}"
        steps = last.next_steps if last.status == "blocked" else f"`remit {COMMAND}` continues with task {number}."
    return replace(
        last,
        command=COMMAND,
        summary=summary,
        artifacts=tuple(artifact for one in outcomes for artifact in one.artifacts),
        next_steps=steps,
        warnings=tuple(dict.fromkeys((*notices, *(warning for one in outcomes for warning in one.warnings)))),
        data={**last.data, **found.to_dict(), "sessions": [one.session_id for one in outcomes]},
    )


def _short(text: str) -> str:
    words = one_line(text)
    return words if len(words) <= MESSAGE_LENGTH else f"{words[: MESSAGE_LENGTH - 1].rstrip()}…"


def _count(count: int, one: str) -> str:
    return f"{count} {one}{'' if count == 1 else 's'}"
