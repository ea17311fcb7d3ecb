"""`remit task` and `remit todo`: record and show tasks, and other operations on tasks that need no agent."""

import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from remit.board import task_commands
from remit.board.board import Board
from remit.board.plans import Plan
from remit.board.task import LANDING, PhaseStatus, Priority, Task
from remit.board.task_prompts import plan_at
from remit.board.view import TaskState, View, next_command, view_of
from remit.cli.arguments import number_of, numbers_of
from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import MARKS, columns, count, cut_cells, duration, fitting, harmless, painted, size, when, wrapped
from remit.cli.results import answer_outcome
from remit.core.errors import Misused, Refused
from remit.core.record import HistoryQuery, Record
from remit.core.routing import check_language

if TYPE_CHECKING:
    from remit.board.outcome import Outcome

INTERNAL = (LANDING, "phases", "run")
"""Keys of a task in state.json that are shown otherwise, or are the board's own."""
MEANT_FOR_BOARD = ("list", "ls", "show", "status")
"""Words that people type to list tasks."""
TASK_USAGE = 'remit task "TEXT"'
_ONE = "Other things to do to tasks"
_NUMBERS = re.compile(r"[\d\s,;#.–-]+")


def _numbered(metavar: str, words: str) -> Any:
    """An option whose value names tasks."""
    return Option(metavar=metavar, help=words, rich_help_panel=_ONE)


def task(
    project: Project,
    text: Annotated[list[str] | None, Argument(metavar="TEXT", help="The task in your words; or the number of a task to show.")] = None,
    title: Annotated[str, Option(help="Default: the first sentence of the text.")] = "",
    priority: Annotated[Priority, Option(help="high, medium or low.", case_sensitive=False)] = Priority.MEDIUM,
    effort: Annotated[str, Option(help="How much work it is, in your words: 3h, a day.")] = "",
    language: Annotated[str, Option(help="lean, python, …: decides which agents work on it.")] = "",
    depends: Annotated[str, Option(metavar="R", help="The tasks it waits for, like 3,5-7.")] = "",
    accept: Annotated[
        list[str] | None, Option(metavar="CMD", help="A command that must succeed for it to count as done; repeatable.")
    ] = None,
    recover: Annotated[str | None, _numbered("R", "Bring abandoned tasks back, like 337,343-345.")] = None,
    abandon: Annotated[str | None, _numbered("R", "Give tasks up; needs --reason.")] = None,
    reason: Annotated[str, Option(help="Why they are abandoned.", rich_help_panel=_ONE)] = "",
    divide: Annotated[
        str | None, _numbered("N", "Make 2 to 5 tasks of one: TEXT lists the parts, else its description or plan does.")
    ] = None,
    sync: Annotated[
        bool, Option("--sync", help="Read TODO.md back, finish what a crash interrupted, report contradictions.", rich_help_panel=_ONE)
    ] = False,
    review: Annotated[str | None, _numbered("N", "Review what was done for a task.")] = None,
    force: Annotated[bool, Option("--force", help="Skip the check of the status, with a warning.", rich_help_panel=_ONE)] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Check and report, change nothing.")] = False,
) -> Exit:
    """Record a task; nothing is carried out. Or abandon, recover, divide, sync, review tasks."""
    words = sys.stdin.read().strip() if text == ["-"] else " ".join(text or ()).strip()
    asked = {"--recover": recover, "--abandon": abandon, "--divide": divide, "--sync": sync or None, "--review": review}
    what, which, words = _only_one({name: str(value) for name, value in asked.items() if value is not None}, words)
    given: dict[str, object] = {"--title": title, "--effort": effort, "--language": language, "--depends": depends, "--accept": accept}
    given["--priority"] = priority is not Priority.MEDIUM
    is_number = what == "" and words.isascii() and words.lstrip("#").isdigit()
    _check_options(f"the number of a task: {words} shows it" if is_number else what, reason, given)
    board = Board(project.root)
    if is_number:
        return show_task(project, board, words)
    if what == "--review":
        from remit.cli.board_commands import review_one

        return review_one(project, which, dry_run=dry_run)
    if what:
        outcome = _changed(board, what, words, which, reason, force=force, dry_run=dry_run)
    else:
        if language:
            _check_language(project, language)
        fields: dict[str, Any] = {"priority": priority, "effort": effort, "language": language or None, "accept": tuple(accept or ())}
        fields["dependencies"] = tuple(numbers_of(depends)) if depends.strip() else ()
        outcome = task_commands.record(board, _new_task(words, title, **fields), dry_run=dry_run)
    return answer_outcome(project, outcome)


def _check_language(project: Project, language: str) -> None:
    """Check the language as the board commands do: it must be in the settings or declared by an agent."""
    settings = project.settings
    if language not in settings.languages:
        agents = (one for spec in project.directory.specs() for one in spec.languages)
        check_language(language, (*settings.languages, *agents), settings.routing)


def _changed(board: Board, what: str, words: str, which: str, reason: str, *, force: bool, dry_run: bool) -> "Outcome":
    """Run the operation of a flag."""
    if what == "--sync":
        return task_commands.sync(board, dry_run=dry_run)
    if what == "--divide":
        return task_commands.divide(board, number_of(which, "remit task --divide N [PROMPT]"), words, force=force, dry_run=dry_run)
    numbers = numbers_of(which, f"remit task {what} R" + (" --reason 'why'" if what == "--abandon" else ""))
    if what == "--recover":
        return task_commands.recover(board, numbers, dry_run=dry_run)
    return task_commands.abandon(board, numbers, reason, force=force, dry_run=dry_run)


def _new_task(words: str, title: str, **fields: Any) -> task_commands.NewTask:
    if not words and not title.strip():
        raise Misused(f"A task needs a text. Usage: {TASK_USAGE}", advice="`remit task --help` shows what else can be done to tasks.")
    if words in MEANT_FOR_BOARD and not title:
        raise Misused(
            f"`remit task TEXT` would record a task named {words!r}.",
            advice=f"`remit board` lists the tasks. To record it all the same: remit task {words} --title {words}",
        )
    return task_commands.NewTask(text=words or title, title=title, **fields)


def _only_one(asked: dict[str, str], words: str) -> tuple[str, str, str]:
    """The one flag, its value, and the text. Flags are mutually exclusive, and only `--divide` takes a text.

    The shell splits `--abandon 337, 343-345` into two words: a text of numbers continues the list."""
    if len(asked) > 1:
        raise Misused(f"{' and '.join(asked)} exclude one another.", advice="Do one after the other.")
    what, which = next(iter(asked.items()), ("", ""))
    if words and what in ("--abandon", "--recover") and _NUMBERS.fullmatch(words):
        return what, f"{which} {words}", ""
    if words and what not in ("", "--divide"):
        raise Misused(f"{what} takes no text: {words[:60]!r}.", advice="`remit task --help` shows what goes together.")
    return what, which, words


def _check_options(what: str, reason: str, given: dict[str, object]) -> None:
    """Options for recording exclude the flags, and `--reason` requires `--abandon`."""
    if reason and what != "--abandon":
        raise Misused("--reason goes with --abandon.", advice="remit task --abandon R --reason 'why'")
    idle = [name for name, value in given.items() if value]
    if what and idle:
        raise Misused(f"{idle[0]} is for recording a task, and cannot be combined with {what}.", advice="Leave it out.")


DELEGATIONS_SHOWN = 5
NAMED = 12
"""Number of other tasks named in one line."""
DESCRIPTION_LINES = 60
FACT_CELLS = 2000
SHOW_USAGE = "remit board N"
_PHASE_MARKS = {
    PhaseStatus.COMPLETED: ("✓", "green"),
    PhaseStatus.IN_PROGRESS: ("●", "cyan"),
    PhaseStatus.PARTIAL: ("◐", "yellow"),
    PhaseStatus.BLOCKED: ("■", "magenta"),
    PhaseStatus.ABANDONED: ("⊘", "dim"),
    PhaseStatus.NOT_STARTED: ("○", "dim"),
}


def show_task(project: Project, board: Board, text: str) -> Exit:
    """Print one task, archived ones included. Raises `Misused`: "Task N not found"."""
    number = number_of(text, SHOW_USAGE)
    view = view_of(board, with_archive=True)
    task = next((one for one in view.tasks if one.number == number), None)
    if task is None:
        raise Misused(f"Task {number} not found", advice="`remit board` lists the tasks.")
    plan, delegations = plan_at(board.root, task.plan_path), _delegations(project, task)
    return project.answer(
        lambda: _document(view, task, plan, delegations), lambda: print("\n".join(_lines(view, task, plan, delegations, board.root)))
    )


def _document(view: View, task: Task, plan: Plan, delegations: "list[Record]") -> dict[str, Any]:
    phases = [{"number": one.number, "name": one.name, "status": str(one.status), "goal": one.goal} for one in plan.phases]
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
            for one in delegations
        ],
    }


def _lines(view: View, task: Task, plan: Plan, delegations: "list[Record]", root: Path) -> Iterator[str]:
    wide = columns()
    yield from (painted(line, "bold") for line in fitting(f"{task.number}. {cut_cells(task.title, 400)}").split("\n"))
    archived = " · archived" if task.number in view.archived else ""
    marker = f"[{task.status.marker}] {view.states[task.number]}{archived}"
    yield fitting(f"{marker} · {task.priority} priority · {task.language or 'no language'}")
    for label, words in _facts(view, task):
        first, *more = fitting(cut_cells(words, FACT_CELLS), less=15).split("\n")
        yield from (f"  {painted(f'{label:<12}', 'dim')} {first}", *(" " * 15 + line for line in more))
    if task.artifacts or task.plan_path:
        yield from ("", painted("Files", "bold"), *_files(root, task))
    if plan.phases:
        yield from ("", painted("Plan", "bold"))
        for phase in plan.phases:
            mark, style = _PHASE_MARKS[phase.status]
            yield f"  {painted(mark, style)} {phase.number}. {cut_cells(phase.name, wide - 24)} {painted(f'[{phase.status}]', style)}"
    if delegations:
        yield from ("", painted("Delegations", "bold"), *_history(delegations, task, wide))
    if task.description:
        yield from ("", painted("Description", "bold"), *_description(task, wide))
    if command := view.next_command(task):
        yield from ("", f"  {painted('next', 'cyan')}  {command}")
    elif view.states[task.number] is TaskState.BLOCKED:
        yield from ("", f"  {painted('next', 'cyan')}  {next_command(task)}, when it is no longer blocked")


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
    if holder is not None and view.states[task.number] is TaskState.RUNNING:
        yield "works on it", f"remit {holder.command}, process {holder.pid}"
    if task.blocking_reason:
        yield "reason", task.blocking_reason
    for label, value in (
        ("effort", task.effort), ("complexity", task.complexity), ("created", task.created), ("started", task.started),
        ("completed", task.completed), ("came from", task.source), ("session", task.session_id), ("result", task.completion_summary),
    ):  # fmt: skip
        if value:
            yield label, value
    for label, lines in (("accept", task.accept), ("landing", task.landing)):
        yield from ((label, line) for line in lines)
    for key, value in task.extra.items():
        words = ", ".join(str(one) for one in value) if isinstance(value, list) else str(value)
        if key not in INTERNAL and words not in task.source:
            yield key.replace("_", " "), words


def _named(view: View, number: int) -> str:
    task = view.graph.tasks.get(number) or next((one for one in view.tasks if one.number == number), None)
    return f"{number} {cut_cells(task.title, 40)} [{task.status.marker}]" if task is not None else f"{number} (not found)"


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
        words = f"  {cut_cells(summary, 80)}" if summary else ""
        yield f"  {cut_cells(path, 200)}  {painted(kind, 'dim')}  {state}{words}"


def _delegations(project: Project, task: Task) -> "list[Record]":
    """The newest delegations of a task."""
    with project.history() as store:
        return [] if store is None else list(store.history(HistoryQuery(task_number=task.number, limit=DELEGATIONS_SHOWN + 1)))


def _history(delegations: "list[Record]", task: Task, wide: int) -> Iterator[str]:
    now = time.time()
    for record in delegations[:DELEGATIONS_SHOWN]:
        mark, style = MARKS[record.state]
        took = duration((record.settled_at or now) - record.started_at) if record.started_at else "-"
        words = cut_cells(record.result.summary, wide - 60) if record.result is not None else ""
        yield f"  {painted(mark, style)} {when(record.created_at, now)}  {record.agent}  {record.session_id}  {took}  {words}".rstrip()
    if len(delegations) > DELEGATIONS_SHOWN:
        yield painted(f"  … more: remit history --task {task.number}", "dim")


def _description(task: Task, wide: int) -> Iterator[str]:
    lines = wrapped(harmless(task.description), wide - 2).split("\n")
    yield from (f"  {line}".rstrip() for line in lines[:DESCRIPTION_LINES])
    if len(lines) > DESCRIPTION_LINES:
        yield painted(f"  … {count(len(lines) - DESCRIPTION_LINES, 'more line')}: --json shows everything", "dim")


def todo(
    project: Project,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would be archived, change nothing.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask, however many there are.")] = False,
) -> Exit:
    """Archive completed and abandoned tasks with their folders, and name folders that belong to no task."""
    outcome = task_commands.todo(Board(project.root), agreed=lambda tasks: yes or _asked(tasks), dry_run=dry_run)
    return answer_outcome(project, outcome)


def _asked(tasks: "Sequence[Task]") -> bool:
    """Ask the person at the terminal; refuse without one."""
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        raise Refused(
            f"{len(tasks)} tasks would be archived, and there is no terminal to ask at.",
            advice="`remit todo --dry-run` shows them; `remit todo --yes` archives them.",
        )
    for task in tasks[:20]:
        print(f"  {task.number}. {cut_cells(task.title, 80)} [{task.status.marker}]", file=sys.stderr)
    if len(tasks) > 20:
        print(f"  … and {len(tasks) - 20} more", file=sys.stderr)
    return typer.confirm(f"Archive these {len(tasks)} tasks?", err=True)
