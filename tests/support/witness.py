"""A witness: a process beside the test that notes when the machine kept it or us waiting, so that only our own lateness is counted.

Promises about time (a second after the deadline) are about what remit does, not about a machine that lends its cores to others.
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
"""Seconds: a smaller lateness stands as it is, so that thousands of questions cost nothing."""
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
        """Of the span between two readings of `time.monotonic`: what the witness missed, or our main thread waited for a core in vain."""
        stood_still, waited = 0.0, []
        for line in self._notes.read_text().splitlines():
            words = line.split()
            if len(words) == 3 and began - _TICK <= float(words[0]) <= ended + _TICK:
                stood_still += float(words[1])
                waited.append(float(words[2]))
        return max(stood_still, waited[-1] - waited[0] if waited else 0.0)


def late_by(witness: Witness, due: float) -> float:
    """How late it is now for something due then (`time.monotonic`), what the machine withheld left out."""
    now = time.monotonic()
    late = now - due
    return late if late < _WORTH_ASKING else late - witness.withheld(due, now)


class LoopWatch:
    """`async with LoopWatch() as loop: …; loop.held`: the longest that the event loop was held by something in that time."""

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
            self.held = max(self.held, time.monotonic() - before)  # a tick too much rather than too little
