"""`remit history`: finished and living delegations, newest first. Reads only."""

from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from collections.abc import Collection

    from remit.core.ports import Store
    from remit.core.record import HistoryQuery, Record
    from remit.core.states import State

PAGE = 500
LOOKED_AT = 100_000
"""So many of the newest are looked through for roots."""


def history(
    agent: Annotated[str | None, typer.Option(help="Only this agent's.", show_default=False)] = None,
    status: Annotated[
        str | None,
        typer.Option(
            help="completed, failed, blocked, refused, timeout, cancelled, …; partial: also timeout and cancelled.", show_default=False
        ),
    ] = None,
    tree: Annotated[str | None, typer.Option(metavar="SESSION", help="Only the tree of this delegation.", show_default=False)] = None,
    since: Annotated[str | None, typer.Option(help="Like 30m, 2h, 1d, or an ISO time.", show_default=False)] = None,
    until: Annotated[str | None, typer.Option(help="Like --since.", show_default=False)] = None,
    task: Annotated[int | None, typer.Option(metavar="N", help="Only those of task N.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Children too; so it is with --agent, --status, --tree and --task.")] = False,
    principal: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only what this one asked for from outside, like token:ci.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 20,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """List what was delegated, newest first: the roots, or everything."""
    import time

    from remit.cli.documents import record_document
    from remit.cli.living import GONE, gone_among
    from remit.cli.output import say, say_json
    from remit.cli.project import NOTHING_YET, find_root, find_session, open_record
    from remit.cli.values import moment
    from remit.core.record import HistoryQuery

    now = time.time()
    states = _states(status)
    begin, end = moment(since, "--since", now), moment(until, "--until", now)
    folder = find_root(root)
    records: list[Record] = []
    gone: set[str] = set()
    with open_record(folder) as store:
        if store is not None:
            root_id = find_session(store, tree).root_id if tree else None
            query = HistoryQuery(root_id=root_id, agent=agent, task_number=task, principal=principal, since=begin, until=end, limit=limit)
            is_filtered = any(asked is not None for asked in (agent, status, tree, task))
            records = _found(store, query, states) if every or is_filtered else _roots(store, query)
            gone = gone_among(records, store, folder)
    if as_json:
        say_json({"delegations": [record_document(r) | {"stuck": GONE if r.session_id in gone else None} for r in records]})
    elif store is None:
        say(NOTHING_YET)
    elif not records:
        say("No delegation fits.")
    else:
        _print(records, gone, now, limit)
    return Exit.OK


def _states(status: str | None) -> "tuple[State | None, ...]":
    """A deadline and a cancel give a partial return, so that `partial` finds them; each has a state of its own as well."""
    from remit.core.errors import Misused
    from remit.core.states import State

    try:
        state = None if status is None else State(status)
    except ValueError:
        raise Misused(f"Unknown status {status!r}.", advice=f"Use {', '.join(State)}.") from None
    return (State.PARTIAL, State.TIMEOUT, State.CANCELLED) if state is State.PARTIAL else (state,)


def _found(store: "Store", query: "HistoryQuery", states: "tuple[State | None, ...]") -> "list[Record]":
    from dataclasses import replace

    found = [record for state in states for record in store.history(replace(query, state=state))]
    return sorted(found, key=lambda record: record.created_at, reverse=True)[: query.limit]


def _roots(store: "Store", query: "HistoryQuery") -> "list[Record]":
    from dataclasses import replace

    roots: list[Record] = []
    before = None
    for _ in range(LOOKED_AT // PAGE):
        page = store.history(replace(query, limit=PAGE, before_session=before))
        roots += [record for record in page if record.parent_id is None]
        if len(page) < PAGE or len(roots) >= query.limit:
            break
        before = page[-1].session_id
    return roots[: query.limit]


def _print(records: "list[Record]", gone: "Collection[str]", now: float, limit: int) -> None:
    from rich.text import Text

    from remit.cli.living import GONE
    from remit.cli.output import ROOMY_COLUMNS, console, say_aside
    from remit.cli.tables import cut, table
    from remit.cli.tree import gist_of
    from remit.cli.words import MARKS, count, duration, one_line, short, when

    shown = table("session", "agent", "status", "when", "took", "summary", shrinking=("summary",))
    for record in records:
        mark, style = MARKS[record.state]
        is_gone = record.session_id in gone
        took = duration((record.settled_at or now) - (record.started_at or record.created_at)) if record.started_at and not is_gone else "-"
        words = GONE.partition(":")[0] if is_gone else "" if record.result is None else one_line(gist_of(record.result), 120)
        name = "  " * (record.depth - 1) + record.agent
        session = record.session_id if console().width >= ROOMY_COLUMNS else short(record.session_id)
        state = Text("! gone", style="bold red") if is_gone else Text(f"{mark} {record.state}", style=style)
        shown.add_row(session, name, state, when(record.created_at, now), took, cut(words))
    console().print(shown)
    if gone:
        say_aside(f"! {count(len(gone), 'delegation')}: {GONE}")
    if len(records) == limit:
        say_aside(f"The newest {limit}; --limit shows more.")
