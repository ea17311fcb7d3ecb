"""`remit research N [focus]`: have a task studied; the report is filed with it (S6.9)."""

from typing import Annotated

import typer

from remit.cli.errands import DryRun, Force, Number, Timeout
from remit.cli.exits import Exit
from remit.cli.options import Json, Root

USAGE = "remit research N [focus]"


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
    from remit.cli.errands import carry_out
    from remit.cli.numbers import number_of
    from remit.cli.values import seconds

    given = number_of(number, USAGE)
    limit = seconds(timeout, "--timeout")
    from remit.orchestrator.research_plan import Command

    command = Command(name="research", number=given, focus=" ".join(focus or ()), force=force, timeout=limit)
    return carry_out(command, root, dry_run=dry_run, as_json=as_json)
