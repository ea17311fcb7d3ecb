"""A room: the folder made for one delegation, and the note by which it is found again, also after a crash.

`.remit/work/SESSION` is the folder; `.remit/work/.books/SESSION` holds what we keep of it (the note, our own index), out of the agent's
way. The note is written last: what has none was never finished. Who resumes a delegation takes its books over.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from remit.core.agents import Workspace
from remit.core.errors import Unavailable
from remit.core.ids import is_session_id
from remit.system.files import atomic_write, file_lock

BOOKS = ".books"
NOTE = "note.json"
LOCK = "lock"
CLEARING = "clearing"
"""Stands in the books of a room that is being removed because nothing is in it: nobody goes on in it, whoever finds it removes the rest."""
TAKE_OVER_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    root: Path
    """The project's root."""
    session_id: str
    """The delegation it belongs to now."""
    maker: str
    """The delegation it was made for: names folder and branch."""
    kind: Workspace
    base: str
    """The commit it began from."""
    git_dir: Path
    """The repository's folder that belongs to it: told to git outright."""
    common_dir: Path
    """The repository's own folder: where its lock stands."""
    below: str = ""
    """Where the project's root lies in the repository, for a root that is a sub-folder."""
    made_at: float = 0.0
    """Wall clock, by the file system: what is newer was written in it."""
    host: str = ""
    """Whose room it began from, by that one's maker, when its caller worked in one; changes go back there, not to the project."""
    is_dirty: bool = False
    """The project had uncommitted changes when it was made; they are not in it."""
    project_git_dir: str = ""
    """The repository's folder that belongs to the project's own checkout, of which a worktree was made."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """The settings by which git runs commands, as they were when it was made (see `git.held`)."""
    fetching: str = ""
    """The same, of how it fetches."""

    @property
    def top(self) -> Path:
        """The project's own checkout: the root, or what it lies in."""
        return self.root.parents[len(Path(self.below).parts) - 1] if self.below else self.root

    @property
    def tree(self) -> Path:
        """The whole checkout or copy."""
        return work_root(self.root) / self.maker

    @property
    def folder(self) -> Path:
        """Where the agent works."""
        return self.tree / self.below if self.below else self.tree

    @property
    def inside(self) -> str:
        """The same, relative to the project's root."""
        return self.folder.relative_to(self.root).as_posix()

    @property
    def branch(self) -> str:
        return f"remit/{self.maker}" if self.kind is Workspace.WORKTREE else ""

    @property
    def books(self) -> Path:
        return books_of(self.root, self.session_id)

    @property
    def index(self) -> Path:
        return self.books / "index"

    @property
    def is_there(self) -> bool:
        """Whether the folder is still one: not removed, not replaced by a link that leads elsewhere."""
        return os.path.realpath(self.folder) == os.path.join(os.path.realpath(self.root), self.inside) and self.folder.is_dir()


def work_root(root: Path) -> Path:
    return root / ".remit" / "work"


def books_of(root: Path, session_id: str) -> Path:
    return work_root(root) / BOOKS / session_id


def write_note(room: Room) -> Room:
    """From here on it exists."""
    fields = asdict(room) | {"git_dir": str(room.git_dir), "common_dir": str(room.common_dir)}
    del fields["root"]
    atomic_write(room.books / NOTE, json.dumps(fields, indent=1).encode(), fsync=False)
    return room


def find_room(root: Path, session_id: str) -> Room | None:
    """The room of a delegation, when there is one and its folder is still there."""
    room = noted_room(root, session_id)
    return room if room is not None and room.is_there and not (room.books / CLEARING).exists() else None


def noted_room(root: Path, session_id: str) -> Room | None:
    """As its note tells it, whatever has become of its folder."""
    if not is_session_id(session_id):
        return None
    try:
        fields = json.loads((books_of(root, session_id) / NOTE).read_bytes())
        fields |= {"git_dir": Path(fields["git_dir"]), "common_dir": Path(fields["common_dir"]), "kind": Workspace(fields["kind"])}
        room = replace(Room(root=root, **fields), session_id=session_id)
    except (OSError, ValueError, TypeError, KeyError):
        return None  # none, or damaged: as if it had never been made
    return room if is_session_id(room.maker) else None


def take_over(root: Path, earlier: str, session_id: str) -> Room | None:
    """The room of the run that is gone on from. Only one can have it: the books change hands by their name.

    Under their lock: whoever clears it away just now is waited for.
    """
    if find_room(root, earlier) is None:
        return None
    with contextlib.suppress(OSError, Unavailable), file_lock(books_of(root, earlier) / LOCK, timeout=TAKE_OVER_SECONDS):
        if find_room(root, earlier) is not None:
            os.rename(books_of(root, earlier), books_of(root, session_id))
    room = find_room(root, session_id)
    return None if room is None else write_note(room)


def rooms(root: Path) -> list[str]:
    """The sessions that have books here."""
    with contextlib.suppress(OSError):
        return sorted(name for name in os.listdir(work_root(root) / BOOKS) if is_session_id(name))
    return []
