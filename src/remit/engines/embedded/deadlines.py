"""Deadlines and the watchdog: schedules checks of delegations, and stops agents that block the event loop."""

import asyncio
import dis
import heapq
import logging
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import Context
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pydantic

from remit.runtime.deps import CURRENT

if TYPE_CHECKING:
    from remit.engines.embedded.delegation_run import DelegationRun


log = logging.getLogger("remit.engine")

Entry = list[Any]
"""[moment, number, delegation or None]: a list, so that it can be emptied in place."""


class Deadlines:
    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self._loop = loop
        self._context = context
        self._heap: list[Entry] = []
        self._count = 0
        self._settled = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    def push(self, at: float, timed: "DelegationRun") -> Entry:
        self._count += 1
        entry: Entry = [at, self._count, timed]
        heapq.heappush(self._heap, entry)
        if at < self._timer_at:
            self._arm(at)
        return entry

    def forget(self, entry: Entry) -> None:
        """Cancel an entry, unless it is over."""
        if entry[2] is None:
            return
        entry[2] = None
        self._settled += 1
        if self._settled > 256 and self._settled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2] is not None]
            heapq.heapify(self._heap)
            self._settled = 0

    def earliest_end(self) -> float | None:
        """The first hard deadline; called by the watchdog from its own thread while the loop is blocked."""
        # Each entry is read once: the loop may empty it between two reads.
        return min((timed.ends_at for entry in list(self._heap) if (timed := entry[2]) is not None), default=None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._heap.clear()

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._fire, context=self._context)

    def _fire(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        now = self._loop.time() + 0.0005  # the loop's timers may fire a clock tick early
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            timed: DelegationRun | None = entry[2]
            if timed is None:
                self._settled -= 1
                continue
            entry[2] = None
            try:
                timed.look(now)
            except Exception:  # one failure must not affect other deadlines
                log.exception("A deadline could not be kept")
        if self._heap and self._heap[0][0] < self._timer_at:
            self._arm(self._heap[0][0])


class RunTimer:
    """The next check of a delegation, its signs of life, and its soft deadline."""

    hand_in = False
    """Whether its soft deadline has passed."""
    last_heard = 0.0
    _soft: asyncio.Event | None = None

    def __init__(self, deadlines: Deadlines, at: float, run: "DelegationRun") -> None:
        """Schedules a check of `run` at this time."""
        self._deadlines = deadlines
        self._entry = deadlines.push(at, run)

    def schedule(self, at: float, run: "DelegationRun") -> None:
        """Schedule a check of `run` at this time and cancel the earlier one."""
        self._deadlines.forget(self._entry)
        self._entry = self._deadlines.push(at, run)

    def cancel(self) -> None:
        self._deadlines.forget(self._entry)

    def release_waiters(self) -> None:
        """Called at its soft deadline or when it is stopped."""
        if self._soft is not None:
            self._soft.set()

    async def wait_hand_in(self) -> None:
        if not self.hand_in:
            if self._soft is None:
                self._soft = asyncio.Event()
            await self._soft.wait()


LOOK_SECONDS = 0.05
LEAST_SECONDS = 0.25
"""A shorter turn is not a block, even after a deadline."""
_OURS = str(Path(__file__).parents[2])
_AGENT_CODE = (str(Path(_OURS) / "testing"), str(Path(_OURS) / "builtin"))
_HANDED_TO_AGENTS = ("agents/function.py", "core/jsonable.py", "runtime/perform.py", "runtime/receive.py", "runtime/validate.py")
"""Modules in which remit calls agents' code or reads agents' values without changing its own state: these may be interrupted."""
_ASYNCIO = str(Path(asyncio.__file__).parent)
_LIBRARIES = (sysconfig.get_path("stdlib"), str(Path(pydantic.__file__).parent), "<")
"""Library code, which belongs to its caller. `<`: frozen or generated code."""
_SIGNAL = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2


RESEND_SECONDS = 1.0
"""An unhandled signal is sent again after this long."""


class BlockedLoop(BaseException):
    """Raised in an agent that blocks the event loop beyond the limit. Like a cancellation, it must not be caught."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message


class Watchdog:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deadlines: Deadlines,
        block_limit_seconds: float,
        living: "Callable[[], Mapping[str, DelegationRun]]",
    ) -> None:
        self._loop = loop
        self._deadlines = deadlines
        self._limit = block_limit_seconds
        self._living = living
        self._beat_at = time.monotonic()
        self.is_awake = False
        """True while delegations run; otherwise the watchdog sleeps."""
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._closed = False
        self._turn: tuple[float, int] = (0.0, 0)
        self._turn_since = time.monotonic()
        self.words = ""
        """How the loop was blocked last."""
        self._thread: threading.Thread | None = None
        self._loop_thread = threading.get_ident()
        self._has_signal = False
        self.messages: dict[str, str] = {}
        """How delegations that were stopped from another thread blocked the loop: such an exception carries no message."""
        self.signalled_at = 0.0
        """When a signal was sent that the loop's thread has not handled yet; 0: none."""

    def wake(self) -> None:
        """Called when an agent starts."""
        self.is_awake = True
        self._beat_at = time.monotonic()
        self._loop.call_later(LOOK_SECONDS, self._beat)
        if self._thread is None:
            self._begin()
        self._wanted.set()

    def close(self) -> None:
        self._closed = True
        self._wanted.set()
        self._closing.set()
        if self._thread is not None:
            self._thread.join(0.5)  # it ends at once
        handler = signal.getsignal(_SIGNAL)
        if self._has_signal and isinstance(handler, _SignalHandler):  # the handler stays: a late signal would end the program
            self._has_signal = False
            handler.watchdogs.remove(self)

    def _begin(self) -> None:
        self._has_signal = self._loop_thread == threading.main_thread().ident and _listen(self)
        self._thread = threading.Thread(target=self._watch, name="remit-watchdog", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        if self._living() and not self._closed:
            self._loop.call_later(LOOK_SECONDS, self._beat)
        else:
            self.is_awake = False
            self._wanted.clear()

    def _watch(self) -> None:
        """Runs on its own thread; sleeps while no agent runs."""
        while not self._closed:
            self._wanted.wait()
            self._closing.wait(LOOK_SECONDS)
            blocked = self._turn_seconds()
            if blocked < LEAST_SECONDS or not self.is_awake or self._closed:
                continue
            earliest = self._deadlines.earliest_end()
            if blocked > self._limit or (earliest is not None and time.monotonic() > earliest + 0.1):
                self.words = f"blocked the event loop for {blocked:.1f} s"
                self._stop_agent()

    def _turn_seconds(self) -> float:
        """How long the current task has had the loop, without the time of earlier tasks."""
        turn = (self._beat_at, id(asyncio.current_task(self._loop)))
        now = time.monotonic()
        if turn != self._turn:
            self._turn, self._turn_since = turn, now
        return now - self._turn_since

    def _stop_agent(self) -> None:
        if self._has_signal:
            now = time.monotonic()
            if now - self.signalled_at >= RESEND_SECONDS:  # signals queue: on a busy machine they would pile up in their handler
                self.signalled_at = now
                signal.pthread_kill(self._loop_thread, _SIGNAL)
            return
        # The loop is not on the main thread. It cannot run while this thread has the interpreter.
        import ctypes  # before the frame is looked at: an import lets the other thread run

        frame = sys._current_frames().get(self._loop_thread)
        task = asyncio.current_task(self._loop)
        running = next((one for one in list(self._living().values()) if one.task is task), None)
        if frame is None or task is None or running is None or _frame_of_agent(frame) is not frame:
            return
        if dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("JUMP_BACKWARD"):  # only there it receives an exception at once
            self.messages[running.delegation.session_id] = self._message(running, frame)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._loop_thread), ctypes.py_object(BlockedLoop))

    def _message(self, running: "DelegationRun", frame: FrameType) -> str:
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"
        advice = 'Declare it with isolation="process", or make it a sync function to give it a thread.'
        return f"{running.delegation.agent} {self.words} at {place} and was stopped. {advice}"

    def interrupt(self, frame: FrameType | None) -> None:
        """Called on the loop's thread, inside the code that blocks it."""
        self.signalled_at = 0.0
        current = CURRENT.get()
        running = None if current is None else self._living().get(current.delegation.session_id)
        if running is not None and running is current and (standing := _frame_of_agent(frame)) is not None:
            raise BlockedLoop(self._message(running, standing))


class _SignalHandler:
    """Installed once for all watchdogs whose loops run on the main thread."""

    def __init__(self) -> None:
        self.watchdogs: list[Watchdog] = []

    def __call__(self, _signal: int, frame: FrameType | None) -> None:
        for watchdog in tuple(self.watchdogs):  # an exception raised in an agent may close one
            watchdog.interrupt(frame)


def _listen(watchdog: Watchdog) -> bool:
    handler = signal.getsignal(_SIGNAL)
    if handler == signal.SIG_DFL:
        handler = _SignalHandler()
        signal.signal(_SIGNAL, handler)
    if not isinstance(handler, _SignalHandler):
        return False  # the program uses the signal itself
    handler.watchdogs.append(watchdog)
    return True


def _frame_of_agent(frame: FrameType | None) -> FrameType | None:
    """The frame of the agent if its code blocks; None in remit's own code or the loop's, where nothing may be raised."""
    is_import = False
    while frame is not None:
        name = frame.f_code.co_filename
        is_import = is_import or frame.f_code.co_name == "<module>" or name.startswith("<frozen importlib")
        if name.startswith(_AGENT_CODE):
            return frame
        if name.startswith(_OURS):
            return frame if name.endswith(_HANDED_TO_AGENTS) and not is_import else None
        if name.startswith(_ASYNCIO):
            return None
        if not name.startswith(_LIBRARIES) or "site-packages" in name.removeprefix(_LIBRARIES[1]):
            return frame
        frame = frame.f_back
    return None


# ---- tasks that cannot be stopped

_ABANDONED = "remit-abandoned"


def let_go(task: "asyncio.Task[None]") -> None:
    """Hide the task from `asyncio.run`, which would wait for it for ever at the end of a program."""
    asyncio._unregister_task(task)  # documented for extensions of asyncio
    task.set_name(f"{_ABANDONED} {task.get_name()}")
    logging.getLogger("asyncio").addFilter(_is_news)  # adding it twice has no effect


def _is_news(record: logging.LogRecord) -> bool:
    """False if it was already reported that an abandoned agent never ended."""
    return _ABANDONED not in record.getMessage()
