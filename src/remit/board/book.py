"""`Board`: the files of a project's board, read and changed as one. The only door to `specs/state.json` and `specs/TODO.md` (S6.1).

state.json is the truth and carries the hash of the TODO.md drawn from it: a TODO.md with another hash was edited by a person, and is merged
before anything else happens. Blocking; callers on an event loop use `system.threads.off_loop`.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from remit.board import amending, archive, saved, todo, writeset
from remit.board.files import hash_of, read_or_none
from remit.board.finding import DRAWN, LEFT, LOCK, LOCK_SECONDS, NOTE, OWN, SET, SPECS, STATE, TODO, Finder, Found
from remit.board.reading import Read, state_to_bytes, to_bytes
from remit.board.taking import Taking, numbers_of
from remit.board.task import State
from remit.board.writeset import Piece, WriteSet
from remit.core.clock import SYSTEM_CLOCK, Clock
from remit.core.errors import Misused
from remit.system.files import file_lock
from remit.system.own_folder import make_folder

__all__ = ["SPECS", "Board", "Draft", "Seen"]

_ROUNDS = 5
"""So often a person's save may fall into one change before the rest is left to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The board as it stands, a person's edits of TODO.md taken over in memory; nothing was written."""

    state: State
    notices: tuple[str, ...] = ()
    """What was taken over from TODO.md (`taking.FROM` begins it) and what could not be, a line each."""
    exists: bool = True
    """False: the project has no board yet."""


@dataclass(slots=True)
class Draft:
    """A change being made, under the board's lock. What is set here is written as one set when the change ends without an exception."""

    state: State
    at: str
    """Now, UTC, ISO 8601."""
    notices: tuple[str, ...] = ()
    """More may be here when the change has ended: of a person who saved TODO.md meanwhile."""
    files: dict[str, bytes] = field(default_factory=dict)
    """More files of the same change, by path relative to the root: plans, reports, the archive."""
    moves: dict[str, str] = field(default_factory=dict)
    """Folders renamed with it, from and to, relative to the root."""
    foreseen: Callable[[bytes], None] = lambda _data: None
    """Told the new content of the board's own files as soon as it is known, before it is written."""
    _root: Path = Path()
    _read: dict[str, str] = field(default_factory=dict)

    def write(self, path: str, text: str) -> None:
        self.files[path] = to_bytes(text)

    def read(self, path: str) -> str | None:
        """A file that is to be changed: should somebody else change it before we write, theirs is kept beside ours."""
        data = read_or_none(self._root / path)
        self._read[path] = hash_of(data)
        return None if data is None else data.decode(errors="replace")

    def move(self, source: str, target: str) -> None:
        writeset.check_path(source)
        writeset.check_path(target)
        self.moves[source] = target

    def expected(self, path: str) -> str | None:
        return self._read.get(path)


class Board:
    def __init__(self, root: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Touches nothing."""
        self.root = root
        self.clock = clock
        self.specs = root / SPECS
        self.state_path = root / STATE
        self.todo_path = root / TODO
        self.archive_path = root / archive.ARCHIVE
        self.folder = root / OWN
        """Locks, the journal of write sets, late drawings: of this machine, never in git."""
        self._finder = Finder(root)

    def now(self) -> str:
        return datetime.fromtimestamp(self.clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def look(self) -> Seen:
        """For reading: waits for nobody, writes nothing. A change that was interrupted is seen as made."""
        found = self._finder.find()
        return self._nothing() if found.data is None else self._seen(found, found.read.state)

    @contextlib.contextmanager
    def change(self, activity: str = "", *, make: bool = False, anew: bool = False) -> Iterator[Draft]:
        """Change the board: `with board.change("Task 12 planned") as draft: draft.state = draft.state.with_task(…)`.

        `make`: a project without a board gets one; else that is an error. Nothing is written when the body raises, or changes nothing.
        `anew`: the draft begins empty, whatever state.json and TODO.md hold; both are kept beside as NAME.kept-TIME.
        """
        if not (make or anew or self.state_path.exists() or writeset.pending(self.root / SET)):
            raise self._no_board()
        make_folder(self.root / ".remit")
        writeset.make_ready(self.root / SET, self.root)
        with file_lock(self.root / LOCK, timeout=LOCK_SECONDS):
            finished = self._finish()
            found = Found() if anew else self._finder.find()
            if found.data is None and not anew:
                if not make:
                    raise self._no_board()
                self._nothing()  # raises when there is a TODO.md all the same
            seen = self._seen(found, archive.numbered(self, found.read.state))
            draft = Draft(state=seen.state, at=self.now(), notices=(*finished, *seen.notices), _root=self.root)
            yield draft
            self._write(draft, found, seen.state, activity, anew=anew)

    def _seen(self, found: Found, state: State, before: frozenset[int] | None = None) -> Seen:
        if not found.versions:
            return Seen(state=state)
        state, notices = self._taking().taken_over(found, state, numbers_of(state) if before is None else before)
        return Seen(state=state, notices=notices)

    def _taking(self) -> Taking:
        return Taking(drawn=self.root / DRAWN, at=self.now(), taken_numbers=archive.numbers(self))

    def _nothing(self) -> Seen:
        """A project without a state.json. Raises when it has a TODO.md all the same."""
        if (read_or_none(self.todo_path) or b"").strip():
            raise Misused(
                f"{TODO} is there, but no {STATE}.",
                code="FILE_NOT_FOUND",
                advice=f"`remit board import` reads it and makes one; or get it back from git (`git checkout -- {STATE}`).",
            )
        return Seen(state=State(), exists=False)

    def _no_board(self) -> Misused:
        self._nothing()
        return no_board()

    # ---- writing

    def _finish(self) -> tuple[str, ...]:
        """What a process that died has left to do."""
        told = ("An interrupted change of the board was finished.",) if writeset.pending(self.root / SET) else ()
        return (*told, *writeset.finish(self.root / SET, self.root))

    def _write(self, draft: Draft, found: Found, before: State, activity: str, *, anew: bool) -> None:
        if anew or draft.state != before or draft.files or draft.moves:
            if activity:
                draft.state = draft.state.noting(draft.at, activity)
        elif found.is_drawn and not found.versions and (amending.is_written_out(self.root / NOTE, found) or _is_shown(found.read)):
            return
        began = numbers_of(found.read.state)
        draft.notices += self._write_once(draft, found, before, draft.files, draft.moves)
        for _ in range(_ROUNDS):
            if next(saved.left(self.root / LEFT), None) is None:
                break
            found = self._finder.find()
            seen = self._seen(found, found.read.state, began)
            draft.state, draft.notices = seen.state, (*draft.notices, *seen.notices)
            draft.notices += self._write_once(draft, found, seen.state, {}, {})
        saved.sweep_left(self.root / LEFT)

    def _write_once(
        self, draft: Draft, found: Found, merged: State, files: Mapping[str, bytes], moves: Mapping[str, str]
    ) -> tuple[str, ...]:
        """`merged`: the board with all that was read in TODO.md, before the change."""
        draft.state = replace(draft.state, last_updated=draft.at)
        rest = amending.amended(self.root / NOTE, found, draft.state)
        text = (rest and rest.todo()) or to_bytes(todo.draw(draft.state))
        draft.foreseen(text)
        drawn = hash_of(text)
        state = (rest and rest.state(drawn)) or state_to_bytes(draft.state, drawn, found.read.entries.known)
        draft.foreseen(state)
        stamp = re.sub(r"[-:]", "", draft.at)
        was, consumed = found.read.drawn, []
        for version in found.versions:
            hashed = hash_of(version.data)
            goes_on_from = self._taking().goes_on_from(found, version, merged)
            if goes_on_from is not None:
                known = state_to_bytes(goes_on_from, known=found.read.entries.known)
                saved.keep_drawing(self.root / DRAWN, hashed, known, self.root / LEFT)
            if version.is_displaced:
                place = f"{LEFT}/{saved.left_name(hashed)}" if goes_on_from is not None else f"{TODO}.kept-{stamp}-{hashed[:4]}"
                consumed.append((version.path.relative_to(self.root).as_posix(), place, hashed))
            else:
                was = hashed
        saved.keep_drawing(self.root / DRAWN, drawn, state, self.root / LEFT)
        amending.remember(self.root / NOTE, drawn, state)
        files_of_set = WriteSet(
            pieces=(
                *(Piece(path=path, data=data, expected=draft.expected(path)) for path, data in files.items()),
                Piece(path=STATE, data=state, expected=hash_of(found.data)),
                Piece(path=TODO, data=text, expected=was, displaced_to=f"{LEFT}/{saved.left_name(was)}" if was else ""),
            ),
            moves=tuple(moves.items()),
            consumed=tuple(consumed),
            stamp=stamp,
        )
        notices = writeset.write(self.root / SET, self.root, files_of_set)
        self._finder.remember(state, Read(state=draft.state, drawn=drawn, entries=found.read.entries))
        return notices


def no_board() -> Misused:
    return Misused(
        "This project has no board yet.", code="FILE_NOT_FOUND", advice='`remit task "TEXT"` records the first task and makes it.'
    )


def _is_shown(read: Read) -> bool:
    """Not when state.json was edited by hand: TODO.md is then as drawn last, and not what would be drawn now."""
    return hash_of(to_bytes(todo.draw(read.state))) == read.drawn
