"""Commands of the board that an agent carries out: `research`, `plan`, `revise`, `implement`, `review`, `errors`, `meta`."""

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from remit.app import Remit
from remit.board.board import Board
from remit.board.command_lifecycle import must_exist, order_tasks
from remit.board.error_tasks import errors as diagnose
from remit.board.implement import comment_on_work, show_nothing
from remit.board.meta import Kind, MetaRequest
from remit.board.meta import meta as build
from remit.board.outcome import Outcome
from remit.board.parallel import ParallelOptions, implement_each, implement_parallel, ready_tasks
from remit.board.research_plan import DocumentCommand, work_on
from remit.board.review import ReviewRequest, check
from remit.board.review import review as review_work
from remit.cli.arguments import Timeout, number_of, numbers_of, seconds
from remit.cli.arguments import budget as read_budget
from remit.cli.command_table import COMMANDS
from remit.cli.completion import tasks
from remit.cli.exits import Exit
from remit.cli.live import LiveWait, wait_for_resumed
from remit.cli.project import Project
from remit.cli.render import harmless, say_aside
from remit.cli.results import answer_outcome, print_outcome
from remit.core.errors import Misused

Number = Annotated[str | None, Argument(metavar="N", help="The number of the task.", autocompletion=tasks)]
Focus = Annotated[list[str] | None, Argument(metavar="FOCUS", help="What to look at in particular, in your words.")]
Force = Annotated[bool, Option("--force", help="Skip the check of the task's status, with a warning.")]
IMPLEMENT_USAGE = "remit implement N | N-M [focus]"


def _run(project: Project, work: "Callable[[Remit, LiveWait], Awaitable[Outcome]]", parts: Sequence[Outcome] = ()) -> Exit:
    """Open the project, run the command with a live view, print its outcome, after those of its `parts`. Ctrl-C cancels it."""

    async def run() -> Exit:
        shown = LiveWait(as_json=project.as_json)
        async with project.open() as remit:
            outcome = await shown.watch(remit, work(remit, shown))
            for part in parts if not project.as_json else ():
                print_outcome(part)
            text = outcome.summary if parts else None
            code = answer_outcome(project, outcome, was_interrupted=shown.was_interrupted, text=text)
            # Settling a dead run may have resumed other work: wait for it.
            owner = remit.owner.owner_id
            left = [record.session_id for record in await remit.live() if record.owner == owner and record.parent_id is None]
            await wait_for_resumed(remit, left, as_json=project.as_json)
        return code

    return asyncio.run(run())


# ---- research, plan, revise


def _work_on(project: Project, name: str, number: str | None, words: list[str] | None, timeout: str | None, *, force: bool) -> Exit:
    given = number_of(number, f"remit {name} N [{'reason' if name == 'revise' else 'focus'}]")
    command = DocumentCommand(name=name, number=given, focus=" ".join(words or ()), force=force, timeout=seconds(timeout, "--timeout"))
    board = Board(project.root)
    must_exist(board, given)  # before the database is opened, which would create it
    return _run(project, lambda remit, shown: work_on(remit, board, command, waiting=shown))


def research(project: Project, number: Number = None, focus: Focus = None, timeout: Timeout = None, force: Force = False) -> Exit:
    """Research a task: the report is written to specs/NNN_name/reports/research-001.md."""
    return _work_on(project, "research", number, focus, timeout, force=force)


def plan(project: Project, number: Number = None, focus: Focus = None, timeout: Timeout = None, force: Force = False) -> Exit:
    """Plan a task in phases, from its reports: specs/NNN_name/plans/implementation-001.md."""
    return _work_on(project, "plan", number, focus, timeout, force=force)


def revise(
    project: Project,
    number: Number = None,
    reason: Annotated[list[str] | None, Argument(metavar="REASON", help="Why, and what should change, in your words.")] = None,
    timeout: Timeout = None,
    force: Force = False,
) -> Exit:
    """Revise the plan of a task: a new version beside the old one."""
    return _work_on(project, "revise", number, reason, timeout, force=force)


# ---- implement


def implement(
    project: Project,
    numbers: Annotated[
        list[str] | None,
        Argument(
            metavar="N",
            help="The number of the task, or several like 3,5-7, done in turn; then instructions in words.",
            autocompletion=tasks,
        ),
    ] = None,
    timeout: Timeout = None,
    force: Annotated[bool, Option("--force", help="Skip the checks of status and dependencies, with a warning.")] = False,
    ready: Annotated[bool, Option("--ready", help="All tasks that can be implemented now, or after others of them.")] = False,
    parallel: Annotated[
        int | None, Option("--parallel", metavar="COUNT", help="So many agents at once, each task in its own worktree.")
    ] = None,
    no_accept: Annotated[bool, Option("--no-accept", help="Merge also without acceptance commands.")] = False,
    timeout_all: Annotated[str | None, Option("--timeout-all", metavar="TIME", help="With --parallel: for all tasks together.")] = None,
    budget: Annotated[
        list[str] | None, Option("--budget", metavar="KIND=LIMIT", help="With --parallel: for all tasks together (tokens=50000).")
    ] = None,
) -> Exit:
    """Implement tasks: the phases of each plan in turn, each committed. Run again, it continues where it stopped."""
    board, limit = Board(project.root), seconds(timeout, "--timeout")
    if (timeout_all or budget) and parallel is None:
        raise Misused("--timeout-all and --budget belong to --parallel.", advice="Add --parallel 4.")
    given, focus = _tasks(board, list(numbers or ()), is_ready=ready)
    must_exist(board, *given)  # before the database is opened, which would create it
    options = ParallelOptions(force=force, timeout=limit, focus=focus, is_accepting=not no_accept)
    if parallel is not None:
        all_seconds, limits = seconds(timeout_all, "--timeout-all"), read_budget(budget or [])
        options = replace(options, width=parallel, timeout_all=all_seconds, budget=limits)
    elif len(given) > 1:
        order_tasks(board, given, force)
    return _implement(project, board, given, options, is_parallel=parallel is not None)


def _tasks(board: Board, words: list[str], *, is_ready: bool) -> tuple[list[int], str]:
    """The named or ready tasks, and the instructions."""
    count = next((at for at, word in enumerate(words) if re.search(r"[^\d\s,;#.\u2013-]", word)), len(words))
    if not is_ready:
        return numbers_of(" ".join(words[:count] or words[:1]), IMPLEMENT_USAGE), " ".join(words[max(count, 1) :])
    if count:
        raise Misused("--ready chooses the tasks: leave out their numbers.", advice="remit implement --ready --parallel 4")
    found = ready_tasks(board)
    if not found:
        raise Misused("No task of the board can be implemented now.", advice="`remit board` shows what each of them waits for.")
    return list(found), " ".join(words)


def _implement(project: Project, board: Board, numbers: list[int], options: "ParallelOptions", *, is_parallel: bool) -> Exit:
    outcomes = list[Outcome]()
    is_quiet = project.as_json or (is_parallel and sys.stderr.isatty())  # the live view shows what runs
    show = show_nothing if is_quiet else lambda words: say_aside(harmless(words))

    async def work(remit: "Remit", shown: LiveWait) -> "Outcome":
        each = outcomes.append if len(numbers) > 1 or is_parallel else None
        chosen = replace(options, waiting=shown, is_stopped=lambda: shown.was_interrupted, each=each, show=show)
        return await (implement_parallel if is_parallel else implement_each)(remit, board, numbers, chosen)

    return _run(project, work, outcomes)


# ---- review


_WHAT = "A folder or file; or a task's number, for what was committed for it. Without: the whole project."


def review(
    project: Project,
    what: Annotated[str, Argument(metavar="PATH|N", help=_WHAT)] = "",
    focus: Focus = None,
    tasks: Annotated[bool, Option("--tasks", help="Create a task for each file with a finding of medium or worse.")] = False,
    comment: Annotated[
        list[str] | None, Option("--comment", metavar="TEXT", help="Give this to the agent whose work on task N is not merged.")
    ] = None,
    timeout: Timeout = None,
) -> Exit:
    """Review the project, a path or a task: the report is written to specs/reviews, or to the task's folder."""
    number = _number(what)
    if comment:
        if number is None or tasks or focus:
            raise Misused("--comment belongs to a task, without other options.", advice='remit review 12 --comment "a.py:3 use a set"')
        return _comment(project, number, comment, seconds(timeout, "--timeout"))
    asked = ReviewRequest(
        path=_from_root(project.root, what) if number is None else "",
        number=number,
        focus=" ".join(focus or ()),
        make_tasks=tasks,
        timeout=seconds(timeout, "--timeout"),
    )
    return _reviewed(project, asked)


def _comment(project: Project, number: int, comments: list[str], limit: float | None) -> Exit:
    board = Board(project.root)
    must_exist(board, number)
    return _run(project, lambda remit, shown: comment_on_work(remit, board, number, comments, timeout=limit, waiting=shown))


def review_one(project: Project, which: str) -> Exit:
    """`remit task --review N`."""
    return _reviewed(project, ReviewRequest(number=number_of(which, "remit task --review N")))


def _number(what: str) -> int | None:
    """`12` is task 12; a file of that name is `./12`."""
    plain = what.removeprefix("#")
    return number_of(plain, "remit review N") if plain.isascii() and plain.isdigit() else None


def _from_root(folder: Path, what: str) -> str:
    """A path is relative to the working directory; if there is no such file, to the root of the project."""
    here = os.path.abspath(what) if what else os.fspath(folder)
    place = here if os.path.exists(here) else os.path.join(folder, what)
    inside = os.path.relpath(os.path.realpath(place), os.path.realpath(folder))
    return "" if inside == "." else inside


def _reviewed(project: Project, asked: "ReviewRequest") -> Exit:
    board = Board(project.root)
    check(board, project.settings, asked)  # before the database is opened, which would create it
    return _run(project, lambda remit, shown: review_work(remit, board, asked, waiting=shown))


# ---- errors, meta


def errors(
    project: Project,
    type_: Annotated[str | None, Option("--type", metavar="TYPE", help="Only errors of this type (or with this code).")] = None,
    timeout: Timeout = None,
) -> Exit:
    """Diagnose the open errors of the ledger: they become one task with a plan to fix them."""
    limit, board = seconds(timeout, "--timeout"), Board(project.root)
    return _run(project, lambda remit, shown: diagnose(remit, board, kind=type_, timeout=limit, waiting=shown))


def meta(
    project: Project,
    text: Annotated[list[str] | None, Argument(metavar="TEXT", help="Its purpose, in your words.")] = None,
    as_agent: Annotated[bool, Option("--agent", help="An agent file, .remit/agents/NAME.md (the default).")] = False,
    as_command: Annotated[bool, Option("--command", help="A command file, .remit/commands/NAME.md.")] = False,
    name: Annotated[str | None, Option("--name", metavar="NAME", help="Default: made from the words.")] = None,
    timeout: Timeout = None,
) -> Exit:
    """Write a new agent or command from a description; it is kept only if it loads."""
    if as_agent and as_command:
        raise Misused("--agent and --command exclude one another.", advice="Name one of them; an agent is the default.")
    wish = MetaRequest(
        text=" ".join(text or ()),
        kind=Kind.COMMAND if as_command else Kind.AGENT,
        name=name,
        timeout=seconds(timeout, "--timeout"),
        built_in_commands=tuple(COMMANDS),
    )
    return _run(project, lambda remit, shown: build(remit, wish, waiting=shown))
