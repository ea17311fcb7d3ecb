"""`remit history`: finished and living delegations, newest first. Reads only."""

from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.core.record import Record
    from remit.core.states import State

ROOMY_COLUMNS = 100
"""From that width on session ids are shown whole; else by their end, which is enough to name them."""


def history(
    agent: Annotated[str | None, typer.Option(help="Only this agent's.", show_default=False)] = None,
    status: Annotated[str | None, typer.Option(help="completed, partial, failed, timeout, refused, …", show_default=False)] = None,
    tree: Annotated[str | None, typer.Option(metavar="SESSION", help="Only the tree of this delegation.", show_default=False)] = None,
    since: Annotated[str | None, typer.Option(help="Like 30m, 2h, 1d, or an ISO time.", show_default=False)] = None,
    until: Annotated[str | None, typer.Option(help="Like --since.", show_default=False)] = None,
    task: Annotated[int | None, typer.Option(metavar="N", help="Only those of task N.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 20,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """List what was delegated, newest first."""
    import time

    from remit.cli.documents import record_document
    from remit.cli.output import say, say_json
    from remit.cli.project import NOTHING_YET, find_root, find_session, open_record
    from remit.cli.values import moment
    from remit.core.record import HistoryQuery

    now = time.time()
    state = _state(status)
    begin, end = moment(since, "--since", now), moment(until, "--until", now)
    with open_record(find_root(root)) as store:
        records = []
        if store is not None:
            root_id = find_session(store, tree).root_id if tree else None
            query = HistoryQuery(root_id=root_id, agent=agent, state=state, task_number=task, since=begin, until=end, limit=limit)
            records = store.history(query)
    if as_json:
        say_json({"delegations": [record_document(record) for record in records]})
    elif store is None:
        say(NOTHING_YET)
    elif not records:
        say("No delegation fits.")
    else:
        _print(records, now, limit)
    return Exit.OK


def _state(status: str | None) -> "State | None":
    from remit.core.errors import Misused
    from remit.core.states import State

    try:
        return None if status is None else State(status)
    except ValueError:
        raise Misused(f"Unknown status {status!r}.", advice=f"Use {', '.join(State)}.") from None


def _print(records: "list[Record]", now: float, limit: int) -> None:
    from rich.text import Text

    from remit.cli.output import console, say_aside
    from remit.cli.tables import cut, table
    from remit.cli.words import MARKS, duration, one_line, short, when

    shown = table("session", "agent", "status", "when", "took", "summary", shrinking=("summary",))
    for record in records:
        mark, style = MARKS[record.state]
        took = duration((record.settled_at or now) - (record.started_at or record.created_at)) if record.started_at else "-"
        words = "" if record.result is None else one_line(record.result.summary, 120)
        name = "  " * (record.depth - 1) + record.agent
        session = record.session_id if console().width >= ROOMY_COLUMNS else short(record.session_id)
        state = Text(f"{mark} {record.state}", style=style)
        shown.add_row(session, name, state, when(record.created_at, now), took, cut(words))
    console().print(shown)
    if len(records) == limit:
        say_aside(f"The newest {limit}; --limit shows more.")
