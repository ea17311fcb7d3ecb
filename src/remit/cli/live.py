"""Showing a delegation while this process runs it: a live tree on a terminal, plain lines elsewhere, nothing with `--json`.

Progress goes to stderr, so that the answer on stdout stands alone. Ctrl-C cancels the delegation and waits for its return; a second
one ends the program. Used by `delegate`, `recover` and `demo`.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from rich.console import Group, RenderableType
from rich.live import Live

from remit.app import Remit
from remit.cli.output import error_console, say_aside
from remit.cli.tree import View, draw, forest
from remit.cli.watch import Watch, below, told
from remit.cli.words import duration, one_line, short
from remit.core.errors import RemitError
from remit.core.events import Event, EventKind
from remit.core.record import Record
from remit.core.result import Return
from remit.flow.context import Handle

REFRESH_SECONDS = 0.1


class Show(Protocol):
    def __enter__(self) -> "Show": ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
    def show(self, records: list[Record], watch: Watch, events: list[Event]) -> None: ...


def best_show(*, as_json: bool) -> Show:
    if as_json:
        return Silence()
    return LiveTree() if error_console().is_terminal else Lines()


class Silence:
    def __enter__(self) -> "Silence":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    def show(self, records: list[Record], watch: Watch, events: list[Event]) -> None:
        return None


class Lines(Silence):
    """A line for each thing said and for each start and end."""

    def __init__(self) -> None:
        self._began = time.time()
        self._told: dict[str, set[str]] = {}

    def show(self, records: list[Record], watch: Watch, events: list[Event]) -> None:
        agents = {record.session_id: record.agent for record in records}
        lines = [line for record in records for line in self._changes(record)]
        lines += [(e.at, 1, agents[e.session_id], e.session_id, told(e)) for e in events if e.kind is not EventKind.STEP]
        for at, _, agent, session_id, text in sorted(lines):
            say_aside(f"{max(0.0, at - self._began):7.2f} s  {agent} ({short(session_id)}): {one_line(text, 160)}")

    def _changes(self, record: Record) -> Iterator[tuple[float, int, str, str, str]]:
        """Start and end, each told once; of lines of one moment the start comes first, the end last."""
        known = self._told.setdefault(record.session_id, set())
        if record.started_at is not None and "start" not in known:
            known.add("start")
            yield record.started_at, 0, record.agent, record.session_id, "running"
        if record.state.is_settled and "end" not in known:
            known.add("end")
            yield record.settled_at or record.created_at, 2, record.agent, record.session_id, f"{record.state}. {_gist(record)}"


def _gist(record: Record) -> str:
    if record.result is None:
        return ""
    return record.result.errors[0].message if record.result.errors else record.result.summary


class LiveTree:
    """The tree, redrawn in place; gone when it ends, for the answer to take its place."""

    def __init__(self) -> None:
        self._live = Live(console=error_console(), refresh_per_second=1 / REFRESH_SECONDS, transient=True, auto_refresh=False)

    def __enter__(self) -> "LiveTree":
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, records: list[Record], watch: Watch, events: list[Event]) -> None:
        roots = forest(records)
        rows = max(6, error_console().height - 2) // max(1, len(roots))
        trees: list[RenderableType] = [draw(root, View(now=time.time(), words=watch.words, rows=rows, is_moving=True)) for root in roots]
        self._live.update(Group(*trees), refresh=True)


@dataclass(frozen=True, slots=True)
class Outcome:
    result: Return
    was_interrupted: bool


async def carried_out(remit: Remit, handle: Handle, show: Show) -> Outcome:
    """Wait for a delegation's return, showing how it goes."""
    interrupted = asyncio.Event()
    waiting = asyncio.ensure_future(handle.result())
    watch = Watch(remit.store)
    with _on_interrupt(interrupted.set), show:
        cancelling: asyncio.Task[object] | None = None
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=REFRESH_SECONDS)
            await _refresh(remit, handle.session_id, watch, show)
            if interrupted.is_set() and cancelling is None:
                cancelling = asyncio.create_task(remit.cancel(handle.session_id, "interrupted at the terminal"))
        result = await waiting
        await _refresh(remit, result.session_id, watch, show)
        if cancelling is not None:
            await asyncio.wait({cancelling}, timeout=5)
    return Outcome(result, interrupted.is_set())


async def _refresh(remit: Remit, session_id: str, watch: Watch, show: Show) -> None:
    def look() -> tuple[list[Record], list[Event]]:
        record = remit.store.get(session_id)
        records = below(remit.store.tree(record.root_id), session_id) if record is not None else []
        return records, watch.look(records)

    with contextlib.suppress(RemitError):  # what is shown may miss a beat; the return itself never comes this way
        records, events = await asyncio.to_thread(look)
        show.show(records, watch, events)


@contextlib.contextmanager
def _on_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C (or SIGTERM) calls `act`; from then on they have their usual force again."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def first() -> None:
        act()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, first)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


async def wait_for_resumed(remit: Remit, *, as_json: bool) -> list[Return]:
    """What opening the project brought back to life runs in this process: it is not left before that has ended."""
    resumed = remit.recovered.resumed
    if resumed and not as_json:
        say_aside(f"Resumed after a crash, and waited for: {', '.join(resumed)}")
    returns = []
    for session_id in resumed:
        record = await remit.describe(session_id)
        left = max(0.0, record.deadline_at - time.time())
        result = await remit.result(session_id, wait_seconds=left + 2.0)
        if result is not None:
            returns.append(result)
            if not as_json:
                say_aside(f"{session_id} ({record.agent}): {result.status} after {duration(result.metadata.duration_seconds)}")
    return returns
