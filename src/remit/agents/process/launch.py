"""Starting a command below its supervisor: a session of its own, only its three streams, then the program itself.

Runs in the supervisor (see `supervisor`), which a `forker` forked. Without a fork of our own (the standard library uses vfork): a copy
of this interpreter, however small, would cost more than the start of most programs. So nothing of ours runs in the new process before
the program does, and it cannot be told to die with its supervisor: whoever adopts it then kills it (`Forker.serve`), and so does the pool.
"""

import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remit.system.processes import process_start


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    stdin: int | None
    stdout: int
    stderr: int


def launch(program: Mapping[str, Any], streams: Streams) -> tuple[int | None, dict[str, Any]]:
    """Its pid, and what to tell: pid and start, or the step that failed with its error number."""
    folder = _from_wire(program["folder"])
    try:
        process = subprocess.Popen(
            [_from_wire(word) for word in program["argv"]],
            stdin=subprocess.DEVNULL if streams.stdin is None else streams.stdin,
            stdout=streams.stdout,
            stderr=streams.stderr,
            cwd=folder,
            env={_from_wire(name): _from_wire(value) for name, value in program["environment"].items()},
            start_new_session=True,
        )
    except OSError as error:
        return None, {"step": "folder" if error.filename == folder else "program", "errno": error.errno or 0}
    process.returncode = 0  # its end is seen by the supervisor, who waits for whatever is below it
    return process.pid, {"pid": process.pid, "started": process_start(process.pid)}


def leave_no_signal_ignored() -> None:
    """What is ignored stays ignored in a new program; what is only not heeded does not. For a supervisor of commands."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)


def _from_wire(text: str) -> bytes:
    """Bytes as the kernel takes them; see `program.program_to_wire`."""
    return text.encode("latin-1")
