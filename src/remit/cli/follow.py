"""`remit follow`: the events of a delegation and everything below it as they come, from any process, until its return. Reads only."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit, exit_of_return, exit_of_state
from remit.cli.options import Json, Root, Session

if TYPE_CHECKING:
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

    with open_record(find_root(root)) as found:
        store = need_record(found)
        record = find_session(store, session)
        events = _events(store, record, only=only)
        return _as_json(store, record, events) if as_json else _as_lines(store, record, events, steps)


def _events(store: "Store", asked: "Record", *, only: bool) -> Iterator["tuple[Event, str]"]:
    """Events with the agent they are of, those that were before first; ends when the delegation is settled."""
    import time

    from remit.cli.watch import LOOK_SECONDS, Watch, below

    watch = Watch(store)
    stamp: int | None = None
    while True:
        if (seen := store.change_stamp()) != stamp:
            stamp = seen
            # The records before the events: a delegation that is settled by then has said everything it will say.
            records = [r for r in below(store.tree(asked.root_id), asked.session_id) if not only or r.session_id == asked.session_id]
            agents = {record.session_id: record.agent for record in records}
            yield from ((event, agents[event.session_id]) for event in watch.look(records))
            if records and records[0].state.is_settled:
                return
        time.sleep(LOOK_SECONDS)


def _as_lines(store: "Store", asked: "Record", events: Iterator["tuple[Event, str]"], steps: bool) -> Exit:
    from rich.text import Text

    from remit.cli.answer import print_return
    from remit.cli.output import console
    from remit.cli.watch import told
    from remit.cli.words import moment, one_line, short
    from remit.core.events import EventKind

    for event, agent in events:
        if event.kind is EventKind.STEP and not steps:
            continue
        line = Text(f"{moment(event.at)[11:]}.{int(event.at * 1000) % 1000:03} ", style="dim")
        line.append(f"{agent} ", style="bold").append(f"{short(event.session_id)} ", style="dim").append(f"{event.kind:<9}", style="cyan")
        if (fraction := event.body.get("fraction")) is not None:
            line.append(f"{fraction:4.0%} ")
        console().print(line.append(one_line(told(event), 300)), soft_wrap=True)
    record = store.get(asked.session_id) or asked
    if record.result is not None:
        print_return(record.result, console())
        return exit_of_return(record.result)
    return exit_of_state(record.state)


def _as_json(store: "Store", asked: "Record", events: Iterator["tuple[Event, str]"]) -> Exit:
    """One document, written as it grows: an event on each line, so that a reader need not wait for the end."""
    from remit.cli.documents import event_document
    from remit.cli.output import json_text, say

    say(f'{{"session_id": {json_text(asked.session_id)}, "events": [')
    comma = ""
    interrupted = False
    try:
        for event, agent in events:
            say(comma + json_text({"agent": agent, **event_document(event)}))
            comma = ","
    except KeyboardInterrupt:
        interrupted = True
    record = store.get(asked.session_id) or asked
    result = record.result.to_dict() if record.result else None
    say(f'], "status": {json_text(str(record.state))}, "return": {json_text(result)}}}')
    if interrupted:
        return Exit.INTERRUPTED
    return exit_of_return(record.result) if record.result is not None else exit_of_state(record.state)
