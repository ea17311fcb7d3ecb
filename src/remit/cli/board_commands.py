"""Commands of the board that an agent carries out: `research`, `plan`, `revise`, `implement`, `review`, `errors`, `meta`."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.board.board import Board
from remit.cli.approval import person_here
from remit.cli.arguments import DryRun, Focus, Json, Root, Timeout, number_of, numbers_of, seconds
from remit.cli.completion import some_tasks
from remit.cli.exits import Exit, exit_of_ending
from remit.cli.live import Shown, wait_for_resumed
from remit.cli.project import find_root, open_directory, project_folder, routed_settings
from remit.cli.render import count, duration, one_line, printable, say, say_aside, say_json
from remit.cli.results import answer, print_outcome, print_warnings, title
from remit.core.errors import Misused
from remit.core.result import Status, StopReason

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.board.outcome import Outcome
    from remit.board.review import ReviewRequest

Number = Annotated[str | None, typer.Argument(metavar="N", help="The task's number.", show_default=False, autocompletion=some_tasks)]
Force = Annotated[bool, typer.Option("--force", help="Skip the check of the task's status, with a warning.")]
IMPLEMENT_USAGE = "remit implement N | N-M [focus]"


def _run(
    folder: Path,
    work: "Callable[[Remit, Shown], Awaitable[Outcome]]",
    *,
    as_json: bool,
    finish: "Callable[[Outcome, Shown], Exit] | None" = None,
) -> Exit:
    """Open the project, have the work done while it is shown, print its outcome. Ctrl-C cancels it."""

    def printed(outcome: "Outcome", shown: Shown) -> Exit:
        return answer(outcome, as_json=as_json, was_interrupted=shown.was_interrupted)

    async def run() -> Exit:
        from remit.app import Remit

        shown = Shown(as_json=as_json)
        async with Remit.open(folder, recover=False, approver=person_here()) as remit:
            with shown.listening():
                outcome = await work(remit, shown)
            code = (finish or printed)(outcome, shown)
            # A dead run that had to be settled on the way may have brought others back to life: they are not cut off.
            owner = remit.owner.owner_id
            left = [record.session_id for record in await remit.live() if record.owner == owner and record.parent_id is None]
            await wait_for_resumed(remit, left, as_json=as_json)
        return code

    return asyncio.run(run())


def _rehearse(outcome: "Outcome", show: "Callable[[Outcome], None]", *, as_json: bool) -> Exit:
    say_json(outcome.to_dict()) if as_json else show(outcome)
    return Exit.OK


# ---- research, plan, revise


def _work_on(name: str, number: str | None, words: list[str] | None, options: dict[str, Any], *, dry_run: bool, as_json: bool) -> Exit:
    from remit.board.command_lifecycle import must_exist
    from remit.board.research_plan import Command, work_on

    given = number_of(number, f"remit {name} N [{'reason' if name == 'revise' else 'focus'}]")
    limit, folder = seconds(options["timeout"], "--timeout"), find_root(options["root"])
    command = Command(name=name, number=given, focus=" ".join(words or ()), force=options["force"], timeout=limit)
    board = Board(folder)
    if dry_run:
        from remit.board.research_plan import dry_run as rehearsed

        directory = open_directory(folder)
        outcome = rehearsed(board, routed_settings(folder, directory), directory.find, command)
        return _rehearse(outcome, _print_rehearsal, as_json=as_json)
    must_exist(board, given)  # before a record is opened, and so made
    return _run(folder, lambda remit, shown: work_on(remit, board, command, waiting=shown), as_json=as_json)


def _print_rehearsal(outcome: "Outcome") -> None:
    data = outcome.data
    say(title(outcome))
    say(f"  task      {outcome.task_number}: [{data['status_now']}], meanwhile [{data['status_meanwhile']}]")
    say(f"  route     {data['route']}")
    say(f"  agent     {data['agent']}, carried out by: {data['carried_by']}")
    say(f"  context   {data['context_words']}")
    for path in (*data["reports"], *([data["plan"]] if data["plan"] else [])):
        say(f"  reads     {path}")
    say(f"  writes    {data['write_to']}")
    say(f"  timeout   {duration(data['timeout_seconds'])}")
    print_warnings(outcome)


def research(
    number: Number = None,
    focus: Focus = None,
    timeout: Timeout = None,
    force: Force = False,
    dry_run: DryRun = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Have a task studied: the report is filed with it as specs/NNN_name/reports/research-001.md."""
    return _work_on("research", number, focus, {"timeout": timeout, "force": force, "root": root}, dry_run=dry_run, as_json=as_json)


def plan(
    number: Number = None,
    focus: Focus = None,
    timeout: Timeout = None,
    force: Force = False,
    dry_run: DryRun = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Have a task planned in phases, from its reports: specs/NNN_name/plans/implementation-001.md."""
    return _work_on("plan", number, focus, {"timeout": timeout, "force": force, "root": root}, dry_run=dry_run, as_json=as_json)


def revise(
    number: Number = None,
    reason: Annotated[
        list[str] | None, typer.Argument(metavar="[REASON]...", help="Why, and what is to change, in your words.", show_default=False)
    ] = None,
    timeout: Timeout = None,
    force: Force = False,
    dry_run: DryRun = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Have the plan of a task revised: a new version beside the old one, which stays."""
    return _work_on("revise", number, reason, {"timeout": timeout, "force": force, "root": root}, dry_run=dry_run, as_json=as_json)


# ---- implement


def implement(
    numbers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="N...",
            help="The task's number, or several like 3,5-7, done in turn; then what to mind in particular, in words.",
            show_default=False,
            autocompletion=some_tasks,
        ),
    ] = None,
    timeout: Timeout = None,
    force: Annotated[bool, typer.Option("--force", help="Skip the checks of status and dependencies, with a warning.")] = False,
    dry_run: DryRun = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Have a task carried out: the phases of its plan in turn, each committed; run again, it goes on where it stood."""
    from remit.board.command_lifecycle import must_exist
    from remit.board.implement import dry_run_implement, implement_each, order_tasks
    from remit.board.implement import implement as implement_task
    from remit.board.phases import tell_nobody

    words = list(numbers or ())
    count = next((at for at, word in enumerate(words) if re.search(r"[^\d\s,;#.\u2013-]", word)), len(words))
    given, focus = numbers_of(" ".join(words[:count] or words[:1]), IMPLEMENT_USAGE), " ".join(words[max(count, 1) :])
    limit = seconds(timeout, "--timeout")
    board = Board(find_root(root))
    if dry_run:
        directory = open_directory(board.root)
        settings = routed_settings(board.root, directory)
        return answer(dry_run_implement(settings, board, directory.find, given, force=force, timeout=limit), as_json=as_json)
    must_exist(board, *given)  # before a record is opened, and so made
    is_one = len(given) == 1
    if not is_one:
        order_tasks(board, given, force)

    async def work(remit: "Remit", shown: Shown) -> "Outcome":
        telling = tell_nobody if as_json else lambda words: say_aside(printable(words))
        options: dict[str, Any] = {"focus": focus, "force": force, "timeout": limit, "waiting": shown, "telling": telling}
        if is_one:
            return await implement_task(remit, board, given[0], **options)
        return await implement_each(remit, board, given, each=None if as_json else print_outcome, **options)

    def finish(outcome: "Outcome", shown: Shown) -> Exit:
        say(printable(outcome.summary))  # each of them has been printed
        return Exit.INTERRUPTED if shown.was_interrupted else exit_of_ending(Status(outcome.status), StopReason(outcome.stop_reason))

    return _run(board.root, work, as_json=as_json, finish=None if is_one or as_json else finish)


# ---- review


_WHAT = "A folder or file; or a task's number, for what was committed for it. Without: the whole project."


def review(
    what: Annotated[str, typer.Argument(metavar="[PATH|N]", help=_WHAT, show_default=False)] = "",
    focus: Focus = None,
    tasks: Annotated[bool, typer.Option("--tasks", help="Make a task for each file with a finding of medium or worse.")] = False,
    base: Annotated[str, typer.Option("--base", metavar="COMMIT", help="Look at what changed since this commit.", show_default=False)] = "",
    timeout: Timeout = None,
    dry_run: DryRun = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Have the project, a path or a task reviewed: the report is filed in specs/reviews, or with the task."""
    from remit.board.review import ReviewRequest

    folder = find_root(root)
    number = _number(what)
    asked = ReviewRequest(
        path=_from_root(folder, what) if number is None else "",
        number=number,
        focus=" ".join(focus or ()),
        base=base,
        make_tasks=tasks,
        timeout=seconds(timeout, "--timeout"),
    )
    return _reviewed(folder, asked, dry_run=dry_run, as_json=as_json)


def review_one(folder: Path, which: str, *, dry_run: bool, as_json: bool) -> Exit:
    """`remit task --review N`."""
    from remit.board.review import ReviewRequest

    return _reviewed(folder, ReviewRequest(number=number_of(which, "remit task --review N")), dry_run=dry_run, as_json=as_json)


def _number(what: str) -> int | None:
    """`12` is task 12; a file of that name is `./12`."""
    plain = what.removeprefix("#")
    return number_of(plain, "remit review N") if plain.isascii() and plain.isdigit() else None


def _from_root(folder: Path, what: str) -> str:
    """A path as it is typed is meant from where one stands; where nothing is there, from the root of the project."""
    here = os.path.abspath(what) if what else os.fspath(folder)
    place = here if os.path.exists(here) else os.path.join(folder, what)
    inside = os.path.relpath(os.path.realpath(place), os.path.realpath(folder))
    return "" if inside == "." else inside


def _reviewed(folder: Path, asked: "ReviewRequest", *, dry_run: bool, as_json: bool) -> Exit:
    from remit.board.review import check, dry_run_review
    from remit.board.review import review as review_work
    from remit.system.settings_files import load_settings

    board = Board(folder)
    if dry_run:
        directory = open_directory(folder)
        return answer(dry_run_review(board, routed_settings(folder, directory), directory.find, asked), as_json=as_json)
    check(board, load_settings(folder), asked)  # before a record is opened, and so made
    return _run(folder, lambda remit, shown: review_work(remit, board, asked, waiting=shown), as_json=as_json)


# ---- errors, meta


def errors(
    type_: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Only errors of this type (or with this code).", show_default=False)
    ] = None,
    timeout: Timeout = None,
    dry_run: DryRun = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Have the open errors of the ledger diagnosed: they become one task with a plan to mend them."""
    from remit.board.error_tasks import dry_run_errors
    from remit.board.error_tasks import errors as diagnose
    from remit.runtime.error_ledger import ErrorLedger

    folder, limit = find_root(root), seconds(timeout, "--timeout")
    board = Board(folder)
    if dry_run:
        ledger, directory = ErrorLedger(project_folder(folder) / "errors.json"), open_directory(folder)
        outcome = dry_run_errors(board, ledger, routed_settings(folder, directory), directory.find, type_, limit)
        return _rehearse(outcome, _print_groups, as_json=as_json)
    return _run(folder, lambda remit, shown: diagnose(remit, board, kind=type_, timeout=limit, waiting=shown), as_json=as_json)


def _print_groups(outcome: "Outcome") -> None:
    say(title(outcome))
    say(outcome.summary)
    if "route" in outcome.data:
        say(f"  route   {outcome.data['route']}")
    for group in outcome.data["groups"]:
        how_often = f"{len(group['errors'])} in the ledger, seen {count(group['count'], 'time')}"
        say(f"  group   {one_line(group['name'], 120)}, {how_often}: {one_line(group['message'], 160)}")


def meta(
    text: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="What the agent or command is for, in your words.")] = None,
    as_agent: Annotated[bool, typer.Option("--agent", help="An agent file, .remit/agents/NAME.md (the default).")] = False,
    as_command: Annotated[bool, typer.Option("--command", help="A command file, .remit/commands/NAME.md.")] = False,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Default: made from the words.", show_default=False)] = None,
    timeout: Timeout = None,
    dry_run: DryRun = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Have a new agent or a new command written from a description; it is filed only if it loads."""
    from remit.board.meta import Kind, MetaRequest, dry_run_meta
    from remit.board.meta import meta as build
    from remit.cli.main import COMMANDS

    if as_agent and as_command:
        raise Misused("--agent and --command exclude one another.", advice="Name one of them; an agent is the default.")
    wish = MetaRequest(
        text=" ".join(text or ()),
        kind=Kind.COMMAND if as_command else Kind.AGENT,
        name=name,
        timeout=seconds(timeout, "--timeout"),
        built_in_commands=tuple(COMMANDS),
    )
    folder = find_root(root)
    if dry_run:
        directory = open_directory(folder)
        outcome = dry_run_meta(folder, routed_settings(folder, directory), directory.find, wish, directory.names())
        return answer(outcome, as_json=as_json)
    return _run(folder, lambda remit, shown: build(remit, wish, waiting=shown), as_json=as_json)
