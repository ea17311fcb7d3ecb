"""`remit ledger`: the errors of the project, similar ones as one entry. Reads only."""

from typing import Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root


def ledger(
    type_: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Only errors of this type (or with this code).", show_default=False)
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """List the errors seen, the latest first, with how often and what to do."""
    from remit.cli.output import console, say, say_aside, say_json
    from remit.cli.project import find_root
    from remit.cli.tables import table
    from remit.cli.words import one_line
    from remit.ledger import ErrorLedger

    book = ErrorLedger(find_root(root) / ".remit" / "errors.json")
    entries = [entry for entry in book.entries() if type_ is None or type_ in (entry.type, entry.code)]
    if book.set_aside_path is not None:
        say_aside(f"The ledger was damaged: it is kept as {book.set_aside_path.name} beside the new one.")
    if as_json:
        say_json({"errors": [entry.to_dict() for entry in entries]})
        return Exit.OK
    if not entries:
        say("The error ledger is empty." if type_ is None else f"No error of type {type_} in the ledger.")
        return Exit.OK
    shown = table("code", "agent", "times", "last seen", "fix", "message and advice", folding="message and advice")
    for entry in entries:
        advice = entry.context.get("recommendation") or ""
        words = one_line(entry.message, 300) + (f" → {one_line(advice, 200)}" if advice else "")
        seen = entry.last_seen.replace("T", " ")[:19] + "Z"
        shown.add_row(entry.code or entry.type, entry.origin, str(entry.recurrence_count), seen, entry.fix_status, words)
    console().print(shown)
    return Exit.OK
