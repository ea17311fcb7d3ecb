"""Processes: identity, descendants, marks, and killing process trees.

Pids are reused: a process is identified by pid *and* start time. Independent of delegations and agents. Used by `agents.process` to stop
agents and by recovery to reap what a dead run left. For Linux: needs /proc."""

import contextlib
import os
import signal
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ctypes

FORK_SERVER = "fork_server"
"""Replaces the session in the mark of a fork server."""
MARK = "REMIT_MARK"
"""Environment variable that identifies remit's processes after they have left their session and their parents."""

KILL_LIMIT_SECONDS = 5.0
_PROC = Path("/proc")
_SCAN_STRIDE = 40
"""Processes checked between two pauses: under 2 ms."""
_BETWEEN_SCANS = 0.005


class Process(NamedTuple):
    """A process at one moment."""

    pid: int
    parent: int
    group: int
    started: str
    is_zombie: bool


@cache
def boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "boot"


def marker(project: str, owner_id: str, session_id: str = "") -> str:
    """The mark of one delegation's processes; without a session, the prefix of all marks of an owner."""
    return f"{project}:{owner_id}:{session_id}"


def look(pid: int) -> Process | None:
    """The current process `pid`, or None."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(2048)
    except OSError:
        return None
    # The name is in parentheses and may itself contain spaces and parentheses: everything after the last one is numbers.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    state = fields[0]
    return Process(
        pid=pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        started=f"{boot_id()}:{int(fields[19])}",
        is_zombie=state in (b"Z", b"X", b"x"),
    )


def process_start(pid: int) -> str | None:
    """Its start time in kernel ticks, with the boot id; None: no such process, or no /proc."""
    found = look(pid)
    return found.started if found else None


def pid_space() -> str:
    """This process's pid namespace: a pid of another one is meaningless here."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return "host"


def is_alive(pid: int, started: str | None) -> bool:
    """Whether the process with this start time still runs. A zombie does not."""
    found = look(pid)
    return found is not None and not found.is_zombie and (started is None or found.started == started)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process in files: by pid, start time, pid namespace and host, so that a reused pid is another process."""

    pid: int = field(default_factory=os.getpid)
    pid_started: str = field(default_factory=lambda: process_start(os.getpid()) or "")
    pid_space: str = field(default_factory=pid_space)
    host: str = field(default_factory=lambda: os.uname().nodename)

    @property
    def is_dead(self) -> bool:
        """Certainly dead: a process of another host or pid namespace cannot be checked from here."""
        return self.host == os.uname().nodename and self.pid_space == pid_space() and not is_alive(self.pid, self.pid_started or None)


def all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def children(pid: int) -> list[int]:
    """Direct children, from the kernel."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # the process ended while it was read
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb", buffering=0) as file:
                found += map(int, file.read().split())
    return found


def descendants(pid: int) -> list[int]:
    """Everything below `pid`, excluding itself. Re-parented processes are below their new parent."""
    return list(walk_below(pid))


def walk_below(pid: int) -> Iterator[int]:
    """`descendants`, each as soon as it is found, to act before it forks again."""
    known = {pid}
    queue = [pid]
    while queue:
        for child in children(queue.pop()):
            if child not in known:
                known.add(child)
                queue.append(child)
                yield child


def _below(roots: set[int], seen: Iterable[Process]) -> set[int]:
    """`roots` and everything below them, from one scan of all processes."""
    by_parent: dict[int, list[int]] = {}
    for process in seen:
        by_parent.setdefault(process.parent, []).append(process.pid)
    reached: set[int] = set()
    queue = list(roots)
    while queue:
        pid = queue.pop()
        if pid not in reached:
            reached.add(pid)
            queue += by_parent.get(pid, ())
    return reached


def mark_of(pid: int) -> str | None:
    """The mark in its environment, if any."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            environ = file.read(1 << 22)
    except OSError:
        return None
    for entry in environ.split(b"\0"):
        if entry.startswith(b"REMIT_MARK="):
            return entry[11:].decode(errors="replace").rstrip()
    return None


def marked(marker: str) -> list[int]:
    """Processes whose mark begins with `marker`, excluding this one."""
    return [pid for pid in all_pids() if pid != os.getpid() and (mark_of(pid) or "").startswith(marker)]


def send_signal(process: Process, number: int) -> bool:
    """Signal exactly this process: a reused pid is left alone. False: it is gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if process_start(process.pid) != process.started:
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def kill_tree(pid: int | None, *, marker: str | None = None, term_grace: float = 0.25, limit: float = KILL_LIMIT_SECONDS) -> bool:
    """Ask `pid`, everything below it and everything with `marker` to end; after the grace, kill until none is left.

    True if none is left, False if `limit` seconds were not enough."""
    steps = _killing(pid, None, marker, term_grace, limit)
    while True:
        try:
            time.sleep(next(steps))
        except StopIteration as end:
            return bool(end.value)


async def kill_tree_async(
    pid: int | None,
    *,
    started: str | None = None,
    marker: str | None = None,
    term_grace: float = 0.25,
    limit: float = KILL_LIMIT_SECONDS,
) -> bool:
    """`kill_tree` that blocks the loop for only a few milliseconds at a time. `started` guards against a reused pid."""
    import asyncio  # imported here, so that light processes need not load it

    steps = _killing(pid, started, marker, term_grace, limit)
    while True:
        try:
            await asyncio.sleep(next(steps))
        except StopIteration as end:
            return bool(end.value)


Steps = Generator[float, None, bool]
"""Yields the seconds to pause, returns whether all are gone: one procedure for the blocking and the async driver."""


def _killing(pid: int | None, started: str | None, marker: str | None, term_grace: float, limit: float) -> Steps:
    began = time.monotonic()
    root = look(pid) if pid else None
    if root is not None and started is not None and root.started != started:
        root = None  # the pid belongs to someone else now
    known: dict[int, Process] = {root.pid: root} if root else {}
    asked: set[tuple[int, str]] = set()
    looks_without_any = 0
    while True:
        alive = yield from _victims(known, marker)
        looks_without_any = 0 if alive else looks_without_any + 1
        if looks_without_any == 2:  # one scan can miss a process that forks and ends during it
            return True
        if not alive:
            yield 0.0
            continue
        spent = time.monotonic() - began
        if spent > limit:
            return False
        if spent < term_grace:
            fresh = [process for process in alive if (process.pid, process.started) not in asked]
            asked |= {(process.pid, process.started) for process in fresh}
            _signal_all(fresh, signal.SIGTERM, groups=())
            yield min(0.01, term_grace - spent)
        else:
            # A whole group first: a process that forks faster than the scan cannot escape that.
            _signal_all(alive, signal.SIGKILL, groups={process.group for process in alive} & known.keys())
            yield _BETWEEN_SCANS


def _victims(known: dict[int, Process], marker: str | None) -> Generator[float, None, list[Process]]:
    """Processes still to kill, from one scan. `known` remembers, as parents die before their children."""
    seen: dict[int, Process] = {}
    roots: set[int] = set()
    for count, pid in enumerate(all_pids()):
        if count % _SCAN_STRIDE == _SCAN_STRIDE - 1:
            yield 0.0
        process = look(pid)
        if process is None:
            continue
        seen[pid] = process
        if marker is not None and not process.is_zombie and (mark_of(pid) or "").startswith(marker):
            roots.add(pid)
    roots |= {pid for pid, was in known.items() if pid in seen and seen[pid].started == was.started}
    reached = {pid: seen[pid] for pid in _below(roots, seen.values()) - {os.getpid()}}
    known.update(reached)
    return [process for process in reached.values() if not process.is_zombie]


def _signal_all(processes: Iterable[Process], number: int, groups: Iterable[int]) -> None:
    ours = os.getpgrp()
    for group in groups:
        if group != ours:
            with contextlib.suppress(OSError):
                os.killpg(group, number)
    for process in processes:
        send_signal(process, number)


# ---- calls of the C library


MARK_LENGTH = 160
"""The mark is padded to this length: it is overwritten in place."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


@cache
def _libc() -> "ctypes.CDLL":
    import ctypes  # slow, and most commands of the board need none

    libc = ctypes.CDLL(None, use_errno=True)
    libc.getenv.argtypes = [ctypes.c_char_p]
    libc.getenv.restype = ctypes.c_void_p
    return libc


def _prctl(option: int, value: int) -> bool:
    import ctypes

    return int(_libc().prctl(option, *(ctypes.c_ulong(one) for one in (value, 0, 0, 0)))) == 0


def adopt_orphans() -> bool:
    """Orphans below this process become its children instead of init's: daemonising does not escape it."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> bool:
    """Be killed when `parent`, which forked this process, dies; at once if it is already dead."""
    done = _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if done and os.getppid() != parent:  # it died before the line above took effect
        os._exit(1)
    return done


def padded(mark: str) -> str:
    return mark[:MARK_LENGTH].ljust(MARK_LENGTH)


def find_mark() -> int | None:
    """The address of this process's mark in memory. Call it before anything sets the variable again.

    /proc/PID/environ shows that memory, also for a fork without exec, so writing there changes the mark."""
    address = _libc().getenv(MARK.encode())
    return address if address and len(os.environ.get(MARK, "")) == MARK_LENGTH else None


def write_mark(address: int | None, mark: str) -> None:
    """Mark this process, and by inheritance everything it will fork or exec."""
    text = padded(mark).encode("ascii", "replace")
    if address is not None:
        import ctypes

        ctypes.memmove(address, text, MARK_LENGTH)
    os.environ[MARK] = text.decode()
