"""Commands of the board that an agent carries out: `research`, `plan`, `revise`, `implement`, `review`, `errors`, `meta`."""

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.approval import person_here
from remit.cli.arguments import Json, Root, number_of, numbers_of, seconds
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
    from remit.board.board import Board
    from remit.ledger import ErrorLedger
    from remit.orchestrator.meta import MetaRequest
    from remit.orchestrator.outcome import Outcome
    from remit.orchestrator.research_plan import Command
    from remit.orchestrator.review import ReviewRequest


Number = Annotated[str | None, typer.Argument(metavar="N", help="The task's number.", show_default=False, autocompletion=some_tasks)]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="SECONDS", help="When it is stopped; also 10s, 2m, 1h.", show_default=False)
]
Force = Annotated[bool, typer.Option("--force", help="Skip the check of the task's status, with a warning.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what it would do; touch nothing.")]


def carry_out(errand: "Command", root: Path | None, *, dry_run: bool, as_json: bool) -> Exit:
    folder = find_root(root)
    if dry_run:
        return _rehearse_errands(errand, folder, as_json=as_json)
    return asyncio.run(_carry_out_errands(errand, folder, as_json=as_json))


async def _carry_out_errands(errand: "Command", folder: Path, *, as_json: bool) -> Exit:
    from remit.app import Remit
    from remit.board.board import Board
    from remit.orchestrator.lifecycle import must_exist
    from remit.orchestrator.research_plan import work_on

    board = Board(folder)
    must_exist(board, errand.number)  # before a record is opened, and so made
    shown = Shown(as_json=as_json)
    async with Remit.open(folder, recover=False, approver=person_here()) as remit:
        with shown.listening():
            outcome = await work_on(remit, board, errand, waiting=shown)
        code = answer(outcome, as_json=as_json, was_interrupted=shown.was_interrupted)
        await wait_for_others(remit, as_json=as_json)
    return code


async def wait_for_others(remit: "Remit", *, as_json: bool) -> None:
    """What was brought back to life on the way, because our own dead run had to be settled, is not cut off by our leaving."""
    owner = remit.owner.owner_id
    left = [record.session_id for record in await remit.live() if record.owner == owner and record.parent_id is None]
    await wait_for_resumed(remit, left, as_json=as_json)


def _rehearse_errands(errand: "Command", folder: Path, *, as_json: bool) -> Exit:
    from remit.board.board import Board
    from remit.orchestrator.research_plan import dry_run

    directory = open_directory(folder)
    outcome = dry_run(Board(folder), routed_settings(folder, directory), directory.find, errand)
    if as_json:
        say_json(outcome.to_dict())
    else:
        _print_rehearsal(outcome)
    return Exit.OK


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


RESEARCH_USAGE = "remit research N [focus]"


def research(
    number: Number = None,
    focus: Annotated[
        list[str] | None, typer.Argument(metavar="[FOCUS]...", help="What to look at in particular, in your words.", show_default=False)
    ] = None,
    timeout: Timeout = None,
    force: Force = False,
    dry_run: DryRun = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Have a task studied: the report is filed with it as specs/NNN_name/reports/research-001.md."""
    given = number_of(number, RESEARCH_USAGE)
    limit = seconds(timeout, "--timeout")
    from remit.orchestrator.research_plan import Command

    command = Command(name="research", number=given, focus=" ".join(focus or ()), force=force, timeout=limit)
    return carry_out(command, root, dry_run=dry_run, as_json=as_json)


PLAN_USAGE = "remit plan N [focus]"


def plan(
    number: Number = None,
    focus: Annotated[
        list[str] | None, typer.Argument(metavar="[FOCUS]...", help="What to mind in particular, in your words.", show_default=False)
    ] = None,
    timeout: Timeout = None,
    force: Force = False,
    dry_run: DryRun = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Have a task planned in phases, from its reports: specs/NNN_name/plans/implementation-001.md."""
    given = number_of(number, PLAN_USAGE)
    limit = seconds(timeout, "--timeout")
    from remit.orchestrator.research_plan import Command

    command = Command(name="plan", number=given, focus=" ".join(focus or ()), force=force, timeout=limit)
    return carry_out(command, root, dry_run=dry_run, as_json=as_json)


REVISE_USAGE = "remit revise N [reason]"


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
    given = number_of(number, REVISE_USAGE)
    limit = seconds(timeout, "--timeout")
    from remit.orchestrator.research_plan import Command

    command = Command(name="revise", number=given, focus=" ".join(reason or ()), force=force, timeout=limit)
    return carry_out(command, root, dry_run=dry_run, as_json=as_json)


IMPLEMENT_USAGE = "remit implement N | N-M [focus]"


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

    from remit.board.board import Board

    words = list(numbers or ())
    count = next((at for at, word in enumerate(words) if re.search(r"[^\d\s,;#.\u2013-]", word)), len(words))
    given, focus = numbers_of(" ".join(words[:count] or words[:1]), IMPLEMENT_USAGE), " ".join(words[max(count, 1) :])
    limit = seconds(timeout, "--timeout")
    board = Board(find_root(root))
    if dry_run:
        return _rehearse_implement(board, given, force=force, timeout=limit, as_json=as_json)
    return asyncio.run(_implement(board, given, focus, force=force, timeout=limit, as_json=as_json))


async def _implement(board: "Board", numbers: list[int], focus: str, *, force: bool, timeout: float | None, as_json: bool) -> Exit:
    from remit.app import Remit
    from remit.orchestrator.implement import implement as implemented
    from remit.orchestrator.implement import implement_each, order_tasks
    from remit.orchestrator.lifecycle import must_exist
    from remit.orchestrator.phases import tell_nobody

    must_exist(board, *numbers)  # before a record is opened, and so made
    if len(numbers) > 1:
        order_tasks(board, numbers, force)
    shown = Shown(as_json=as_json)
    telling = tell_nobody if as_json else lambda words: say_aside(printable(words))
    async with Remit.open(board.root, recover=False, approver=person_here()) as remit:
        if len(numbers) == 1:
            outcome = await implemented(remit, board, numbers[0], focus=focus, force=force, timeout=timeout, waiting=shown, telling=telling)
        else:
            each = None if as_json else print_outcome
            options: dict[str, Any] = {"force": force, "timeout": timeout, "focus": focus}
            outcome = await implement_each(remit, board, numbers, waiting=shown, telling=telling, each=each, **options)
        if as_json or len(numbers) == 1:
            code = answer(outcome, as_json=as_json, was_interrupted=shown.was_interrupted)
        else:  # what each came to has been said
            say(printable(outcome.summary))
            code = Exit.INTERRUPTED if shown.was_interrupted else exit_of_ending(Status(outcome.status), StopReason(outcome.stop_reason))
        await wait_for_others(remit, as_json=as_json)
    return code


def _rehearse_implement(board: "Board", numbers: list[int], *, force: bool, timeout: float | None, as_json: bool) -> Exit:
    from remit.orchestrator.implement import dry_run_implement

    directory = open_directory(board.root)
    outcome = dry_run_implement(routed_settings(board.root, directory), board, directory.find, numbers, force=force, timeout=timeout)
    return answer(outcome, as_json=as_json)


_WHAT = "A folder or file; or a task's number, for what was committed for it. Without: the whole project."


def review(
    what: Annotated[str, typer.Argument(metavar="[PATH|N]", help=_WHAT, show_default=False)] = "",
    focus: Annotated[
        list[str] | None, typer.Argument(metavar="[FOCUS]...", help="What to look at in particular, in your words.", show_default=False)
    ] = None,
    tasks: Annotated[bool, typer.Option("--tasks", help="Make a task for each file with a finding of medium or worse.")] = False,
    base: Annotated[str, typer.Option("--base", metavar="COMMIT", help="Look at what changed since this commit.", show_default=False)] = "",
    timeout: Timeout = None,
    dry_run: DryRun = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Have the project, a path or a task reviewed: the report is filed in specs/reviews, or with the task."""
    from remit.orchestrator.review import ReviewRequest

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
    from remit.orchestrator.review import ReviewRequest

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
    return asyncio.run(_carry_out_review(folder, asked, dry_run=dry_run, as_json=as_json))


async def _carry_out_review(folder: Path, asked: "ReviewRequest", *, dry_run: bool, as_json: bool) -> Exit:
    from remit.app import Remit
    from remit.board.board import Board
    from remit.orchestrator.review import check, dry_run_review, review
    from remit.settings import load_settings

    board = Board(folder)
    if dry_run:
        directory = open_directory(folder)
        return answer(dry_run_review(board, routed_settings(folder, directory), directory.find, asked), as_json=as_json)
    check(board, load_settings(folder), asked)  # before a record is opened, and so made
    shown = Shown(as_json=as_json)
    async with Remit.open(folder, recover=False, approver=person_here()) as remit:
        outcome = await review(remit, board, asked, waiting=shown)
    return answer(outcome, as_json=as_json, was_interrupted=shown.was_interrupted)


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

    from remit.ledger import ErrorLedger

    folder, limit = find_root(root), seconds(timeout, "--timeout")
    if dry_run:
        return _rehearse_errors(folder, type_, limit, ErrorLedger(project_folder(folder) / "errors.json"), as_json=as_json)
    return asyncio.run(_errors(folder, type_, limit, as_json=as_json))


async def _errors(folder: Path, type_: str | None, limit: float | None, *, as_json: bool) -> Exit:
    from remit.app import Remit
    from remit.board.board import Board
    from remit.orchestrator.errors import errors as mend

    shown = Shown(as_json=as_json)
    async with Remit.open(folder, recover=False, approver=person_here()) as remit:
        outcome = await mend(remit, Board(folder), kind=type_, timeout=limit, waiting=shown)
        return answer(outcome, as_json=as_json, was_interrupted=shown.was_interrupted)


def _rehearse_errors(folder: Path, type_: str | None, limit: float | None, ledger: "ErrorLedger", *, as_json: bool) -> Exit:
    from remit.board.board import Board
    from remit.orchestrator.errors import dry_run_errors

    directory = open_directory(folder)
    outcome = dry_run_errors(Board(folder), ledger, routed_settings(folder, directory), directory.find, type_, limit)
    if as_json:
        say_json(outcome.to_dict())
    else:
        _print(outcome)
    return Exit.OK


def _print(outcome: "Outcome") -> None:
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

    from remit.cli.main import COMMANDS
    from remit.orchestrator.meta import Kind, MetaRequest

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
    return _rehearse_meta(folder, wish, as_json=as_json) if dry_run else asyncio.run(_meta(folder, wish, as_json=as_json))


async def _meta(folder: Path, wish: "MetaRequest", *, as_json: bool) -> Exit:
    from remit.app import Remit
    from remit.orchestrator.meta import meta as build

    shown = Shown(as_json=as_json)
    async with Remit.open(folder, recover=False, approver=person_here()) as remit:
        outcome = await build(remit, wish, waiting=shown)
        return answer(outcome, as_json=as_json, was_interrupted=shown.was_interrupted)


def _rehearse_meta(folder: Path, wish: "MetaRequest", *, as_json: bool) -> Exit:
    from remit.orchestrator.meta import dry_run_meta

    directory = open_directory(folder)
    outcome = dry_run_meta(folder, routed_settings(folder, directory), directory.find, wish, directory.names())
    return answer(outcome, as_json=as_json)
