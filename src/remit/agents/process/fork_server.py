"""The fork server: a process that starts others for a Remit process, and is small, so that a fork of it costs little.

It takes one order at a time over its control socket and answers each:
  exec   descriptors of a supervisor's link and of a command's output and input come along; the command itself comes over the link
  sweep  kill what this process adopted because its supervisor was killed
Run as a program of its own (`main`, see `process.pool`) it starts commands: then nothing is imported but the standard library and the few
modules of remit that need no more. `worker_process` adds the forking of Python agents.
"""

import contextlib
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remit.agents.process.supervisor import Supervisor, child_alarm
from remit.system.frames import receive_frame, send_frame, take_frames
from remit.system.processes import adopt_orphans, children, find_mark, kill_tree, process_start, write_mark

# ---- starting a command below its supervisor: its own session, only its three streams, then the program itself


FILTER_FD = 100
"""Where bubblewrap finds its seccomp filter."""


def launch(program: Mapping[str, Any], stdin: int | None, stdout: int, stderr: int) -> tuple[int | None, dict[str, Any]]:
    """Its pid, and the report: pid and start, or the failed step with its error number."""
    folder = _from_wire(program["folder"])
    try:
        passed = () if program["seccomp"] is None else _prepare_container(program["seccomp"], program["pins"])
        process = subprocess.Popen(
            [_from_wire(word) for word in program["argv"]],
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            env={_from_wire(name): _from_wire(value) for name, value in program["environment"].items()},
            start_new_session=True,
            pass_fds=passed,
        )
    except OSError as error:
        return None, {"step": "folder" if error.filename == folder else "program", "errno": error.errno or 0}
    process.returncode = 0  # the supervisor sees its end and waits for everything below it
    return process.pid, {"pid": process.pid, "started": process_start(process.pid)}


def _prepare_container(seccomp: str, pins: Sequence[str]) -> tuple[int, ...]:
    """For bubblewrap with another program inside: the descriptors of its filter and of the paths it shows."""
    for place, path in enumerate(pins, FILTER_FD + 1):
        os.dup2(os.open(_from_wire(path), os.O_PATH), place)
    if seccomp:
        file = os.memfd_create("seccomp")
        os.write(file, _from_wire(seccomp))
        os.lseek(file, 0, os.SEEK_SET)
        os.dup2(file, FILTER_FD)
    return tuple(range(FILTER_FD if seccomp else FILTER_FD + 1, FILTER_FD + 1 + len(pins)))


def leave_no_signal_ignored() -> None:
    """Ignored signals stay ignored in a new program, handled ones do not. For a supervisor of commands."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)


def _from_wire(text: str) -> bytes:
    """Bytes as the kernel takes them; see `program.program_to_wire`."""
    return text.encode("latin-1")


# ---- the fork server

_ORDER_BYTES = 64 * 1024
_CLOSE_ON_EXEC = socket.MSG_CMSG_CLOEXEC
"""Without it every program that a worker starts would keep the worker's channel open."""
_SUPERVISORS_END_SECONDS = 0.7
"""Less than `process.pool` waits for the end of the fork server."""


class ForkServer:
    def __init__(self, control: socket.socket, owner: int | None, mark_address: int | None) -> None:
        self.control = control
        self.owner = owner
        self.mark_address = mark_address
        self._alarm = child_alarm()
        self._own_children = set(children(os.getpid()) or ())  # a grown one may have some, from imported modules

    def serve(self) -> None:
        """Serve until the Remit process closes its end or is gone."""
        watched = [self.control.fileno(), self._alarm[0], *([] if self.owner is None else [self.owner])]
        while True:
            ready, _, _ = select.select(watched, [], [])
            if self._alarm[0] in ready and self._reap():
                self._sweep()
            if self.owner in ready:
                return self._wait_for_supervisors()
            if self.control.fileno() in ready and not self._take_order():
                return self._wait_for_supervisors()

    def _wait_for_supervisors(self) -> None:
        """The Remit process is gone. Supervisors end by themselves; orphans of a killed supervisor are adopted here."""
        end = time.monotonic() + _SUPERVISORS_END_SECONDS
        while self._own_children and (left := end - time.monotonic()) > 0:
            select.select([self._alarm[0]], [], [], left)
            self._reap()
        self._sweep()

    def _take_order(self) -> bool:
        try:
            text, fds, _, _ = socket.recv_fds(self.control, _ORDER_BYTES, 3, _CLOSE_ON_EXEC)
        except OSError:
            return False
        if not text:
            return False
        try:
            answer = self.execute(take_frames(bytearray(text))[0], fds)
        except OSError as error:  # no processes or memory left: reported to the parent, and this process continues
            answer = {"error": str(error)}
        finally:
            for fd in fds:
                with contextlib.suppress(OSError):
                    os.close(fd)
        try:
            send_frame(self.control, answer)
        except OSError:
            return False
        return True

    def execute(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        match order["op"]:
            case "exec":
                return self.report(self.fork(lambda: self._supervise_command(fds, order)))
            case "sweep":
                return {"swept": self._sweep()}
        return {"error": f"unknown order {order['op']!r}"}

    @staticmethod
    def report(pid: int) -> dict[str, Any]:
        """The forked process with its start time: a pid alone may be reused."""
        return {"pid": pid, "started": process_start(pid)}

    def fork(self, run_child: Callable[[], None]) -> int:
        pid = os.fork()
        if pid:
            self._own_children.add(pid)
            return pid
        try:
            os.setsid()
            run_child()
        finally:
            os._exit(0)  # never back into the loop of the fork server

    def close_inherited(self) -> None:
        """In a child: close what belongs to the fork server only."""
        signal.set_wakeup_fd(-1)
        for fd in self._alarm:
            os.close(fd)
        self.control.close()

    def become_supervisor(self, order: dict[str, Any]) -> tuple[int, int]:
        """In a child: set its mark, ignore signals, and create an alarm for ended children."""
        self.close_inherited()
        write_mark(self.mark_address, order["mark"])
        os.environ["REMIT_SESSION"] = order["session_id"]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        adopt_orphans()
        return child_alarm()

    def _supervise_command(self, fds: list[int], order: dict[str, Any]) -> None:
        link, stdout, stdin = fds[0], fds[1], fds[2] if len(fds) > 2 else None
        alarm = self.become_supervisor(order)
        leave_no_signal_ignored()
        sock = socket.socket(fileno=link)
        program = receive_frame(sock)
        if program is None:
            return  # the Remit process is gone
        stderr = os.pipe2(os.O_CLOEXEC)
        pid, begun = launch(program, stdin, stdout, stderr[1])
        for fd in (*fds[1:], stderr[1]):
            os.close(fd)
        os.set_blocking(stderr[0], False)
        with contextlib.suppress(OSError):  # the Remit process may be gone; the supervisor detects that
            send_frame(sock, {"begun": begun})
        if pid is None:
            return
        sock.setblocking(False)
        Supervisor(
            link=sock,
            worker=pid,
            owner=self.owner,
            alarm=alarm[0],
            stdout=None,
            stderr=stderr[0],
            is_container=program["seccomp"] is not None,
        ).run()

    def _sweep(self) -> int:
        """Children that were not forked here are orphans of a killed supervisor."""
        self._reap()
        strays = [pid for pid in children(os.getpid()) or () if pid not in self._own_children]
        for pid in strays:
            kill_tree(pid, term_grace=0.0, limit=1.0)
        self._reap()
        return len(strays)

    def _reap(self) -> bool:
        """Reap dead children. Returns whether a supervisor was killed, so that its processes were adopted here."""
        was_killed = False
        with contextlib.suppress(BlockingIOError):
            os.read(self._alarm[0], 4096)
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
                was_killed = was_killed or (found[0] in self._own_children and found[1] != 0)
                self._own_children.discard(found[0])
        return was_killed


def watch_owner(owner_pid: int) -> int | None:
    """A descriptor that signals the end of the Remit process; None if unsupported: then the control socket signals it. Exits if it is
    already gone."""
    try:
        owner: int | None = os.pidfd_open(owner_pid)
    except (AttributeError, OSError):
        owner = None
    if os.getppid() != owner_pid:
        sys.exit()
    return owner


def main(kind: type[ForkServer] = ForkServer, prepare: Callable[[], None] | None = None) -> None:
    """`python -I … CONTROL_FD OWNER_PID` (see `process.pool`). `prepare`: loads what every fork needs."""
    control, owner = socket.socket(fileno=int(sys.argv[1])), watch_owner(int(sys.argv[2]))
    mark_address = find_mark()
    adopt_orphans()
    if prepare is not None:
        prepare()
    server = kind(control, owner, mark_address)
    gc.freeze()  # collecting first would take longer than it saves
    gc.enable()
    send_frame(server.control, {"ready": True})
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, 2)  # standard error told the parent why a start failed
    os.close(silence)
    server.serve()
