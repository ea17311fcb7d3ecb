"""`errors`: turns the open errors of the ledger into one task with a diagnosis and a plan to fix them.

The task is written first and names its errors, so that no error gets a second task, however this ends. Diagnosis and plan are then made and
filed like any research and plan (`research_plan.work_on`), by the agents of the route; run again, it continues with a task without a plan.
A task names its entries (`error_ids`); the board is authoritative, and `settle_ledger` updates the ledger from it."""

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remit.app import Remit
from remit.board import claims
from remit.board.archive import archived_tasks
from remit.board.board import Board
from remit.board.command_lifecycle import Find, require_route
from remit.board.outcome import Outcome, Waiting, wait_for_result
from remit.board.research_plan import NEXT, DocumentCommand, work_on
from remit.board.task import ENDED, Priority, Status, Task, is_legal, texts_of
from remit.board.task_commands import NewTask, add_task, number_task
from remit.core.deadline import allowed_timeout
from remit.core.errors import Refused, RemitError
from remit.core.redaction import redact_text
from remit.core.settings import Settings
from remit.core.text import list_some, one_line, plural
from remit.runtime.error_ledger import Entry, ErrorLedger, Fix
from remit.system.threads import off_loop

COMMAND = "errors"
MESSAGE_LENGTH = 200
MAX_NAMES = 3
TRACE_LENGTH = 2_000
IDS = "error_ids"
"""Key of a task's entry in state.json that names its errors."""
OPEN, BEING_FIXED, FIXED = "not_addressed", "in_progress", "resolved"
_SHOWN_CONTEXT = ("code", "agent", "command", "recommendation")
MAX_ERRORS = 100
MAX_GROUPS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Errors of one type, code and agent, probably with one cause."""

    entries: tuple[Entry, ...]
    """Latest first."""

    @property
    def name(self) -> str:
        first = self.entries[0]
        return f"{first.code or first.type} of {first.origin}" if first.origin else first.code or first.type

    @property
    def count(self) -> int:
        return sum(entry.recurrence_count for entry in self.entries)

    @property
    def is_grave(self) -> bool:
        return any(entry.severity == "high" for entry in self.entries)

    def to_dict(self) -> dict[str, Any]:
        first, ids = self.entries[0], [entry.id for entry in self.entries]
        facts = {"name": self.name, "type": first.type, "code": first.code, "agent": first.origin, "count": self.count}
        return {**facts, "errors": ids, "message": first.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenErrors:
    """Errors to fix now."""

    groups: tuple[Group, ...]
    waiting: int = 0
    """Entries left for the next run."""
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
    """`kind`: only errors of this type or code. Raises `Refused` before a task is made if no agent can diagnose them."""
    ends_at = time.monotonic() + allowed_timeout(timeout, remit.settings.limits_for(COMMAND))
    ledger, find = remit.ledger, remit.directory.find
    board = board.with_settings(remit.settings)
    recovered = await off_loop(board.recover)
    await off_loop(settle_ledger, board, ledger)
    found = await off_loop(find_errors, board, ledger, kind)
    if not found.groups:
        return replace(await off_loop(nothing_to_do, ledger, kind), warnings=recovered)
    chosen = require_route(remit.settings, find, COMMAND, found.task)
    task, notices = (found.task, ()) if found.task is not None else await off_loop(_record, board, found)
    found = replace(found, groups=group_entries([entry for entry in found.entries if entry.id in ids_of(task)]))
    await off_loop(settle_ledger, board, ledger)
    outcomes: list[Outcome] = []
    is_diagnosed = any(one.type == "research" and not one.extra.get("partial") for one in task.artifacts)
    if not is_diagnosed and task.status is not Status.PLANNING:
        outcomes.append(await work_on(remit, board, _diagnosis(task, found, timeout), waiting=waiting))
    for agent in chosen.then:
        if outcomes and outcomes[-1].status != "completed":
            break
        now = (await off_loop(board.look)).state.task(task.number)
        left = max(1.0, min(ends_at - time.monotonic(), remit.settings.limits_for(agent).maximum_seconds))
        command = DocumentCommand(
            name="revise" if now.has_plan else "plan",
            number=task.number,
            timeout=left,
            route=COMMAND,
            agent=agent,
            more=(("diagnosis", outcomes[0].summary if outcomes else ""),),
        )
        outcomes.append(await work_on(remit, board, command, waiting=waiting))
    await off_loop(settle_ledger, board, ledger)
    if not outcomes:  # diagnosed before, and the route plans nothing
        summary = "Its errors are diagnosed."
        status = task.status.marker
        outcomes.append(Outcome(command=COMMAND, status="completed", summary=summary, task_number=task.number, task_status=status))
    return _outcome(found, task.number, outcomes, (*recovered, *notices), is_planned=bool(chosen.then))


def find_errors(board: Board, ledger: ErrorLedger, kind: str | None = None) -> OpenErrors:
    """The errors of a task without a plan, else the open ones."""
    known = {entry.id: entry for entry in ledger.entries()}
    for task in board.look().state.tasks:
        mine = [known[one] for one in ids_of(task) if one in known]
        is_meant = any(_is_of(entry, kind) for entry in mine)
        can_be_planned = task.status in (Status.RESEARCHING, Status.PLANNING) or is_legal(task.status, Status.PLANNING)
        if is_meant and can_be_planned and not task.has_plan and claims.holder_of(board, task.number) is None:
            return OpenErrors(groups=group_entries(map(presentable, mine)), task=task)
    fitting = [entry for entry in known.values() if entry.fix_status == OPEN and _is_of(entry, kind)]
    taken = [entry for group in group_entries(fitting)[:MAX_GROUPS] for entry in group.entries][:MAX_ERRORS]
    return OpenErrors(groups=group_entries(map(presentable, taken)), waiting=len(fitting) - len(taken))


def _is_of(entry: Entry, kind: str | None) -> bool:
    return kind is None or kind in (entry.type, entry.code)


def nothing_to_do(ledger: ErrorLedger, kind: str | None) -> Outcome:
    entries = [entry for entry in ledger.entries() if _is_of(entry, kind)]
    tasks = sorted({entry.fix_task_ref for entry in entries if entry.fix_status == BEING_FIXED and isinstance(entry.fix_task_ref, int)})
    fixes = f": task {', '.join(map(str, tasks))} fixes those in the ledger" if tasks else ""
    words = f"No error{f' of type {kind}' if kind else ''} is open{fixes}."
    steps = f"`remit implement {tasks[0]}` carries out the plan." if tasks else ""
    data = {"groups": [], "error_ids": [], "tasks": tasks}
    return Outcome(command=COMMAND, status="completed", summary=words, next_steps=steps, data=data)


def dry_run_errors(
    board: Board, ledger: ErrorLedger, settings: Settings, find: Find, kind: str | None = None, timeout: float | None = None
) -> Outcome:
    """What would be done; writes nothing."""
    allowed_timeout(timeout, settings.limits_for(COMMAND))
    found = find_errors(board, ledger, kind)
    if not found.groups:
        return nothing_to_do(ledger, kind)
    chosen = require_route(settings, find, COMMAND, found.task)
    whose = f"task {found.task.number}, which has no plan yet" if found.task else "one new task"
    lines = [f"{plural(len(found.groups), 'group')} of errors would be diagnosed and planned as {whose}.", f"  route   {chosen.log_line}"]
    for group in found.groups:
        how_often = f"{len(group.entries)} in the ledger, seen {plural(group.count, 'time')}"
        lines.append(f"  group   {one_line(group.name, 120)}, {how_often}: {one_line(group.entries[0].message, MESSAGE_LENGTH)}")
    return Outcome.dry_run(COMMAND, "\n".join(lines), **found.to_dict(), route=chosen.log_line)


# ---- the task


def _record(board: Board, found: OpenErrors) -> tuple[Task, tuple[str, ...]]:
    with board.change(make=True) as draft:
        # Another `errors` may have taken some of them meanwhile.
        theirs = {one: task.number for task in draft.state.tasks if task.status not in ENDED for one in ids_of(task)}
        entries = [entry for entry in found.entries if entry.id not in theirs]
        if not entries:
            number = theirs[found.entries[0].id]
            raise Refused(f"Task {number} was just created for these errors.", advice=f"`remit task {number}` shows it.")
        task = number_task(board, draft.state, _new_task(group_entries(entries)), at=draft.at)
        task = replace(task, extra={**task.extra, IDS: [entry.id for entry in entries]})
        add_task(draft, task)
        board.commit_for(draft, f"task {task.number}: create from errors", command=COMMAND, task_number=task.number)
    return task, draft.warnings


def _new_task(groups: Sequence[Group]) -> NewTask:
    lines = [f"The error ledger (`remit ledger`) has {plural(len(groups), 'group')} of errors without a fix:", ""]
    for group in groups:
        newest = group.entries[0]
        seen = f"seen {plural(group.count, 'time')}, last {newest.last_seen[:10]}"
        lines.append(f"- Fix {group.name}: {one_line(newest.message, MESSAGE_LENGTH)} ({seen})")
        if advice := str(newest.context.get("recommendation") or ""):
            lines.append(f"  - Recommended then: {one_line(advice, MESSAGE_LENGTH)}")
        lines.append(f"  - Ledger: {', '.join(one_line(entry.id) for entry in group.entries[:MAX_NAMES])}")
    return NewTask(
        text="\n".join(lines),
        title=f"Fix {list_some([group.name for group in groups], MAX_NAMES)}",
        priority=Priority.HIGH if any(group.is_grave for group in groups) else Priority.MEDIUM,
        language="general",
        type="bugfix",
        source=f"error ledger: {list_some([one_line(entry.id) for group in groups for entry in group.entries], MAX_NAMES)}",
    )


def _diagnosis(task: Task, found: OpenErrors, timeout: float | None) -> DocumentCommand:
    request = (
        "Find out why the errors of the task below happen, and what removes the cause of each. Repair nothing now. Put the groups "
        "of errors into data.groups as well, each with its cause and what to do: a plan is made of them."
    )
    entries = [{**entry.to_dict(), "stack_trace": entry.stack_trace[-TRACE_LENGTH:]} for entry in found.entries]
    more = (("errors", entries),)
    return DocumentCommand(name="research", number=task.number, timeout=timeout, route=COMMAND, request=request, more=more)


def _outcome(found: OpenErrors, number: int, outcomes: Sequence[Outcome], notices: tuple[str, ...], *, is_planned: bool) -> Outcome:
    last = outcomes[-1]
    if last.status == "completed" and not is_planned:
        summary = f"Task {number} was made for {plural(len(found.groups), 'group')} of errors; its route makes no plan. {last.summary}"
        steps = NEXT["research"].format(number=number)
    elif last.status == "completed":
        left = f" {plural(found.waiting, 'error')} more wait for the next `remit errors`." if found.waiting else ""
        summary = f"Task {number} fixes what was open. {' '.join(one.summary for one in outcomes)}{left}"
        steps = f"Read the plan; `remit implement {number}` carries it out."
    else:
        summary = f"Task {number} was made for {plural(len(found.groups), 'group')} of errors; it has no plan yet. {last.summary}"
        steps = last.next_steps if last.status == "blocked" else f"`remit {COMMAND}` continues with task {number}."
    return replace(
        last,
        command=COMMAND,
        summary=summary,
        artifacts=tuple(artifact for one in outcomes for artifact in one.artifacts),
        next_steps=steps,
        warnings=tuple(dict.fromkeys((*notices, *(warning for one in outcomes for warning in one.warnings)))),
        data={**last.data, **found.to_dict(), "sessions": [one.session_id for one in outcomes if one.session_id]},
    )


# ---- the ledger


def group_entries(entries: Iterable[Entry]) -> tuple[Group, ...]:
    """Most severe and most frequent first."""
    found: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in entries:
        found.setdefault((entry.type, entry.code, entry.origin), []).append(entry)
    groups = (Group(entries=tuple(some)) for some in found.values())
    return tuple(sorted(groups, key=lambda group: (not group.is_grave, -group.count, group.name)))


def presentable(entry: Entry) -> Entry:
    """Safe for committed files, a terminal and a prompt.

    Secrets are removed when an error is recorded, but people and other programs write the ledger too."""

    def plain(text: str) -> str:
        return one_line(redact_text(text))

    context = {key: plain(value) if key in _SHOWN_CONTEXT and isinstance(value, str) else value for key, value in entry.context.items()}
    lines = redact_text(entry.stack_trace).splitlines()
    trace = "\n".join("".join(sign if sign.isprintable() else " " for sign in line).rstrip() for line in lines)
    return replace(entry, type=plain(entry.type), message=plain(entry.message), context=context, stack_trace=trace)


def ids_of(task: Task) -> tuple[str, ...]:
    return texts_of(task, IDS)


def settle_ledger(board: Board, ledger: ErrorLedger) -> tuple[str, ...]:
    """Update the ledger from the tasks made for its entries. Returns the changed ids."""
    entries = ledger.entries()
    seen = board.look()
    # A recurring error has two tasks: the open one counts, wherever it is in TODO.md.
    living = sorted((task for task in seen.state.tasks if task.status is not Status.ABANDONED), key=lambda task: task.status not in ENDED)
    by_id = {one: task for task in living for one in ids_of(task)}
    referred = {entry.fix_task_ref for entry in entries if entry.fix_status == BEING_FIXED}
    known: dict[int, Task] = {task.number: task for task in seen.state.tasks}
    if seen.exists and referred - known.keys():
        known = {**{task.number: task for task in archived_tasks(board)}, **known}
    changes = {entry.id: fix for entry in entries if (fix := _due(entry, by_id, known)) is not None}
    return ledger.set_fixes(changes) if changes else ()


def note_fixed(board: Board, task: Task) -> tuple[str, ...]:
    """The task is completed: mark its errors as fixed until they recur. The next `errors` corrects an unwritable ledger."""
    with contextlib.suppress(RemitError):
        return settle_ledger(board, ErrorLedger(board.root / ".remit" / "errors.json")) if ids_of(task) else ()
    return ()


def _due(entry: Entry, by_id: Mapping[str, Task], known: Mapping[int, Task]) -> Fix | None:
    """The new fix of an entry; None: it is up to date, or a person has settled it."""
    if entry.fix_status not in (OPEN, BEING_FIXED):
        return None
    task = by_id.get(entry.id)
    if task is not None and task.status is not Status.COMPLETED:
        due = Fix(status=BEING_FIXED, plan_ref=task.plan_path or entry.fix_plan_ref, task_ref=task.number)
        return due if due.of(entry) != entry else None
    if entry.fix_status == OPEN or not isinstance(entry.fix_task_ref, int):
        return None  # it recurred after its task was completed, or a person says that it is being fixed
    task = known.get(entry.fix_task_ref)
    if task is not None and task.status not in (Status.COMPLETED, Status.ABANDONED):
        return None
    status = FIXED if task is not None and task.status is Status.COMPLETED else OPEN
    return Fix(status=status, plan_ref=entry.fix_plan_ref, task_ref=entry.fix_task_ref)
