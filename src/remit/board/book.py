"""`Board`: the files of a project's board, read and changed as one. The only door to `specs/state.json` and `specs/TODO.md` (S6.1).

Blocking; callers on an event loop use `system.threads.off_loop`.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from remit.board import todo
from remit.board.entries import data_to_state, state_to_data
from remit.board.task import State
from remit.core.clock import SYSTEM_CLOCK, Clock
from remit.system.files import atomic_write, file_lock

SPECS = "specs"
LOCK_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The board as it stands, a person's edits of TODO.md taken over in memory; nothing was written."""

    state: State
    notices: tuple[str, ...] = ()
    """What was taken over from TODO.md and what could not be, a line each."""
    exists: bool = True
    """False: the project has no board yet."""


@dataclass(slots=True)
class Draft:
    """A change being made, under the board's lock. What is set here is written as one set when the change ends without an exception."""

    state: State
    at: str
    """Now, UTC, ISO 8601."""
    notices: tuple[str, ...] = ()
    files: dict[str, bytes] = field(default_factory=dict)
    """More files of the same change, by path relative to the root: plans, reports, the archive."""

    def write(self, path: str, text: str) -> None:
        self.files[path] = text.encode()


class Board:
    def __init__(self, root: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Touches nothing."""
        self.root = root
        self.clock = clock
        self.specs = root / SPECS
        self.state_path = self.specs / "state.json"
        self.todo_path = self.specs / "TODO.md"
        self.archive_path = self.specs / "archive" / "state.json"
        self.folder = root / ".remit" / "board"
        """Locks and the journal of write sets: of this machine, never in git."""

    def now(self) -> str:
        return datetime.fromtimestamp(self.clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def look(self) -> Seen:
        """For reading: waits for nobody, writes nothing."""
        if not self.state_path.exists():
            return Seen(state=State(), exists=False)
        state = data_to_state(json.loads(self.state_path.read_bytes()))
        merged = todo.merge(state, self.todo_path.read_text(), at=self.now()) if self.todo_path.exists() else todo.Merged(state=state)
        return Seen(state=merged.state, notices=(*merged.taken, *merged.kept))

    @contextlib.contextmanager
    def change(self, activity: str = "", *, make: bool = False) -> Iterator[Draft]:
        """Change the board: `with board.change("Task 12 planned") as draft: draft.state = draft.state.with_task(…)`.

        `make`: a project without a board gets one; else that is an error. Nothing is written when the body raises, or changes nothing.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with file_lock(self.folder / "lock", timeout=LOCK_SECONDS):
            seen = self.look()
            draft = Draft(state=seen.state, at=self.now(), notices=seen.notices)
            yield draft
            self.specs.mkdir(exist_ok=True)
            if activity:
                draft.state = draft.state.noting(draft.at, activity)
            for path, data in draft.files.items():
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                atomic_write(self.root / path, data)
            atomic_write(self.state_path, json.dumps(state_to_data(draft.state), indent=2, ensure_ascii=False).encode())
            atomic_write(self.todo_path, todo.draw(draft.state).encode())
