"""Three things only the C library can do: adopt orphans, die with the parent, and rewrite the mark in place.

Linux alone; elsewhere each does nothing and says so by its answer. Used by `agents.process` in the processes it forks.
"""

import ctypes
import os
import signal
import sys
from functools import cache

from remit.system.processes import MARK

MARK_LENGTH = 160
"""The mark is padded to this: it is overwritten where it stands, so it can neither grow nor shrink."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


@cache
def _libc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    libc.getenv.argtypes = [ctypes.c_char_p]
    libc.getenv.restype = ctypes.c_void_p
    return libc


def adopt_orphans() -> bool:
    """Whatever is orphaned below us becomes our child instead of init's: nothing leaves our sight by daemonising."""
    libc = _libc()
    return libc is not None and libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def die_with_parent(parent: int) -> bool:
    """Be killed when `parent`, which forked us, dies; at once if it is dead already."""
    libc = _libc()
    if libc is None:
        return False
    done = libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0
    if os.getppid() != parent:  # it died before the line above took effect
        os._exit(1)
    return bool(done)


def padded(mark: str) -> str:
    return mark[:MARK_LENGTH].ljust(MARK_LENGTH)


def find_mark() -> int | None:
    """Where the mark of this process stands in memory. To be asked before anything sets the variable anew.

    /proc/PID/environ shows that memory, for a fork without exec too, so writing there changes what the mark of a process is.
    """
    libc = _libc()
    address = libc.getenv(MARK.encode()) if libc is not None else None
    return address if address and len(os.environ.get(MARK, "")) == MARK_LENGTH else None


def write_mark(address: int | None, mark: str) -> None:
    """Mark this process, and by inheritance all it will fork, exec or not."""
    text = padded(mark).encode("ascii", "replace")
    if address is not None:
        ctypes.memmove(address, text, MARK_LENGTH)
    os.environ[MARK] = text.decode()
