"""What was written for a task and is not committed yet, noted beside the board, so that a crash between the two loses no commit (S6.8).

The note is written with the files it names, as one change; it is taken away when they are committed. Blocking.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from remit.board.book import Board
from remit.board.committing import Committed, commit
from remit.system.files import atomic_write

FOLDER = "uncommitted"


def note_of(number: int, subject: str, paths: Sequence[str], session_id: str) -> tuple[str, bytes]:
    """A file to write with the change: its path relative to the root, and what it holds."""
    body = {"subject": subject, "paths": list(paths), "session_id": session_id}
    return f".remit/board/{FOLDER}/{number:03d}.json", json.dumps(body).encode()


def committed(board: Board, number: int) -> Committed:
    """Commit what is noted for the task. Whatever comes of it is told once: the note is gone afterwards."""
    note = _place(board, number)
    try:
        said = json.loads(note.read_bytes())
        made = commit(board.root, said["paths"], said["subject"], session_id=said["session_id"])
    except FileNotFoundError:
        return Committed(nothing=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        made = Committed(warning=f"GIT_COMMIT_FAILED: what was to be committed for task {number} cannot be read ({error}).")
    with contextlib.suppress(OSError):
        note.unlink()
    return made


def commit_left(board: Board, number: int) -> Iterator[str]:
    """What a process that ended had written for this task and not committed: done now; a line for whoever is here."""
    if not _place(board, number).exists():
        return
    made = committed(board, number)
    if made.hash:
        yield f"Committed what an earlier run for task {number} had written before it ended ({made.short})."
    if made.warning:
        yield made.warning


def note_now(board: Board, number: int, subject: str, paths: Sequence[str], session_id: str) -> None:
    """Note it by itself, where no change of the board is made with it."""
    path, body = note_of(number, subject, paths, session_id)
    place = board.root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(place, body)


def _place(board: Board, number: int) -> Path:
    return board.folder / FOLDER / f"{number:03d}.json"
