"""One task in full: what it waits for and who for it, its files, the phases of its plan, what was delegated for it. Reads only."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from remit.board.archive import archived_tasks
from remit.board.board import Board
from remit.board.graph import next_command
from remit.board.plans import Plan, read_plan
from remit.board.statuses import PhaseStatus
from remit.board.task import Task
from remit.board.view import Standing, View, view_of
from remit.board.write_set import read_or_none
from remit.cli.cells import columns, cut, painted
from remit.cli.exits import Exit
from remit.cli.numbers import number_of
from remit.cli.output import fitting
from remit.cli.words import MARKS, count, duration, printable, size, when, wrapped
from remit.core.errors import Misused, Unavailable

DELEGATIONS_SHOWN = 5
NAMED = 12
"""Other tasks, in one line."""
DESCRIPTION_LINES = 60
FACT_CELLS = 2000
USAGE = "remit board N"
_PHASE_MARKS = {
    PhaseStatus.COMPLETED: ("✓", "green"),
    PhaseStatus.IN_PROGRESS: ("●", "cyan"),
    PhaseStatus.PARTIAL: ("◐", "yellow"),
    PhaseStatus.BLOCKED: ("■", "magenta"),
    PhaseStatus.ABANDONED: ("⊘", "dim"),
    PhaseStatus.NOT_STARTED: ("○", "dim"),
}


def show_task(board: Board, text: str | None, *, as_json: bool) -> Exit:
    """The page of one task, of the archive too. Raises `Misused`: "Task N not found"."""
    number = number_of(text, USAGE)
    view = view_of(board, archived_tasks(board), with_archive=True)
    task = next((one for one in view.tasks if one.number == number), None)
    if task is None:
        raise Misused(f"Task {number} not found", advice="`remit board` lists the tasks.")
    plan = _plan(board.root, task)
    if as_json:
        from remit.cli.output import say_json

        say_json(_document(view, task, plan, board.root))
        return Exit.OK
    for line in _lines(view, task, plan, board.root):
        print(line)
    return Exit.OK


def _document(view: View, task: Task, plan: Plan | None, root: Path) -> dict[str, Any]:
    phases = [{"number": one.number, "name": one.name, "status": str(one.status), "goal": one.goal} for one in plan.phases] if plan else []
    return {
        **view.entry(task),
        "needed_by": _needed_by(view, task),
        "parts": list(view.graph.parts.get(task.number, ())),
        "phases": phases,
        "delegations": [
            {
                "session_id": one.session_id,
                "command": one.command,
                "agent": one.agent,
                "state": str(one.state),
                "created_at": one.created_at,
            }
            for one in _delegations(root, task)
        ],
    }


def _lines(view: View, task: Task, plan: Plan | None, root: Path) -> Iterator[str]:
    wide = columns()
    yield from (painted(line, "bold") for line in fitting(f"{task.number}. {cut(task.title, 400)}").split("\n"))
    archived = " · archived" if task.number in view.archived else ""
    marker = f"[{task.status.marker}] {view.standing[task.number]}{archived}"
    yield fitting(f"{marker} · {task.priority} priority · {task.language or 'no language'}")
    for label, words in _facts(view, task):
        first, *more = fitting(cut(words, FACT_CELLS), less=15).split("\n")
        yield from (f"  {painted(f'{label:<12}', 'dim')} {first}", *(" " * 15 + line for line in more))
    if task.artifacts or task.plan_path:
        yield from ("", painted("Files", "bold"), *_files(root, task))
    if plan is not None and plan.phases:
        yield from ("", painted("Plan", "bold"))
        for phase in plan.phases:
            mark, style = _PHASE_MARKS[phase.status]
            yield f"  {painted(mark, style)} {phase.number}. {cut(phase.name, wide - 24)} {painted(f'[{phase.status}]', style)}"
    delegations = _delegations(root, task)
    if delegations:
        yield from ("", painted("Delegations", "bold"), *_history(delegations, task, wide))
    if task.description:
        yield from ("", painted("Description", "bold"), *_description(task, wide))
    if command := view.next_command(task):
        yield from ("", f"  {painted('next', 'cyan')}  {command}")
    elif view.standing[task.number] is Standing.BLOCKED:
        yield from ("", f"  {painted('next', 'cyan')}  {next_command(task)}, when what it is blocked by is out of the way")


def _facts(view: View, task: Task) -> Iterator[tuple[str, str]]:
    if task.dependencies:
        yield "depends on", "; ".join(_named(view, number) for number in task.dependencies[:NAMED]) + _rest(task.dependencies)
    if needed := _needed_by(view, task):
        yield "needed by", "; ".join(_named(view, number) for number in needed[:NAMED]) + _rest(needed)
    if task.parent is not None:
        yield "part of", _named(view, task.parent)
    if parts := view.graph.parts.get(task.number):
        yield "parts", "; ".join(_named(view, number) for number in parts[:NAMED]) + _rest(parts)
    holder = view.holders.get(task.number)
    if holder is not None and view.standing[task.number] is Standing.RUNNING:
        yield "works on it", f"remit {holder.command}, process {holder.pid}"
    if task.blocking_reason:
        yield "reason", task.blocking_reason
    for label, value in (
        ("effort", task.effort), ("complexity", task.complexity), ("created", task.created), ("started", task.started),
        ("completed", task.completed), ("came from", task.source), ("session", task.session_id), ("result", task.completion_summary),
    ):  # fmt: skip
        if value:
            yield label, value
    for command in task.accept:
        yield "accept", command
    for key, value in task.extra.items():
        words = ", ".join(str(one) for one in value) if isinstance(value, list) else str(value)
        if words not in task.source:
            yield key.replace("_", " "), words


def _named(view: View, number: int) -> str:
    task = view.graph.tasks.get(number) or next((one for one in view.tasks if one.number == number), None)
    return f"{number} {cut(task.title, 40)} [{task.status.marker}]" if task is not None else f"{number} (not found)"


def _rest(numbers: Sequence[int]) -> str:
    return f"; and {len(numbers) - NAMED} more (--json)" if len(numbers) > NAMED else ""


def _needed_by(view: View, task: Task) -> list[int]:
    return sorted(one.number for one in view.tasks if task.number in one.dependencies)


def _files(root: Path, task: Task) -> Iterator[str]:
    paths = {artifact.path: (artifact.type, artifact.summary) for artifact in task.artifacts}
    if task.plan_path:
        paths.setdefault(task.plan_path, ("plan", ""))
    for path, (kind, summary) in paths.items():
        try:
            state = size((root / path).stat().st_size)
        except OSError:
            state = painted("gone", "red")
        words = f"  {cut(summary, 80)}" if summary else ""
        yield f"  {cut(path, 200)}  {painted(kind, 'dim')}  {state}{words}"


def _plan(root: Path, task: Task) -> Plan | None:
    """Where it is a file of the project: state.json may name anything."""
    try:
        place = (root / task.plan_path).resolve()
        data = read_or_none(place) if task.plan_path and place.is_file() and place.is_relative_to(root.resolve()) else None
    except (OSError, Unavailable):
        return None
    return read_plan(data.decode(errors="replace")) if data is not None else None


def _delegations(root: Path, task: Task) -> list[Any]:
    """Its newest ones; nothing is opened where nothing was ever delegated."""
    from remit.cli.project import open_record
    from remit.core.record import HistoryQuery

    with open_record(root) as store:
        return [] if store is None else list(store.history(HistoryQuery(task_number=task.number, limit=DELEGATIONS_SHOWN + 1)))


def _history(delegations: list[Any], task: Task, wide: int) -> Iterator[str]:
    import time

    now = time.time()
    for record in delegations[:DELEGATIONS_SHOWN]:
        mark, style = MARKS[record.state]
        took = duration((record.settled_at or now) - record.started_at) if record.started_at else "-"
        words = cut(record.result.summary, wide - 60) if record.result is not None else ""
        yield f"  {painted(mark, style)} {when(record.created_at, now)}  {record.agent}  {record.session_id}  {took}  {words}".rstrip()
    if len(delegations) > DELEGATIONS_SHOWN:
        yield painted(f"  … more: remit history --task {task.number}", "dim")


def _description(task: Task, wide: int) -> Iterator[str]:
    lines = wrapped(printable(task.description), wide - 2).split("\n")
    yield from (f"  {line}".rstrip() for line in lines[:DESCRIPTION_LINES])
    if len(lines) > DESCRIPTION_LINES:
        yield painted(f"  … {count(len(lines) - DESCRIPTION_LINES, 'more line')}: --json shows everything", "dim")
