"""The watchdog: notices an agent that blocks the event loop, names it and the line it stands on, and stops it as far as Python allows.

A thread looks whether the loop still turns. If not, and the loop runs on the main thread, it sends that thread a signal: the handler
runs *inside* the blocking code, even in `time.sleep`, so it knows exactly whose code stands there. Nothing is ever raised in remit's
own code or in the loop's. On any other thread Python offers no such way: it is reported, and only a process can be stopped for sure.
"""

import asyncio
import contextvars
import logging
import signal
import sys
import sysconfig
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pydantic

from remit.engine.deadlines import Deadlines

if TYPE_CHECKING:
    from remit.engine.running import Running

LOOK_SECONDS = 0.05
REPORT_SECONDS = 0.25
_OURS = str(Path(__file__).parent.parent)
_AGENT_CODE = (str(Path(_OURS) / "testing"), str(Path(_OURS) / "agents" / "builtin"))
_HANDED_TO_AGENTS = ("agents/function.py", "flow/plain.py", "flow/perform.py", "flow/receive.py", "flow/validate.py")
"""Where remit calls agents' code or reads agents' values, and changes nothing of its own meanwhile: may be interrupted."""
_ASYNCIO = str(Path(asyncio.__file__).parent)
_LIBRARIES = (sysconfig.get_path("stdlib"), str(Path(pydantic.__file__).parent), "<")
"""Code that does what its caller asks: whose it is depends on who called it. `<`: what is frozen or made at run time."""
_SIGNAL = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2

log = logging.getLogger("remit.watchdog")


class BlockedLoop(BaseException):
    """Raised inside an agent that blocks the event loop past a limit. Like a cancellation, not to be caught."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Watchdog:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deadlines: Deadlines,
        block_limit_seconds: float,
        current: "contextvars.ContextVar[Running | None]",
    ) -> None:
        self._loop = loop
        self._deadlines = deadlines
        self._limit = block_limit_seconds
        self._current = current
        self._alive = 0
        self._beat_at = time.monotonic()
        self._beating = False
        self._wanted = threading.Event()
        self._closed = False
        self._reported_beat = 0.0
        self._stopping: str | None = None
        self._thread: threading.Thread | None = None
        self._loop_thread = threading.get_ident()
        self._previous: Any = None
        self._has_signal = False

    def started(self) -> None:
        """An agent began to run."""
        self._alive += 1
        if not self._beating:
            self._beating = True
            self._beat_at = time.monotonic()
            self._loop.call_later(LOOK_SECONDS, self._beat)
            if self._thread is None:
                self._begin()
            self._wanted.set()

    def ended(self) -> None:
        self._alive -= 1

    def close(self) -> None:
        self._closed = True
        self._wanted.set()
        if self._has_signal:
            self._has_signal = False
            signal.signal(_SIGNAL, self._previous)

    def _begin(self) -> None:
        if self._loop_thread == threading.main_thread().ident and signal.getsignal(_SIGNAL) == signal.SIG_DFL:
            self._previous = signal.signal(_SIGNAL, self._on_signal)
            self._has_signal = True
        self._thread = threading.Thread(target=self._watch, name="remit-watchdog", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        if self._alive > 0 and not self._closed:
            self._loop.call_later(LOOK_SECONDS, self._beat)
        else:
            self._beating = False
            self._wanted.clear()

    def _watch(self) -> None:
        """On its own thread: sleeps while no agent runs."""
        while not self._closed:
            self._wanted.wait()
            time.sleep(LOOK_SECONDS)
            beat_at = self._beat_at
            blocked = time.monotonic() - beat_at - LOOK_SECONDS
            if blocked < REPORT_SECONDS or not self._beating or self._closed:
                continue
            earliest = self._deadlines.earliest_end()
            overdue = earliest is not None and time.monotonic() > earliest + 0.1
            must_stop = blocked > self._limit or overdue
            if self._reported_beat != beat_at or must_stop:
                self._look_inside(blocked, must_stop)
                self._reported_beat = beat_at

    def _look_inside(self, blocked: float, must_stop: bool) -> None:
        if self._has_signal:
            self._stopping = f"blocked the event loop for {blocked:.1f} s" if must_stop else None
            signal.pthread_kill(self._loop_thread, _SIGNAL)
            return
        frame = sys._current_frames().get(self._loop_thread)
        task = asyncio.current_task(self._loop)
        if frame is not None and task is not None:
            log.warning("The event loop has stood still for %.1f s at %s (task %s).", blocked, _place(frame), task.get_name())

    def _on_signal(self, _signal: int, frame: FrameType | None) -> None:
        """On the loop's thread, inside whatever blocks it."""
        running = self._current.get()
        standing = _frame_of_agent(frame)
        if running is None or standing is None:
            return
        agent, place = running.delegation.agent, _place(standing)
        advice = 'Declare it with isolation="process", or make it a sync function to give it a thread.'
        if self._stopping is None:
            log.warning("%s (%s) blocks the event loop at %s. %s", agent, running.delegation.session_id, place, advice)
            self._loop.call_soon_threadsafe(running.notice, f"{agent} blocks the event loop at {place}. {advice}")
            return
        message = f"{agent} {self._stopping} at {place} and was stopped. {advice}"
        self._stopping = None
        raise BlockedLoop(message)


def _place(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"


def _frame_of_agent(frame: FrameType | None) -> FrameType | None:
    """Where the agent stands, if it is its code that blocks; None in remit's own code or the loop's: nothing may be raised in those."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_AGENT_CODE):
            return frame
        if name.startswith(_OURS):
            return frame if name.endswith(_HANDED_TO_AGENTS) else None
        if name.startswith(_ASYNCIO):
            return None
        if not name.startswith(_LIBRARIES) or "site-packages" in name.removeprefix(_LIBRARIES[1]):
            return frame
        frame = frame.f_back
    return None
