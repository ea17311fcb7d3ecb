"""`remit errors`: the open errors of the ledger become a task with a diagnosis and a plan (S6.9). `remit ledger` lists them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.errands import DryRun, Timeout
from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.ledger import ErrorLedger
    from remit.orchestrator.outcome import Outcome


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
    import asyncio

    from remit.cli.project import find_root, project_folder
    from remit.cli.values import seconds
    from remit.ledger import ErrorLedger

    folder, limit = find_root(root), seconds(timeout, "--timeout")
    if dry_run:
        return _rehearse(folder, type_, limit, ErrorLedger(project_folder(folder) / "errors.json"), as_json=as_json)
    return asyncio.run(_errors(folder, type_, limit, as_json=as_json))


async def _errors(folder: Path, type_: str | None, limit: float | None, *, as_json: bool) -> Exit:
    from remit.app import Remit
    from remit.board.board import Board
    from remit.cli.approving import person_here
    from remit.cli.outcomes import Shown, answer
    from remit.orchestrator.errors import errors as mend

    shown = Shown(as_json=as_json)
    async with Remit.open(folder, recover=False, approver=person_here()) as remit:
        outcome = await mend(remit, Board(folder), kind=type_, timeout=limit, waiting=shown)
        return answer(outcome, as_json=as_json, was_interrupted=shown.was_interrupted)


def _rehearse(folder: Path, type_: str | None, limit: float | None, ledger: "ErrorLedger", *, as_json: bool) -> Exit:
    from remit.board.board import Board
    from remit.cli.output import say_json
    from remit.cli.project import open_directory, routed_settings
    from remit.orchestrator.errors import dry_run_errors

    directory = open_directory(folder)
    outcome = dry_run_errors(Board(folder), ledger, routed_settings(folder, directory), directory.find, type_, limit)
    if as_json:
        say_json(outcome.to_dict())
    else:
        _print(outcome)
    return Exit.OK


def _print(outcome: "Outcome") -> None:
    from remit.cli.outcomes import title
    from remit.cli.output import say
    from remit.cli.words import count, one_line

    say(title(outcome))
    say(outcome.summary)
    if "route" in outcome.data:
        say(f"  route   {outcome.data['route']}")
    for group in outcome.data["groups"]:
        how_often = f"{len(group['errors'])} in the ledger, seen {count(group['count'], 'time')}"
        say(f"  group   {one_line(group['name'], 120)}, {how_often}: {one_line(group['message'], 160)}")
