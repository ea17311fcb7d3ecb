"""A process beside the test that records when the machine stalled, so that only remit's own delay is counted.

Timing promises (one second after the deadline) apply to remit, not to a machine that gives its cores to others.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

_TICK = 0.01
_WORTH_ASKING = 0.3
"""Seconds: smaller delays are not corrected, so that thousands of calls stay cheap."""
_PROGRAM = """
import os, sys, time
parent, tick = int(sys.argv[2]), 0.01

def kept_waiting():
    try:
        with open(f"/proc/{parent}/task/{parent}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0

with open(sys.argv[1], "a", buffering=1) as notes:
    before = time.monotonic()
    while os.getppid() == parent:
        time.sleep(tick)
        now = time.monotonic()
        notes.write(f"{now} {max(0.0, now - before - 2 * tick)} {kept_waiting()}\\n")
        before = now
"""


class Witness:
    """`with Witness() as witness: …; witness.withheld(began, ended)`: seconds of that span without CPU time."""

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
        """Seconds between two readings of `time.monotonic` in which the witness stalled or the main thread waited for a core."""
        stood_still, waited = 0.0, []
        for line in self._notes.read_text().splitlines():
            words = line.split()
            if len(words) == 3 and began - _TICK <= float(words[0]) <= ended + _TICK:
                stood_still += float(words[1])
                waited.append(float(words[2]))
        return max(stood_still, waited[-1] - waited[0] if waited else 0.0)


def late_by(witness: Witness, due: float) -> float:
    """Current delay after `due` (`time.monotonic`), without the time that the machine withheld."""
    now = time.monotonic()
    late = now - due
    return late if late < _WORTH_ASKING else late - witness.withheld(due, now)


class LoopWatch:
    """`async with LoopWatch() as loop: …; loop.held`: the longest time that the event loop was blocked."""

    held: float = 0.0

    async def __aenter__(self) -> "LoopWatch":
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._watching.cancel()
        await asyncio.wait([self._watching])

    async def _watch(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(_TICK)
            self.held = max(self.held, time.monotonic() - before)  # overestimates by at most one tick
