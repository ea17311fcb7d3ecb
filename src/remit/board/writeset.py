"""Several files written as one: all of them or none, whatever ends the process in between (S6.1).

New contents are put on disk in a folder of our own, then a journal that names them: its appearance is the moment of the change. Only then
are they put in place, one after the other, and read back. Who dies before the journal has changed nothing; who dies after it has: the next
start finishes by the journal (`finish`), readers meanwhile see through it (`Pending`).

What stood at a place comes out by an exchange of names, and is looked at: if it is not what the writer had read, somebody saved there
meanwhile, and theirs is kept. Knows no task and no TODO.md. Callers hold the board's lock. Used by `board.book`.
"""

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.board.displaced import came_out_at, lay_aside, set_aside
from remit.board.files import NOTHING as NOTHING
from remit.board.files import copy_or_link, make_folders, sync, sync_all, target_of, write_synced
from remit.board.files import hash_of as hash_of
from remit.board.files import read_or_none as read_or_none
from remit.board.journal import check_journal, is_whole
from remit.board.journal import check_path as check_path
from remit.core.errors import Misused, Unavailable
from remit.system.exchanging import exchange, name_new

JOURNAL = "journal.json"
_TRIES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One file of a set."""

    path: str
    """Relative to the root."""
    data: bytes
    expected: str | None = None
    """Hash of what its writer believes to be there; None: they do not know. Anything else found there is kept beside it."""
    displaced_to: str = ""
    """Where what it displaces goes in any case, relative to the root: somebody may still be writing to it. Empty: nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSet:
    pieces: tuple[Piece, ...]
    moves: tuple[tuple[str, str], ...] = ()
    """Folders renamed, before the files are put in place."""
    consumed: tuple[tuple[str, str, str], ...] = ()
    """Displaced files of before that this change has taken in: from where, to where, and the hash of what was taken in."""
    stamp: str
    """For the names of what is kept."""


class Pending:
    """A change whose journal is there and that is not all in place: it counts as made."""

    def __init__(self, folder: Path, raw: bytes) -> None:
        self._folder = folder
        self.raw = raw
        self._steps: dict[str, dict[str, Any]] = {step["path"]: step for step in _entry_of(raw, folder)["pieces"]}

    def waiting(self, path: str) -> tuple[bytes, str | None] | None:
        """The new content that is not in place yet, and what its writer expected there; None: it is, or the change does not touch it."""
        step = self._steps.get(path)
        if step is None:
            return None
        data = read_or_none(self._folder / step["staged"])
        return (data, step["expected"]) if data is not None and hash_of(data) == step["new"] else None


def pending(folder: Path) -> Pending | None:
    raw = read_or_none(folder / JOURNAL)
    return Pending(folder, raw) if raw is not None else None


def make_ready(folder: Path, root: Path) -> None:
    """Raises `Unavailable` where nothing can be written, or where the folder is a link, as it may come with somebody's project: what is in
    there is removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot(root, error, "nothing was changed") from error
    for place in (folder.parent, folder):
        if place.is_symlink():
            raise Unavailable(
                f"{place} is a link.", code="STATUS_SYNC_FAILED", advice="The board keeps its own files there: remove the link."
            )


def write(folder: Path, root: Path, files: WriteSet) -> tuple[str, ...]:
    """Make the change. What had to be kept beside a new file, a line each. Raises `Unavailable`; then nothing was changed."""
    journal = folder / JOURNAL
    try:
        _sweep(folder)
        steps = [_staged(folder, root, str(number), piece, files.stamp) for number, piece in enumerate(files.pieces)]
        write_synced(folder / "journal.new", b"", None)
        inode = (folder / "journal.new").stat().st_ino
        entry = {"format": 1, "pieces": steps, "moves": files.moves, "consumed": files.consumed, "inode": inode}
        write_synced(folder / "journal.new", json.dumps(entry).encode(), None)
        sync(folder)  # the names of what was staged are on disk before the journal can be
        os.rename(folder / "journal.new", journal)
        sync(folder)
    except OSError as error:
        if not journal.exists():
            raise _cannot(root, error, "nothing was changed") from error
        raise _cannot(root, error, "the next command finishes it") from error
    return finish(folder, root, is_fresh=True)


def finish(folder: Path, root: Path, *, is_fresh: bool = False) -> tuple[str, ...]:
    """Put in place whatever a journal names and is not there yet. Any number of times, after a crash anywhere in it."""
    raw = read_or_none(folder / JOURNAL)
    entry = {"moves": (), "pieces": (), "consumed": ()} if raw is None else _entry_of(raw, folder)
    if raw is not None and not is_fresh:
        check_journal(folder / JOURNAL, root, entry)
    notices: list[str] = []
    try:
        _move_all(root, entry["moves"])
        for step in entry["pieces"]:
            # What is in place already came out, and is here in its stead.
            if is_fresh or hash_of(read_or_none(folder / step["staged"])) == step["new"]:
                _put(root, step, folder / step["staged"])
        sync_all(target_of(root, step["path"]).parent for step in entry["pieces"])
        for step in entry["pieces"]:
            notices += set_aside(root, step, folder / step["staged"])
        for path, place, expected in entry["consumed"]:
            lay_aside(root / path, root / place, expected)
        (folder / JOURNAL).unlink(missing_ok=True)
        _sweep(folder)
    except OSError as error:
        raise _cannot(root, error, "the next command finishes it") from error
    return tuple(notices)


def _entry_of(raw: bytes, folder: Path) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = json.loads(raw)
        if entry["format"] == 1 and is_whole(entry):
            return entry
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise Unavailable(
        f"{folder / JOURNAL} cannot be read: an interrupted change of the board cannot be finished.",
        code="STATUS_SYNC_FAILED",
        advice=f"Compare the files in {folder} with specs/, then move that folder away.",
    )


def _staged(folder: Path, root: Path, name: str, piece: Piece, stamp: str) -> dict[str, Any]:
    check_path(piece.path)
    target = target_of(root, piece.path)
    mode: int | None = None
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        found = target.stat()
        mode = stat.S_IMODE(found.st_mode)
        if not stat.S_ISREG(found.st_mode):
            raise Misused(f"{piece.path} is not a file.", advice="The board writes there: move it away.")
    write_synced(folder / name, piece.data, mode)
    return {
        "path": piece.path,
        "staged": name,
        "new": hash_of(piece.data),
        "expected": piece.expected,
        "displaced_to": piece.displaced_to,
        "kept_as": f"{target.name}.kept-{stamp}",
    }


def _put(root: Path, step: dict[str, Any], staged: Path) -> None:
    target = target_of(root, step["path"])
    make_folders(target.parent)
    before = staged.stat()
    for _ in range(_TRIES):
        try:
            _put_once(step, staged, target)
            break
        except (FileNotFoundError, FileExistsError):  # somebody saves here by renaming: there one moment, gone the next
            continue
    else:
        raise Unavailable(f"{target} is being replaced by others all the time.", code="STATUS_SYNC_FAILED", advice="Try again.")
    _verify(step, target, before)


def _put_once(step: dict[str, Any], staged: Path, target: Path) -> None:
    came_out = came_out_at(staged)
    try:
        if not target.exists():
            name_new(staged, target)
        elif not exchange(staged, target):
            came_out.unlink(missing_ok=True)
            copy_or_link(target, came_out)
            os.replace(staged, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _put_across(step, staged, target, came_out)


def _put_across(step: dict[str, Any], staged: Path, target: Path, came_out: Path) -> None:
    """The place is on another disk: copied there first. `staged` goes last, since its being there says that this is not done."""
    standing = read_or_none(target)
    if hash_of(standing) != step["new"]:
        if standing is not None:
            copy_or_link(target, came_out)
        beside = target.with_name(f".{target.name}.remit-{os.getpid()}.tmp")
        beside.unlink(missing_ok=True)
        write_synced(beside, staged.read_bytes(), stat.S_IMODE(staged.stat().st_mode))
        os.replace(beside, target)
    staged.unlink()


def _verify(step: dict[str, Any], target: Path, before: os.stat_result) -> None:
    """Read back. What differs because somebody has saved there since is theirs, and right."""
    if hash_of(read_or_none(target)) == step["new"]:
        return
    with contextlib.suppress(FileNotFoundError):
        found = target.stat()
        if (found.st_ino, found.st_mtime_ns, found.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size):
            raise Unavailable(
                f"{target} was written, and reads back as something else.",
                code="STATUS_SYNC_FAILED",
                advice="Check the disk; `git diff` shows what is there now.",
            )


def _move_all(root: Path, moves: Iterable[Sequence[str]]) -> None:
    touched: set[Path] = set()
    for source, target in moves:
        old, new = root / source, root / target
        if old.exists() and not new.exists():
            make_folders(new.parent)
            os.rename(old, new)
            touched |= {old.parent, new.parent}
    sync_all(touched)


def _sweep(folder: Path) -> None:
    """Without a journal nothing in here means anything."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in os.listdir(folder):
        os.unlink(folder / name)


def _cannot(root: Path, error: OSError, then: str) -> Unavailable:
    where = error.filename2 or error.filename or root
    return Unavailable(
        f"The board cannot be written: {where}: {error.strerror or error}.",
        code="STATUS_SYNC_FAILED",
        advice=f"Check free space and permissions; {then}.",
    )
