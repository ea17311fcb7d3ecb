"""`remit status`: everything queued or running in the project, whichever process runs it, as it changes. Reads only."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import RenderableType
    from rich.text import Text

    from remit.cli.rollcall import Line
    from remit.core.ports import Store

REDRAW_SECONDS = 0.5
"""Ages are redrawn so often when nothing else happens."""
NAMED = 4
"""So many are named in one note."""


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
                "cost": line.cost,
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
        console().print(_picture(lines, None))
    else:
        say("Nothing is queued or running. `remit history` shows what was.")


def _watch(store: "Store", folder: "Path") -> None:
    """Redrawn when something was written, by whomever, and every half second; the last picture stays."""
    from rich.live import Live

    from remit.cli.output import console
    from remit.cli.rollcall import RollCall
    from remit.cli.watch import LOOK_SECONDS

    roll_call = RollCall(store, folder)
    stamp: int | None = None
    drawn_at = 0.0
    try:
        with Live(console=console(), auto_refresh=False, screen=False) as live:
            while True:
                seen = store.change_stamp()
                if seen != stamp or time.monotonic() - drawn_at > REDRAW_SECONDS:
                    stamp, drawn_at = seen, time.monotonic()
                    live.update(_picture(roll_call.lines(time.time()), console().height - 5), refresh=True)
                time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        return  # the usual way to leave it


def _picture(lines: "list[Line]", rows: int | None) -> "RenderableType":
    """The table, what looks wrong below it, and how many there are. `rows`: so many fit, and it is redrawn again and again."""
    from rich.console import Group
    from rich.text import Text

    from remit.cli.words import count

    if not lines:
        return Text("Nothing is queued or running; waiting.", style="dim")
    notes = list(_notes(lines))
    kept = lines if rows is None else lines[: max(1, rows - len(notes))]
    more = f"; {len(lines) - len(kept)} more do not fit" if len(kept) < len(lines) else ""
    return Group(_table(kept, rows is not None), *notes, Text(f"{count(len(lines), 'delegation')} queued or running{more}", style="dim"))


def _notes(lines: "list[Line]") -> "Iterator[Text]":
    """What looks wrong, once for all that have it in common."""
    from rich.text import Text

    from remit.cli.words import short

    for why in dict.fromkeys(line.stuck for line in lines if line.stuck):
        named = [f"{line.record.agent} {short(line.record.session_id)}" for line in lines if line.stuck == why]
        more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
        yield Text(f"! {', '.join(named[:NAMED])}{more}: {why}", style="bold red")


def _table(lines: "list[Line]", is_moving: bool) -> "RenderableType":
    """Where there is little room: short ids, and only the columns that tell most. An empty column is left out."""
    from rich.text import Text

    from remit.cli.output import ROOMY_COLUMNS, console
    from remit.cli.tables import cut, table
    from remit.cli.tree import GONE_MARK, state_mark
    from remit.cli.words import duration, money, one_line, short

    now = time.time()
    is_roomy = console().width >= ROOMY_COLUMNS
    names = ["", "agent", "session", "doing", "age", "left"]
    names += ["heard"] if is_roomy else []
    names += ["tokens"] if any(line.tokens for line in lines) else []
    names += ["money"] if any(line.cost for line in lines) else []
    shown = table(*names, shrinking=("doing",))
    for line in lines:
        record = line.record
        is_whole = is_roomy and line.indent == 0
        cells = {
            "": GONE_MARK if line.stuck else state_mark(record.state, now if is_moving else None),
            "agent": Text("  " * line.indent + one_line(record.agent, 40 if is_roomy else 24 - 2 * line.indent), style="bold"),
            "session": record.session_id if is_whole else Text(short(record.session_id), style="dim"),
            "doing": cut(one_line(line.doing, 60)),
            "age": duration(line.age_seconds),
            "left": Text(duration(line.left_seconds), style="yellow" if line.left_seconds < 5 else ""),
            "heard": f"{duration(line.heard_seconds_ago)} ago",
            "tokens": f"{line.tokens:,}" if line.tokens else "",
            "money": money(line.cost) if line.cost else "",
        }
        shown.add_row(*(cells[name] for name in names))
    return shown
