"""`remit doctor`: what this machine and this project offer, and what to do about what is missing. Reads only."""

from typing import TYPE_CHECKING, Annotated

from remit.cli.declaring import option
from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remit.cli.checkup import Finding

_MARKS = {"ok": ("✓", "green"), "worse": ("!", "yellow"), "missing": ("✗", "red")}


def doctor(
    root: Root = None,
    as_json: Json = False,
    is_online: Annotated[bool, option("--online", help="Ask every configured model; without it no host is contacted.")] = False,
) -> Exit:
    """Print what this machine offers: sandbox, programs, packages, coding agents, models, the project; with advice on what is missing.

    Exits 0 also when optional parts are missing."""
    from remit.cli.checkup import look
    from remit.cli.output import say_json
    from remit.cli.project import find_root
    from remit.sandbox.probe import probe

    found = look(find_root(root), is_online=is_online)
    if as_json:
        say_json({"sandbox": probe().stack, "findings": [one.to_dict() for one in found]})
    else:
        _print(found)
    return Exit.OK


def _print(findings: "Sequence[Finding]") -> None:
    from rich.text import Text

    from remit.cli.output import console
    from remit.cli.words import printable

    part = ""
    width = max(len(one.name) for one in findings)
    for one in findings:
        if one.part != part:
            console().print(Text(("\n" if part else "") + one.part, style="bold"))
            part = one.part
        mark, style = _MARKS[one.mark]
        line = Text.assemble("  ", (mark, style), f" {one.name.ljust(width)}  {printable(one.found)}", overflow="fold")
        console().print(line, soft_wrap=True)
        if one.advice:
            console().print(Text(f"    {' ' * width}  → {printable(one.advice)}", style="dim", overflow="fold"), soft_wrap=True)
