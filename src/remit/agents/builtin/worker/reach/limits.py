"""How much memory and time parsers get that read what a stranger wrote. For processes of their own: see `worker.web`.

Both are given back afterwards, so that calling the functions from a test or a program limits nobody for good.
"""

import contextlib
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

MEMORY_BYTES = 1536 * 1024 * 1024
"""Beyond what the process has when it begins: a page of 5 MiB needs a tenth of it."""


class TookTooLong(Exception):
    """A parser was stopped."""


@contextlib.contextmanager
def bounded_memory(most: int = MEMORY_BYTES) -> Iterator[None]:
    """What asks for more gets a MemoryError, which is the page's fault and is told as such."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + most
        if before[1] != resource.RLIM_INFINITY:
            limit = min(limit, before[1])
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    except (OSError, ValueError):
        yield  # no /proc: then only its deadline bounds it
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def bounded_time(seconds: float) -> Iterator[None]:
    """Raises `TookTooLong` in what runs inside, where that is the main thread: elsewhere only the deadline of the delegation holds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TookTooLong(f"stopped after {seconds:.0f} s")

    earlier = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.05))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
