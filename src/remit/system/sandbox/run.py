"""Run one piece of code (`run`), or one program (`run_program`), in the sandbox. Leaves nothing behind, however it ends.

Inside bubblewrap, or confined by the launcher only if bubblewrap does not work; its limits are monitored from here. Used by
`coder.execute_code` and for acceptance commands."""

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.core.errors import Unavailable
from remit.system.processes import MARK, kill_tree_async, process_start
from remit.system.sandbox.boxes import Box, CodeBox, Job, code_box, is_plain
from remit.system.sandbox.launcher import STARTED
from remit.system.sandbox.probe import Offer
from remit.system.sandbox.recipes import FLOOD, Limits
from remit.system.sandbox.usage import UsageMonitor
from remit.system.threads import off_loop

END_SECONDS = 3.0
START_SECONDS = 30.0
WATCH_SECONDS = 0.25
"""Interval of resource checks of a program."""
TICK_SECONDS = 0.05
"""The same for code."""
MOST_LISTED = 10_000
DEEPEST = 32
_READ_BYTES = 64 << 10


class Child:
    """A process that is started at once and awaited.

    Not asyncio's own: cancelled during the start, that kills bubblewrap while its child waits for it for ever."""

    def __init__(self, box: Box, *, stdin: int, stdout: int, stderr: int) -> None:
        self._control = box.control
        self._mark = box.environment.get(MARK)
        self._process = subprocess.Popen(
            box.argv, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=box.passed, env=dict(box.environment),
            cwd=box.folder, start_new_session=True,
        )  # fmt: skip

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> None:
        process = self._process
        if process.poll() is not None:
            return
        handle = os.pidfd_open(process.pid)
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            loop.add_reader(handle, ended.set)
            await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        process.wait()

    async def end(self, grace: float = 0.0) -> None:
        """When this returns nothing of it lives: neither its descendants nor anything with its mark."""
        if self._control is not None:
            self._control.close()
            await self._wait_shortly()
        code = self._process.poll()
        started = process_start(self._process.pid) if code is None else None
        if started or (self._mark and (self._control is None or (code or 0) < 0)):  # otherwise the others have ended with it
            await kill_tree_async(self._process.pid if started else None, started=started, marker=self._mark, term_grace=grace)
        await self._wait_shortly()

    async def wait_or_exceed(self, monitor: UsageMonitor | None, interval: float, stop: asyncio.Event | None = None) -> str:
        """Wait for its end, or until its processes exceed a limit together: the name of that, else empty. `stop`: too much output."""
        ending = asyncio.ensure_future(self.wait())
        stopping = asyncio.ensure_future(stop.wait()) if stop else None
        try:
            while not ending.done():
                await asyncio.wait(
                    [one for one in (ending, stopping) if one], timeout=interval if monitor else None, return_when=asyncio.FIRST_COMPLETED
                )
                if ending.done():
                    break
                if stopping is not None and stopping.done():
                    return "output"
                if monitor is not None and (limit := await off_loop(monitor.exceeded)):
                    return limit
        finally:
            ending.cancel()
            if stopping is not None:
                stopping.cancel()
        return ""

    @property
    def pid(self) -> int:
        return self._process.pid

    async def _wait_shortly(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self.wait()


async def finish_despite_cancel(work: Coroutine[Any, Any, None]) -> None:
    """Run it to its end even if the caller is cancelled; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


# ---- one run


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftFile:
    """A file that the code left in its work folder."""

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitReport:
    exit_code: int | None
    """None if a signal ended it."""
    signal: int | None
    milliseconds: int
    killed_by: str
    """The limit that it was killed for; empty if it ended by itself."""
    hits: tuple[str, ...]
    """Limits that it hit and survived."""
    peak_bytes: int
    """Peak memory, as observed."""
    files: tuple[LeftFile, ...] = ()
    """Returned files."""
    left_there: int = 0
    """Number of files not returned: not requested, unreadable, or with an unusable name."""


Choose = Callable[[Sequence[LeftFile]], Sequence[int]]
Hear = Callable[[str, bytes], None]
"""Receives the output of the code: `stdout` or `stderr`, and the bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    ended: ExitReport
    is_cut: bool
    """Whether output was dropped."""


async def run(job: Job, offer: Offer, *, hear: Hear, choose: Choose, out: Path) -> RunResult:
    """The files that `choose` selects are in `out` afterwards. Raises `Unavailable` if no sandbox could be created."""
    tally = _Tally(job.limits.output_bytes, hear)
    async with contextlib.AsyncExitStack() as stack:
        report = stack.enter_context(_Pipe(0))
        made = await stack.enter_async_context(code_box(job, offer, report.write_end))
        pipes = {name: stack.enter_context(_Pipe(made.uid)) for name in ("stdout", "stderr")}
        try:
            child = Child(made.box, stdin=made.stdin, **{name: pipe.write_end for name, pipe in pipes.items()})
        except OSError as error:
            raise _unavailable(f"The sandbox could not be started: {error.strerror or error}.") from None
        pumps = []
        try:
            reported = await stack.enter_async_context(report.reading())
            for name, pipe in pipes.items():
                pumps.append(asyncio.create_task(tally.pump(name, await stack.enter_async_context(pipe.reading()))))
            status = await _monitored(child, made, job, reported, tally)
        finally:
            await finish_despite_cancel(_ended(child, pumps))
        if isinstance(status, bytes):
            reason = f" {status.decode(errors='replace').strip()}." if status else ""
            raise _unavailable(f"The sandbox could not be started, so the code was not run.{reason} {tally.last_words()}".rstrip())
        files, left_there = await off_loop(_bring_files, made, choose, out)
        return RunResult(ended=_report(child.returncode, *status, made, files, left_there), is_cut=tally.is_cut)


def _unavailable(message: str) -> Unavailable:
    return Unavailable(message, code="TOOL_UNAVAILABLE", advice="Ask `remit doctor` what is missing.")


async def _ended(child: Child, pumps: list[asyncio.Task[None]]) -> None:
    await child.end()
    if pumps:
        await asyncio.wait(pumps, timeout=END_SECONDS)
    for pump in pumps:
        pump.cancel()


async def _monitored(
    child: Child, made: CodeBox, job: Job, reported: asyncio.StreamReader, tally: "_Tally"
) -> bytes | tuple[str, float, UsageMonitor]:
    """The limit that it was stopped for, its duration, and its usage; or why it did not start."""
    async with asyncio.timeout(START_SECONDS):
        words = await reported.readline()
    if words != STARTED:
        return words
    monitor = UsageMonitor(child.pid, job.limits, made.folders)
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(job.limits.seconds):
            killed_by = await child.wait_or_exceed(monitor, TICK_SECONDS, tally.flooded)
    except TimeoutError:
        killed_by = "time"
    return killed_by, loop.time() - began, monitor


def _report(
    code: int | None, killed_by: str, seconds: float, monitor: UsageMonitor, made: CodeBox, files: tuple[LeftFile, ...], left_there: int
) -> ExitReport:
    """`code`: bubblewrap and the launcher report a signal by 128 and its number."""
    number = -code if code is not None and code < 0 else (code or 0) - 128
    by_signal = signal.SIGKILL if killed_by else number if number in {*signal.Signals} else None
    hits = {*monitor.hits}
    if made.group is not None and made.group.was_exceeded():
        hits.add("memory")
        killed_by = killed_by or ("memory" if by_signal else "")
    return ExitReport(
        exit_code=None if by_signal else code,
        signal=by_signal,
        milliseconds=int(seconds * 1000),
        killed_by=killed_by,
        hits=tuple(sorted(hits)),
        peak_bytes=monitor.peak_bytes,
        files=files,
        left_there=left_there,
    )


# ---- files it left


def _bring_files(made: CodeBox, choose: Choose, out: Path) -> tuple[tuple[LeftFile, ...], int]:
    """Copy the chosen files. No process is left that could change them. Returns them, and the number of the others."""
    listed, is_cut = _left_files(made)
    found = [left for left in listed if is_plain(left.name)]
    brought = tuple(found[index] for index in choose(found) if _copy(made.workspace / found[index].name, out / found[index].name))
    return brought, len(listed) - len(brought) + is_cut


def _left_files(made: CodeBox) -> tuple[list[LeftFile], bool]:
    """New or changed regular files, by name; and whether there are more than are listed."""
    found: list[LeftFile] = []
    seen = 0
    for folder, below, names in os.walk(made.workspace):
        inside = os.path.relpath(folder, made.workspace)
        below[:] = sorted(name for name in below if not name.startswith("__pycache__")) if inside.count("/") < DEEPEST else []
        for entry in sorted(names):
            seen += 1
            if seen > MOST_LISTED:
                return sorted(found, key=lambda left: left.name), True
            name = entry if inside == "." else f"{inside}/{entry}"
            try:
                about = os.lstat(os.path.join(folder, entry))
            except OSError:
                continue
            if stat.S_ISREG(about.st_mode) and made.given.get(name, 0) not in (about.st_ctime_ns, -1):
                found.append(LeftFile(name=name, size=about.st_size))
    return sorted(found, key=lambda left: left.name), False


def _copy(path: Path, target: Path) -> bool:
    """Whether it was written; otherwise nothing of it is left. A file that the code has closed to itself is opened."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # from an interrupted run
        if not os.access(path, os.R_OK):
            path.chmod(0o600)
        shutil.copyfile(path, target, follow_symlinks=False)
    except OSError:
        with contextlib.suppress(OSError):
            target.unlink()
        return False
    return True


# ---- one program


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEnd:
    exit_code: int | None
    """None: it was killed; `killed_by` names the limit."""
    killed_by: str = ""


async def run_program(
    box: Box, *, output: int, seconds: float, limits: Limits | None = None, grace_seconds: float = 0.0
) -> ProgramEnd:  # fmt: skip
    """Run the program of a box. `output`: an open file for its output. `limits`: None if only time is limited.

    Nothing of it is left when this returns. Raises `OSError` or `ValueError` if it cannot be started."""
    killed_by, grace = "", 0.0
    child = Child(box, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        async with asyncio.timeout(seconds):
            killed_by = await child.wait_or_exceed(UsageMonitor(child.pid, limits) if limits else None, WATCH_SECONDS)
    except TimeoutError:
        killed_by, grace = "time", grace_seconds
    finally:
        await finish_despite_cancel(child.end(grace))
    return ProgramEnd(exit_code=None if killed_by else child.returncode, killed_by=killed_by)


class _Tally:
    """Output: passed on up to the limit, then only counted, and stopped if it does not end."""

    def __init__(self, limit: int, hear: Hear) -> None:
        self._limit = limit
        self._hear = hear
        self._written = 0
        self.flooded = asyncio.Event()
        self._last = b""

    @property
    def is_cut(self) -> bool:
        return self._written > self._limit

    def last_words(self) -> str:
        return " ".join(self._last.decode("utf-8", "replace").split())[-300:]

    async def pump(self, stream: str, reader: asyncio.StreamReader) -> None:
        while part := await reader.read(_READ_BYTES):
            room = self._limit - self._written
            self._written += len(part)
            if room > 0:
                self._hear(stream, part[:room])
            if stream == "stderr":
                self._last = (self._last + part)[-2000:]
            if self._written > self._limit * FLOOD:
                self.flooded.set()


class _Pipe:
    """A pipe from the process; its other end is closed here once the process has it."""

    def __init__(self, uid: int) -> None:
        self.read_end, self.write_end = os.pipe()
        if uid:
            os.fchown(self.write_end, uid, uid)  # /dev/stdout can also be opened by name
        self._open = {self.read_end, self.write_end}

    def __enter__(self) -> "_Pipe":
        return self

    def __exit__(self, *_: object) -> None:
        for number in list(self._open):
            self._close(number)

    def _close(self, number: int) -> None:
        if number in self._open:
            self._open.discard(number)
            os.close(number)

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[asyncio.StreamReader]:
        self._close(self.write_end)
        reader = asyncio.StreamReader(limit=_READ_BYTES)
        self._open.discard(self.read_end)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self.read_end, "rb", buffering=0)
        )
        try:
            yield reader
        finally:
            transport.close()
