"""TODO.md as people save it, at any time and with any editor: read when it is complete, merged against the drawing it started from.

An editor truncates the file and writes it, or writes another and renames it; either may happen during a change. So a recently touched file
is read once it is at rest, and a displaced TODO.md (`left/`) is read again later: an editor that had it open may have written there. The
last few drawings are kept (`drawn/`), so that each version is merged against the right one."""

import contextlib
import os
import re
import secrets
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from remit.board.state_file import StateFile, read_state
from remit.board.task import State
from remit.board.write_set import UNTOUCHED, hash_of, read_or_none
from remit.core.errors import Refused, Unavailable
from remit.core.text import list_some
from remit.system.beneath import open_regular

if TYPE_CHECKING:
    from remit.board.todo_merge import MergeResult

TODO = "specs/TODO.md"
FROM = "From TODO.md: "
"""Prefix of a notice about a merged edit. Other notices are warnings."""
QUIET_SECONDS = 0.03
"""A file that was not touched for this long is complete."""
LONGEST_WAIT_SECONDS = 1.0
LEFT_SECONDS = 10.0
"""How long a displaced TODO.md is kept for an editor that still writes to it."""
LEFT_AT_MOST = 8
DRAWINGS_KEPT = 4
_NUMBER = re.compile(r"^###\s+0*(\d{1,15})[.)]", re.MULTILINE)
_NAMED = 5
_NO_BOARD = StateFile(state=State(), drawn="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """TODO.md as a person saved it."""

    data: bytes
    base: str
    """Hash of the drawing it started from."""
    path: Path
    is_displaced: bool = False
    """It is no longer TODO.md."""

    @property
    def text(self) -> str:
        from remit.board.todo import text_of  # only if a person has edited the file

        return text_of(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardFiles:
    """The board's files at one moment."""

    data: bytes | None = None
    """state.json; None: missing."""
    file: StateFile = _NO_BOARD
    versions: tuple[Version, ...] = ()
    """Edited TODO.md files, oldest first: displaced ones, then the present one."""
    is_drawn: bool = False
    """TODO.md exists and is unchanged since it was drawn."""


def read_at_rest(path: Path, drawn: str) -> bytes | None:
    """The file once it is no longer being written; at once if it is `drawn`. None: missing."""
    give_up_at = time.monotonic() + LONGEST_WAIT_SECONDS
    while True:
        before = _touched(path)
        data = read_or_none(path)
        if data is not None and hash_of(data) == drawn:
            return data
        is_same = before == _touched(path)
        age = time.time() - before[0] / 1e9
        if (is_same and not 0 <= age < QUIET_SECONDS) or time.monotonic() > give_up_at:
            return data
        time.sleep(QUIET_SECONDS / 3)


def _touched(path: Path) -> tuple[int, int, int]:
    """When it was last written or, if missing, its folder: a moment ago means that it is being renamed."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_mtime_ns, found.st_size, found.st_ino
    with contextlib.suppress(OSError):
        return os.stat(path.parent).st_mtime_ns, 0, 0
    return 0, 0, 0


# ---- displaced versions


def displaced_name(drawn: str) -> str:
    return f"{drawn or 'unknown'}-{secrets.token_hex(4)}.md"


def displaced_versions(folder: Path) -> Iterator[Version]:
    """Displaced versions that differ from their drawing, oldest first: a person's."""
    for touched, path in _by_age(folder):
        base = _base_of(path)
        data = None if touched == UNTOUCHED else read_at_rest(path, base)
        if data is not None and data.strip() and hash_of(data) != base:
            yield Version(data=data, base=base, path=path, is_displaced=True)


def sweep_left(folder: Path) -> None:
    """Remove those that no editor wrote to, once they are old or many."""
    found = sorted((path.stat().st_ctime, touched, path) for touched, path in _by_age(folder))
    for place, (displaced_at, touched, path) in enumerate(found):
        is_old, is_many = time.time() - displaced_at > LEFT_SECONDS, place < len(found) - LEFT_AT_MOST
        data = b"" if touched == UNTOUCHED else path.read_bytes()
        is_same = not data.strip() or hash_of(data) == _base_of(path)
        if is_same and (is_old or (is_many and touched == UNTOUCHED)):
            path.unlink()


def _base_of(path: Path) -> str:
    return path.name.partition("-")[0]


# ---- remembered drawings


def keep_drawing(folder: Path, drawn: str, state: bytes, left_in: Path) -> None:
    """Keep the board of this drawing while it is among the last, or a version that started from it is left. Best effort: without it, a
    displaced version is kept beside TODO.md."""
    temporary = folder / "new"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)  # it may be a link that came with a cloned project
        with os.fdopen(open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(state)
        os.replace(temporary, folder / f"{drawn}.json")
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)  # a partial file would block the change itself
        return
    needed = {_base_of(path) for _, path in _by_age(left_in)}
    for _, path in _by_age(folder)[:-DRAWINGS_KEPT]:
        if path.stem not in needed:
            path.unlink(missing_ok=True)


def _by_age(folder: Path) -> list[tuple[int, Path]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((entry.stat().st_mtime_ns, Path(entry.path)) for entry in entries if entry.is_file())
    except FileNotFoundError:  # the folder is missing, or a file has just gone: then a change is being made, and it is read again
        return []


# ---- merging


class UserEdits:
    """The saved versions of TODO.md, and their merge into the board."""

    def __init__(self, found: BoardFiles, *, drawn: Path, at: str, taken_numbers: Collection[int]) -> None:
        """`drawn`: folder of the kept drawings; `taken_numbers`: of the archive."""
        self.found = found
        self._drawn = drawn
        self._at = at
        self._taken_numbers = taken_numbers
        self._bases: dict[Version, tuple[State | None, bool]] = {}
        self._merges: list[tuple[Version, State, MergeResult]] = []
        """Version, target and result: most are needed twice."""

    def merge(self, state: State, before: frozenset[int]) -> tuple[State, tuple[str, ...]]:
        """`state` with the edits of all versions, and a notice about each. Raises `Refused` if TODO.md cannot be merged.

        `before`: the board's original numbers; a new task that occurs in two versions is one task."""
        notices: tuple[str, ...] = ()
        for version in self.found.versions:
            if not version.data.strip():
                notices += (f"{TODO} was empty; it is drawn again from state.json.",)
                continue
            merged = self._merged(version, state)
            if merged is None:
                notices += (f"A {TODO} that was saved meanwhile could not be merged: it is kept beside as TODO.md.kept-….",)
                continue
            twice = _twice(state, merged.state, before)
            state = merged.state.without(twice) if twice else merged.state
            is_new = tuple(f"Task {number} is new" for number in twice)
            taken = (line for line in merged.taken if not (is_new and line.startswith(is_new)))
            notices += (*(f"{FROM}{line}" for line in taken), *(f"TODO.md: {line}" for line in merged.kept))
            base, is_older = self._base(version)
            if base is not None and is_older:
                newer = sorted(numbers_of(self.found.file.state) - numbers_of(base))
                tasks = f"{'Task' if len(newer) == 1 else 'Tasks'} {list_some(newer, _NAMED)}"
                notices += (f"TODO.md: it was written from an older drawing, without {tasks}: what has come since is drawn again.",)
        return state, notices

    def goes_on_from(self, version: Version, merged: State) -> State | None:
        """The board as this person sees it, the base of their next save.

        Without later changes of others, and with the numbers that their new tasks got. None: it was not merged."""
        base, text = self._base(version)[0], version.text
        if base is None or not text.strip():
            return base
        edited = self._merged(version, base)
        if edited is None:
            return None
        before = numbers_of(self.found.file.state)
        new = [task for task in merged.tasks if task.number not in before and task.title in text]
        known = edited.state.without(numbers_of(edited.state) - numbers_of(base))
        return replace(known, next_number=merged.next_number).with_tasks(new)

    def _merged(self, version: Version, onto: State) -> "MergeResult | None":
        """None: a displaced version with an unknown base, or with markers of an unfinished merge. A person can fix TODO.md and is asked to;
        they do not see a displaced version."""
        known = next((result for one, target, result in self._merges if one is version and target is onto), None)
        base = self._base(version)[0]
        if known is not None or base is None:
            return known
        from remit.board.todo_merge import merge

        try:
            merged = merge(base, version.text, at=self._at, onto=onto, taken_numbers=self._taken_numbers)
        except Refused:
            if version.is_displaced:
                return None
            raise
        self._merges.append((version, onto, merged))
        return merged

    def _base(self, version: Version) -> tuple[State | None, bool]:
        """The board that the person saw, and whether it is older than the last drawing."""
        if version not in self._bases:
            base = self._drawn_last(version)
            older = None if base is None or version.is_displaced else self._older(base, version.text)
            self._bases[version] = (older or base, older is not None)
        return self._bases[version]

    def _drawn_last(self, version: Version) -> State | None:
        """Not the board on disk if that was changed since it was drawn, by remit or by hand."""
        shown = read_or_none(self._drawn / f"{version.base}.json") if version.base else None
        if shown is not None and shown != self.found.data:
            with contextlib.suppress(Unavailable):  # half written at a power failure
                return read_state(shown, version.base).state
        return None if version.is_displaced and version.base != self.found.file.drawn else self.found.file.state

    def _older(self, base: State, text: str) -> State | None:
        """The kept board from which the fewest edits lead to the text; None: the last drawing fits best.

        An old buffer lacks newer tasks. As edits of the last drawing, it would undo them."""
        from remit.board.todo_merge import merge

        numbers = frozenset(map(int, _NUMBER.findall(text)))
        best: State | None = None
        if not numbers_of(base) - numbers:
            return None
        with contextlib.suppress(Refused):
            merged = merge(base, text, at=self._at)
            faults, fewest = len(merged.kept), len(merged.kept) + len(merged.taken)
            for _, path in reversed(_by_age(self._drawn)):
                with contextlib.suppress(Unavailable):
                    older = read_state(read_or_none(path) or b"", TODO).state
                    merged = merge(older, text, at=self._at)
                    edits = len(merged.kept) + len(merged.taken)
                    is_better = len(merged.kept) < faults and edits < fewest and not numbers_of(older) - numbers
                    if is_better and not _makes_again(older, merged.state, base):
                        best, fewest = older, edits
        return best


def _makes_again(older: State, merged: State, base: State) -> bool:
    """Whether one of its new tasks already exists."""
    new = {task.title for task in merged.tasks if older.find(task.number) is None}
    return any(task.title in new for task in base.tasks if older.find(task.number) is None)


def numbers_of(state: State) -> frozenset[int]:
    return frozenset([task.number for task in state.tasks])


def _twice(state: State, merged: State, before: frozenset[int]) -> tuple[int, ...]:
    """New tasks of one version that another already brought: a person who saves twice during a change saves the first ones again."""
    if len(merged.tasks) == len(state.tasks):
        return ()
    known = {(task.title, task.description) for task in state.tasks if task.number not in before}
    return tuple(task.number for task in merged.tasks if state.find(task.number) is None and (task.title, task.description) in known)
