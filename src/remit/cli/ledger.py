"""`remit ledger`: the errors of the project, similar ones as one entry. Reads only."""

from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.ledger.entry import Entry


def ledger(
    type_: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Only errors of this type (or with this code).", show_default=False)
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """List the errors seen, the latest first, with how often and what to do."""
    from remit.cli.output import say, say_aside, say_json
    from remit.cli.project import find_root, project_folder
    from remit.ledger import ErrorLedger

    book = ErrorLedger(project_folder(find_root(root)) / "errors.json")
    entries = [entry for entry in book.entries() if type_ is None or type_ in (entry.type, entry.code)]
    if book.set_aside_path is not None:
        say_aside(f"The ledger was damaged: it is kept as {book.set_aside_path.name} beside the new one.")
    if as_json:
        say_json({"errors": [entry.to_dict() for entry in entries]})
        return Exit.OK
    if not entries:
        say("The error ledger is empty." if type_ is None else f"No error of type {type_} in the ledger.")
        return Exit.OK
    for entry in entries:
        _print(entry)
    return Exit.OK


def _print(entry: "Entry") -> None:
    """What and how often on one line, then the message, then what to do."""
    from rich.text import Text

    from remit.cli.output import console, put
    from remit.cli.words import at_the_prompt, count, one_line

    head = Text(one_line(entry.code or entry.type), style="bold red")
    head.append(f"  {one_line(entry.origin or '-')}", style="bold")
    head.append(f"  {count(entry.recurrence_count, 'time')}, last {_seen(entry.last_seen)}", style="dim")
    if entry.fix_status != "not_addressed":
        head.append(f"  {one_line(entry.fix_status)}", style="green")
    put(console(), head)
    put(console(), one_line(entry.message, 300), "  ")
    if advice := entry.context.get("recommendation"):
        put(console(), Text(one_line(at_the_prompt(str(advice)), 200), style="yellow"), Text("  → ", style="yellow"))


def _seen(iso_time: str) -> str:
    """In local time, as everywhere at the prompt; a time that is none, as it stands in the file."""
    import time
    from datetime import datetime

    from remit.cli.words import one_line, when

    try:
        return when(datetime.fromisoformat(iso_time).timestamp(), time.time())
    except (ValueError, OverflowError):
        return one_line(iso_time)
