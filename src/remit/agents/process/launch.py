"""Starting a command below its supervisor: fork, a session of its own, only its three streams, then the program itself.

Runs in the supervisor (see `supervisor`), which a zygote forked. Whether the program could be started is known when `launch`
returns: the kernel closes a pipe for us at the moment the program takes over.
"""

import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from remit.agents.process.program import from_wire
from remit.system.prctl import die_with_parent
from remit.system.processes import process_start

NOT_STARTED = 127
_FAULTS = 3
"""The descriptor on which a program that could not be started says why; closed by its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    stdin: int | None
    stdout: int
    stderr: int


def launch(program: Mapping[str, Any], streams: Streams) -> tuple[int, dict[str, Any]]:
    """Its pid, and what to tell: pid and start, or the step that failed with its error number."""
    supervisor = os.getpid()
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _become(supervisor, program, streams, write_end)
    os.close(write_end)
    started = process_start(pid)
    with open(read_end, "rb") as faults:
        said = faults.read().decode()
    if not said:
        return pid, {"pid": pid, "started": started}
    step, number = said.split()
    return pid, {"step": step, "errno": int(number)}


def _become(supervisor: int, program: Mapping[str, Any], streams: Streams, faults: int) -> NoReturn:
    step = "program"
    try:
        _forget_signals()
        os.setsid()
        die_with_parent(supervisor)
        stdin = os.open(os.devnull, os.O_RDONLY) if streams.stdin is None else streams.stdin
        for number, fd in enumerate((stdin, streams.stdout, streams.stderr)):
            os.dup2(fd, number)
        os.dup2(faults, _FAULTS, inheritable=False)
        faults = _FAULTS
        os.closerange(_FAULTS + 1, os.sysconf("SC_OPEN_MAX"))
        step = "folder"
        os.chdir(from_wire(program["folder"]))
        step = "program"
        argv = [from_wire(word) for word in program["argv"]]
        os.execvpe(argv[0], argv, {from_wire(name): from_wire(value) for name, value in program["environment"].items()})
    except OSError as error:
        os.write(faults, f"{step} {error.errno or 0}".encode())
    finally:
        os._exit(NOT_STARTED)


def _forget_signals() -> None:
    """What is ignored stays ignored in a new program, and Python and the supervisor ignore several."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
