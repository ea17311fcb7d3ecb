"""Run one piece of code (`run`), or one program (`run_program`), in the sandbox. Leaves nothing behind, however it ends.

Inside bubblewrap, or with the keeper only if bubblewrap does not work. Code always has a keeper, which sets Landlock, seccomp and limits.
Used by `coder.execute_code` and for acceptance commands."""

import asyncio
import contextlib
import fnmatch
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from remit.core.errors import Misused, Unavailable
from remit.system.processes import MARK, descendants, kill_tree_async, process_start
from remit.system.sandbox import recipes
from remit.system.sandbox.boxes import Box, Job, alone, in_bubblewrap, keeper_orders, message
from remit.system.sandbox.cgroup import make_group
from remit.system.sandbox.keeper import STOP_OUTPUT, measure_folders, measure_process, measure_proportionally, shared_memory
from remit.system.sandbox.probe import Offer
from remit.system.sandbox.recipes import FLOOD, LIMIT_NAMES, Limits, is_plain
from remit.system.threads import finish_despite_cancel, off_loop

LINE_BYTES = 64 << 10
_PART_BYTES = 1 << 18
END_SECONDS = 3.0
WATCH_SECONDS = 0.25
"""Interval of resource checks."""


class Child:
    """A process that is started at once and awaited.

    Not asyncio's own: cancelled during the start, that kills bubblewrap while its child waits for it for ever."""

    def __init__(self, box: Box, *, stdin: int, stdout: int, stderr: int, report: tuple[int, ...] = ()) -> None:
        self._mark = box.environment.get(MARK)
        self._process = subprocess.Popen(
            box.argv, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=(*report, *box.passed), env=dict(box.environment),
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

    async def end(self) -> None:
        """When this returns nothing of it lives: it gets some time to end by itself, then is killed with all descendants."""
        await self._wait_shortly()
        if self._process.poll() is None:
            await kill_tree_async(self._process.pid, term_grace=0, limit=END_SECONDS)
            await self._wait_shortly()
        if self._mark and (self._process.returncode or 0) < 0:  # it was killed, and could not end the others
            await kill_tree_async(None, marker=self._mark, term_grace=0, limit=END_SECONDS)

    async def kill(self, grace: float) -> None:
        """Kill it, its descendants and everything with its mark, including background processes."""
        started = process_start(self._process.pid) if self._process.poll() is None else None
        await kill_tree_async(self._process.pid if started else None, started=started, marker=self._mark, term_grace=grace)
        await self._wait_shortly()

    async def wait_or_exceed(self, limits: Limits | None) -> str:
        """Wait for its end, or until its processes exceed a limit together: the name of that, else empty."""
        ending = asyncio.ensure_future(self.wait())
        try:
            while not (await asyncio.wait({ending}, timeout=WATCH_SECONDS if limits else None))[0]:
                if limits and (passed := await off_loop(_passed_limit, self._process.pid, limits)):
                    return passed
        finally:
            ending.cancel()
        return ""

    async def _wait_shortly(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self.wait()


def _passed_limit(pid: int, limits: Limits) -> str:
    processes = descendants(pid)
    seen = [measure_process(one) for one in processes]
    if sum(threads for *_, threads in seen) > limits.processes:
        return "processes"
    # Shared memory is counted once for each: check in detail.
    mapped = sum(shared_memory(processes).values()) + measure_folders([], processes)[0]  # files without a name are in memory, too
    if sum(held for held, *_ in seen) + mapped > limits.memory_bytes < sum(map(measure_proportionally, processes)) + mapped:
        return "memory"
    return ""


# ---- one run

LATE_SECONDS = 30.0
"""The keeper ends the code in time and returns its files; otherwise everything is killed from outside this much later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftFile:
    """A file that the code left in its work folder."""

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    exit_code: int | None = None
    """None if a signal ended it."""
    signal: int | None
    milliseconds: int
    killed_by: str
    """The limit that it was killed for; empty if it ended by itself."""
    hits: tuple[str, ...] = ()
    """Limits that it hit and survived."""
    peak_bytes: int = 0
    """Peak memory, as observed."""
    files: tuple[LeftFile, ...] = ()
    """Returned files."""
    left_there: int = 0
    """Number of files not returned: not requested, too many or too large, unreadable, or with an unusable name."""
    is_cut: bool = False
    """Whether output was dropped."""


Hear = Callable[[str, bytes], None]
"""Receives the output of the code: `stdout` or `stderr`, and the bytes."""


async def run(job: Job, offer: Offer, *, hear: Hear, out: Path) -> RunResult:
    """The files that it left are in `out` afterwards. Raises `Unavailable` if no sandbox could be created."""
    script, program = recipes.script_and_program(job.language, job.code, job.limits)
    files = [*((name, content) for name, content in job.files.items()), (script, job.code.encode("utf-8", "surrogatepass"))]
    _check(files, job)
    async with contextlib.AsyncExitStack() as stack:
        box = in_bubblewrap(job, offer) if offer.has_bubblewrap else await stack.enter_async_context(alone(job, offer))
        orders = box.orders | {
            "files": files,
            "script": script,
            "argv": [*program, f"{box.orders['workspace']}/{script}"] if program else None,
            "network": job.network,
            "stdin": job.stdin,
            "outputs": "" if job.outputs is None else "|".join(fnmatch.translate(one.removeprefix("./")) for one in job.outputs) or "(?!)",
            "environment": dict(box.environment),
            "uid": box.uid,
            **keeper_orders(offer, job.limits),
        }
        group = make_group(job.limits.memory_bytes + job.limits.disk_bytes)  # its files are in memory as well
        if group is None:
            return await _run_box(job, box, orders, hear, out)
        stack.callback(group.remove)
        orders["group"] = group.open()
        stack.callback(os.close, orders["group"])
        ran = await _run_box(job, replace(box, passed=(*box.passed, orders["group"])), orders, hear, out)
        if group.was_exceeded():
            return replace(ran, killed_by=ran.killed_by or "memory" if ran.exit_code is None else "", hits=(*ran.hits, "memory"))
        return ran


def _check(files: list[tuple[str, bytes]], job: Job) -> None:
    names = [name for name, _ in files]
    for name in names:
        above = {str(folder) for folder in PurePosixPath(name).parents}
        if not is_plain(name) or not above.isdisjoint(names) or names.count(name) > 1:
            advice = f"Name files below the work folder, other than {names[-1]}; a file cannot contain another."
            raise Misused(f"{name!r} cannot be taken in.", advice=advice)
    if sum(len(content) for _, content in files) > job.limits.disk_bytes:
        raise Misused("The files to take in are larger than the disk of the sandbox.", advice="Take in less, or give it a larger disk.")


async def _run_box(job: Job, box: Box, orders: dict[str, Any], hear: Hear, out: Path) -> RunResult:
    async with contextlib.AsyncExitStack() as stack:
        control, stdin = await stack.enter_async_context(_keeper_input())
        ends, readers = zip(*[await stack.enter_async_context(_output_pipe(box.uid)) for _ in range(3)], strict=True)
        stdout, stderr, report = (end.fileno() for end in ends)
        orders["report"] = report
        try:
            child = Child(box, stdin=stdin.fileno(), stdout=stdout, stderr=stderr, report=(report,))
        except OSError as error:
            raise Unavailable(
                f"The sandbox could not be started: {error.strerror or error}.", code="TOOL_UNAVAILABLE", advice="Ask `remit doctor`."
            ) from None
        stack.push_async_callback(_ended, child, control)
        for end in (stdin, *ends):
            end.close()
        tally = _Tally(job.limits.output_bytes, hear, control)
        pumps = [asyncio.create_task(tally.pump(name, reader)) for name, reader in zip(("stdout", "stderr"), readers, strict=False)]
        try:
            ended = await _converse_in_time(job, control, message(orders), readers[2], out)
            await _ended(child, control)
            await asyncio.wait(pumps, timeout=END_SECONDS)
            return replace(ended, is_cut=tally.is_cut)
        except Unavailable as error:
            await _ended(child, control)
            await asyncio.wait(pumps, timeout=END_SECONDS)
            raise Unavailable(f"{error.message} {tally.last_words()}".rstrip(), code=error.code, advice=error.advice) from None
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)


# ---- the report of the keeper. Nothing that comes out is believed unchecked.
#
# S                                  the code is about to run
# X WORDS                            it is not: a layer of the sandbox could not be set up
# E CODE SIGNAL MS KILLED HITS PEAK  it has ended
# F SIZE NAME, then the bytes        a file it left (the name in hexadecimal)
# . COUNT                            the end: how many other files it left


class _KeeperLost(Exception):
    """The keeper ended before the code did, or its report is malformed."""


async def _converse_in_time(job: Job, control: asyncio.StreamWriter, orders: bytes, reports: asyncio.StreamReader, out: Path) -> RunResult:
    """From the start of the code to its last file."""
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(job.limits.seconds + LATE_SECONDS):
            control.write(orders)
            with contextlib.suppress(ConnectionError):
                await control.drain()
            if (line := await _line(reports)) == "S":
                line = await _line(reports)
            elif not line.startswith("X "):
                line = "X it did not start"
            if line.startswith("X "):
                why = f"The sandbox could not be closed, so the code was not run: {line[2:]}."
                raise Unavailable(why, code="TOOL_UNAVAILABLE", advice="Ask `remit doctor` what is missing.")
            return await _take_files(_read_ending(line), reports, out, job.limits.disk_bytes)
    except (TimeoutError, _KeeperLost) as error:
        took = asyncio.get_running_loop().time() - began
        # Killed from outside, by a person or the kernel; the reason is unknown.
        killed = "time" if isinstance(error, TimeoutError) or took >= job.limits.seconds else ""
        return RunResult(signal=signal.SIGKILL, milliseconds=int(took * 1000), killed_by=killed)


async def _line(reports: asyncio.StreamReader) -> str:
    try:
        return (await reports.readuntil(b"\n")).decode("ascii", "replace").rstrip("\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return ""


def _read_ending(line: str) -> RunResult:
    try:
        mark, code, ended_by, took, killed, hits, peak = line.split(" ")
        if mark != "E":
            raise ValueError(mark)
        return RunResult(
            exit_code=int(code) if int(code) >= 0 else None,
            signal=int(ended_by) or None,
            milliseconds=int(took),
            killed_by=killed if killed in LIMIT_NAMES else "",
            hits=tuple(hit for hit in hits.split(",") if hit in LIMIT_NAMES),
            peak_bytes=int(peak),
        )
    except ValueError:
        raise _KeeperLost from None


async def _take_files(ended: RunResult, reports: asyncio.StreamReader, out: Path, most_bytes: int) -> RunResult:
    brought, lost = list[LeftFile](), 0
    while (line := await _line(reports)).startswith("F "):
        size, name = _left(line)
        most_bytes -= size
        if most_bytes < 0:
            raise _KeeperLost
        if await _bring(reports, size, out / name if is_plain(name) else None):
            brought.append(LeftFile(name=name, size=size))
        else:
            lost += 1
    mark, _, count = line.partition(" ")
    if mark != "." or not count.isdigit():
        raise _KeeperLost
    return replace(ended, files=tuple(brought), left_there=int(count) + lost)


def _left(line: str) -> tuple[int, str]:
    """Size and name of a file; the name may be unusable."""
    try:
        _, size, encoded = line.split(" ")
        name = bytes.fromhex(encoded).decode("utf-8", "surrogateescape")
    except ValueError:
        raise _KeeperLost from None
    if not size.isdigit():
        raise _KeeperLost
    return int(size), name


async def _bring(reports: asyncio.StreamReader, size: int, target: Path | None) -> bool:
    """Whether it is written now. Data that cannot be written (a full disk) is read nevertheless: other files follow."""
    is_kept = target is not None and await off_loop(_append, target, b"")
    while size:
        part = await reports.read(min(size, _PART_BYTES))
        if not part:
            raise _KeeperLost
        size -= len(part)
        is_kept = is_kept and target is not None and await off_loop(_append, target, part)
    return is_kept


def _append(target: Path, data: bytes) -> bool:
    """Whether it was written; otherwise nothing of it is left. No data: a new file, in place of one of an interrupted run."""
    try:
        if not data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
        with target.open("ab" if data else "xb") as file:
            file.write(data)
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
    async with _keeper_input() as (control, stdin):
        child = Child(box, stdin=stdin.fileno() if box.orders else subprocess.DEVNULL, stdout=output, stderr=output)
        stdin.close()
        try:
            if box.orders:
                control.write(message(box.orders))
            async with asyncio.timeout(seconds):
                killed_by = await child.wait_or_exceed(limits)
        except TimeoutError:
            killed_by, grace = "time", grace_seconds
        finally:
            control.transport.abort()
            await finish_despite_cancel(child.end() if box.orders else child.kill(grace))
    return ProgramEnd(exit_code=None if killed_by else child.returncode, killed_by=killed_by)


@contextlib.asynccontextmanager
async def _keeper_input() -> AsyncIterator[tuple[asyncio.StreamWriter, socket.socket]]:
    """What the keeper reads on its standard input: our end, and its own, which is closed here once it has it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        _, control = await asyncio.open_connection(sock=ours)
        try:
            yield control, theirs
        finally:
            control.transport.abort()


async def _ended(child: Child, control: asyncio.StreamWriter) -> None:
    """When this returns nothing of it lives. End of file makes the keeper end everything, and its own death ends its namespace. The death
    of bubblewrap does not if this process is root: without rights it cannot signal the keeper's new user."""
    control.transport.abort()
    await finish_despite_cancel(child.end())


class _Tally:
    """Output: passed on up to the limit, then only counted, and stopped if it does not end."""

    def __init__(self, limit: int, hear: Hear, control: asyncio.StreamWriter) -> None:
        self._limit = limit
        self._hear = hear
        self._control = control
        self._written = 0
        self._is_told = False
        self._last = b""

    @property
    def is_cut(self) -> bool:
        return self._written > self._limit

    def last_words(self) -> str:
        return " ".join(self._last.decode("utf-8", "replace").split())[-300:]

    async def pump(self, stream: str, reader: asyncio.StreamReader) -> None:
        while part := await reader.read(LINE_BYTES):
            room = self._limit - self._written
            self._written += len(part)
            if room > 0:
                self._hear(stream, part[:room])
            if stream == "stderr":
                self._last = (self._last + part)[-2000:]
            if self._written > self._limit * FLOOD and not self._is_told:
                self._is_told = True
                if not self._control.is_closing():
                    self._control.write(STOP_OUTPUT)


@contextlib.asynccontextmanager
async def _output_pipe(uid: int) -> AsyncIterator[tuple[IO[bytes], asyncio.StreamReader]]:
    """The end for the process, which is closed here once it has it, and a reader of what it writes."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb", buffering=0) as ours, os.fdopen(write_end, "wb", buffering=0) as theirs:
        if uid:
            os.fchown(write_end, uid, uid)  # /dev/stdout can also be opened by name
        reader = asyncio.StreamReader(limit=LINE_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), ours)
        try:
            yield theirs, reader
        finally:
            transport.close()
