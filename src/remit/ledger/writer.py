"""The ledger as an event loop can use it: `post` costs an append, a thread of its own does the writing.

The thread is started by the first error. It gathers what is posted within 50 ms, counts similar errors in memory, and visits the
file once. While the file cannot be written what was posted is kept, counted and tried again; nothing here raises into the loop.
"""

import atexit
import logging
import threading
import time
from collections import deque

from remit.core.clock import SYSTEM_CLOCK, Clock
from remit.core.errors import Unavailable
from remit.ledger.file import ErrorLedger
from remit.ledger.tally import Noted, Tallies

GATHER_SECONDS = 0.05
RETRY_SECONDS = 1.0
REST_SHARE = 5
"""A large ledger takes longer to write: the pause grows with it, so that writing never takes more than a sixth of a core."""
INBOX_LIMIT = 1_000
CLOSE_SECONDS = 5.0

logger = logging.getLogger(__name__)


class _Mark:
    """Stands in the inbox for `flush`: answered when everything before it is written, or could not be."""

    __slots__ = ("answered", "written")

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.written = False


class LedgerWriter:
    def __init__(self, ledger: ErrorLedger, clock: Clock = SYSTEM_CLOCK, *, gather_seconds: float = GATHER_SECONDS) -> None:
        self._ledger = ledger
        self._clock = clock
        self._gather_seconds = gather_seconds
        self._pause_seconds = gather_seconds
        self._inbox: deque[tuple[Noted, float] | _Mark] = deque()
        self._tallies = Tallies()
        self._marks: list[_Mark] = []
        self._guard = threading.Lock()
        """Over the tallies, the marks and the start of the thread; never held while the file is written."""
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self.trouble: str = ""
        """Why the last visit to the file failed; empty when it did not."""

    def post(self, noted: Noted) -> None:
        """Note an error soon; from any thread."""
        self._inbox.append((noted, self._clock.wall()))
        if len(self._inbox) > INBOX_LIMIT:
            self._fold()
        if self._thread is None:
            self._start()
        if not self._wake.is_set():
            self._wake.set()

    def flush(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Wait until what was posted before is in the file; whether it is."""
        if self._thread is None and not self._inbox and not self._tallies:
            return True
        mark = _Mark()
        self._inbox.append(mark)
        self._start()
        self._hurry.set()
        self._wake.set()
        return mark.answered.wait(timeout) and mark.written

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Flush and end the thread; whether everything is in the file. Something posted later starts it again."""
        give_up_at = time.monotonic() + timeout
        written = self.flush(timeout)
        thread = self._thread
        if thread is not None:
            self._closing = True
            self._hurry.set()
            self._wake.set()
            thread.join(max(0.0, give_up_at - time.monotonic()))
        atexit.unregister(self.close)
        return written

    def _start(self) -> None:
        with self._guard:
            if self._thread is None:
                self._closing = False
                self._thread = threading.Thread(target=self._run, name="remit-ledger", daemon=True)
                self._thread.start()
                atexit.register(self.close)  # a program that ends without closing loses no error

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._hurry.wait(self._pause_seconds)
            self._wake.clear()
            self._hurry.clear()
            written = self._visit()
            if self._closing and self._ended(written):
                return
            if not written:
                self._wake.set()

    def _ended(self, written: bool) -> bool:
        """Give the thread up, unless something was posted meanwhile and can be written.

        Given up first, looked afterwards: whoever posts appends first and looks for the thread afterwards, so one sees the other.
        """
        with self._guard:
            thread, self._thread = self._thread, None
            if written and self._inbox:
                self._thread = thread
                return False
            return True

    def _visit(self) -> bool:
        """Take everything there is to the file; whether that succeeded."""
        self._fold()
        with self._guard:
            tallies, self._tallies = self._tallies, Tallies()
            marks, self._marks = self._marks, []
        began = time.monotonic()
        try:
            self._ledger.enter(tallies)
            self.trouble = ""
        except Exception as error:  # noqa: BLE001 - the thread must outlive whatever a disk or a file does; errors are kept and told
            self._keep(tallies, error)
        self._pause_seconds = max(self._gather_seconds, REST_SHARE * (time.monotonic() - began)) if not self.trouble else RETRY_SECONDS
        for mark in marks:
            mark.written = not self.trouble
            mark.answered.set()
        return not self.trouble

    def _keep(self, tallies: Tallies, error: Exception) -> None:
        if not self.trouble:
            log = logger.warning if isinstance(error, Unavailable) else logger.exception
            log("Errors cannot be written to %s and are kept in memory: %s", self._ledger.path, error)
        self.trouble = str(error) or type(error).__name__
        with self._guard:
            tallies.merge(self._tallies)
            self._tallies = tallies

    def _fold(self) -> None:
        """Count what is in the inbox: each kind of error takes its place in memory once."""
        with self._guard:
            while self._inbox:
                item = self._inbox.popleft()
                if isinstance(item, _Mark):
                    self._marks.append(item)
                else:
                    self._tallies.add(*item)
