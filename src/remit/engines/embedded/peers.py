"""The wake-up pipe of this process: other processes write to it when they left a cancel request in the store."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from remit.runtime.liveness import pipe_path


class WakeupPipe:
    """Calls `on_wakeup` on the loop whenever another process writes to the pipe."""

    def __init__(self, run_folder: Path, owner_id: str, on_wakeup: Callable[[], None]) -> None:
        self._path = pipe_path(run_folder, owner_id)
        self._on_wakeup = on_wakeup
        self._loop = asyncio.get_running_loop()
        run_folder.mkdir(parents=True, exist_ok=True)
        made = self._path.with_suffix(".new")  # without a reader it looks like the pipe of a dead process, which others remove
        os.mkfifo(made, 0o600)
        # Open for both, so that the pipe never reports its end when a writer goes away.
        self._file = os.open(made, os.O_RDWR | os.O_NONBLOCK)
        made.rename(self._path)
        self._loop.add_reader(self._file, self._readable)

    def close(self) -> None:
        self._loop.remove_reader(self._file)
        os.close(self._file)
        self._path.unlink(missing_ok=True)

    def _readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._file, 4096)
        self._on_wakeup()
