"""`errors`: the open errors of the ledger become one task with a diagnosis and a plan to fix them.

The task is written first and names its errors, so that no error gets a second task, however this ends. Diagnosis and plan are then made and
filed as any research and plan are (`research_plan.work_on`), by the agents of the route; run again, it continues with a task that has no
plan yet. A task names the entries it was made for (`error_ids`); the board is the truth, and `settle_ledger` sets the ledger by it.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remit.app import Remit
from remit.board import claims
from remit.board.archive import archived_tasks
from remit.board.board import Board
from remit.board.command_lifecycle import Find, require_agent, route_task
from remit.board.outcome import Outcome, Waiting, count_words, wait_for_result
from remit.board.research_plan import DocumentCommand, work_on
from remit.board.task import ENDED, Priority, State, Status, Task, is_legal
from remit.board.task_commands import NewTask, add_task, number_task
from remit.core.deadline import allowed_timeout
from remit.core.errors import Refused, RemitError
from remit.core.redaction import redact_text
from remit.core.routing import Route
from remit.core.settings import Settings
from remit.core.text import one_line
from remit.runtime.error_ledger import Entry, ErrorLedger, Fix
from remit.system.threads import off_loop

COMMAND = "errors"
MESSAGE_LENGTH = 200
MAX_NAMES = 3
TRACE_LENGTH = 2_000
IDS = "error_ids"
"""The key of a task's entry in state.json that names the errors it was made for."""
OPEN, BEING_FIXED, FIXED = "not_addressed", "in_progress", "resolved"
_SAID = ("code", "agent", "command", "recommendation")
AT_MOST = 100
GROUPS_AT_MOST = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Errors of one type, code and agent: probably of one cause."""

    type: str
    code: str
    origin: str
    entries: tuple[Entry, ...]
    """The one seen last comes first."""

    @property
    def name(self) -> str:
        what = self.code or self.type
        return f"{what} of {self.origin}" if self.origin else what

    @property
    def count(self) -> int:
        return sum(entry.recurrence_count for entry in self.entries)

    @property
    def is_grave(self) -> bool:
        return any(entry.severity == "high" for entry in self.entries)

    def to_dict(self) -> dict[str, Any]:
        together = {other for entry in self.entries for other in entry.related_errors} - {entry.id for entry in self.entries}
        return {
            "name": self.name,
            "type": self.type,
            "code": self.code,
            "agent": self.origin,
            "count": self.count,
            "errors": [entry.id for entry in self.entries],
            "seen_together_with": sorted(together),
            "message": self.entries[0].message,
        }


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
    recovered = await off_loop(board.recover)
    await off_loop(settle_ledger, board, remit.ledger)
    found = await off_loop(find_errors, board, remit.ledger, kind)
    if not found.groups:
        return replace(await off_loop(nothing_to_do, remit.ledger, kind), warnings=recovered)
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
        command = DocumentCommand(name=name, number=task.number, timeout=left, route=COMMAND, agent=agent, more=(("diagnosis", diagnosis),))
        outcomes.append(await work_on(remit, board, command, waiting=waiting))
    await off_loop(settle_ledger, board, remit.ledger)
    return _outcome(found, task.number, outcomes, (*recovered, *notices))


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
        summary=f"{count_words(len(found.groups), 'group')} of errors would be diagnosed and planned as {whose}.",
        data={**found.to_dict(), "dry_run": True, "route": chosen.log_line},
    )


# ---- the task


def _record(board: Board, found: OpenErrors) -> tuple[Task, tuple[str, ...]]:
    with board.change(make=True) as draft:
        ours = _without_taken(found, draft.state)
        task = number_task(board, draft.state, _new_task(ours), at=draft.at)
        task = replace(task, extra={**task.extra, IDS: [entry.id for entry in ours.entries]})
        add_task(draft, task)
        board.commit_for(draft, f"task {task.number}: create from errors", command=COMMAND, task_number=task.number)
    return task, draft.warnings


def _without_taken(found: OpenErrors, state: State) -> OpenErrors:
    """Under the board's lock: without what another `errors` has taken up a moment ago."""
    theirs = {one: task.number for task in state.tasks if task.status not in ENDED for one in ids_of(task)}
    left = [entry for entry in found.entries if entry.id not in theirs]
    if not left:
        number = next(theirs[entry.id] for entry in found.entries)
        raise Refused(f"Task {number} was made for these errors a moment ago.", advice=f"`remit task {number}` shows it.")
    return replace(found, groups=tuple(group_entries(left)))


def _new_task(found: OpenErrors) -> NewTask:
    names = [group.name for group in found.groups]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    ids = [one_line(entry.id) for entry in found.entries]
    rest = f" and {len(ids) - MAX_NAMES} more" if len(ids) > MAX_NAMES else ""
    return NewTask(
        text=_description(found.groups),
        title=f"Fix {', '.join(names[:MAX_NAMES])}{more}",
        priority=Priority.HIGH if any(group.is_grave for group in found.groups) else Priority.MEDIUM,
        language="general",
        type="bugfix",
        source=f"error ledger: {', '.join(ids[:MAX_NAMES])}{rest}",
    )


def _description(groups: Sequence[Group]) -> str:
    lines = [f"The error ledger (`remit ledger`) has {count_words(len(groups), 'group')} of errors without a fix:", ""]
    for group in groups:
        newest = group.entries[0]
        seen = f"seen {count_words(group.count, 'time')}, last {newest.last_seen[:10]}"
        lines.append(f"- Fix {group.name}: {one_line(newest.message, MESSAGE_LENGTH)} ({seen})")
        if advice := str(newest.context.get("recommendation") or ""):
            lines.append(f"  - Recommended then: {one_line(advice, MESSAGE_LENGTH)}")
        lines.append(f"  - Ledger: {', '.join(one_line(entry.id) for entry in group.entries[:MAX_NAMES])}")
    return "\n".join(lines)


def _diagnosis(task: Task, found: OpenErrors, timeout: float | None) -> DocumentCommand:
    request = (
        "Find out why the errors of the task below happen, and what removes the cause of each. Repair nothing now. Put the groups "
        "of errors into data.groups as well, each with its cause and what to do: a plan is made of them."
    )
    entries = [{**entry.to_dict(), "stack_trace": entry.stack_trace[-TRACE_LENGTH:]} for entry in found.entries]
    return DocumentCommand(
        name="research", number=task.number, timeout=timeout, route=COMMAND, request=request, more=(("errors", entries),)
    )


def _outcome(found: OpenErrors, number: int, outcomes: Sequence[Outcome], notices: tuple[str, ...]) -> Outcome:
    last = outcomes[-1]
    if last.status == "completed":
        left = f" {count_words(found.waiting, 'error')} more wait for the next `remit errors`." if found.waiting else ""
        summary = f"Task {number} fixes what was open. {' '.join(one.summary for one in outcomes)}{left}"
        steps = f"Read the plan; `remit implement {number}` carries it out."
    else:
        summary = f"Task {number} was made for {count_words(len(found.groups), 'group')} of errors; it has no plan yet. {last.summary}"
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


# ---- the ledger


def group_entries(entries: Sequence[Entry]) -> list[Group]:
    """The gravest and most frequent first."""
    found: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in entries:
        found.setdefault((entry.type, entry.code, entry.origin), []).append(entry)
    groups = [Group(type=kind, code=code, origin=origin, entries=tuple(some)) for (kind, code, origin), some in found.items()]
    return sorted(groups, key=lambda group: (not group.is_grave, -group.count, group.name))


def choose_groups(groups: Sequence[Group]) -> tuple[Group, ...]:
    """As many as one task can hold; the rest waits for the next."""
    some: list[Group] = []
    for group in groups[:GROUPS_AT_MOST]:
        if some and sum(len(one.entries) for one in some) + len(group.entries) > AT_MOST:
            break
        some.append(Group(type=group.type, code=group.code, origin=group.origin, entries=group.entries[:AT_MOST]))
    return tuple(some)


def presentable(entry: Entry) -> Entry:
    """As it may stand in files that are committed, on a terminal and in a prompt.

    Secrets are struck out where an error is entered; but a ledger is a file that people and other programs write too.
    """

    def plain(text: str) -> str:
        return one_line(redact_text(text))

    context = {key: plain(value) if key in _SAID and isinstance(value, str) else value for key, value in entry.context.items()}
    lines = redact_text(entry.stack_trace).splitlines()
    trace = "\n".join("".join(sign if sign.isprintable() else " " for sign in line).rstrip() for line in lines)
    return replace(entry, type=plain(entry.type), message=plain(entry.message), context=context, stack_trace=trace)


def open_entries(entries: Sequence[Entry], kind: str | None = None) -> list[Entry]:
    return [entry for entry in entries if entry.fix_status == OPEN and (kind is None or kind in (entry.type, entry.code))]


def ids_of(task: Task) -> tuple[str, ...]:
    found = task.extra.get(IDS)
    return tuple(str(one) for one in found) if isinstance(found, list | tuple) else ()


def settle_ledger(board: Board, ledger: ErrorLedger) -> tuple[str, ...]:
    """Set the ledger by what became of the tasks that were made for its entries; the ids of what changed."""
    entries = ledger.entries()
    seen = board.look()
    # An error that came again has two tasks: the one that is still to be done counts, wherever a person puts it in TODO.md.
    living = sorted((task for task in seen.state.tasks if task.status is not Status.ABANDONED), key=lambda task: task.status not in ENDED)
    by_id = {one: task for task in living for one in ids_of(task)}
    referred = {entry.fix_task_ref for entry in entries if entry.fix_status == BEING_FIXED}
    known: dict[int, Task] = {task.number: task for task in seen.state.tasks}
    if seen.exists and referred - known.keys():
        known = {**{task.number: task for task in archived_tasks(board)}, **known}
    changes = {entry.id: fix for entry in entries if (fix := _due(entry, by_id, known)) is not None}
    return ledger.set_fixes(changes) if changes else ()


def note_fixed(ledger: ErrorLedger | Path, task: Task) -> tuple[str, ...]:
    """Its task is completed: the errors it was made for are fixed, until one of them is seen again. `ledger` may be the project's root.

    Never at the price of whoever completed it: a ledger that cannot be written is set right by the next `errors`.
    """
    ids = set(ids_of(task))
    if not ids or task.status is not Status.COMPLETED:
        return ()
    errors = ErrorLedger(ledger / ".remit" / "errors.json") if isinstance(ledger, Path) else ledger
    try:
        mine = [one for one in errors.entries() if one.id in ids and one.fix_status == BEING_FIXED and one.fix_task_ref == task.number]
        return errors.set_fixes({one.id: Fix(status=FIXED, plan_ref=one.fix_plan_ref, task_ref=task.number) for one in mine})
    except RemitError:
        return ()


def _due(entry: Entry, by_id: Mapping[str, Task], known: Mapping[int, Task]) -> Fix | None:
    """What the entry should say; None: it says so already, or a person has settled it."""
    if entry.fix_status not in (OPEN, BEING_FIXED):
        return None
    task = by_id.get(entry.id)
    if task is not None and task.status is not Status.COMPLETED:
        due = Fix(status=BEING_FIXED, plan_ref=task.plan_path or entry.fix_plan_ref, task_ref=task.number)
        return due if due.of(entry) != entry else None
    if entry.fix_status == OPEN:  # also one that came again after its task was completed
        return None
    task = known.get(entry.fix_task_ref) if isinstance(entry.fix_task_ref, int) else None
    if task is None and not isinstance(entry.fix_task_ref, int):
        return None  # somebody says by hand that it is being fixed
    if task is not None and task.status is Status.COMPLETED:
        return Fix(status=FIXED, plan_ref=entry.fix_plan_ref, task_ref=task.number)
    is_given_up = task is None or task.status is Status.ABANDONED
    return Fix(status=OPEN, plan_ref=entry.fix_plan_ref, task_ref=entry.fix_task_ref) if is_given_up else None
