"""The zygote: a clean interpreter that forks workers. Started once per Remit as a program of its own; has no threads and no loop.

It takes one order at a time over its control socket and answers each:
  fork   descriptors of a worker's channel and of its supervisor's link come along: fork both
  exec   descriptors of a supervisor's link and of a command's output and input come along; the command itself comes over the link
  grow   a control socket comes along: fork a second zygote that imports agents' modules and then serves there
  sweep  kill what fell to us because its supervisor was killed
Agents' modules are never imported in the first zygote, so a module that breaks or hangs at import cannot break it.
"""

import contextlib
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from remit.agents.process import frames, worker
from remit.agents.process.launch import Streams, launch
from remit.agents.process.supervisor import Supervisor, child_alarm
from remit.agents.process.target import Target
from remit.system.prctl import adopt_orphans, die_with_parent, find_mark, write_mark
from remit.system.processes import children, kill_tree

_ORDER_BYTES = 64 * 1024
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
"""Without it every program a worker starts would hold the worker's channel open."""


class Zygote:
    def __init__(self, control: socket.socket, owner: int | None, mark_address: int | None) -> None:
        self._control = control
        self._owner = owner
        self._mark_address = mark_address
        self._alarm = child_alarm()
        self._own_children = set(children(os.getpid()) or ())  # a grown one may have some, of modules it imported

    def serve(self) -> None:
        """Until the Remit process closes its end or is gone."""
        watched = [self._control.fileno(), self._alarm[0], *([] if self._owner is None else [self._owner])]
        while True:
            ready, _, _ = select.select(watched, [], [])
            if self._alarm[0] in ready:
                self._reap()
            if self._owner in ready:
                return
            if self._control.fileno() in ready and not self._take_order():
                return

    def _take_order(self) -> bool:
        try:
            text, fds, _, _ = socket.recv_fds(self._control, _ORDER_BYTES, 3, _CLOSE_ON_EXEC)
        except OSError:
            return False
        if not text:
            return False
        try:
            answer = self._carry_out(frames.Unpacker().feed(text)[0], fds)
        except OSError as error:  # no processes or memory left: the parent must hear it, we must live on
            answer = {"error": str(error)}
        finally:
            for fd in fds:
                with contextlib.suppress(OSError):
                    os.close(fd)
        try:
            frames.send(self._control, answer)
        except OSError:
            return False
        return True

    def _carry_out(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        match order["op"]:
            case "fork":
                return {"pid": self._fork(lambda: self._supervise(fds[0], fds[1], order))}
            case "exec":
                return {"pid": self._fork(lambda: self._supervise_command(fds, order))}
            case "grow":
                return {"pid": self._fork(lambda: self._grow(fds[0], order["mark"]))}
            case "sweep":
                return {"swept": self._sweep()}
        return {"error": f"unknown order {order['op']!r}"}

    def _fork(self, be_the_child: Callable[[], None]) -> int:
        pid = os.fork()
        if pid:
            self._own_children.add(pid)
            return pid
        try:
            os.setsid()
            be_the_child()
        finally:
            os._exit(0)  # never back into the zygote's own loop

    def _leave_behind(self) -> None:
        """In a child: what belongs to the zygote alone."""
        signal.set_wakeup_fd(-1)
        for fd in self._alarm:
            os.close(fd)
        self._control.close()

    def _become_supervisor(self, order: dict[str, Any]) -> tuple[int, int]:
        """In a child: its mark, no ear for signals, and an alarm for children that end."""
        self._leave_behind()
        write_mark(self._mark_address, order["mark"])
        os.environ["REMIT_SESSION"] = order["session_id"]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        adopt_orphans()
        return child_alarm()

    def _supervise(self, channel: int, link: int, order: dict[str, Any]) -> None:
        alarm = self._become_supervisor(order)
        stdout, stderr = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            unneeded = [*alarm, link, stdout[0], stderr[0], *([] if self._owner is None else [self._owner])]
            _become_worker(supervisor, channel, (stdout[1], stderr[1]), unneeded)
        for fd in (channel, stdout[1], stderr[1]):
            os.close(fd)
        for fd in (stdout[0], stderr[0]):
            os.set_blocking(fd, False)
        sock = socket.socket(fileno=link)
        sock.setblocking(False)
        Supervisor(link=sock, worker=pid, owner=self._owner, alarm=alarm[0], stdout=stdout[0], stderr=stderr[0]).run()

    def _supervise_command(self, fds: list[int], order: dict[str, Any]) -> None:
        link, stdout, stdin = fds[0], fds[1], fds[2] if len(fds) > 2 else None
        alarm = self._become_supervisor(order)
        sock = socket.socket(fileno=link)
        program = frames.receive(sock)
        if program is None:
            return  # whoever wanted it is gone
        stderr = os.pipe2(os.O_CLOEXEC)
        pid, begun = launch(program, Streams(stdin=stdin, stdout=stdout, stderr=stderr[1]))
        for fd in (*fds[1:], stderr[1]):
            os.close(fd)
        os.set_blocking(stderr[0], False)
        with contextlib.suppress(OSError):  # nobody may be left to hear it; the supervisor sees that
            frames.send(sock, {"begun": begun})
        sock.setblocking(False)
        Supervisor(link=sock, worker=pid, owner=self._owner, alarm=alarm[0], stdout=None, stderr=stderr[0]).run()

    def _grow(self, control: int, mark: str) -> None:
        self._leave_behind()
        write_mark(self._mark_address, mark)
        adopt_orphans()
        serve_grown(socket.socket(fileno=control), self._owner, self._mark_address)

    def _sweep(self) -> int:
        """Children that we did not fork are orphans of a killed supervisor."""
        self._reap()
        strays = [pid for pid in children(os.getpid()) or () if pid not in self._own_children]
        for pid in strays:
            kill_tree(pid, term_grace=0.0, limit=1.0)
        self._reap()
        return len(strays)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._alarm[0], 4096)
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._own_children.discard(pid)


def _become_worker(supervisor: int, channel: int, outputs: tuple[int, int], unneeded: list[int]) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        die_with_parent(supervisor)
        os.dup2(outputs[0], 1)
        os.dup2(outputs[1], 2)
        for fd in (*unneeded, *outputs):
            os.close(fd)
        worker.work(socket.socket(fileno=channel))
    finally:
        os._exit(worker.BROKEN)


def serve_grown(control: socket.socket, owner: int | None, mark_address: int | None) -> None:
    """A second zygote: learn what to import, import it, say so, serve."""
    plan = frames.receive(control)
    if plan is None:
        return
    worker.enter_path(plan["sys_path"])
    failures = {}
    for wire in plan["targets"]:
        target = Target.from_wire(wire)
        try:
            target.load_module()
        except BaseException as error:  # noqa: BLE001 - whatever an agent's module does at import; its worker will report it
            failures[str(target)] = f"{type(error).__name__}: {error}"
    gc.collect()
    gc.freeze()
    zygote = Zygote(control, owner, mark_address)
    frames.send(control, {"ready": True, "failures": failures})
    zygote.serve()


def main() -> None:
    """`python -c '…' CONTROL_FD OWNER_PID` (see `nursery`)."""
    control = socket.socket(fileno=int(sys.argv[1]))
    owner_pid = int(sys.argv[2])
    try:
        owner: int | None = os.pidfd_open(owner_pid)
    except (AttributeError, OSError):
        owner = None  # the end of the control socket tells us as well
    if os.getppid() != owner_pid:
        return
    mark_address = find_mark()
    adopt_orphans()
    worker.import_ahead()
    gc.collect()
    gc.freeze()
    zygote = Zygote(control, owner, mark_address)
    frames.send(control, {"ready": True})
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, 2)  # until now it was a pipe, by which the parent learns why a start failed
    os.close(silence)
    zygote.serve()
