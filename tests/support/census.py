"""Count the resources of a Remit, so that a test can detect leaks of hostile agents. Used by `tests/chaos` and `bench`."""

import gc
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from remit import Remit
from support.hostile import DAEMON_NAME
from support.processes import all_pids, is_alive, marked, marker


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    threads: int
    descriptors: int
    temporary_files: frozenset[str]


def census(temporary: Path) -> Census:
    """Resources of this process; `temporary` is the directory for temporary files."""
    gc.collect()
    return Census(
        threads=threading.active_count(),
        descriptors=len(os.listdir("/proc/self/fd")),
        temporary_files=frozenset(os.listdir(temporary)),
    )


def processes_left(remit: Remit) -> list[int]:
    """Living processes of this Remit's delegations; warm processes are not counted."""
    mark = marker(remit._project, remit.owner.owner_id, "sess_")
    return [pid for pid in {*marked(mark), *_daemons(mark)} if is_alive(pid, None)]


def _daemons(mark: str) -> list[int]:
    name = f"{DAEMON_NAME} {mark}".encode()
    return [pid for pid in all_pids() if _command_line(pid).startswith(name)]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
