"""`Board`: the files of a project's board, read and changed as one. The only door to `specs/state.json` and `specs/TODO.md` (S6.1).

state.json is the truth and carries the hash of the TODO.md drawn from it: a TODO.md with another hash was edited by a person, and is merged
before anything else happens. Blocking; callers on an event loop use `system.threads.off_loop`.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from remit.board import archive, saved, todo, writeset
from remit.board.files import NOTHING, hash_of, read_or_none
from remit.board.reading import Read, read_state, state_to_bytes, to_bytes
from remit.board.saved import Version
from remit.board.task import State
from remit.board.writeset import Piece, WriteSet
from remit.core.clock import SYSTEM_CLOCK, Clock
from remit.core.errors import Misused, Unavailable
from remit.system.files import file_lock
from remit.system.own_folder import make_folder

SPECS = "specs"
STATE, TODO = f"{SPECS}/state.json", f"{SPECS}/TODO.md"
LEFT = ".remit/board/left"
LOCK_SECONDS = 30.0
_LOOKS = 50
_ROUNDS = 5
"""So often a person's save may fall into one change before the rest is left to the next."""


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
    """More may be here when the change has ended: of a person who saved TODO.md meanwhile."""
    files: dict[str, bytes] = field(default_factory=dict)
    """More files of the same change, by path relative to the root: plans, reports, the archive."""
    moves: dict[str, str] = field(default_factory=dict)
    """Folders renamed with it, from and to, relative to the root."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The files at one moment."""

    state: bytes | None
    versions: tuple[Version, ...] = ()
    """What people have written, the oldest first: what was displaced, then TODO.md."""
    is_drawn: bool = False
    """There is a TODO.md, as drawn last."""


class Board:
    def __init__(self, root: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Touches nothing."""
        self.root = root
        self.clock = clock
        self.specs = root / SPECS
        self.state_path = root / STATE
        self.todo_path = root / TODO
        self.archive_path = root / archive.ARCHIVE
        self.folder = root / ".remit" / "board"
        """Locks, the journal of write sets, late drawings: of this machine, never in git."""
        self._set = self.folder / "set"
        self._left = root / LEFT
        self._drawn = self.folder / "drawn"
        self._last: tuple[bytes, Read] | None = None
        """The state.json that was read or written last."""

    def now(self) -> str:
        return datetime.fromtimestamp(self.clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def look(self) -> Seen:
        """For reading: waits for nobody, writes nothing. A change that was interrupted is seen as made."""
        found = self._found()
        return self._nothing() if found.state is None else self._merged(found, self._read(found.state).state)

    @contextlib.contextmanager
    def change(self, activity: str = "", *, make: bool = False, anew: bool = False) -> Iterator[Draft]:
        """Change the board: `with board.change("Task 12 planned") as draft: draft.state = draft.state.with_task(…)`.

        `make`: a project without a board gets one; else that is an error. Nothing is written when the body raises, or changes nothing.
        `anew` is `board import`: the draft begins empty, whatever state.json and TODO.md hold; both are kept beside as NAME.kept-TIME.
        """
        if not (make or anew or self.state_path.exists() or writeset.pending(self._set)):
            raise self._no_board()
        make_folder(self.root / ".remit")
        self._set.mkdir(parents=True, exist_ok=True)
        with file_lock(self.folder / "lock", timeout=LOCK_SECONDS):
            finished = self._finish()
            found = _Found(state=None) if anew else self._found()
            if found.state is not None:
                seen = self._merged(found, archive.numbered(self, self._read(found.state).state))
            elif make or anew:
                seen = Seen(state=archive.numbered(self, State() if anew else self._nothing().state))
            else:
                raise self._no_board()
            draft = Draft(state=seen.state, at=self.now(), notices=(*finished, *seen.notices), _root=self.root)
            yield draft
            self._write(draft, found, seen.state, activity, anew=anew)

    # ---- reading

    def _found(self) -> _Found:
        """All files of one moment, without the lock: read again when somebody wrote meanwhile."""
        for _ in range(_LOOKS):
            pending = writeset.pending(self._set)
            before = _signature(self.state_path)
            found = self._found_once(pending)
            after = writeset.pending(self._set)
            if _signature(self.state_path) == before and (after.raw if after else None) == (pending.raw if pending else None):
                return found
        with file_lock(self.folder / "lock", timeout=LOCK_SECONDS):
            return self._found_once(writeset.pending(self._set))

    def _found_once(self, pending: writeset.Pending | None) -> _Found:
        waiting = pending.waiting(STATE) if pending else None
        data = waiting[0] if waiting else read_or_none(self.state_path)
        if data is None:
            return _Found(state=None)
        drawn = self._read(data).drawn
        not_put = pending.waiting(TODO) if pending else None
        # A drawing that is not in place yet: what stands there is of the one before.
        base = drawn if not_put is None else not_put[1] or ""
        text = saved.read_at_rest(self.todo_path, base)
        is_drawn = text is not None and hash_of(text) == base
        versions = () if text is None or is_drawn else (Version(data=text, base=base, path=self.todo_path),)
        return _Found(state=data, versions=(*saved.left(self._left), *versions), is_drawn=is_drawn)

    def _read(self, data: bytes) -> Read:
        if self._last is None or self._last[0] != data:
            self._last = (data, read_state(data, STATE))
        return self._last[1]

    def _merged(self, found: _Found, state: State, before: frozenset[int] | None = None) -> Seen:
        """`state` with the edits of each version, against the drawing it began from. `before`: the numbers that the board had when this
        change began, of a later look at what is saved meanwhile."""
        notices: tuple[str, ...] = ()
        before = _numbers(state) if before is None else before
        for version in found.versions:
            if not version.data.strip():
                notices += (f"{TODO} was empty; it is drawn again from state.json.",)
                continue
            merged = todo.merge(
                self._began_from(found, version),
                todo.text_of(version.data),
                at=self.now(),
                onto=state,
                taken_numbers=archive.numbers(self),
            )
            twice = _twice(state, merged.state, before)
            state = merged.state.without(twice) if twice else merged.state
            is_new = tuple(f"Task {number} is new" for number in twice)
            notices += tuple(line for line in (*merged.taken, *merged.kept) if not (is_new and line.startswith(is_new)))
        return Seen(state=state, notices=notices)

    def _began_from(self, found: _Found, version: Version) -> State:
        """The board that the person saw: not the one on disk when that was changed since, by us or by hand."""
        shown = saved.drawing(self._drawn, version.base)
        if shown is not None and shown != found.state:
            with contextlib.suppress(Unavailable):  # half written when the power went
                return read_state(shown, version.base).state
        return self._read(found.state or b"").state

    def _goes_on_from(self, found: _Found, version: Version, merged: State) -> State:
        """What this person sees: should they save again, or only now write the rest, it is this that they changed. Without what others did
        since, and with the numbers that their new tasks have got."""
        base, text = self._began_from(found, version), todo.text_of(version.data)
        if not text.strip():
            return base
        known, before = _numbers(base), _numbers(self._read(found.state or b"").state)
        edited = todo.merge(base, text, at=self.now()).state
        new = [task for task in merged.tasks if task.number not in before and task.title in text]
        return replace(edited.without(_numbers(edited) - known), next_number=merged.next_number).with_tasks(new)

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
        return Misused("This project has no board yet.", code="FILE_NOT_FOUND", advice='Begin one with `remit task "TEXT"`.')

    # ---- writing

    def _finish(self) -> tuple[str, ...]:
        """What a process that died has left to do."""
        told = ("An interrupted change of the board was finished.",) if writeset.pending(self._set) else ()
        return (*told, *writeset.finish(self._set, self.root))

    def _write(self, draft: Draft, found: _Found, before: State, activity: str, *, anew: bool) -> None:
        if anew or draft.state != before or draft.files or draft.moves:
            if activity:
                draft.state = draft.state.noting(draft.at, activity)
        elif found.state is not None and found.is_drawn and len(found.versions) == 0 and self._is_shown(found.state):
            return
        began = _numbers(self._read(found.state).state) if found.state is not None else frozenset()
        draft.notices += self._write_once(draft, found, before, draft.files, draft.moves)
        for _ in range(_ROUNDS):
            if next(saved.left(self._left), None) is None:
                break
            found = self._found()
            seen = self._merged(found, self._read(found.state or b"").state, began)
            draft.state, draft.notices = seen.state, (*draft.notices, *seen.notices)
            draft.notices += self._write_once(draft, found, seen.state, {}, {})
        saved.sweep_left(self._left)

    def _is_shown(self, state: bytes) -> bool:
        """Not when state.json was edited by hand: TODO.md is then as drawn last, and not what would be drawn now."""
        read = self._read(state)
        return hash_of(to_bytes(todo.draw(read.state))) == read.drawn

    def _write_once(
        self, draft: Draft, found: _Found, merged: State, files: Mapping[str, bytes], moves: Mapping[str, str]
    ) -> tuple[str, ...]:
        """`merged`: the board with all that was read in TODO.md, before the change."""
        draft.state = replace(draft.state, last_updated=draft.at)
        text = to_bytes(todo.draw(draft.state))
        drawn = hash_of(text)
        known = self._read(found.state).entries if found.state is not None else {}
        state = state_to_bytes(draft.state, drawn, known)
        taken = {version.path: hash_of(version.data) for version in found.versions}
        for version in found.versions:
            saved.keep_drawing(self._drawn, taken[version.path], state_to_bytes(self._goes_on_from(found, version, merged), "", known))
        saved.keep_drawing(self._drawn, drawn, state)
        was = taken.get(self.todo_path) or (self._read(found.state).drawn if found.state is not None else NOTHING)
        files_of_set = WriteSet(
            pieces=(
                *(Piece(path=path, data=data, expected=draft.expected(path)) for path, data in files.items()),
                Piece(path=STATE, data=state, expected=hash_of(found.state)),
                Piece(path=TODO, data=text, expected=was, displaced_to=f"{LEFT}/{saved.left_name(was)}" if was else ""),
            ),
            moves=tuple(moves.items()),
            consumed=tuple(
                (path.relative_to(self.root).as_posix(), f"{LEFT}/{saved.left_name(hashed)}", hashed)
                for path, hashed in taken.items()
                if path != self.todo_path
            ),
            stamp=re.sub(r"[-:]", "", draft.at),
        )
        notices = writeset.write(self._set, self.root, files_of_set)
        self._last = (state, Read(state=draft.state, drawn=drawn, entries=known))
        return notices


def _numbers(state: State) -> frozenset[int]:
    return frozenset([task.number for task in state.tasks])


def _twice(state: State, merged: State, before: frozenset[int]) -> tuple[int, ...]:
    """New tasks of one version that another has brought already: who saves twice while we write has saved the first ones again."""
    if len(merged.tasks) == len(state.tasks):
        return ()
    known = {(task.title, task.description) for task in state.tasks if task.number not in before}
    return tuple(task.number for task in merged.tasks if state.find(task.number) is None and (task.title, task.description) in known)


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
