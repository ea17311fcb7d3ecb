"""Which errors of the ledger have a task that mends them, and which are open: board and ledger brought into agreement.

A task names the entries it was made for (`error_ids`); the board is the truth, the ledger is set by it. Files only, no agent. Blocking.
Used by `errors`, and by whatever completes a task (`note_fixed`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remit.board.archive import archived_tasks
from remit.board.board import Board
from remit.board.statuses import ENDED, Status
from remit.board.task import Task
from remit.core.errors import RemitError
from remit.core.secrets import redacted_text
from remit.ledger import Entry, ErrorLedger, Fix

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
    context = {**entry.context, **{key: _plain(entry.context[key]) for key in _SAID if isinstance(entry.context.get(key), str)}}
    trace = "\n".join(_plain(line, keeps_indent=True) for line in redacted_text(entry.stack_trace).splitlines())
    return replace(entry, type=_plain(entry.type), message=_plain(entry.message), context=context, stack_trace=trace)


def _plain(text: str, *, keeps_indent: bool = False) -> str:
    shown = "".join(sign if sign.isprintable() else " " for sign in redacted_text(text))
    return shown.rstrip() if keeps_indent else " ".join(shown.split())


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
    book = ErrorLedger(ledger / ".remit" / "errors.json") if isinstance(ledger, Path) else ledger
    try:
        mine = [one for one in book.entries() if one.id in ids and one.fix_status == BEING_FIXED and one.fix_task_ref == task.number]
        return book.set_fixes({one.id: Fix(status=FIXED, plan_ref=one.fix_plan_ref, task_ref=task.number) for one in mine})
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
