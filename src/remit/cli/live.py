"""Progress of a running delegation: a live tree on a terminal (`tree`), plain lines elsewhere, nothing with `--json`.

Progress goes to stderr. Ctrl-C cancels the delegation and waits for its return; a second one ends the program."""

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from remit.cli.events import Show, Watch, event_text, gist_of
from remit.cli.render import count, duration, one_line, say_aside, short
from remit.core.errors import RemitError
from remit.core.events import Event, EventKind
from remit.core.ports import Store
from remit.core.record import Record
from remit.core.result import Return
from remit.core.states import State
from remit.system.liveness import Stuck, below, is_gone, living_owners
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.core.context import Handle

GONE = "its process is gone: remit recover"
STUCK_WORDS = {None: "", Stuck.GONE: GONE, Stuck.LATE: "past its deadline", Stuck.QUIET: "stuck?"}
REFRESH_SECONDS = 0.1
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
T = TypeVar("T")


class Lines(Show):
    """Prints a line for each event, and for children that do not complete."""

    def __init__(self) -> None:
        self._began = time.time()
        self._ended: set[str] = set()

    def show(self, records: list[Record], watch: Watch, events: list[Event]) -> None:
        agents = {record.session_id: record.agent for record in records}
        heard = [(event, event_text(event)) for event in events if event.kind is not EventKind.STEP]
        lines = [(event.at, agents[event.session_id], event.session_id, text) for event, text in heard if text]
        for record in records:
            if record.settled_at is not None and record.session_id not in self._ended and record.parent_id is not None:
                self._ended.add(record.session_id)
                if record.result is not None and record.state is not State.COMPLETED:
                    lines.append((record.settled_at, record.agent, record.session_id, f"{record.state}. {gist_of(record.result)}"))
        for at, agent, session_id, text in sorted(lines):
            say_aside(f"{max(0.0, at - self._began):7.2f} s  {agent} ({short(session_id)}): {one_line(text, 160)}")


def best_show(*, as_json: bool) -> Show:
    if as_json:
        return Show()
    if not sys.stderr.isatty():
        return Lines()
    from remit.cli.tree import LiveTree

    return LiveTree()


async def await_result(
    remit: "Remit",
    sessions: Callable[[], Sequence[str]],
    result: Awaitable[T],
    show: Show,
    *,
    note: str = "",
    signals: Sequence[signal.Signals] = INTERRUPTS,
    stop: asyncio.Event | None = None,
) -> tuple[T, bool]:
    """Wait for `result` and show the delegations. The first of `signals`, or `stop`, prints `note` and cancels them; also returns whether
    that happened."""
    interrupted = stop or asyncio.Event()
    waiting = asyncio.ensure_future(result)
    watch, is_silent = Watch(remit.store), type(show) is Show
    with on_interrupt(interrupted.set, signals), show:
        cancelling: asyncio.Future[list[list[dict[str, Any]]]] | None = None
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=REFRESH_SECONDS)
            if not is_silent:
                await _refresh(remit, sessions(), watch, show)
            if interrupted.is_set() and cancelling is None:
                if note:
                    say_aside(note)
                cancelling = asyncio.gather(*(remit.cancel(one, "interrupted at the terminal") for one in sessions()))
                # A second Ctrl-C ends the loop before this is awaited; asyncio would print its traceback.
                cancelling.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        if not is_silent:
            await _refresh(remit, sessions(), watch, show)
        if cancelling is not None:
            await asyncio.wait({cancelling}, timeout=5)
    return await waiting, interrupted.is_set()


async def _refresh(remit: "Remit", sessions: Sequence[str], watch: Watch, show: Show) -> None:
    def look() -> tuple[list[Record], list[Event]]:
        records = []
        for session_id in sessions:
            if (record := remit.store.get(session_id)) is not None:
                records += below(remit.store.tree(record.root_id), session_id)
        return records, watch.look(records)

    with contextlib.suppress(RemitError):  # the view may miss an update; the return does not depend on it
        records, events = await off_loop(look)
        show.show(records, watch, events)


@contextlib.contextmanager
def on_interrupt(act: Callable[[], None], signals: Sequence[signal.Signals] = INTERRUPTS) -> Iterator[None]:
    """The first Ctrl-C (or SIGTERM) calls `act`; later ones have their usual effect."""
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


async def wait_for_resumed(remit: "Remit", resumed: Sequence[str], *, as_json: bool) -> list[Return]:
    """Wait until resumed work in this process has ended or Ctrl-C has stopped it."""
    if not resumed:
        return []

    async def result(session_id: str) -> Return | None:
        record = await remit.describe(session_id)
        return await remit.result(session_id, wait_seconds=max(0.0, record.deadline_at - time.time()) + 2.0)

    note = "Interrupted: resumed work is stopped, and its results so far are kept. Ctrl-C again exits at once."
    waiting = asyncio.gather(*map(result, resumed))
    results, was_interrupted = await await_result(remit, lambda: resumed, waiting, best_show(as_json=as_json), note=note)
    returns = [one for one in results if one is not None]
    for one in returns if not as_json else ():
        agent, took = one.metadata.agent_type, duration(one.metadata.duration_seconds)
        say_aside(f"{one.session_id} ({agent}): {one.status} after {took}. {one_line(gist_of(one), 160)}")
    if was_interrupted:
        raise KeyboardInterrupt
    return returns


class LiveWait:
    """Shows the delegations of a command of the board in one view, and cancels them on Ctrl-C; passed as `waiting`.

    A delegation that starts after a Ctrl-C is cancelled at once, and recorded."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._interrupted = asyncio.Event()
        self._sessions: dict[str, None] = {}

    @property
    def was_interrupted(self) -> bool:
        return self._interrupted.is_set()

    async def __call__(self, remit: "Remit", handle: "Handle") -> "Return":
        self._sessions[handle.session_id] = None
        if self.was_interrupted:
            await remit.cancel(handle.session_id, "interrupted at the terminal")
        try:
            return await handle.result()
        finally:
            del self._sessions[handle.session_id]

    async def watch(self, remit: "Remit", work: Awaitable[T]) -> T:
        """Wait for `work`, which starts and ends delegations."""
        show = best_show(as_json=self._as_json)
        result, _ = await await_result(remit, lambda: list(self._sessions), work, show, stop=self._interrupted)
        return result


def lost_sessions(records: Sequence[Record], store: Store, root: Path) -> set[str]:
    """Session ids whose process is gone."""
    if all(record.state.is_settled for record in records):
        return set()
    living = living_owners(store, root / ".remit" / "run")
    return {record.session_id for record in records if is_gone(record, living)}


async def report_dead_work(remit: "Remit", key: str | None = None) -> list[str]:
    """Report once that work of dead processes is waiting. Resumes it only if it has this `key`; returns the resumed sessions."""
    store = remit.store
    live = await off_loop(store.live)
    gone = await off_loop(lost_sessions, live, store, remit.root) if live else set()
    if not gone:
        return []
    holder = None if key is None else await off_loop(store.by_key, key)
    if holder is not None and holder.session_id in gone:
        return (await remit.recover()).resumed
    tops = [record for record in live if record.session_id in gone and record.parent_id not in gone]
    say_aside(f"{count(len(tops), 'delegation')} of a process that ended {'is' if len(tops) == 1 else 'are'} waiting: `remit recover`")
    return []
