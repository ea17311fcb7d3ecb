"""The supervisor: the process between a fork server and one worker or command. It runs no agent code.

It adopts orphans of the worker's tree, drains the worker's output, and reports how the worker ended once the whole tree is dead. On a stop
order, or if the Remit process is gone, it kills everything below it. "All dead" is certain: a process that adopts orphans and has no child
left has no descendant left."""

import contextlib
import os
import select
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any

from remit.system.frames import encode_frame
from remit.system.processes import children, walk_below

TAIL_BYTES = 64 * 1024
_READ = 256 * 1024
_KILL_PAUSE = 0.002
_KILL_LIMIT = 30.0
_STRIDE = 32
_CROWD = 100
"""Number of processes below one worker above which there is no grace period."""
STOP = b"T"
"""The stop order; followed by the grace in milliseconds and a newline."""


def child_alarm() -> tuple[int, int]:
    """A pipe that becomes readable when a child ends: (read end, write end)."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    return read_end, write_end


@dataclass(slots=True)
class Output:
    """One stream of the worker: its end is kept, the rest only counted, so that 100 MB cost nothing."""

    name: str
    fd: int
    tail: bytearray
    count: int = 0

    def drain(self) -> bool:
        """Read what is available; False at its end."""
        try:
            data = os.read(self.fd, _READ)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.count += len(data)
        self.tail += data
        del self.tail[:-TAIL_BYTES]
        return bool(data)


class Supervisor:
    """Runs until the worker and everything it left behind are dead."""

    def __init__(
        self,
        *,
        link: socket.socket,
        worker: int,
        owner: int | None,
        alarm: int,
        stdout: int | None,
        stderr: int,
        is_container: bool = False,
    ) -> None:
        """`stdout` is None for a command, whose output the Remit process reads itself. `is_container`: the worker is bubblewrap, which gets
        no SIGTERM: it would kill the program inside at once."""
        self._link = link
        self._worker = worker
        self._owner = owner
        self._alarm = alarm
        self._outputs = {fd: Output(name, fd, bytearray()) for name, fd in (("stdout", stdout), ("stderr", stderr)) if fd is not None}
        self._spared = worker if is_container else None
        self._exit: int | None = None
        self._orders = bytearray()

    def run(self) -> None:
        """Watch, kill, report."""
        grace = self._watch()
        _go_first()
        if self._exit is None and grace > 0:
            self._ask_to_end(grace)
        self._kill_all()
        report: dict[str, Any] = {"exit": self._exit}
        for output in self._outputs.values():
            while output.drain() and select.select([output.fd], [], [], 0)[0]:
                pass
            report[f"{output.name}_bytes"] = output.count
            report[f"{output.name}_tail"] = bytes(output.tail).decode(errors="replace")
        with contextlib.suppress(OSError):  # the Remit process may be gone
            self._link.setblocking(True)
            self._link.sendall(encode_frame(report))

    def _watch(self) -> float:
        """Until the worker has ended or must end. Returns its grace period."""
        poller = select.poll()
        for fd in (self._link.fileno(), self._alarm, *self._outputs):
            poller.register(fd, select.POLLIN)
        if self._owner is not None:
            poller.register(self._owner, select.POLLIN)
        while self._exit is None:
            for fd, _ in poller.poll():
                if fd == self._owner:
                    return 0.0
                if fd == self._link.fileno():
                    grace = self._take_order()
                    if grace is not None:
                        return grace
                elif fd == self._alarm:
                    self._reap()
                elif not self._outputs[fd].drain():
                    poller.unregister(fd)
        return 0.0

    def _take_order(self) -> float | None:
        try:
            data = self._link.recv(64)
        except BlockingIOError:
            return None
        except OSError:
            return 0.0
        if not data:
            return 0.0  # the Remit process has closed its end or is dead
        self._orders += data
        if b"\n" not in self._orders:
            return None
        with contextlib.suppress(ValueError):
            return int(self._orders.partition(b"\n")[0].removeprefix(STOP)) / 1000
        return 0.0

    def _ask_to_end(self, grace: float) -> None:
        """Send SIGTERM to all, then wait until the worker has ended or the grace is over. Output is drained meanwhile."""
        if self._signal_below(signal.SIGTERM) > _CROWD:
            return  # it may be forking endlessly: every moment of grace makes it harder to stop
        end = time.monotonic() + grace
        watched = [self._alarm, *self._outputs]
        while self._exit is None and (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select(watched, [], [], left)
            for fd in ready:
                if fd == self._alarm:
                    self._reap()
                elif not self._outputs[fd].drain():
                    watched.remove(fd)

    def _kill_all(self) -> None:
        end = time.monotonic() + _KILL_LIMIT
        while time.monotonic() < end:
            self._signal_below(signal.SIGKILL)
            if not self._reap():
                return
            select.select([self._alarm], [], [], _KILL_PAUSE)

    def _signal_below(self, number: int) -> int:
        """Signal everything below, each as soon as it is seen, to catch processes that fork all the time."""
        count = 0
        spared = self._spared if number != signal.SIGKILL else None
        for pid in walk_below(os.getpid()):
            _signal_group(pid, number, spared)
            count += 1
            if count % _STRIDE == 0:  # orphans of those just killed were adopted meanwhile
                for orphan in children(os.getpid()) or ():
                    _signal_group(orphan, number, spared)
        return count

    def _reap(self) -> bool:
        """Reap all dead children; False if no child is left."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._alarm, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._worker:
                self._exit = os.waitstatus_to_exitcode(status)


def _signal_group(pid: int, number: int, spared: int | None) -> None:
    """By process group: a descendant's group contains only descendants, since the worker started its own session. `spared`: a group."""
    with contextlib.suppress(OSError):
        group = os.getpgid(pid)
        if group == spared:
            return
        if group == os.getpgrp():  # it has not started its own session yet
            os.kill(pid, number)
        else:
            os.killpg(group, number)


def _go_first() -> None:
    """Raise our priority if permitted: many processes must not starve the supervisor."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
