"""`Board`: reads and changes the files of a project's board as one. The only access to `specs/state.json` and `specs/TODO.md`.

state.json is the source and contains the hash of the TODO.md drawn from it. A TODO.md with another hash was edited by a person and is
merged first. A change is one write set and, if requested, one commit; the next change completes what a killed process left of either.
Blocking; callers on an event loop use `system.threads.off_loop`."""

import contextlib
import copy
import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.board import archive, write_set
from remit.board.state_file import StateFile, read_state, state_to_bytes, to_bytes
from remit.board.task import State
from remit.board.write_set import Piece, hash_of, read_or_none
from remit.core.deadline import SYSTEM_CLOCK, Clock
from remit.core.errors import Misused, Refused
from remit.core.ids import new_session_id
from remit.system.files import file_lock, make_folder

if TYPE_CHECKING:
    from remit.board.commits import PendingCommit
    from remit.core.settings import Settings

SPECS = "specs"
STATE, TODO = f"{SPECS}/state.json", f"{SPECS}/TODO.md"
OWN = ".remit/board"
LOCK, SET, LEFT, UNCOMMITTED = (f"{OWN}/{name}" for name in ("lock", "set", "left", "uncommitted"))
LOCK_SECONDS = 30.0
FROM = "From TODO.md: "
"""Prefix of a notice about a merged edit. Other notices are warnings."""
QUIET_SECONDS = 0.03
"""A file that was not touched for this long is complete."""
LONGEST_WAIT_SECONDS = 1.0
LEFT_SECONDS = 10.0
"""How long a displaced TODO.md is kept for an editor that still writes to it."""
_READS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardFiles:
    """The board's files at one moment."""

    data: bytes | None = None
    """state.json; None: missing."""
    file: StateFile = StateFile(state=State(), drawn="")  # noqa: RUF009 - frozen
    todo: bytes | None = None
    """TODO.md; None: missing."""

    @property
    def is_drawn(self) -> bool:
        """TODO.md exists and is unchanged since it was drawn."""
        return self.todo is not None and hash_of(self.todo) == self.file.drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The board with a person's edits of TODO.md merged in memory; nothing was written."""

    state: State
    notices: tuple[str, ...] = ()
    """Merged edits of TODO.md (prefixed with `FROM`) and failures, one line each."""
    exists: bool = True
    """False: the project has no board yet."""


@dataclass(slots=True)
class Draft:
    """A change in progress, under the board's lock. Written as one set when the block ends without an exception."""

    state: State
    at: str
    """Now, UTC, ISO 8601."""
    notices: tuple[str, ...] = ()
    """Later notices about edits of TODO.md may be added at the end of the change."""
    files: dict[str, bytes] = field(default_factory=dict)
    """More files of the change, by path relative to the root: plans, reports, the archive."""
    moves: dict[str, str] = field(default_factory=dict)
    """Renamed folders, from and to, relative to the root."""
    commit: "PendingCommit | None" = None
    """The commit to make after the change; created by `Board.commit_for`."""
    commit_hash: str = ""
    """Abbreviated hash of the commit; empty: none."""
    commit_warning: str = ""
    """Why it was not made, or not with all paths."""

    def write(self, path: str, text: str) -> None:
        self.files[path] = to_bytes(text)

    def move(self, source: str, target: str) -> None:
        write_set.check_path(source)
        write_set.check_path(target)
        self.moves[source] = target

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notices and the warning of the commit."""
        return (*self.notices, *([self.commit_warning] if self.commit_warning else []))


class Board:
    def __init__(self, root: Path, *, clock: Clock = SYSTEM_CLOCK, commits: bool | None = None) -> None:
        """Touches nothing. `commits`: whether changes are committed; None: the setting `board_commits`."""
        self.root = root
        self.clock = clock
        self.commits = commits
        self.specs = root / SPECS
        self.state_path = root / STATE
        self.todo_path = root / TODO
        self.archive_path = root / archive.ARCHIVE
        self.folder = root / OWN
        """Locks, the journal of write sets, displaced versions of TODO.md: local to this machine, never in git."""
        self.session_id = new_session_id(clock.wall())
        """Session of this command, for the trailer of commits without a delegation."""
        self._last: tuple[bytes, StateFile] | None = None
        """The last state.json read or written: a command reads it several times."""

    def with_settings(self, settings: "Settings") -> "Board":
        """The same board with the setting `board_commits` of an open `Remit`, unless it has its own."""
        found = copy.copy(self)
        found.commits = settings.board_commits if self.commits is None else self.commits
        return found

    def now(self) -> str:
        return datetime.fromtimestamp(self.clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def look(self) -> Snapshot:
        """Read the board: takes no lock, and writes nothing except to complete an interrupted change."""
        finished, found = self._finish(), self._find()
        seen = self._nothing() if found.data is None else self._merged(found, found.file.state)
        return replace(seen, notices=(*finished, *seen.notices)) if finished else seen

    @contextlib.contextmanager
    def change(self, activity: str = "", *, make: bool = False, anew: bool = False) -> Iterator[Draft]:
        """Change the board: `with board.change("Task 12 planned") as draft: draft.state = draft.state.with_task(…)`.

        `make`: create the board if the project has none; otherwise that is an error. Nothing is written if the body raises or changes
        nothing. `anew`: start with an empty draft; existing state.json and TODO.md are kept beside as NAME.kept-TIME."""
        recovered = self.recover()
        if not (make or anew or self.state_path.exists()):
            self._nothing()
            raise no_board()
        make_folder(self.root / ".remit")
        write_set.make_ready(self.root / SET, self.root)
        with file_lock(self.root / LOCK, timeout=LOCK_SECONDS):
            recovered += write_set.finish(self.root / SET, self.root)  # of a process that died since
            found = BoardFiles() if anew else self._find()
            if found.data is None and not anew:
                self._nothing()
                if not make:
                    raise no_board()
            recovered += tuple(sweep_left(self.root / LEFT, self.todo_path))
            seen = self._merged(found, archive.numbered(self, found.file.state))
            draft = Draft(state=seen.state, at=self.now(), notices=(*recovered, *seen.notices))
            yield draft
            is_written = self._write(draft, found, seen.state, activity, anew=anew)
        if is_written and draft.commit is not None:
            made = draft.commit.make(self)
            draft.commit_hash, draft.commit_warning = made.short, made.warning

    def commit_for(self, draft: Draft, subject: str, paths: Sequence[str] | None = None, *, session_id: str = "", **origin: Any) -> None:
        """Commit the change: the board's own files and `paths`, by default all files and moved folders of the draft.

        `session_id`: for the trailer. `origin`: command and task_number for the error ledger if the commit fails."""
        from remit.board.commits import PendingCommit  # imported here: a command without a commit does not load it

        named = tuple(dict.fromkeys((*draft.files, *draft.moves.values()) if paths is None else paths))
        whose = {"session_id": session_id or self.session_id, **origin}
        draft.commit = PendingCommit(subject=subject, paths=named, deleted=tuple(draft.moves), since=self.clock.wall(), **whose)

    def recover(self) -> tuple[str, ...]:
        """Complete an interrupted change, then make the commits that ended processes left. Returns a line for each."""
        said = self._finish()
        try:
            has_notes = bool(os.listdir(self.root / UNCOMMITTED))
        except OSError:  # there never was one
            return said
        if has_notes:
            from remit.board.commits import make_left_commits

            said += tuple(make_left_commits(self))
        return said

    def _finish(self) -> tuple[str, ...]:
        if not write_set.is_pending(self.root / SET):
            return ()
        with file_lock(self.root / LOCK, timeout=LOCK_SECONDS):  # of a process that is writing, or has died
            if not write_set.is_pending(self.root / SET):
                return ()
            return ("An interrupted change of the board was finished.", *write_set.finish(self.root / SET, self.root))

    def _merged(self, found: BoardFiles, onto: State) -> Snapshot:
        """`onto` with the person's edits: those that lead from the drawing of state.json to TODO.md. Raises `Refused`."""
        if found.todo is None or found.is_drawn:
            return Snapshot(state=onto)
        from remit.board.todo import text_of  # imported here: only if a person has edited the file
        from remit.board.todo_merge import merge

        numbers = archive.numbers(self)
        merged = merge(found.file.state, text_of(found.todo), at=self.now(), onto=onto, taken_numbers=numbers)
        notices = (*(f"{FROM}{line}" for line in merged.taken), *(f"TODO.md: {line}" for line in merged.kept))
        return Snapshot(state=merged.state, notices=notices)

    def _nothing(self) -> Snapshot:
        """A project without a state.json. Raises if it has a TODO.md nevertheless."""
        if (read_or_none(self.todo_path) or b"").strip():
            raise Misused(
                f"{TODO} exists, but {STATE} does not.",
                code="FILE_NOT_FOUND",
                advice=f"`remit board import` makes it from TODO.md; or restore it from git (`git checkout -- {STATE}`).",
            )
        return Snapshot(state=State(), exists=False)

    # ---- reading

    def _find(self) -> BoardFiles:
        """The files at one moment, read without a lock, and again if they changed meanwhile."""
        for _ in range(_READS):
            before = signature(self.root / STATE)
            found = self._read_files()
            if signature(self.root / STATE) == before and not write_set.is_pending(self.root / SET):
                return found
            self._finish()
        with file_lock(self.root / LOCK, timeout=LOCK_SECONDS):
            return self._read_files()

    def _read_files(self) -> BoardFiles:
        data = read_or_none(self.root / STATE)
        if data is None:
            return BoardFiles()
        if self._last is None or self._last[0] != data:
            self._last = (data, read_state(data, STATE))
        file = self._last[1]
        return BoardFiles(data=data, file=file, todo=read_at_rest(self.root / TODO, file.drawn))

    # ---- writing

    def _write(self, draft: Draft, found: BoardFiles, before: State, activity: str, *, anew: bool) -> bool:
        """False: nothing changed."""
        found = found if anew else self._with_late_edits(draft, found)
        if anew or draft.state != before or draft.files or draft.moves:
            if activity:
                draft.state = draft.state.noting(draft.at, activity)
        elif found.is_drawn and hash_of(_drawn(found.file.state)) == found.file.drawn:
            return False  # otherwise state.json was edited by hand, and TODO.md is an older drawing
        draft.state = replace(draft.state, last_updated=draft.at)
        text, was = _drawn(draft.state), hash_of(found.todo)
        drawn = hash_of(text)
        state = state_to_bytes(draft.state, drawn)
        files = {**draft.files, **({draft.commit.note: draft.commit.to_bytes(self.root)} if draft.commit is not None else {})}
        displaced = f"{LEFT}/{displaced_name(was)}" if was else ""
        pieces = [Piece(path=path, data=data) for path, data in files.items()]
        pieces += [Piece(path=STATE, data=state, expected=hash_of(found.data))]
        pieces += [Piece(path=TODO, data=text, expected=was, displaced_to=displaced)]
        draft.notices += write_set.write(self.root / SET, self.root, pieces, draft.moves, re.sub(r"[-:]", "", draft.at))
        self._last = (state, StateFile(state=draft.state, drawn=drawn))
        return True

    def _with_late_edits(self, draft: Draft, found: BoardFiles) -> BoardFiles:
        """Merge what was saved during the change. What cannot be merged is kept beside TODO.md when that is written."""
        late = replace(found, todo=read_at_rest(self.root / TODO, hash_of(found.todo)))
        if late.todo == found.todo:
            return found
        try:
            merged = self._merged(late, draft.state)
        except Refused:
            return found
        before = {task.number for task in found.file.state.tasks}
        known = {(task.title, task.description) for task in draft.state.tasks if task.number not in before}
        new = [task for task in merged.state.tasks if draft.state.find(task.number) is None]
        twice = [task.number for task in new if (task.title, task.description) in known]  # who saves twice saves the first ones again
        draft.state = merged.state.without(twice)
        draft.notices = tuple(dict.fromkeys((*draft.notices, *merged.notices)))
        return late


def no_board() -> Misused:
    return Misused(
        "This project has no board yet.", code="FILE_NOT_FOUND", advice='`remit task "TEXT"` records the first task and makes it.'
    )


def _drawn(state: State) -> bytes:
    from remit.board.todo import draw  # imported here: most commands only read

    return to_bytes(draw(state))


# ---- TODO.md as people save it, at any time and with any editor


def signature(path: Path) -> tuple[int, int, int] | None:
    """Changes with the file. None: it is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_at_rest(path: Path, drawn: str) -> bytes | None:
    """The file once it is no longer being written; at once if it is `drawn`. None: missing."""
    give_up_at = time.monotonic() + LONGEST_WAIT_SECONDS
    while True:
        before = signature(path) or signature(path.parent)  # a folder that was just touched: the file is being renamed
        data = read_or_none(path)
        if data is not None and hash_of(data) == drawn:
            return data
        age = time.time() - before[1] / 1e9 if before else LONGEST_WAIT_SECONDS
        is_same = before == (signature(path) or signature(path.parent))
        if (is_same and not 0 <= age < QUIET_SECONDS) or time.monotonic() > give_up_at:
            return data
        time.sleep(QUIET_SECONDS / 3)


def displaced_name(drawn: str) -> str:
    return f"{drawn}-{secrets.token_hex(4)}.md"


def sweep_left(folder: Path, todo: Path) -> Iterator[str]:
    """Remove displaced files after a while; one that an editor wrote to since is kept beside TODO.md."""
    for name in os.listdir(folder) if folder.is_dir() else ():
        data = read_or_none(folder / name) or b""
        if data.strip() and hash_of(data) != name.partition("-")[0]:
            kept = todo.with_name(f"{todo.name}.kept-{secrets.token_hex(4)}")
            os.replace(folder / name, kept)
            yield f"TODO.md was saved while it was written: that version is kept as {kept.name}."
        elif time.time() - (folder / name).stat().st_ctime > LEFT_SECONDS:
            os.unlink(folder / name)
