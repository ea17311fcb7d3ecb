"""The zygote: a clean interpreter that forks workers. Started once per Remit as a program of its own; has no threads and no loop.

It takes one order at a time over its control socket and answers each:
  fork   descriptors of a worker's channel and of its supervisor's link come along: fork both
  grow   a control socket comes along: fork a second zygote that imports agents' modules and then serves there
and those that every `forker` takes.
Agents' modules are never imported in the first zygote, so a module that breaks or hangs at import cannot break it.
"""

import contextlib
import gc
import os
import signal
import socket
import sys
from typing import Any, NoReturn

from remit.agents.process import frames, worker
from remit.agents.process.forker import Forker, own_life, settle_down
from remit.agents.process.supervisor import Supervisor
from remit.agents.process.target import Target
from remit.system.processes import adopt_orphans, die_with_parent, find_mark, write_mark


class Zygote(Forker):
    def carry_out(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        match order["op"]:
            case "fork":
                return {"pid": self.fork(lambda: self._supervise(fds[0], fds[1], order))}
            case "grow":
                return {"pid": self.fork(lambda: self._grow(fds[0], order["mark"]))}
        return super().carry_out(order, fds)

    def _supervise(self, channel: int, link: int, order: dict[str, Any]) -> None:
        alarm = self.become_supervisor(order)
        stdout, stderr = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            unneeded = [*alarm, link, stdout[0], stderr[0], *([] if self.owner is None else [self.owner])]
            _become_worker(supervisor, channel, (stdout[1], stderr[1]), unneeded)
        for fd in (channel, stdout[1], stderr[1]):
            os.close(fd)
        for fd in (stdout[0], stderr[0]):
            os.set_blocking(fd, False)
        sock = socket.socket(fileno=link)
        sock.setblocking(False)
        Supervisor(link=sock, worker=pid, owner=self.owner, alarm=alarm[0], stdout=stdout[0], stderr=stderr[0]).run()

    def _grow(self, control: int, mark: str) -> None:
        self.leave_behind()
        write_mark(self.mark_address, mark)
        adopt_orphans()
        serve_grown(socket.socket(fileno=control), self.owner, self.mark_address)


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
    with contextlib.suppress(OSError):
        os.chdir(plan["folder"])
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
    """`python -c '…' CONTROL_FD OWNER_PID` (see `process.pool`)."""
    control, owner = socket.socket(fileno=int(sys.argv[1])), own_life(int(sys.argv[2]))
    mark_address = find_mark()
    adopt_orphans()
    worker.import_ahead()
    zygote = Zygote(control, owner, mark_address)
    settle_down(zygote)
    zygote.serve()
