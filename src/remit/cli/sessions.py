"""Commands about delegations and their returns: `status`, `show`, `history`, `follow`, `cancel`, `recover`, `validate`."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Annotated, Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text
from typer import Argument, Option

from remit.cli.arguments import Session, parse_time, read_input
from remit.cli.events import LOOK_SECONDS, SpendingTotal, Watch, event_text, gist_of, spent_by
from remit.cli.exits import Exit, exit_of_return, exit_of_state
from remit.cli.live import GONE, STUCK_WORDS, lost_sessions, wait_for_resumed
from remit.cli.project import NOTHING_YET, Project, find_session
from remit.cli.render import (
    MARKS,
    console,
    count,
    duration,
    harmless,
    json_text,
    moment,
    one_line,
    put,
    say,
    say_aside,
    say_json,
    say_json_line,
    say_table,
    short,
    when,
)  # fmt: skip
from remit.cli.results import event_document, print_return, record_document, say_document
from remit.cli.tree import ALARM, View, draw, forest
from remit.core.errors import InvalidReturn, Misused
from remit.core.events import STEPS, Event, EventKind
from remit.core.ports import Store
from remit.core.record import HistoryQuery, Record
from remit.core.settings import Settings
from remit.core.states import State
from remit.system.liveness import below, living_owners, signs_with_children, stuck

EVENTS_SHOWN = 10
REDRAW_SECONDS = 0.5
"""Interval in which ages are redrawn."""
OWNER_SECONDS = 0.5
"""Interval in which `follow` checks that the process of the delegation is alive."""


# ---- show


def show(
    project: Project,
    session: Session = "last",
    events: Annotated[bool, Option("--events", help=f"Show all events, not only the last {EVENTS_SHOWN}.")] = False,
    steps: Annotated[bool, Option("--steps", help="Show the steps of the flow with their times.")] = False,
    trace: Annotated[bool, Option("--trace", help="Show where exceptions of its agent, and of those below it, were raised.")] = False,
) -> Exit:
    """Show a delegation, by default the last one: tree, times, return with artifacts, evidence and errors, and its last events."""
    with project.store() as store:
        record = find_session(store, session)
        records = below(store.tree(record.root_id), record.session_id) or [record]
        said = store.events(record.session_id)
        gone = lost_sessions(records, store, project.root)
    if project.as_json:
        total = _spent(records, project)
        say_json(
            {
                "delegation": record_document(record) | {"stuck": GONE if record.session_id in gone else None},
                "events": [event_document(event) for event in said],
                "tree": [record_document(one) for one in records],
                "tracebacks": _tracebacks(records),
                "spent": {"tokens": total.tokens, "cost": None if total.has_unknown else total.cost},
            }
        )
        return Exit.OK
    say(f"{record.session_id}  {record.agent}  {record.state}")
    alone, in_all = _spent([record], project).words(), _spent(records, project).words()
    say_document(_facts(record, project) | {"spent": alone, "spent in all": in_all if in_all != alone else ""})
    say()
    for root in forest(records):
        console().print(draw(root, View(now=time.time(), stuck=dict.fromkeys(gone, GONE))))
    say()
    if record.result is not None:
        print_return(record.result, project.root)
    elif record.session_id in gone:
        say(f"It was {record.state}, but {GONE}")
    else:
        say(f"Still {record.state}. Follow it: remit follow {record.session_id}")
    if trace:
        agents = {one.session_id: one.agent for one in records}
        for session_id, text in _tracebacks(records).items() or {"": "No exception was recorded."}.items():
            say(f"\n{agents.get(session_id, '')} {session_id}".rstrip())
            print(harmless(text.rstrip()))  # never wrapped, so that it can be copied and clicked
    _print_events(said, every_event=events)
    if steps or record.command is not None:
        _print_steps(record)
    return Exit.OK


def _tracebacks(records: list[Record]) -> dict[str, str]:
    return {one.session_id: one.result.traceback for one in records if one.result is not None and one.result.traceback}


def _spent(records: list[Record], project: Project) -> SpendingTotal:
    try:
        settings = project.settings
    except Misused:  # spending is shown even if the settings are invalid
        settings = Settings()
    return spent_by(records, settings)


def _facts(record: Record, project: Project) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "path": f"{' → '.join(record.path)} (depth {record.depth})",
        "parent": record.parent_id,
        "asked by": record.caller_info.principal if record.caller_info else "",
        "created_at": record.created_at,
        "timeout_seconds": record.timeout_seconds,
        "priority": record.priority.name.lower(),
        "parameters": one_line(json_text(dict(record.parameters)), 200) if record.parameters else "",
        "key": record.key,
        "limits": record.limits_reason,
        "result of": record.cached_from,
        "accept": list(record.accept),
        "run": f"{record.attempt} (resumed after a crash)" if record.attempt > 1 else "",
    }
    if record.started_at is not None and record.settled_at is not None:
        facts["ran_seconds"] = record.settled_at - record.started_at
    if record.result is not None and isinstance(handle := record.result.extra.get("agent_session"), dict):
        facts["agent session"] = f"{handle.get('session')} of {handle.get('vendor')}"
    if record.task is not None and record.parent_id is None:
        facts["routed"] = record.task.extra.get("route")
        facts["context"] = (record.task.extra.get("context") or {}).get("files")
    return facts


def _print_steps(record: Record) -> None:
    """Each step with its time, counted from the first."""
    reached = [(step, at) for step, at in zip(STEPS, record.step_times, strict=True) if at is not None]
    if reached:
        say("\nsteps")
    for step, at in reached:
        say(f"  {(at - reached[0][1]) * 1000:10.1f} ms  {step}")


def _print_events(said: list[Event], *, every_event: bool) -> None:
    lines = [(event, words) for event in said if event.kind is not EventKind.STEP and (words := event_text(event))]
    shown = lines if every_event else lines[-EVENTS_SHOWN:]
    if shown:
        say("\nsaid" + (f" (the last {len(shown)} of {len(lines)}; --events shows all)" if len(shown) < len(lines) else ""))
    for event, words in shown:
        put(one_line(words, 200), f"  {event.at - said[0].at:8.2f} s  {event.kind:<9} ")


# ---- status


class LiveDelegations:
    """Queued and running delegations of every process, with the latest text of each."""

    def __init__(self, store: Store, project: Project) -> None:
        self._store = store
        self._run_folder = project.folder / "run"
        self._watch = Watch(store)

    def read(self) -> list[tuple[Record, dict[str, Any]]]:
        """Records with what they do, as in the JSON document."""
        now, records = time.time(), self._store.live()
        self._watch.look(records)
        heard = signs_with_children(records, self._store.last_sign([record.session_id for record in records]))
        living = living_owners(self._store, self._run_folder) if records else set()
        return [
            (
                record,
                {
                    "doing": self._doing(record),
                    "age": max(0.0, now - record.created_at),
                    "left": max(0.0, record.deadline_at - now),
                    "heard": max(0.0, now - heard[record.session_id]),
                    "tokens": self._watch.tokens.get(record.session_id, record.tokens),
                    "cost": self._watch.costs.get(record.session_id, record.cost),
                    "stuck": STUCK_WORDS[stuck(record, now, heard[record.session_id], living)] or None,
                },
            )
            for record in records
        ]

    def _doing(self, record: Record) -> str:
        if (word := self._watch.words.get(record.session_id)) is not None:
            return f"{word.fraction:.0%} {word.text}" if word.fraction is not None else word.text
        return next((str(step) for step, at in reversed([*zip(STEPS, record.step_times, strict=True)]) if at is not None), "queued")

    def picture(self, found: list[tuple[Record, dict[str, Any]]], height: int | None = None) -> RenderableType:
        """The trees, the reasons of those that are stuck, and the total; `height`: in so many lines."""
        if not found:
            return Text("Nothing is queued or running; waiting.", style="dim")
        why = {record.session_id: now["stuck"] for record, now in found if now["stuck"]}
        notes = [Text(f"! {count(number, 'delegation')}: {words}", style=ALARM) for words, number in Counter(why.values()).items()]
        roots = forest([record for record, _ in found])
        shown = roots if height is None else roots[: max(1, (height - len(notes)) // 2)]
        view = View(now=time.time(), words=self._watch.words, rows=None if height is None else height // len(shown), stuck=why)
        more = f"; {len(roots) - len(shown)} more trees do not fit" if len(shown) < len(roots) else ""
        total = Text(f"{count(len(found), 'delegation')} queued or running{more}", style="dim")
        return Group(*(draw(root, view) for root in shown), *notes, total)


def status(
    project: Project,
    once: Annotated[bool, Option("--once", help="Print once and exit, as when stdout is not a terminal.")] = False,
) -> Exit:
    """Watch everything that is queued or running, in every process of the project. Ctrl-C exits."""
    with project.history() as store:
        if store is None:
            return project.answer({"active": 0, "delegations": []}, NOTHING_YET)
        live = LiveDelegations(store, project)
        if not project.as_json and not once and console().is_terminal:
            _watch(store, live)
            return Exit.OK
        found = live.read()
    shown = (lambda: console().print(live.picture(found))) if found else "Nothing is queued or running. `remit history` lists the past."
    return project.answer(lambda: {"active": len(found), "delegations": [record_document(record) | now for record, now in found]}, shown)


def _watch(store: Store, delegations: LiveDelegations) -> None:
    """Redraw on every write by any process, and every half second; the last picture stays."""
    stamp: int | None = None
    drawn_at = 0.0
    with contextlib.suppress(KeyboardInterrupt), Live(console=console(), auto_refresh=False, screen=False) as live:  # the usual way to exit
        while True:
            seen = store.change_stamp()
            if seen != stamp or time.monotonic() - drawn_at > REDRAW_SECONDS:
                stamp, drawn_at = seen, time.monotonic()
                live.update(delegations.picture(delegations.read(), console().height - 5), refresh=True)
            time.sleep(LOOK_SECONDS)


# ---- history


def history(
    project: Project,
    agent: Annotated[str | None, Option(help="Only this agent's.")] = None,
    status: Annotated[
        str | None, Option(help="completed, failed, blocked, refused, timeout, cancelled, …; partial: also timeout and cancelled.")
    ] = None,
    tree: Annotated[str | None, Option(metavar="SESSION", help="Only the tree of this delegation.")] = None,
    since: Annotated[str | None, Option(help="30m, 2h, 1d ago, or an ISO time.")] = None,
    until: Annotated[str | None, Option(help="Like --since.")] = None,
    task: Annotated[int | None, Option(metavar="N", help="Only those of task N.")] = None,
    every: Annotated[bool, Option("--all", help="Also children; implied by --agent, --status, --tree and --task.")] = False,
    principal: Annotated[str | None, Option(metavar="NAME", help="Only those of this caller of the server, e.g. token:ci.")] = None,
    limit: Annotated[int, Option(min=1, max=100_000, help="At most this many.")] = 20,
) -> Exit:
    """List delegations, newest first: the roots, or all of them."""
    now = time.time()
    query = HistoryQuery(
        agent=agent,
        states=_states(status),
        task_number=task,
        principal=principal,
        since=parse_time(since, "--since", now),
        until=parse_time(until, "--until", now),
        roots_only=not every and all(asked is None for asked in (agent, status, tree, task)),
        limit=limit,
    )
    records: list[Record] = []
    gone: set[str] = set()
    with project.history() as store:
        if store is not None:
            records = store.history(replace(query, root_id=find_session(store, tree).root_id if tree else None))
            gone = lost_sessions(records, store, project.root)
    empty = NOTHING_YET if store is None else "No delegation matches."
    return project.answer(
        lambda: {"delegations": [record_document(r) | {"stuck": GONE if r.session_id in gone else None} for r in records]},
        (lambda: _print_history(records, gone, now, limit)) if records else empty,
    )


def _states(status: str | None) -> tuple[State, ...]:
    """The states of a status. `partial` includes timeouts and cancellations, which return partial results but have their own states."""
    if status is None:
        return ()
    try:
        state = State(status)
    except ValueError:
        raise Misused(f"Unknown status {status!r}.", advice=f"Use {', '.join(State)}.") from None
    return (State.PARTIAL, State.TIMEOUT, State.CANCELLED) if state is State.PARTIAL else (state,)


def _print_history(records: list[Record], gone: Collection[str], now: float, limit: int) -> None:
    rows = []
    for record in records:
        mark, style = MARKS[record.state]
        is_gone = record.session_id in gone
        rows.append(
            {
                "session": record.session_id,
                "agent": Text("  " * (record.depth - 1) + one_line(record.agent)),
                "status": Text("! gone", style=ALARM) if is_gone else Text(f"{mark} {record.state}", style=style),
                "when": when(record.created_at, now),
                "took": duration((record.settled_at or now) - record.started_at) if record.started_at and not is_gone else "-",
                "summary": GONE.partition(":")[0] if is_gone else "" if record.result is None else gist_of(record.result),
            }
        )
    say_table(rows, shrinking=("summary",))
    if gone:
        say_aside(f"! {count(len(gone), 'delegation')}: {GONE}")
    if len(records) == limit:
        say_aside(f"The newest {limit}; --limit shows more.")


# ---- follow


def follow(project: Project, session: Session) -> Exit:
    """Follow a delegation until its return; the exit code is that of `remit delegate`."""
    with project.store() as store:
        record = find_session(store, session)
        events = _events(store, project, record)
        return _follow_as_json(store, record, events) if project.as_json else _follow(store, record, events, project)


def _events(store: Store, project: Project, asked: Record) -> Iterator[tuple[Event, str]]:
    """Events with their agent, past ones first, until the delegation is settled or its process is gone."""
    watch = Watch(store)
    stamp: int | None = None
    checked_at = 0.0
    while True:
        # Check the process before reading the record: a return written just before its end is still seen.
        known = store.get(asked.session_id) if time.monotonic() > checked_at + OWNER_SECONDS else None
        is_gone = known is not None and bool(lost_sessions([known], store, project.root))
        if known is not None:
            checked_at = time.monotonic()
        if (seen := store.change_stamp()) != stamp or is_gone:
            stamp = seen
            # Read the records before the events: a delegation that is settled by then emits no more.
            records = below(store.tree(asked.root_id), asked.session_id)
            agents = {record.session_id: record.agent for record in records}
            yield from ((event, agents[event.session_id]) for event in watch.look(records))
            if is_gone or (records and records[0].state.is_settled):
                return
        time.sleep(LOOK_SECONDS)


def _follow(store: Store, asked: Record, events: Iterator[tuple[Event, str]], project: Project) -> Exit:
    for event, agent in events:
        text = event_text(event)
        if not text or event.kind is EventKind.STEP:
            continue
        label = f"{moment(event.at)[11:]}.{int(event.at * 1000) % 1000:03} {agent} {short(event.session_id)} {event.kind:<9}"
        fraction = event.body.get("fraction")
        put(("" if fraction is None else f"{fraction:4.0%} ") + one_line(text, 300), label, label_style="cyan")
    record = store.get(asked.session_id) or asked
    if record.result is not None:
        print_return(record.result, project.root)
    elif not record.state.is_settled:
        say_aside(f"{record.agent} {record.session_id} is not settled, but {GONE}")
    return _exit(record)


def _exit(record: Record) -> Exit:
    if record.result is not None:
        return exit_of_return(record.result)
    return exit_of_state(record.state) if record.state.is_settled else Exit.PARTIAL


def _follow_as_json(store: Store, asked: Record, events: Iterator[tuple[Event, str]]) -> Exit:
    """Write one document incrementally, one event per line, so that a reader can start before the end."""
    say_json_line(f'{{"session_id": {json_text(asked.session_id)}, "events": [')
    comma, interrupted = "", False
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


# ---- cancel, recover


def cancel(
    project: Project,
    session: Session,
    reason: Annotated[str, Option(help="Recorded, and shown in the return.")] = "",
) -> Exit:
    """Stop a delegation and everything below it."""
    with project.store() as store:
        record = find_session(store, session)
    if record.state.is_settled:
        nodes = [{"session_id": record.session_id, "agent": record.agent, "state": f"already {record.state}"}]
        return _cancelled(project, nodes, record.session_id)
    return asyncio.run(_cancel(project, record.session_id, reason))


async def _cancel(project: Project, session_id: str, reason: str) -> Exit:
    async with project.open(approver=None) as remit:
        record = await remit.describe(session_id)
        resumed: list[str] = []
        if await asyncio.to_thread(lost_sessions, [record], remit.store, project.root):  # it must be taken over before it can be cancelled
            resumed = (await remit.recover()).resumed
        code = _cancelled(project, await remit.cancel(session_id, reason), session_id)
        await wait_for_resumed(remit, [one for one in resumed if one != session_id], as_json=project.as_json)
        return code


def _cancelled(project: Project, nodes: list[dict[str, str]], session_id: str) -> Exit:
    is_unfinished = any(node["state"] == "stopping" for node in nodes)
    lines = [f"{node['session_id']}  {node['agent']}  {node['state']}" for node in nodes]
    lines += ["Not everything has ended yet: look again with `remit status`."] if is_unfinished else []
    code = Exit.PARTIAL if is_unfinished else Exit.OK
    return project.answer({"session_id": session_id, "nodes": nodes}, "\n".join(lines), code)


def recover(project: Project) -> Exit:
    """Resume or settle the work of processes that died, and wait for resumed work. Ctrl-C stops it."""
    if not project.has_record:
        return project.answer({"dead_processes": [], "settled": [], "resumed": [], "killed_processes": 0}, NOTHING_YET)
    return asyncio.run(_recover(project))


async def _recover(project: Project) -> Exit:
    async with project.open(recover=True) as remit:
        found = remit.recovered
        lines = [f"{count(len(found.owners), 'dead process')} found; {count(found.killed, 'process')} they left behind killed."]
        for label, sessions in (("settled", found.settled), ("resumed", found.resumed)):
            records = [await remit.describe(one) for one in sessions]
            lines += [
                f"{label}  {one.session_id}  {one.agent}  {one.state}  {one_line(gist_of(one.result), 160) if one.result else ''}"
                for one in records
            ]
        if not project.as_json:
            say("Nothing to recover: no dead process left work behind." if found.is_empty else "\n".join(lines))
        returns = await wait_for_resumed(remit, found.resumed, as_json=project.as_json)
        if project.as_json:
            ended = {name: [record_document(await remit.describe(one)) for one in getattr(found, name)] for name in ("settled", "resumed")}
            say_json({"dead_processes": found.owners, **ended, "killed_processes": found.killed})
        return Exit.OK if all(result.ok for result in returns) else Exit.PARTIAL


# ---- validate


def validate(
    project: Project,
    file: Annotated[str, Argument(metavar="FILE", help="The return, as JSON or text that contains it; - reads stdin.")],
    session: Annotated[str | None, Option(metavar="ID", help="The session id that the return must have.")] = None,
) -> Exit:
    """Check a return against the return format: exit 0 or 1, one fault per line."""
    from remit.runtime.validate import check_return

    try:
        checked = check_return(read_input(file), session, project.root)
    except InvalidReturn as invalid:
        return project.answer({"valid": False, "faults": list(invalid.faults)}, "\n".join(invalid.faults), Exit.FAILED)
    for warning in checked.warnings if not project.as_json else ():
        say_aside(f"warning: {warning}")
    document = {"valid": True, "faults": [], "warnings": list(checked.warnings), "return": checked.to_dict()}
    return project.answer(document, f"valid: {checked.status}")
