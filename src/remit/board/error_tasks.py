"""`errors`: turns the open errors of the ledger into one task with a diagnosis and a plan to fix them.

The task is written first and names its errors (`error_ids`), so that no error gets a second task, however this ends. Diagnosis and plan are
then made and filed like any research and plan, by the agents of the route; run again, it continues with a task without a plan. The board is
authoritative: `settle_ledger` updates the ledger from it."""

import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from remit.app import Remit
from remit.board import claims
from remit.board.archive import archived_tasks
from remit.board.board import Board
from remit.board.command_lifecycle import require_route
from remit.board.outcome import Outcome, Waiting, wait_for_result
from remit.board.research_plan import DocumentCommand, work_on
from remit.board.task import ENDED, Priority, Status, Task, is_legal, texts_of
from remit.board.task_commands import NewTask, add_task, number_task
from remit.core.deadline import allowed_timeout
from remit.core.errors import Refused, RemitError
from remit.core.redaction import redact_text
from remit.core.text import list_some, one_line, plural
from remit.runtime.error_ledger import Entry, ErrorLedger, Fix
from remit.system.threads import off_loop

COMMAND = "errors"
MESSAGE_LENGTH = 200
TRACE_LENGTH = 2_000
IDS = "error_ids"
"""Key of a task's entry in state.json that names its errors."""
OPEN, BEING_FIXED, FIXED = "not_addressed", "in_progress", "resolved"
MAX_ERRORS, MAX_NAMES = 100, 3
CLOSED = (Status.COMPLETED, Status.ABANDONED)
REQUEST = (
    "Find out why the errors of the task below happen, and what removes the cause of each. Repair nothing now. Put the groups of errors "
    "into data.groups as well, each with its cause and what to do: a plan is made of them."
)
Groups = dict[str, list[Entry]]
"""Errors of one type, code and agent, probably with one cause, by the name of the group; the most severe and most frequent first."""


async def errors(
    remit: Remit, board: Board, *, kind: str | None = None, timeout: float | None = None, waiting: Waiting = wait_for_result
) -> Outcome:
    """`kind`: only errors of this type or code. Raises `Refused` before a task is made if no agent can diagnose them."""
    ends_at = time.monotonic() + allowed_timeout(timeout, remit.settings.limits_for(COMMAND))
    ledger, board = remit.ledger, board.with_settings(remit.settings)
    notices = await off_loop(board.recover)
    await off_loop(settle_ledger, board, ledger)
    unplanned, found = await off_loop(find_errors, board, ledger, kind)
    if not found:
        words = f"No error{f' of type {kind}' if kind else ''} is open."
        return Outcome(command=COMMAND, status="completed", summary=words, warnings=notices)
    chosen = require_route(remit.settings, remit.directory.find, COMMAND, unplanned)
    task, more = (unplanned, ()) if unplanned is not None else await off_loop(_record, board, found)
    found = [entry for entry in found if entry.id in ids_of(task)]
    await off_loop(settle_ledger, board, ledger)
    outcomes: list[Outcome] = []
    is_diagnosed = any(one.type == "research" and not one.extra.get("partial") for one in task.artifacts)
    if not is_diagnosed and task.status is not Status.PLANNING:
        entries = [{**entry.to_dict(), "stack_trace": entry.stack_trace[-TRACE_LENGTH:]} for entry in found]
        known: dict[str, Any] = {"request": REQUEST, "more": (("errors", entries),)}
        command = DocumentCommand(name="research", number=task.number, timeout=timeout, route=COMMAND, **known)
        outcomes.append(await work_on(remit, board, command, waiting=waiting))
    for agent in chosen.then:
        if outcomes and outcomes[-1].status != "completed":
            break
        now = (await off_loop(board.look)).state.task(task.number)
        command = DocumentCommand(
            name="revise" if now.has_plan else "plan",
            number=task.number,
            timeout=max(1.0, min(ends_at - time.monotonic(), remit.settings.limits_for(agent).maximum_seconds)),
            route=COMMAND,
            agent=agent,
            more=(("diagnosis", outcomes[0].summary if outcomes else ""),),
        )
        outcomes.append(await work_on(remit, board, command, waiting=waiting))
    await off_loop(settle_ledger, board, ledger)
    return _outcome(task, found, outcomes, (*notices, *more))


def find_errors(board: Board, ledger: ErrorLedger, kind: str | None = None) -> tuple[Task | None, list[Entry]]:
    """A task without a plan and its errors; else the open errors, of which the rest waits for the next run."""
    known = {entry.id: presentable(entry) for entry in ledger.entries() if kind is None or kind in (entry.type, entry.code)}
    for task in board.look().state.tasks:
        mine = [known[one] for one in ids_of(task) if one in known]
        can_be_planned = task.status in (Status.RESEARCHING, Status.PLANNING) or is_legal(task.status, Status.PLANNING)
        if mine and can_be_planned and not task.has_plan and claims.holder_of(board, task.number) is None:
            return task, mine
    groups = group_entries(entry for entry in known.values() if entry.fix_status == OPEN)
    return None, [entry for group in groups.values() for entry in group][:MAX_ERRORS]


# ---- the task


def _record(board: Board, found: Sequence[Entry]) -> tuple[Task, tuple[str, ...]]:
    with board.change(make=True) as draft:
        # Another `errors` may have taken some of them meanwhile.
        theirs = {one: task.number for task in draft.state.tasks if task.status not in ENDED for one in ids_of(task)}
        entries = [entry for entry in found if entry.id not in theirs]
        if not entries:
            number = theirs[found[0].id]
            raise Refused(f"Task {number} was just created for these errors.", advice=f"`remit task {number}` shows it.")
        new = NewTask(
            text=f"The error ledger (`remit ledger`) has errors without a fix:\n\n{_listed(entries)}",
            title=f"Fix {list_some(list(group_entries(entries)), MAX_NAMES)}",
            priority=Priority.HIGH if any(entry.severity == "high" for entry in entries) else Priority.MEDIUM,
            language="general",
            type="bugfix",
            source=f"error ledger: {list_some([one_line(entry.id) for entry in entries], MAX_NAMES)}",
        )
        task = number_task(board, draft.state, new, at=draft.at)
        task = replace(task, extra={**task.extra, IDS: [entry.id for entry in entries]})
        add_task(draft, task)
        board.commit_for(draft, f"task {task.number}: create from errors", command=COMMAND, task_number=task.number)
    return task, draft.warnings


def _listed(entries: Iterable[Entry]) -> str:
    lines = []
    for name, group in group_entries(entries).items():
        seen = plural(sum(entry.recurrence_count for entry in group), "time")
        ids = list_some([one_line(entry.id) for entry in group], MAX_NAMES)
        lines.append(f"- Fix {name}: {one_line(group[0].message, MESSAGE_LENGTH)} (seen {seen}; {ids})")
    return "\n".join(lines)


def _outcome(task: Task, found: Sequence[Entry], outcomes: Sequence[Outcome], notices: tuple[str, ...]) -> Outcome:
    """That of the last step; diagnosed before, with a route that plans nothing, there was none."""
    done = Outcome(command=COMMAND, status="completed", summary="Its errors are diagnosed.", task_number=task.number)
    last = outcomes[-1] if outcomes else replace(done, task_status=task.status.marker, next_steps=f"`remit plan {task.number}` plans it.")
    is_open = last.status not in ("completed", "blocked")
    groups = [{"name": name, "errors": [one.id for one in group]} for name, group in group_entries(found).items()]
    return replace(
        last,
        command=COMMAND,
        summary=f"Task {task.number} was made for these errors. {' '.join(one.summary for one in outcomes or [last])}",
        artifacts=tuple(artifact for one in outcomes for artifact in one.artifacts),
        next_steps=f"`remit {COMMAND}` continues with task {task.number}." if is_open else last.next_steps,
        warnings=tuple(dict.fromkeys((*notices, *(warning for one in outcomes for warning in one.warnings)))),
        data={**last.data, "groups": groups, "sessions": [one.session_id for one in outcomes if one.session_id]},
    )


# ---- the ledger


def group_entries(entries: Iterable[Entry]) -> Groups:
    found: Groups = {}
    for entry in entries:
        name = entry.code or entry.type
        found.setdefault(f"{name} of {entry.origin}" if entry.origin else name, []).append(entry)

    def rank(name: str) -> tuple[bool, int, str]:
        return all(one.severity != "high" for one in found[name]), -sum(one.recurrence_count for one in found[name]), name

    return {name: found[name] for name in sorted(found, key=rank)}


def presentable(entry: Entry) -> Entry:
    """Safe for committed files, a terminal and a prompt.

    Secrets are removed when an error is recorded, but people and other programs write the ledger too."""

    def plain(text: str) -> str:
        return one_line(redact_text(text))

    context: dict[str, Any] = {key: plain(value) if isinstance(value, str) else value for key, value in entry.context.items()}
    lines = redact_text(entry.stack_trace).splitlines()
    trace = "\n".join("".join(sign if sign.isprintable() else " " for sign in line).rstrip() for line in lines)
    return replace(entry, type=plain(entry.type), message=plain(entry.message), context=context, stack_trace=trace)


def ids_of(task: Task) -> tuple[str, ...]:
    return texts_of(task, IDS)


def settle_ledger(board: Board, ledger: ErrorLedger) -> tuple[str, ...]:
    """Update the ledger from the tasks made for its entries. Returns the changed ids."""
    seen = board.look()
    tasks = (*(archived_tasks(board) if seen.exists else ()), *seen.state.tasks)
    known = {task.number: task for task in tasks}
    # A recurring error has two tasks: the open one counts, wherever it is in TODO.md.
    by_id = {one: task for task in sorted(tasks, key=lambda task: task.status not in ENDED) for one in ids_of(task)}
    changes: dict[str, Fix] = {}
    for entry in ledger.entries():
        task = by_id.get(entry.id)
        fix = None
        if task is not None and task.status not in CLOSED:
            fix = Fix(status=BEING_FIXED, plan_ref=task.plan_path or entry.fix_plan_ref, task_ref=task.number)
        elif entry.fix_status == BEING_FIXED and isinstance(entry.fix_task_ref, int):
            task = known.get(entry.fix_task_ref)
            if task is None or task.status in CLOSED:
                is_fixed = task is not None and task.status is Status.COMPLETED
                fix = Fix(status=FIXED if is_fixed else OPEN, plan_ref=entry.fix_plan_ref, task_ref=entry.fix_task_ref)
        # Otherwise it recurred after its task had ended, or a person has settled it or says that it is being fixed.
        if fix is not None and entry.fix_status in (OPEN, BEING_FIXED) and fix.of(entry) != entry:
            changes[entry.id] = fix
    return ledger.set_fixes(changes) if changes else ()


def note_fixed(board: Board, task: Task) -> None:
    """The task is completed: mark its errors as fixed until they recur. The next `errors` corrects an unwritable ledger."""
    if ids_of(task):
        with contextlib.suppress(RemitError):
            settle_ledger(board, ErrorLedger(board.root / ".remit" / "errors.json"))
