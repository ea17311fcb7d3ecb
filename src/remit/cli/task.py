"""`remit task` and `remit todo`: record and show tasks, and other operations on tasks that need no agent."""

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from remit.board import task_commands
from remit.board.board import Board
from remit.board.task import Priority, Task
from remit.board.task_prompts import plan_at
from remit.board.view import View, view_of
from remit.cli.arguments import number_of, numbers_of
from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import one_line, say, say_aside
from remit.cli.results import answer_outcome, say_document
from remit.core.errors import Misused, Refused
from remit.core.record import HistoryQuery
from remit.core.routing import check_language

if TYPE_CHECKING:
    from remit.board.outcome import Outcome

HIDDEN = ("project_number", "project_name", "title", "status", "standing", "waits_for", "run", "archived", "plan_versions")
"""Fields of a task that are shown otherwise, or are the board's own."""
DELEGATIONS_SHOWN = 5
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
    divide: Annotated[str | None, _numbered("N", "Make 2 to 5 tasks of one: TEXT lists the parts, else its description does.")] = None,
    sync: Annotated[
        bool, Option("--sync", help="Read TODO.md back, finish what a crash interrupted, report contradictions.", rich_help_panel=_ONE)
    ] = False,
    review: Annotated[str | None, _numbered("N", "Review what was done for a task.")] = None,
    force: Annotated[bool, Option("--force", help="Skip the check of the status, with a warning.", rich_help_panel=_ONE)] = False,
) -> Exit:
    """Record a task; nothing is carried out. Or abandon, recover, divide, sync, review tasks."""
    words = sys.stdin.read().strip() if text == ["-"] else " ".join(text or ()).strip()
    flags = {"--recover": recover, "--abandon": abandon, "--divide": divide, "--sync": sync or None, "--review": review}
    given: dict[str, object] = {"--title": title, "--effort": effort, "--language": language, "--depends": depends, "--accept": accept}
    given["--priority"] = priority is not Priority.MEDIUM
    is_number = words.isascii() and words.lstrip("#").isdigit() and set(flags.values()) == {None}
    what, which, words = _one_of(flags, words)
    if reason and what != "--abandon":
        raise Misused("--reason goes with --abandon.", advice="remit task --abandon R --reason 'why'")
    if (what or is_number) and (idle := [name for name, value in given.items() if value]):
        other = what or f"the number of a task: {words} shows it"
        raise Misused(f"{idle[0]} is for recording a task, and cannot be combined with {other}.", advice="Leave it out.")
    board = Board(project.root)
    if is_number:
        return show_task(project, board, words)
    if what == "--review":
        from remit.cli.board_commands import review_one

        return review_one(project, which)
    if what:
        return answer_outcome(project, _changed(board, what, words, which, reason, force=force))
    if words in MEANT_FOR_BOARD and not title:
        advice = f"`remit board` lists the tasks. To record it all the same: remit task {words} --title {words}"
        raise Misused(f"`remit task TEXT` would record a task named {words!r}.", advice=advice)
    if not words and not title.strip():
        raise Misused(f"A task needs a text. Usage: {TASK_USAGE}", advice="`remit task --help` shows what else can be done to tasks.")
    if language:
        _check_language(project, language)
    waits_for = tuple(numbers_of(depends)) if depends.strip() else ()
    more: dict[str, Any] = {"language": language or None, "accept": tuple(accept or ()), "dependencies": waits_for}
    new = task_commands.NewTask(text=words or title, title=title, priority=priority, effort=effort, **more)
    return answer_outcome(project, task_commands.record(board, new))


def _one_of(flags: dict[str, Any], words: str) -> tuple[str, str, str]:
    """The one flag, its value, and the text. Flags are mutually exclusive, and only `--divide` takes a text."""
    asked = {name: str(value) for name, value in flags.items() if value is not None}
    if len(asked) > 1:
        raise Misused(f"{' and '.join(asked)} exclude one another.", advice="Do one after the other.")
    what, which = next(iter(asked.items()), ("", ""))
    if what in ("--abandon", "--recover") and _NUMBERS.fullmatch(words):
        return what, f"{which} {words}", ""  # the shell splits `--abandon 337, 343-345` into two words
    if words and what not in ("", "--divide"):
        raise Misused(f"{what} takes no text: {words[:60]!r}.", advice="`remit task --help` shows what goes together.")
    return what, which, words


def _check_language(project: Project, language: str) -> None:
    """Check the language as the board commands do: it must be in the settings or declared by an agent."""
    settings = project.settings
    if language not in settings.languages:
        agents = (one for spec in project.directory.specs() for one in spec.languages)
        check_language(language, (*settings.languages, *agents), settings.routing)


def _changed(board: Board, what: str, words: str, which: str, reason: str, *, force: bool) -> "Outcome":
    """Run the operation of a flag."""
    if what == "--sync":
        return task_commands.sync(board)
    if what == "--divide":
        return task_commands.divide(board, number_of(which, "remit task --divide N [PROMPT]"), words, force=force)
    numbers = numbers_of(which, f"remit task {what} R" + (" --reason 'why'" if what == "--abandon" else ""))
    if what == "--recover":
        return task_commands.recover(board, numbers)
    return task_commands.abandon(board, numbers, reason, force=force)


def show_task(project: Project, board: Board, text: str) -> Exit:
    """Print one task, archived ones included. Raises `Misused`: "Task N not found"."""
    number = number_of(text, "remit board N")
    view = view_of(board, with_archive=True)
    task = next((one for one in view.tasks if one.number == number), None)
    if task is None:
        raise Misused(f"Task {number} not found", advice="`remit board` lists the tasks.")
    with project.history() as store:
        query = HistoryQuery(task_number=number, limit=DELEGATIONS_SHOWN)
        delegations = [] if store is None else list(store.history(query))
    document = {
        **view.entry(task),
        "needed_by": sorted(one.number for one in view.tasks if number in one.dependencies),
        "parts": list(view.graph.parts.get(number, ())),
        "phases": [
            {"number": one.number, "name": one.name, "status": str(one.status), "goal": one.goal}
            for one in plan_at(board.root, task.plan_path).phases
        ],
        "delegations": [
            {name: getattr(one, name) for name in ("session_id", "command", "agent", "created_at")} | {"state": str(one.state)}
            for one in delegations
        ],
    }

    def shown() -> None:
        say(f"{number}. {task.title}\n[{task.status.marker}] {view.states[number]}\n")
        named = {
            name: "; ".join(_named(view, one) for one in document[name])
            for name in ("dependencies", "needed_by", "parts")
            if document.get(name)
        }
        named["review"] = document["review"].removeprefix("review: ")
        say_document({name: value for name, value in document.items() if name not in HIDDEN} | named)

    return project.answer(document, shown)


def _named(view: View, number: int) -> str:
    task = next((one for one in view.tasks if one.number == number), None)
    return f"{number} {one_line(task.title, 40)} [{task.status.marker}]" if task is not None else f"{number} (not found)"


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
    say_aside("\n".join(f"  {task.number}. {one_line(task.title, 80)} [{task.status.marker}]" for task in tasks))
    return typer.confirm(f"Archive these {len(tasks)} tasks?", err=True)
