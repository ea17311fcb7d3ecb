"""`remit revise N [reason]`: have the plan of a task made anew, as its next version (S6.9)."""

from typing import Annotated

import typer

from remit.cli.errands import DryRun, Force, Number, Timeout
from remit.cli.exits import Exit
from remit.cli.options import Json, Root

USAGE = "remit revise N [reason]"


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
    from remit.cli.errands import carry_out
    from remit.cli.numbers import number_of
    from remit.cli.values import seconds

    given = number_of(number, USAGE)
    limit = seconds(timeout, "--timeout")
    from remit.orchestrator.research_plan import Command

    command = Command(name="revise", number=given, focus=" ".join(reason or ()), force=force, timeout=limit)
    return carry_out(command, root, dry_run=dry_run, as_json=as_json)
