"""Commands about recorded delegations: `status`, `show`, `history`, `follow`, `cancel`, `recover`."""

import asyncio
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.approval import person_here
from remit.cli.arguments import Json, Root, Session, parse_time
from remit.cli.events import LOOK_SECONDS, Spent, Teller, Watch, gist_of, spent_by
from remit.cli.exits import Exit, exit_of_return, exit_of_state
from remit.cli.live import GONE, STUCK_WORDS, gone_among, wait_for_resumed
from remit.cli.project import NOTHING_YET, find_root, find_session, need_record, open_record, project_folder
from remit.cli.render import (
    MARKS,
    ROOMY_COLUMNS,
    console,
    count,
    cut,
    duration,
    json_text,
    moment,
    money,
    one_line,
    put,
    say,
    say_aside,
    say_json,
    say_json_line,
    short,
    table,
    when,
)
from remit.cli.results import event_document, print_return, record_document
from remit.cli.tree import GONE_MARK, Node, View, draw, forest, state_mark
from remit.core.errors import Misused
from remit.core.events import STEPS, Event, EventKind
from remit.core.ports import Store
from remit.core.record import HistoryQuery, Record
from remit.core.states import State
from remit.runtime.liveness import living_owners, signs_with_children, stuck

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from remit.app import Remit


EVENTS_SHOWN = 10


def show(
    session: Session,
    events: Annotated[bool, typer.Option("--events", help=f"Everything it said, not only the last {EVENTS_SHOWN} events.")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="The steps of the flow, with their times.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Show a delegation: tree, times, return with artifacts, evidence and errors, and what it said."""
    from remit.runtime.liveness import below

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
    _print_show(record, records, gone, folder)
    _print_events(said, every_event=events)
    if steps or record.command is not None:  # of a command of the board the thirteen steps are part of what is told (S4)
        _print_steps(record)
    return Exit.OK


def _print_show(record: "Record", records: "list[Record]", gone: "Collection[str]", folder: "Path") -> None:
    _print_head(record, records, folder)
    say()
    for root in forest(records):
        console().print(draw(root, View(now=time.time(), gone=gone)))
    say()
    if record.result is not None:
        print_return(record.result, folder)
    elif record.session_id in gone:
        say(f"It was {record.state}, but {GONE}")
    else:
        say(f"Still {record.state}: `remit follow {record.session_id}` shows how it goes on.")


def _print_head(record: "Record", records: "list[Record]", folder: "Path") -> None:
    say(f"{record.session_id}  {record.agent}  {record.state}")
    for name, words in (*_head(record), *_costs(record, records, folder)):
        if words:
            put(words, f"  {name:<9} ")


def _costs(record: "Record", records: "list[Record]", folder: "Path") -> "Iterator[tuple[str, str]]":
    """By itself, and with everything below it where that is more."""
    yield "spent", _spent([record], folder).words()
    if any(one.tokens or one.cost for one in records if one.session_id != record.session_id):
        yield "in all", f"{_spent(records, folder).words()}, with what is below it"


def _spent(records: "list[Record]", folder: "Path") -> "Spent":
    if not any(one.tokens or one.cost for one in records):
        return Spent()
    from remit.core.settings import Settings
    from remit.system.settings_files import load_settings

    try:
        settings = load_settings(folder)
    except Misused:  # what was spent is told also where the settings are broken
        settings = Settings()
    return spent_by(records, settings)


def _head(record: "Record") -> "Iterator[tuple[str, str]]":
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
    caller_info = record.caller_info
    if caller_info is None:
        return ""
    conversation = f", in its conversation {caller_info.session}" if caller_info.session else ""
    return f"{caller_info.principal}{f' by {caller_info.door}' if caller_info.door else ''}{conversation}"


def _routed(record: "Record") -> "Iterator[tuple[str, str]]":
    """Of a command of the board: the decision as it was logged, and what context was loaded for its task."""
    extra = record.task.extra if record.task is not None and record.parent_id is None else {}
    yield "routed", str(extra.get("route", ""))
    context = extra.get("context")
    if isinstance(context, dict):
        from remit.board.command_lifecycle import context_words

        yield "context", context_words(context)


def _print_steps(record: "Record") -> None:
    """Each step with its moment, counted from the first."""
    reached = [(step, at) for step, at in zip(STEPS, record.step_times, strict=True) if at is not None]
    if not reached:
        return
    began = reached[0][1]
    say("\nsteps")
    for step, at in reached:
        say(f"  {(at - began) * 1000:10.1f} ms  {step}")


def _print_events(said: "list[Event]", *, every_event: bool) -> None:
    teller = Teller()
    heard = [(event, text) for event in said if event.kind is not EventKind.STEP and (text := teller.tell(event))]
    if not heard:
        return
    began = said[0].at
    shown = heard if every_event else heard[-EVENTS_SHOWN:]
    say("\nsaid" + (f" (the last {len(shown)} of {len(heard)}; --events shows all)" if len(shown) < len(heard) else ""))
    for event, text in shown:
        put(one_line(text, 200), f"  {event.at - began:8.2f} s  {event.kind:<9} ")


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
    lines = LiveDelegations(store, folder).lines(time.time())
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
    lines = LiveDelegations(store, folder).lines(time.time())
    if lines:
        console().print(_picture(lines, None))
    else:
        say("Nothing is queued or running. `remit history` shows what was.")


def _watch(store: "Store", folder: "Path") -> None:
    """Redrawn when something was written, by whomever, and every half second; the last picture stays."""
    from rich.live import Live

    live_delegations = LiveDelegations(store, folder)
    stamp: int | None = None
    drawn_at = 0.0
    try:
        with Live(console=console(), auto_refresh=False, screen=False) as live:
            while True:
                seen = store.change_stamp()
                if seen != stamp or time.monotonic() - drawn_at > REDRAW_SECONDS:
                    stamp, drawn_at = seen, time.monotonic()
                    live.update(_picture(live_delegations.lines(time.time()), console().height - 5), refresh=True)
                time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        return  # the usual way to leave it


def _picture(lines: "list[Line]", rows: int | None) -> "RenderableType":
    """The table, what looks wrong below it, and how many there are. `rows`: so many fit, and it is redrawn again and again."""
    from rich.console import Group
    from rich.text import Text

    if not lines:
        return Text("Nothing is queued or running; waiting.", style="dim")
    notes = list(_notes(lines))
    kept = lines if rows is None else lines[: max(1, rows - len(notes))]
    more = f"; {len(lines) - len(kept)} more do not fit" if len(kept) < len(lines) else ""
    return Group(_table(kept, rows is not None), *notes, Text(f"{count(len(lines), 'delegation')} queued or running{more}", style="dim"))


def _notes(lines: "list[Line]") -> "Iterator[Text]":
    """What looks wrong, once for all that have it in common."""
    from rich.text import Text

    for why in dict.fromkeys(line.stuck for line in lines if line.stuck):
        named = [f"{line.record.agent} {short(line.record.session_id)}" for line in lines if line.stuck == why]
        more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
        yield Text(f"! {', '.join(named[:NAMED])}{more}: {why}", style="bold red")


def _table(lines: "list[Line]", is_moving: bool) -> "RenderableType":
    """Where there is little room: short ids, and only the columns that tell most. An empty column is left out."""
    from rich.text import Text

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
            "doing": cut(line.doing),
            "age": duration(line.age_seconds),
            "left": Text(duration(line.left_seconds), style="yellow" if line.left_seconds < 5 else ""),
            "heard": f"{duration(line.heard_seconds_ago)} ago",
            "tokens": f"{line.tokens:,}" if line.tokens else "",
            "money": money(line.cost) if line.cost else "",
        }
        shown.add_row(*(cells[name] for name in names))
    return shown


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
    now = time.time()
    states = _states(status)
    begin, end = parse_time(since, "--since", now), parse_time(until, "--until", now)
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
        _print_history(records, gone, now, limit)
    return Exit.OK


def _states(status: str | None) -> "tuple[State | None, ...]":
    """A deadline and a cancel give a partial return, so that `partial` finds them; each has a state of its own as well."""
    try:
        state = None if status is None else State(status)
    except ValueError:
        raise Misused(f"Unknown status {status!r}.", advice=f"Use {', '.join(State)}.") from None
    return (State.PARTIAL, State.TIMEOUT, State.CANCELLED) if state is State.PARTIAL else (state,)


def _found(store: "Store", query: "HistoryQuery", states: "tuple[State | None, ...]") -> "list[Record]":
    found = [record for state in states for record in store.history(replace(query, state=state))]
    return sorted(found, key=lambda record: record.created_at, reverse=True)[: query.limit]


def _roots(store: "Store", query: "HistoryQuery") -> "list[Record]":
    roots: list[Record] = []
    before = None
    for _ in range(LOOKED_AT // PAGE):
        page = store.history(replace(query, limit=PAGE, before_session=before))
        roots += [record for record in page if record.parent_id is None]
        if len(page) < PAGE or len(roots) >= query.limit:
            break
        before = page[-1].session_id
    return roots[: query.limit]


def _print_history(records: "list[Record]", gone: "Collection[str]", now: float, limit: int) -> None:
    from rich.text import Text

    shown = table("session", "agent", "status", "when", "took", "summary", shrinking=("summary",))
    for record in records:
        mark, style = MARKS[record.state]
        is_gone = record.session_id in gone
        took = duration((record.settled_at or now) - (record.started_at or record.created_at)) if record.started_at and not is_gone else "-"
        words = GONE.partition(":")[0] if is_gone else "" if record.result is None else gist_of(record.result)
        name = "  " * (record.depth - 1) + record.agent
        session = record.session_id if console().width >= ROOMY_COLUMNS else short(record.session_id)
        state = Text("! gone", style="bold red") if is_gone else Text(f"{mark} {record.state}", style=style)
        shown.add_row(session, name, state, when(record.created_at, now), took, cut(words))
    console().print(shown)
    if gone:
        say_aside(f"! {count(len(gone), 'delegation')}: {GONE}")
    if len(records) == limit:
        say_aside(f"The newest {limit}; --limit shows more.")


OWNER_SECONDS = 0.5
"""How often it is asked whether the process that runs it lives."""


def follow(
    session: Session,
    steps: Annotated[bool, typer.Option("--steps", help="Show the steps of the flow as well.")] = False,
    only: Annotated[bool, typer.Option("--only", help="Without the delegations below it.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Follow a delegation until its return; the exit code tells how it ended."""
    folder = find_root(root)
    with open_record(folder) as found:
        store = need_record(found)
        record = find_session(store, session)
        events = _events(store, folder, record, only=only)
        return _as_json(store, record, events) if as_json else _as_lines(store, record, events, folder, steps=steps)


def _events(store: "Store", folder: "Path", asked: "Record", *, only: bool) -> Iterator["tuple[Event, str]"]:
    """Events with the agent they are of, those that were before first; ends when the delegation is settled, or nobody runs it any more."""

    from remit.runtime.liveness import below

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
    teller = Teller()
    for event, agent in events:
        text = teller.tell(event)
        if not text or (event.kind is EventKind.STEP and not steps):
            continue
        label = f"{moment(event.at)[11:]}.{int(event.at * 1000) % 1000:03} {agent} {short(event.session_id)} {event.kind:<9}"
        fraction = event.body.get("fraction")
        put(("" if fraction is None else f"{fraction:4.0%} ") + one_line(text, 300), label, label_style="cyan")
    record = store.get(asked.session_id) or asked
    if record.result is not None:
        print_return(record.result, folder)
    elif not record.state.is_settled:
        say_aside(f"{record.agent} {record.session_id} is not settled, but {GONE}")
    return _exit(record)


def _exit(record: "Record") -> Exit:
    if record.result is not None:
        return exit_of_return(record.result)
    return exit_of_state(record.state) if record.state.is_settled else Exit.PARTIAL


def _as_json(store: "Store", asked: "Record", events: Iterator["tuple[Event, str]"]) -> Exit:
    """One document, written as it grows: an event on each line, so that a reader need not wait for the end."""
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


def cancel(
    session: Session,
    reason: Annotated[str, typer.Option(help="Why: it is recorded and shown in the return.")] = "",
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Stop a delegation and everything below it."""
    folder = find_root(root)
    with open_record(folder) as store:
        record = find_session(need_record(store), session)
        session_id = record.session_id
        if record.state.is_settled:  # known without opening anything
            return _said([{"session_id": session_id, "agent": record.agent, "state": f"already {record.state}"}], session_id, as_json)
    return asyncio.run(_cancel(folder, session_id, reason, as_json))


async def _cancel(folder: "Path", session_id: str, reason: str, as_json: bool) -> Exit:
    from remit.app import Remit

    async with Remit.open(folder, recover=False) as remit:
        record = await remit.describe(session_id)
        resumed: list[str] = []
        if await asyncio.to_thread(gone_among, [record], remit.store, folder):  # nobody is there to ask: it must be taken over first
            resumed = (await remit.recover()).resumed
        nodes = await remit.cancel(session_id, reason)
        code = _said(nodes, session_id, as_json)
        await wait_for_resumed(remit, [one for one in resumed if one != session_id], as_json=as_json)
        return code


def _said(nodes: list[dict[str, str]], session_id: str, as_json: bool) -> Exit:
    is_unfinished = any(node["state"] == "stopping" for node in nodes)
    if as_json:
        say_json({"session_id": session_id, "nodes": nodes})
    else:
        for node in nodes:
            say(f"{node['session_id']}  {node['agent']}  {node['state']}")
        if is_unfinished:
            say("Not everything has ended yet: look again with `remit status`.")
    return Exit.PARTIAL if is_unfinished else Exit.OK


def recover(root: Root = None, as_json: Json = False) -> Exit:
    """Settle or resume what a crash left, and wait for what was resumed; Ctrl-C stops that."""
    folder = find_root(root)
    if not (project_folder(folder) / "remit.db").exists():
        if as_json:
            say_json({"dead_processes": [], "settled": [], "resumed": [], "killed_processes": 0})
        else:
            say(NOTHING_YET)
        return Exit.OK
    return asyncio.run(_recover(folder, as_json))


async def _recover(folder: "Path", as_json: bool) -> Exit:
    from remit.app import Remit

    async with Remit.open(folder, approver=person_here()) as remit:  # opening recovers: here is shown what it found
        if not as_json:
            await _print_recover(remit)
        returns = await wait_for_resumed(remit, remit.recovered.resumed, as_json=as_json)
        if as_json:
            await _say_document(remit)
        return Exit.OK if all(result.ok for result in returns) else Exit.PARTIAL


async def _print_recover(remit: "Remit") -> None:
    found = remit.recovered
    if found.is_empty:
        say("Nothing to recover: nothing was left running by a dead process.")
        return
    say(f"{count(len(found.owners), 'dead process')} found; {count(found.killed, 'process')} they left behind killed.")
    for session_id in found.settled:
        record = await remit.describe(session_id)
        kept = len(record.result.artifacts) if record.result else 0
        words = one_line(record.result.summary, 160) if record.result else ""
        say(f"settled  {session_id}  {record.agent}  {record.state}, {count(kept, 'artifact')} kept. {words}")
    for session_id in found.resumed:
        record = await remit.describe(session_id)
        say(f"resumed  {session_id}  {record.agent}  (run {record.attempt})")


async def _say_document(remit: "Remit") -> None:
    found = remit.recovered
    say_json(
        {
            "dead_processes": found.owners,
            "settled": [record_document(await remit.describe(session_id)) for session_id in found.settled],
            "resumed": [record_document(await remit.describe(session_id)) for session_id in found.resumed],
            "killed_processes": found.killed,
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    record: Record
    indent: int
    doing: str
    age_seconds: float
    left_seconds: float
    heard_seconds_ago: float
    tokens: int
    cost: float
    """Both: spent so far."""
    stuck: str
    """Why it looks stuck; empty when it does not."""


class LiveDelegations:
    """Asked again and again; remembers what was said."""

    def __init__(self, store: Store, root: Path) -> None:
        self._store = store
        self._root = root
        self._watch = Watch(store)

    def lines(self, now: float) -> list[Line]:
        """Callers before their children."""
        records = self._store.live()
        self._watch.look(records)
        heard = signs_with_children(records, self._store.last_sign([record.session_id for record in records]))
        living = living_owners(self._store, self._root / ".remit" / "run") if records else set()
        return [
            Line(
                record=node.record,
                indent=indent,
                doing=self._doing(node.record),
                age_seconds=max(0.0, now - node.record.created_at),
                left_seconds=max(0.0, node.record.deadline_at - now),
                heard_seconds_ago=max(0.0, now - heard[node.record.session_id]),
                tokens=self._watch.tokens.get(node.record.session_id, node.record.tokens),
                cost=self._watch.costs.get(node.record.session_id, node.record.cost),
                stuck=STUCK_WORDS[stuck(node.record, now, heard[node.record.session_id], living)],
            )
            for node, indent in _walked(forest(records), 0)
        ]

    def _doing(self, record: Record) -> str:
        word = self._watch.words.get(record.session_id)
        if word is not None:
            return f"{word.fraction:.0%} {word.text}" if word.fraction is not None else word.text
        if record.state is State.QUEUED:
            return "queued"
        return next((str(STEPS[place]) for place in reversed(range(len(STEPS))) if record.step_times[place] is not None), "")


def _walked(nodes: list[Node], indent: int) -> Iterator[tuple[Node, int]]:
    for node in nodes:
        yield node, indent
        yield from _walked(node.children, indent + 1)
