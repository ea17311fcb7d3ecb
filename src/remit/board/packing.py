"""Packing for git what is about to be committed, while it is still being written: `commit` then finds the objects there.

A large board takes git longer to pack than everything else takes. What is packed in vain (the change fails, a filter makes something else
of the file) is an object that nobody refers to, and git's own tidying removes it. Used by `orchestrator.changing`.
"""

import contextlib
import os
import subprocess
import time
from pathlib import Path

from remit.core.errors import RemitError
from remit.workspaces.git import Git, ended

LEAST_BYTES = 200_000
"""Below that it is not worth a process."""
LONGEST_SECONDS = 10.0


class Packing:
    def __init__(self, root: Path) -> None:
        self._git = Git(folder=root, stop_at=time.monotonic() + LONGEST_SECONDS)
        self._running: list[subprocess.Popen[bytes]] = []

    def begin(self, data: bytes) -> None:
        if len(data) >= LEAST_BYTES and hasattr(os, "memfd_create"):
            with contextlib.suppress(RemitError, OSError):  # no git, no memory: it is packed when it is committed
                self._running.append(self._git.begin("hash-object", "-w", "--no-filters", "--stdin", stdin=data))

    def end(self) -> None:
        """Wait for it: what is half packed would be packed twice."""
        for process in self._running:
            try:
                ended(process, max(0.0, self._git.stop_at - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()
