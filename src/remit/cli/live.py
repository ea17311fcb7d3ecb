"""Showing a delegation while this process runs it: a live tree on a terminal, plain lines elsewhere, nothing with `--json`.

Progress goes to stderr, so that the answer on stdout stands alone. Ctrl-C cancels what is watched and waits for its return; a second
one ends the program. Used by `delegate`, `recover`, `cancel` and `demo`.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, TypeVar

from rich.console import Group, RenderableType
from rich.live import Live

from remit.app import Remit
from remit.cli.approving import standing_still
from remit.cli.output import error_console, say_aside
from remit.cli.telling import Teller
from remit.cli.tree import View, draw, forest, gist_of
from remit.cli.watch import Watch
from remit.cli.words import duration, one_line, short
from remit.core.errors import RemitError
from remit.core.events import Event, EventKind
from remit.core.record import Record
from remit.core.result import Return
from remit.core.states import State
from remit.engine.vitals import below

REFRESH_SECONDS = 0.1
PATIENCE_SECONDS = 2.0
"""A child that has run for so long is worth a line."""
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
T = TypeVar("T")


class Awaited(Protocol):
    """What is asked of a delegation that is waited for: a `Handle` is one."""

    @property
    def session_id(self) -> str: ...
    async def result(self) -> Return: ...


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
    """A line for each thing said, for start and end, and for children that take long or do not go well.

    Of a child that is quick and completes nothing is told: an agent may send dozens, and says itself what it does.
    """

    def __init__(self) -> None:
        self._began = self._last = time.time()
        self._teller = Teller()
        self._told: dict[str, set[str]] = {}

    def show(self, records: list[Record], watch: Watch, events: list[Event]) -> None:
        agents = {record.session_id: record.agent for record in records}
        lines = [line for record in records for line in self._changes(record)]
        heard = [(event, self._teller.tell(event)) for event in events if event.kind is not EventKind.STEP]
        lines += [(event.at, 1, agents[event.session_id], event.session_id, text) for event, text in heard if text]
        for at, _, agent, session_id, text in sorted(lines):
            self._last = max(self._last, at)  # a child that takes long is told of late
            say_aside(f"{self._last - self._began:7.2f} s  {agent} ({short(session_id)}): {one_line(text, 160)}")

    def _changes(self, record: Record) -> Iterator[tuple[float, int, str, str, str]]:
        """Start and end, each told once; of lines of one moment the start comes first, the end last."""
        known = self._told.setdefault(record.session_id, set())
        is_child = record.parent_id is not None
        if record.started_at is not None and "start" not in known and not (is_child and self._is_quick(record)):
            known.add("start")
            yield record.started_at, 0, record.agent, record.session_id, "running"
        if record.state.is_settled and "end" not in known:
            known.add("end")
            if is_child and record.state is State.COMPLETED and "start" not in known:
                return
            # Of the root the return follows on stdout: it is not told twice.
            words = f"{record.state}." if record.parent_id is None else f"{record.state}. {_gist(record)}"
            if record.parent_id is not None or record.state is not State.REFUSED:
                yield record.settled_at or record.created_at, 2, record.agent, record.session_id, words

    @staticmethod
    def _is_quick(record: Record) -> bool:
        return record.state.is_settled or time.time() - (record.started_at or record.created_at) < PATIENCE_SECONDS


def _gist(record: Record) -> str:
    return "" if record.result is None else gist_of(record.result)


class LiveTree:
    """The tree, redrawn in place; gone when it ends, for the answer to take its place."""

    def __init__(self) -> None:
        self._live = self._new()
        self._is_still = False
        self._registered = standing_still(self._pause, self._resume)

    @staticmethod
    def _new() -> Live:
        return Live(console=error_console(), refresh_per_second=1 / REFRESH_SECONDS, transient=True, auto_refresh=False)

    def __enter__(self) -> "LiveTree":
        self._live.__enter__()
        self._registered.__enter__()
        return self

    def _pause(self) -> None:
        """A question is asked: it has the terminal for itself."""
        self._is_still = True
        self._live.stop()

    def _resume(self) -> None:
        self._live = self._new()
        self._live.start()
        self._is_still = False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._registered.__exit__(kind, error, trace)
        self._live.__exit__(kind, error, trace)

    def show(self, records: list[Record], watch: Watch, events: list[Event]) -> None:
        if self._is_still:
            return
        roots = forest(records)
        rows = max(6, error_console().height - 2) // max(1, len(roots))
        trees: list[RenderableType] = [draw(root, View(now=time.time(), words=watch.words, rows=rows, is_moving=True)) for root in roots]
        self._live.update(Group(*trees), refresh=True)


@dataclass(frozen=True, slots=True)
class Outcome:
    result: Return
    was_interrupted: bool


async def carried_out(
    remit: Remit, handle: Awaited, show: Show, signals: Sequence[signal.Signals] = INTERRUPTS, stop: asyncio.Event | None = None
) -> Outcome:
    """Wait for a delegation's return, showing how it goes. The first of these signals cancels it; or `stop`, of who listens himself."""
    result, was_interrupted = await _watched(remit, lambda: [handle.session_id], handle.result(), show, signals=signals, stop=stop)
    return Outcome(result, was_interrupted)


async def _watched(
    remit: Remit,
    sessions: Callable[[], Sequence[str]],
    result: Awaitable[T],
    show: Show,
    note: str = "",
    signals: Sequence[signal.Signals] = INTERRUPTS,
    stop: asyncio.Event | None = None,
) -> tuple[T, bool]:
    """What `result` gives, showing the delegations meanwhile; whether it was interrupted. `note` is said when that happens."""
    interrupted = stop or asyncio.Event()
    waiting = asyncio.ensure_future(result)
    watch = Watch(remit.store)
    with on_interrupt(interrupted.set, () if stop else signals), show:
        cancelling: asyncio.Future[list[list[dict[str, Any]]]] | None = None
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=REFRESH_SECONDS)
            await _refresh(remit, sessions(), watch, show)
            if interrupted.is_set() and cancelling is None:
                if note:
                    say_aside(note)
                cancelling = asyncio.gather(*(remit.cancel(one, "interrupted at the terminal") for one in sessions()))
        await _refresh(remit, sessions(), watch, show)
        if cancelling is not None:
            await asyncio.wait({cancelling}, timeout=5)
    return await waiting, interrupted.is_set()


async def _refresh(remit: Remit, sessions: Sequence[str], watch: Watch, show: Show) -> None:
    def look() -> tuple[list[Record], list[Event]]:
        records = []
        for session_id in sessions:
            if (record := remit.store.get(session_id)) is not None:
                records += below(remit.store.tree(record.root_id), session_id)
        return records, watch.look(records)

    with contextlib.suppress(RemitError):  # what is shown may miss a beat; the return itself never comes this way
        records, events = await asyncio.to_thread(look)
        show.show(records, watch, events)


@contextlib.contextmanager
def on_interrupt(act: Callable[[], None], signals: Sequence[signal.Signals] = INTERRUPTS) -> Iterator[None]:
    """The first Ctrl-C (or SIGTERM) calls `act`; from then on they have their usual force again."""
    loop = asyncio.get_running_loop()

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


async def wait_for_resumed(remit: Remit, resumed: Sequence[str], *, as_json: bool) -> list[Return]:
    """What was brought back to life runs in this process: it is not left before that has ended, or Ctrl-C has ended it."""
    if not resumed:
        return []
    note = "Interrupted: what was resumed is stopped, and what it has done so far is kept. Again Ctrl-C leaves at once."
    results, was_interrupted = await _watched(remit, lambda: resumed, _results(remit, resumed), best_show(as_json=as_json), note)
    returns = [result for result in results if result is not None]
    for result in returns if not as_json else ():
        agent, took = result.metadata.agent_type, duration(result.metadata.duration_seconds)
        say_aside(f"{result.session_id} ({agent}): {result.status} after {took}. {one_line(gist_of(result), 160)}")
    if was_interrupted:
        raise KeyboardInterrupt
    return returns


async def _results(remit: Remit, sessions: Sequence[str]) -> list[Return | None]:
    async def result(session_id: str) -> Return | None:
        record = await remit.describe(session_id)
        return await remit.result(session_id, wait_seconds=max(0.0, record.deadline_at - time.time()) + 2.0)

    return await asyncio.gather(*(result(session_id) for session_id in sessions))
