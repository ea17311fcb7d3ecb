"""`remit show`: one delegation with everything below it: the tree, its return, what it said, its steps and times. Reads only."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root, Session

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from remit.cli.chat_status import Spent
    from remit.core.events import Event
    from remit.core.record import Record

EVENTS_SHOWN = 10


def show(
    session: Session,
    events: Annotated[bool, typer.Option("--events", help=f"Everything it said, not only the last {EVENTS_SHOWN} events.")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="The steps of the flow, with their times.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Show a delegation: tree, times, return with artifacts, evidence and errors, and what it said."""
    from remit.cli.documents import event_document, record_document
    from remit.cli.living import GONE, gone_among
    from remit.cli.output import say_json
    from remit.cli.project import find_root, find_session, need_record, open_record
    from remit.engine.vitals import below

    folder = find_root(root)
    with open_record(folder) as found:
        store = need_record(found)
        record = find_session(store, session)
        records = below(store.tree(record.root_id), record.session_id) or [record]
        said = store.events(record.session_id)
        gone = gone_among(records, store, folder)
    if as_json:
        tree = [record_document(one) for one in records]
        document = record_document(record) | {"stuck": GONE if record.session_id in gone else None}
        spent = _spent(records, folder)
        say_json(
            {
                "delegation": document,
                "events": [event_document(event) for event in said],
                "tree": tree,
                "spent": {"tokens": spent.tokens, "cost": None if spent.has_unknown else spent.cost},
            }
        )
        return Exit.OK
    _print(record, records, gone, folder)
    _print_events(said, every_event=events)
    if steps or record.command is not None:  # of a command of the board the thirteen steps are part of what is told (S4)
        _print_steps(record)
    return Exit.OK


def _print(record: "Record", records: "list[Record]", gone: "Collection[str]", folder: "Path") -> None:
    from remit.cli.answer import print_return
    from remit.cli.living import GONE
    from remit.cli.output import console, say
    from remit.cli.tree import View, draw, forest

    _print_head(record, records, folder)
    say()
    for root in forest(records):
        console().print(draw(root, View(now=time.time(), gone=gone)))
    say()
    if record.result is not None:
        print_return(record.result, console(), folder)
    elif record.session_id in gone:
        say(f"It was {record.state}, but {GONE}")
    else:
        say(f"Still {record.state}: `remit follow {record.session_id}` shows how it goes on.")


def _print_head(record: "Record", records: "list[Record]", folder: "Path") -> None:
    from remit.cli.output import console, put, say

    say(f"{record.session_id}  {record.agent}  {record.state}")
    for name, words in (*_head(record), *_costs(record, records, folder)):
        if words:
            put(console(), words, f"  {name:<9} ")


def _costs(record: "Record", records: "list[Record]", folder: "Path") -> "Iterator[tuple[str, str]]":
    """By itself, and with everything below it where that is more."""
    yield "spent", _spent([record], folder).words()
    if any(one.tokens or one.cost for one in records if one.session_id != record.session_id):
        yield "in all", f"{_spent(records, folder).words()}, with what is below it"


def _spent(records: "list[Record]", folder: "Path") -> "Spent":
    from remit.cli.chat_status import Spent, spent_by

    if not any(one.tokens or one.cost for one in records):
        return Spent()
    from remit.core.errors import Misused
    from remit.settings import Settings, load_settings

    try:
        settings = load_settings(folder)
    except Misused:  # what was spent is told also where the settings are broken
        settings = Settings()
    return spent_by(records, settings)


def _head(record: "Record") -> "Iterator[tuple[str, str]]":
    from remit.cli.output import json_text
    from remit.cli.words import duration, moment, one_line

    yield "path", f"{' → '.join(record.path)} (depth {record.depth})"
    yield "of", f"{record.parent_id}, in the tree of {record.root_id}" if record.parent_id else ""
    yield "asked by", _asked_by(record)
    timeout = f", timeout {duration(record.timeout_seconds)}" if record.timeout_seconds else ""
    yield "created", f"{moment(record.created_at)}{timeout}, priority {record.priority.name.lower()}"
    if record.started_at is not None and record.settled_at is not None:
        waited = record.started_at - record.created_at
        queued = f" after {duration(waited)} in the queue" if waited > 0.05 else ""
        yield "ran", duration(record.settled_at - record.started_at) + queued
    yield from _routed(record)
    yield "given", one_line(json_text(dict(record.parameters)), 200) if record.parameters else ""
    for name, value in (("key", record.key), ("accept", "; ".join(record.accept))):
        yield name, value or ""
    handle = record.result.extra.get("agent_session") if record.result is not None else None
    yield "session", one_line(f"{handle.get('session')} of {handle.get('vendor')}", 200) if isinstance(handle, dict) else ""
    yield "attempt", f"{record.attempt} (resumed after a crash)" if record.attempt > 1 else ""


def _asked_by(record: "Record") -> str:
    """Of one that came in by a door: by which, and how its caller calls the conversation."""
    came = record.came
    if came is None:
        return ""
    conversation = f", in its conversation {came.session}" if came.session else ""
    return f"{came.principal}{f' by {came.door}' if came.door else ''}{conversation}"


def _routed(record: "Record") -> "Iterator[tuple[str, str]]":
    """Of a command of the board: the decision as it was logged, and what context was loaded for its task."""
    extra = record.task.extra if record.task is not None and record.parent_id is None else {}
    yield "routed", str(extra.get("route", ""))
    context = extra.get("context")
    if isinstance(context, dict):
        from remit.orchestrator.lifecycle import context_words

        yield "context", context_words(context)


def _print_steps(record: "Record") -> None:
    """Each step with its moment, counted from the first."""
    from remit.cli.output import say
    from remit.core.events import STEPS

    reached = [(step, at) for step, at in zip(STEPS, record.step_times, strict=True) if at is not None]
    if not reached:
        return
    began = reached[0][1]
    say("\nsteps")
    for step, at in reached:
        say(f"  {(at - began) * 1000:10.1f} ms  {step}")


def _print_events(said: "list[Event]", *, every_event: bool) -> None:
    from remit.cli.output import console, put, say
    from remit.cli.telling import Teller
    from remit.cli.words import one_line
    from remit.core.events import EventKind

    teller = Teller()
    heard = [(event, text) for event in said if event.kind is not EventKind.STEP and (text := teller.tell(event))]
    if not heard:
        return
    began = said[0].at
    shown = heard if every_event else heard[-EVENTS_SHOWN:]
    say("\nsaid" + (f" (the last {len(shown)} of {len(heard)}; --events shows all)" if len(shown) < len(heard) else ""))
    for event, text in shown:
        put(console(), one_line(text, 200), f"  {event.at - began:8.2f} s  {event.kind:<9} ")
