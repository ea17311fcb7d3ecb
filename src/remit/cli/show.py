"""`remit show`: one delegation with everything below it: the tree, its steps and times, what it said, its return. Reads only."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root, Session

if TYPE_CHECKING:
    from remit.core.events import Event
    from remit.core.record import Record

EVENTS_SHOWN = 30


def show(
    session: Session,
    events: Annotated[bool, typer.Option("--events", help=f"Everything it said, not only the last {EVENTS_SHOWN} events.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Show a delegation: tree, steps, times, evidence, artifacts, errors and return."""
    from remit.cli.documents import event_document, record_document
    from remit.cli.output import say_json
    from remit.cli.project import find_root, find_session, need_record, open_record
    from remit.cli.watch import below

    with open_record(find_root(root)) as found:
        store = need_record(found)
        record = find_session(store, session)
        records = below(store.tree(record.root_id), record.session_id) or [record]
        said = store.events(record.session_id)
    if as_json:
        tree = [record_document(one) for one in records]
        say_json({"delegation": record_document(record), "events": [event_document(event) for event in said], "tree": tree})
    else:
        _print(record, records, said, every_event=events)
    return Exit.OK


def _print(record: "Record", records: "list[Record]", said: "list[Event]", *, every_event: bool) -> None:
    from remit.cli.answer import print_return
    from remit.cli.output import console, say
    from remit.cli.tree import View, draw, forest

    _print_head(record)
    say()
    for root in forest(records):
        console().print(draw(root, View(now=time.time())))
    say()
    _print_steps(record)
    _print_events(said, every_event=every_event)
    if record.result is not None:
        say()
        print_return(record.result, console())
    else:
        say(f"\nStill {record.state}: `remit follow {record.session_id}` shows how it goes on.")


def _print_head(record: "Record") -> None:
    from remit.cli.output import json_text, say
    from remit.cli.words import duration, moment, one_line

    say(f"{record.session_id}  {record.agent}  {record.state}")
    say(f"  path      {' → '.join(record.path)} (depth {record.depth})")
    if record.parent_id:
        say(f"  of        {record.parent_id}, in the tree of {record.root_id}")
    say(f"  created   {moment(record.created_at)}, timeout {duration(record.timeout_seconds)}, priority {record.priority.name.lower()}")
    if record.started_at is not None and record.settled_at is not None:
        waited = record.started_at - record.created_at
        say(
            f"  ran       {duration(record.settled_at - record.started_at)}"
            + (f" after {duration(waited)} in the queue" if waited > 0.05 else "")
        )
    if record.parameters:
        say(f"  given     {one_line(json_text(dict(record.parameters)), 200)}")
    for name, value in (("key", record.key), ("accept", "; ".join(record.accept)), ("tokens", record.tokens), ("cost", record.cost)):
        if value:
            say(f"  {name:<9} {value}")
    if record.attempt > 1:
        say(f"  attempt   {record.attempt} (resumed after a crash)")


def _print_steps(record: "Record") -> None:
    """Each step with its moment, counted from the first."""
    from remit.cli.output import say
    from remit.core.events import STEPS

    reached = [(step, at) for step, at in zip(STEPS, record.step_times, strict=True) if at is not None]
    if not reached:
        return
    began = reached[0][1]
    say("steps")
    for step, at in reached:
        say(f"  {(at - began) * 1000:10.1f} ms  {step}")


def _print_events(said: "list[Event]", *, every_event: bool) -> None:
    from remit.cli.output import say
    from remit.cli.watch import told
    from remit.cli.words import one_line
    from remit.core.events import EventKind

    heard = [event for event in said if event.kind is not EventKind.STEP]
    if not heard:
        return
    began = said[0].at
    shown = heard if every_event else heard[-EVENTS_SHOWN:]
    say("said" + (f" (the last {len(shown)} of {len(heard)}; --events shows all)" if len(shown) < len(heard) else ""))
    for event in shown:
        say(f"  {event.at - began:8.2f} s  {event.kind:<9} {one_line(told(event), 200)}")
