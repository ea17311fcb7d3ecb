"""`remit plan N`: have a task planned in phases; the plan is filed with it (S6.9)."""

from typing import Annotated

import typer

from remit.cli.errands import DryRun, Force, Number, Timeout
from remit.cli.exits import Exit
from remit.cli.options import Json, Root

USAGE = "remit plan N [focus]"


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
    from remit.cli.errands import carry_out
    from remit.cli.numbers import number_of
    from remit.cli.values import seconds

    given = number_of(number, USAGE)
    limit = seconds(timeout, "--timeout")
    from remit.orchestrator.research_plan import Command

    command = Command(name="plan", number=given, focus=" ".join(focus or ()), force=force, timeout=limit)
    return carry_out(command, root, dry_run=dry_run, as_json=as_json)
