"""`remit status`: everything queued or running in the project, whichever process runs it, as it changes. Reads only."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from remit.cli.rollcall import Line
    from remit.core.ports import Store

REDRAW_SECONDS = 0.5
"""Ages are redrawn so often when nothing else happens."""


def status(
    once: Annotated[bool, typer.Option("--once", help="Print it once and leave (so it does when stdout is no terminal).")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Watch everything that is queued or running; Ctrl-C leaves."""
    from remit.cli.output import console, say, say_json
    from remit.cli.project import NOTHING_YET, find_root, open_record

    folder = find_root(root)
    with open_record(folder) as store:
        if store is None:
            if as_json:
                say_json({"active": 0, "delegations": []})
            else:
                say(NOTHING_YET)
        elif as_json:
            say_json(_document(store, folder))
        elif once or not console().is_terminal:
            _print_once(store, folder)
        else:
            _watch(store, folder)
    return Exit.OK


def _document(store: "Store", folder: "Path") -> dict[str, Any]:
    from remit.cli.documents import record_document
    from remit.cli.rollcall import RollCall

    lines = RollCall(store, folder).lines(time.time())
    return {
        "active": len(lines),
        "delegations": [
            {
                **record_document(line.record),
                "doing": line.doing,
                "age": line.age_seconds,
                "left": line.left_seconds,
                "heard": line.heard_seconds_ago,
                "tokens": line.tokens,
                "stuck": line.stuck or None,
            }
            for line in lines
        ],
    }


def _print_once(store: "Store", folder: "Path") -> None:
    from remit.cli.output import console, say
    from remit.cli.rollcall import RollCall

    lines = RollCall(store, folder).lines(time.time())
    if lines:
        console().print(_table(lines, None))
    else:
        say("Nothing is queued or running. `remit history` shows what was.")


def _watch(store: "Store", folder: "Path") -> None:
    """Redrawn when something was written, by whomever, and every half second."""
    from rich.live import Live

    from remit.cli.output import console
    from remit.cli.rollcall import RollCall
    from remit.cli.watch import LOOK_SECONDS

    roll_call = RollCall(store, folder)
    stamp: int | None = None
    drawn_at = 0.0
    try:
        with Live(console=console(), auto_refresh=False, screen=False, transient=True) as live:
            while True:
                seen = store.change_stamp()
                if seen != stamp or time.monotonic() - drawn_at > REDRAW_SECONDS:
                    stamp, drawn_at = seen, time.monotonic()
                    live.update(_table(roll_call.lines(time.time()), console().height - 5), refresh=True)
                time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        return  # the usual way to leave it


def _table(lines: "list[Line]", rows: int | None) -> "Table":
    from rich.text import Text

    from remit.cli.tables import cut, table
    from remit.cli.tree import state_mark
    from remit.cli.words import count, duration, one_line, short

    now = time.time()
    shown = table("", "agent", "session", "doing", "age", "left", "heard", "tokens", "", shrinking=("doing",))
    kept = lines if rows is None else lines[: max(1, rows)]
    for line in kept:
        record = line.record
        name = Text("  " * line.indent + record.agent, style="bold")
        shown.add_row(
            state_mark(record.state, now if rows is not None else None),
            name,
            record.session_id if line.indent == 0 else Text(short(record.session_id), style="dim"),
            cut(one_line(line.doing, 60)),
            duration(line.age_seconds),
            Text(duration(line.left_seconds), style="yellow" if line.left_seconds < 5 else ""),
            f"{duration(line.heard_seconds_ago)} ago",
            f"{line.tokens:,}" if line.tokens else "",
            Text(line.stuck, style="bold red"),
        )
    more = f"; {len(lines) - len(kept)} more do not fit" if len(kept) < len(lines) else ""
    shown.caption = f"{count(len(lines), 'delegation')} queued or running{more}" if lines else "Nothing is queued or running; waiting."
    shown.caption_justify = "left"
    return shown
