"""The measured agents. Worker processes import this module too, so it has no side effects."""

import asyncio
import os
import signal
import time
from pathlib import Path

from remit import BlockingContext, Context, agent


@agent("noop")
async def noop() -> None:
    return None


@agent("level_one")
async def level_one(ctx: Context) -> None:
    await ctx.delegate("level_two")


@agent("level_two")
async def level_two(ctx: Context) -> None:
    await ctx.delegate("noop")


@agent("sleeper")
async def sleeper() -> None:
    await asyncio.sleep(3600)


@agent("noop_in_process", isolation="process")
def noop_in_process() -> None:
    return None


# ---- agents that do not end (process isolation)


@agent("spins", isolation="process")
def spins() -> None:
    while True:
        pass


@agent("sleeps", isolation="process")
def sleeps() -> None:
    time.sleep(3600)


@agent("swallows_cancellation", isolation="process")
async def swallows_cancellation() -> None:
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


@agent("ignores_sigterm", isolation="process")
def ignores_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(0.05)


@agent("raises_when_stopped", isolation="process")
def raises_when_stopped() -> None:
    try:
        time.sleep(3600)
    finally:
        raise RuntimeError("not now")


@agent("daemonises", isolation="process")
def daemonises() -> None:
    leave_a_daemon()
    time.sleep(3600)


@agent("shouts", isolation="process")
def shouts() -> None:
    """Writes 100 MB of output, then falls silent."""
    block = "x" * (1024 * 1024)
    for _ in range(100):
        print(block)
    time.sleep(3600)


@agent("never_stops_talking", isolation="process")
def never_stops_talking(ctx: BlockingContext) -> None:
    while True:
        ctx.emit("and another thing")


@agent("forks_many", isolation="process")
def forks_many() -> None:
    for _ in range(30):
        if os.fork() == 0:
            time.sleep(3600)
    time.sleep(3600)


def leave_a_daemon() -> int:
    """Start a daemon outside session, group and parents that ignores SIGTERM; returns its pid."""
    there, here = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(here, _pid())
            time.sleep(3600)
        os._exit(0)
    os.wait()
    return int(os.read(there, _PID_BYTES))


def _pid() -> bytes:
    return b"%16d" % os.getpid()


HOSTILE = (
    spins,
    sleeps,
    swallows_cancellation,
    ignores_sigterm,
    raises_when_stopped,
    daemonises,
    shouts,
    never_stops_talking,
    forks_many,
)


# ---- agents with a process tree


@agent("grows_tree", isolation="process")
def grows_tree(ctx: BlockingContext, processes: int, is_deaf: bool) -> None:
    """Starts `processes` descendants in chains of five; emits their pids when all of them run."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN if is_deaf else signal.SIG_DFL)
    arrived, arriving = os.pipe()
    for first in range(0, processes, _CHAIN):
        if os.fork() == 0:
            _grow_chain(min(_CHAIN, processes - first), arriving)
    ctx.emit([int(os.read(arrived, _PID_BYTES)) for _ in range(processes)])
    time.sleep(3600)


_CHAIN = 5
_PID_BYTES = 16


def _grow_chain(length: int, arriving: int) -> None:
    os.write(arriving, _pid())
    while length > 1 and os.fork() == 0:
        length -= 1
        os.write(arriving, _pid())
    time.sleep(3600)
    os._exit(0)


@agent("is_aborted", isolation="process")
def is_aborted(ctx: BlockingContext, program: str) -> None:
    """Leaves a daemon and a program without any of our environment behind, then waits to be aborted."""
    daemon = leave_a_daemon()
    if os.fork() == 0:
        os.setsid()
        os.execve("/bin/sleep", ["sleep", program], {})
    ctx.emit(daemon)
    time.sleep(3600)


# ---- agents that write until they are stopped


@agent("writes_inline")
async def writes_inline(ctx: Context, folder: str, log: str) -> None:
    with Writing(ctx.root / folder, log) as writing:
        while True:
            writing.write_file()
            ctx.emit(writing.chunk())
            writing.note("chunk")
            await ctx.checkpoint(writing.number)
            writing.note("checkpoint")
            await asyncio.sleep(_PAUSE_SECONDS)


@agent("writes_on_thread")
def writes_on_thread(ctx: BlockingContext, folder: str, log: str) -> None:
    _write_blocking(ctx, folder, log)


@agent("writes_in_process", isolation="process")
def writes_in_process(ctx: BlockingContext, folder: str, log: str) -> None:
    _write_blocking(ctx, folder, log)


WRITERS = (writes_inline, writes_on_thread, writes_in_process)
_PAUSE_SECONDS = 0.002


def _write_blocking(ctx: BlockingContext, folder: str, log: str) -> None:
    with Writing(ctx.root / folder, log) as writing:
        while True:
            writing.write_file()
            ctx.emit(writing.chunk())
            writing.note("chunk")
            ctx.checkpoint(writing.number)
            writing.note("checkpoint")
            time.sleep(_PAUSE_SECONDS)


class Writing:
    """Writes files, chunks and checkpoints, and records each in a log outside the project as soon as it is written."""

    def __init__(self, folder: Path, log: str) -> None:
        self.number = 0
        self._folder = folder
        self._folder.mkdir()
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __enter__(self) -> "Writing":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._log)

    def write_file(self) -> None:
        self.number += 1
        (self._folder / f"{self.number}.txt").write_text(f"page {self.number}\n" * 20)
        self.note("file")

    def chunk(self) -> dict[str, object]:
        return {"number": self.number, "text": "so far " * 40}

    def note(self, kind: str) -> None:
        os.write(self._log, f"{kind} {self.number}\n".encode())
