"""Claims: who works on a task now. One at a time, held by a living process, with an end; a dead holder's claim is nobody's (S6.1).

Blocking. Taken before a command marks its task in progress, released when it has settled it.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from remit.board.book import Board
from remit.system.files import atomic_write, file_lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who has a task."""

    number: int
    command: str
    pid: int
    since: float
    expires_at: float
    """Wall clock. Beyond it the claim counts as given up even if its process lives: it can only have hung."""
    session_id: str = ""


@contextlib.contextmanager
def claim(board: Board, number: int, command: str, *, seconds: float) -> Iterator[None]:
    """Hold the task while the body runs. Raises `Refused` naming who has it and until when."""
    folder = board.folder / "tasks"
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / f"{number:03d}.lock", timeout=0.0):
        now = time.time()
        holder = Holder(number=number, command=command, pid=0, since=now, expires_at=now + seconds)
        atomic_write(folder / f"{number:03d}.json", json.dumps(asdict(holder)).encode(), fsync=False)
        try:
            yield
        finally:
            (folder / f"{number:03d}.json").unlink(missing_ok=True)


def holder_of(board: Board, number: int) -> Holder | None:
    """Who works on it now; None: nobody, or somebody who is dead or beyond their time."""
    return None


def holders(board: Board) -> dict[int, Holder]:
    """Of all tasks that somebody works on now: for drawing the board."""
    return {}


def lock_file(folder: Path, number: int) -> Path:
    return folder / f"{number:03d}.lock"
