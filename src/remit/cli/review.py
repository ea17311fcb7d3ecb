"""`remit review [PATH|N]`: have the project, a part of it or a task looked over; the report is filed (S6.9)."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.errands import DryRun, Timeout
from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.orchestrator.review import ReviewRequest

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
    from remit.cli.project import find_root
    from remit.cli.values import seconds
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
    from remit.cli.numbers import number_of
    from remit.orchestrator.review import ReviewRequest

    return _reviewed(folder, ReviewRequest(number=number_of(which, "remit task --review N")), dry_run=dry_run, as_json=as_json)


def _number(what: str) -> int | None:
    """`12` is task 12; a file of that name is `./12`."""
    from remit.cli.numbers import number_of

    plain = what.removeprefix("#")
    return number_of(plain, "remit review N") if plain.isascii() and plain.isdigit() else None


def _from_root(folder: Path, what: str) -> str:
    """A path as it is typed is meant from where one stands; where nothing is there, from the root of the project."""
    import os

    here = os.path.abspath(what) if what else os.fspath(folder)
    place = here if os.path.exists(here) else os.path.join(folder, what)
    inside = os.path.relpath(os.path.realpath(place), os.path.realpath(folder))
    return "" if inside == "." else inside


def _reviewed(folder: Path, asked: "ReviewRequest", *, dry_run: bool, as_json: bool) -> Exit:
    import asyncio

    return asyncio.run(_carry_out(folder, asked, dry_run=dry_run, as_json=as_json))


async def _carry_out(folder: Path, asked: "ReviewRequest", *, dry_run: bool, as_json: bool) -> Exit:
    from remit.app import Remit
    from remit.board.board import Board
    from remit.cli.approving import person_here
    from remit.cli.outcomes import Shown, answer
    from remit.cli.project import open_directory, routed_settings
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
