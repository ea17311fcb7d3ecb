"""`remit follow`: the events of a delegation and everything below it as they come, from any process, until its return. Reads only."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit, exit_of_return, exit_of_state
from remit.cli.options import Json, Root, Session

OWNER_SECONDS = 0.5
"""How often it is asked whether the process that runs it lives."""

if TYPE_CHECKING:
    from pathlib import Path

    from remit.core.events import Event
    from remit.core.ports import Store
    from remit.core.record import Record


def follow(
    session: Session,
    steps: Annotated[bool, typer.Option("--steps", help="Show the steps of the flow as well.")] = False,
    only: Annotated[bool, typer.Option("--only", help="Without the delegations below it.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Follow a delegation until its return; the exit code tells how it ended."""
    from remit.cli.project import find_root, find_session, need_record, open_record

    folder = find_root(root)
    with open_record(folder) as found:
        store = need_record(found)
        record = find_session(store, session)
        events = _events(store, folder, record, only=only)
        return _as_json(store, record, events) if as_json else _as_lines(store, record, events, folder, steps=steps)


def _events(store: "Store", folder: "Path", asked: "Record", *, only: bool) -> Iterator["tuple[Event, str]"]:
    """Events with the agent they are of, those that were before first; ends when the delegation is settled, or nobody runs it any more."""
    import time

    from remit.cli.living import gone_among
    from remit.cli.watch import LOOK_SECONDS, Watch
    from remit.engine.vitals import below

    watch = Watch(store)
    stamp: int | None = None
    looked_at = 0.0
    while True:
        # Whether its process lives is asked before the record is: what was settled before the end is seen all the same.
        known = store.get(asked.session_id) if time.monotonic() > looked_at + OWNER_SECONDS else None
        is_gone = known is not None and bool(gone_among([known], store, folder))
        if known is not None:
            looked_at = time.monotonic()
        if (seen := store.change_stamp()) != stamp or is_gone:
            stamp = seen
            # The records before the events: a delegation that is settled by then has said everything it will say.
            records = [r for r in below(store.tree(asked.root_id), asked.session_id) if not only or r.session_id == asked.session_id]
            agents = {record.session_id: record.agent for record in records}
            yield from ((event, agents[event.session_id]) for event in watch.look(records))
            if is_gone or (records and records[0].state.is_settled):
                return
        time.sleep(LOOK_SECONDS)


def _as_lines(store: "Store", asked: "Record", events: Iterator["tuple[Event, str]"], folder: "Path", *, steps: bool) -> Exit:
    from rich.text import Text

    from remit.cli.answer import print_return
    from remit.cli.living import GONE
    from remit.cli.output import console, put, say_aside
    from remit.cli.telling import Teller
    from remit.cli.words import moment, one_line, short
    from remit.core.events import EventKind

    teller = Teller()
    for event, agent in events:
        text = teller.tell(event)
        if not text or (event.kind is EventKind.STEP and not steps):
            continue
        line = Text(f"{moment(event.at)[11:]}.{int(event.at * 1000) % 1000:03} ", style="dim")
        line.append(f"{agent} ", style="bold").append(f"{short(event.session_id)} ", style="dim").append(f"{event.kind:<9}", style="cyan")
        fraction = event.body.get("fraction")
        put(console(), ("" if fraction is None else f"{fraction:4.0%} ") + one_line(text, 300), line)
    record = store.get(asked.session_id) or asked
    if record.result is not None:
        print_return(record.result, console(), folder)
    elif not record.state.is_settled:
        say_aside(f"{record.agent} {record.session_id} is not settled, but {GONE}")
    return _exit(record)


def _exit(record: "Record") -> Exit:
    if record.result is not None:
        return exit_of_return(record.result)
    return exit_of_state(record.state) if record.state.is_settled else Exit.PARTIAL


def _as_json(store: "Store", asked: "Record", events: Iterator["tuple[Event, str]"]) -> Exit:
    """One document, written as it grows: an event on each line, so that a reader need not wait for the end."""
    from remit.cli.documents import event_document
    from remit.cli.living import GONE
    from remit.cli.output import json_text, say_json_line

    say_json_line(f'{{"session_id": {json_text(asked.session_id)}, "events": [')
    comma = ""
    interrupted = False
    try:
        for event, agent in events:
            say_json_line(comma + json_text({"agent": agent, **event_document(event)}))
            comma = ","
    except KeyboardInterrupt:
        interrupted = True
    record = store.get(asked.session_id) or asked
    result = record.result.to_dict() if record.result else None
    stuck = None if interrupted or record.state.is_settled else GONE
    say_json_line(f'], "status": {json_text(str(record.state))}, "stuck": {json_text(stuck)}, "return": {json_text(result)}}}')
    return Exit.INTERRUPTED if interrupted else _exit(record)
