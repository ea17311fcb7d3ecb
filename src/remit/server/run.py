"""`remit serve` from start to end: opens the project, starts the APIs, and at the end finishes or hands over everything.

On a signal it accepts no new work; running work may finish for a while; what can be resumed is left to the next server, and the rest is
stopped with its results so far.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from remit.app import Remit
from remit.runtime.telemetry.logs import log_lifecycle, set_up_logs
from remit.server.apis import Apis, bound_apis
from remit.server.discovery import announce, withdraw


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    root: str
    doors: Mapping[str, str]
    """Addresses by API."""
    token_file: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    handed_over: int
    ended: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Listener(Protocol):
    """Hears how the server is doing."""

    def opened(self, opened: Opened) -> None: ...
    def reloaded(self, problems: list[str]) -> None: ...
    def stopping(self, running: int, seconds: float) -> None: ...
    def stopped(self, stopped: Stopped) -> None: ...


class Signals:
    """Signals that this process received."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.at_once = asyncio.Event()
        self.reload = asyncio.Event()

    def tell_stop(self) -> None:
        (self.at_once if self.stop.is_set() else self.stop).set()


async def serve(root: Path, settings: Mapping[str, Any], listener: Listener) -> None:
    """Until a signal."""
    remit = Remit.open(root, settings=settings)
    with bound_apis(remit.settings.serve, remit.root) as places, _signals() as told, _logging(remit.settings.signals.logs):
        async with _opened(remit, told) as is_open:
            if not is_open:
                listener.stopped(Stopped(handed_over=0, ended=0))
                return
            log_lifecycle(remit.engine)
            async with Apis(remit, places) as doors:
                run_folder = remit.folder / "run"
                announce(run_folder, grpc=doors.grpc_address, http=doors.http_address, token_file=str(doors.token_file))
                try:
                    listener.opened(Opened(root=str(remit.root), doors=doors.addresses(), token_file=str(doors.token_file)))
                    await _until_stopped(remit, doors, told, listener)
                    listener.stopping(len(remit.engine.running), remit.settings.serve.stop_seconds)
                    await _finished(remit, doors, told)
                finally:
                    withdraw(run_folder)
            left = len([one for one in remit.engine.running.values() if one.parent is None])
            handed_over = await remit.close(hand_over=True)
            listener.stopped(Stopped(handed_over=len(handed_over), ended=max(0, left - len(handed_over))))


@contextlib.asynccontextmanager
async def _opened(remit: Remit, told: Signals) -> AsyncIterator[bool]:
    """False: stopped before it was open. Recovery after a crash may take a while; it is left to the next server then."""
    opening, stop = asyncio.ensure_future(remit.__aenter__()), asyncio.ensure_future(told.stop.wait())
    try:
        await asyncio.wait({opening, stop}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
        if not opening.done():
            opening.cancel()
            await asyncio.wait([opening])
    if opening.cancelled():
        yield False
        return
    await opening
    try:
        yield True
    finally:
        await remit.close(hand_over=True)  # also if an API cannot start: resumed work is not ended by it


async def _until_stopped(remit: Remit, doors: Apis, told: Signals, listener: Listener) -> None:
    while not told.stop.is_set():
        await _first_of(told.stop, told.reload)
        if told.reload.is_set() and not told.stop.is_set():
            told.reload.clear()
            problems = [*await remit.reload(), *doors.reload()]
            listener.reloaded(problems)


async def _finished(remit: Remit, doors: Apis, told: Signals) -> None:
    """Refuses new work; running work may finish and be followed."""
    doors.stop_taking()
    waiting = asyncio.ensure_future(doors.service.finish())
    at_once = asyncio.ensure_future(told.at_once.wait())
    try:
        await asyncio.wait({waiting, at_once}, timeout=remit.settings.serve.stop_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        at_once.cancel()


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


@contextlib.contextmanager
def _logging(style: str) -> Iterator[None]:
    undo = set_up_logs(style)
    try:
        yield
    finally:
        undo()


@contextlib.contextmanager
def _signals() -> Iterator[Signals]:
    loop, told = asyncio.get_running_loop(), Signals()
    heard = {signal.SIGINT: told.tell_stop, signal.SIGTERM: told.tell_stop, signal.SIGHUP: told.reload.set}
    for number, tell in heard.items():
        loop.add_signal_handler(number, tell)
    try:
        yield told
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
