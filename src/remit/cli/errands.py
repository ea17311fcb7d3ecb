"""How `research`, `plan` and `revise` are run from the command line: opened, shown, answered. What they do is `orchestrator`'s."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.completing import some_tasks
from remit.cli.exits import Exit

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.orchestrator.outcome import Outcome
    from remit.orchestrator.research_plan import Command

Number = Annotated[str | None, typer.Argument(metavar="N", help="The task's number.", show_default=False, autocompletion=some_tasks)]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="SECONDS", help="When it is stopped; also 10s, 2m, 1h.", show_default=False)
]
Force = Annotated[bool, typer.Option("--force", help="Skip the check of the task's status, with a warning.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what it would do; touch nothing.")]


def carry_out(errand: "Command", root: Path | None, *, dry_run: bool, as_json: bool) -> Exit:
    import asyncio

    from remit.cli.project import find_root

    folder = find_root(root)
    if dry_run:
        return _rehearse(errand, folder, as_json=as_json)
    return asyncio.run(_carry_out(errand, folder, as_json=as_json))


async def _carry_out(errand: "Command", folder: Path, *, as_json: bool) -> Exit:
    from remit.app import Remit
    from remit.board.board import Board
    from remit.cli.approving import person_here
    from remit.cli.outcomes import Shown, answer
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
    from remit.cli.live import wait_for_resumed

    owner = remit.owner.owner_id
    left = [record.session_id for record in await remit.live() if record.owner == owner and record.parent_id is None]
    await wait_for_resumed(remit, left, as_json=as_json)


def _rehearse(errand: "Command", folder: Path, *, as_json: bool) -> Exit:
    from remit.board.board import Board
    from remit.cli.output import say_json
    from remit.cli.project import open_directory, routed_settings
    from remit.orchestrator.dry_run import dry_run

    directory = open_directory(folder)
    outcome = dry_run(Board(folder), routed_settings(folder, directory), directory.find, errand)
    if as_json:
        say_json(outcome.to_dict())
    else:
        _print_rehearsal(outcome)
    return Exit.OK


def _print_rehearsal(outcome: "Outcome") -> None:
    from remit.cli.outcomes import print_warnings, title
    from remit.cli.output import say
    from remit.cli.words import duration

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
