"""A witness: a process beside the test that notes when the machine itself stood still, so that only our own lateness is counted.

Promises about time (S2.5: a second after the deadline) are about what remit does, not about a machine that lends its cores to others.
Used by `tests/chaos`; whoever tests agents of their own against a clock can use it too.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

_PROGRAM = """
import os, sys, time
parent, tick = int(sys.argv[2]), 0.01
with open(sys.argv[1], "a", buffering=1) as notes:
    before = time.monotonic()
    while os.getppid() == parent:
        time.sleep(tick)
        now = time.monotonic()
        if now - before > 2 * tick:
            notes.write(f"{before + tick} {now}\\n")
        before = now
"""


class Witness:
    """`with Witness() as witness: …; witness.withheld(began, ended)`: seconds of that span in which it was not let run."""

    def __enter__(self) -> "Witness":
        self._folder = tempfile.TemporaryDirectory(prefix="remit-witness-")
        self._notes = Path(self._folder.name) / "notes"
        self._notes.touch()
        self._process = subprocess.Popen([sys.executable, "-I", "-S", "-c", _PROGRAM, str(self._notes), str(os.getpid())])
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def withheld(self, began: float, ended: float) -> float:
        """Of the span between two readings of `time.monotonic`."""
        seconds = 0.0
        for line in self._notes.read_text().splitlines():
            words = line.split()
            if len(words) == 2:
                start, end = float(words[0]), float(words[1])
                seconds += max(0.0, min(end, ended) - max(start, began))
        return seconds


def late_by(witness: Witness, due: float) -> float:
    """How late it is now for something due then (`time.monotonic`), the machine's own standstills left out."""
    now = time.monotonic()
    return now - due - witness.withheld(due, now)
