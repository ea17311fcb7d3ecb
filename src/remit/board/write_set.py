"""Writes several files as one set: all or none, whatever ends the process in between.

New contents are staged in a folder of the board, then a journal names them: its creation is the moment of the change. Only then are the
files put in place, one by one, and read back. A process that dies before has changed nothing. Afterwards, the next
command that reads or changes the board completes the change from the journal (`finish`).

A file is put in place by exchanging names, so the displaced file is never lost: if it differs from what the writer had read, it belongs to
another program or person and is kept. Callers hold the board's lock."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.core.errors import Misused, Refused, Unavailable
from remit.core.protected_paths import Protection, protection_of
from remit.system.beneath import resolve_inside
from remit.system.files import sync_folder, write_all, write_beside

NOTHING = ""
"""As a hash: no file."""
JOURNAL = "journal.json"
_TRIES = 100
_STEP = ("path", "staged", "new", "displaced_to", "kept_as")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One file of a set."""

    path: str
    """Relative to the root."""
    data: bytes
    expected: str | None = None
    """Hash of the file that the writer had read; None: none. Any other file found there is kept beside the new one."""
    displaced_to: str = ""
    """Where the expected file goes, relative to the root: an editor may still be writing to it. Empty: it is removed."""


def is_pending(folder: Path) -> bool:
    """Whether a change with a journal is not completely in place: it counts as made."""
    return os.path.lexists(folder / JOURNAL)


def make_ready(folder: Path, root: Path) -> None:
    """Create a folder of the board. Raises `Unavailable` if that fails, or if it is a link (of a cloned project): files in there are
    written and deleted."""
    try:
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _cannot(root, error, "nothing was changed") from error
    for place in (folder.parent, folder):
        if place.is_symlink():
            raise Unavailable(
                f"{place} is a link.", code="STATUS_SYNC_FAILED", advice="The board keeps its own files there: remove the link."
            )


def write(folder: Path, root: Path, pieces: Sequence[Piece], moves: Mapping[str, str], stamp: str) -> tuple[str, ...]:
    """Make the change. Returns a line for each file kept beside a new one. Raises `Unavailable`; then nothing was changed.

    `moves`: folders to rename before the files are put in place; `stamp`: for the names of kept files."""
    journal = folder / JOURNAL
    try:
        _empty(folder)
        steps = [_stage(folder, root, str(number), piece, stamp) for number, piece in enumerate(pieces)]
        entry = {"format": 1, "pieces": steps, "moves": list(moves.items())}
        write_synced(folder / "journal.new", json.dumps(entry).encode(), None)
        sync_folder(folder)  # the staged names are on disk before the journal can be
        os.rename(folder / "journal.new", journal)
        sync_folder(folder)
    except OSError as error:
        if not journal.exists():
            raise _cannot(root, error, "nothing was changed") from error
        raise _cannot(root, error, "the next command finishes it") from error
    return finish(folder, root, is_fresh=True)


def finish(folder: Path, root: Path, *, is_fresh: bool = False) -> tuple[str, ...]:
    """Put the remaining files of a journal in place. Idempotent, also after a crash."""
    raw = read_or_none(folder / JOURNAL)
    if raw is None:
        _empty(folder)
        return ()
    entry = _parse_journal(raw, folder)
    if not is_fresh:
        _check_journal(folder / JOURNAL, root, entry)
    notices: list[str] = []
    try:
        _move_all(root, entry["moves"])
        for step in entry["pieces"]:
            # A file that is already in place was exchanged for the one that is staged now.
            if is_fresh or hash_of(read_or_none(folder / step["staged"])) == step["new"]:
                _put(root, step, folder / step["staged"])
        _sync_all(_target(root, step["path"]).parent for step in entry["pieces"])
        for step in entry["pieces"]:
            notices += _keep_displaced(root, step, folder / step["staged"])
        (folder / JOURNAL).unlink(missing_ok=True)
        _empty(folder)
    except OSError as error:
        raise _cannot(root, error, "the next command finishes it") from error
    return tuple(notices)


# ---- the journal


def check_path(path: str) -> None:
    parts = Path(path).parts
    if not parts or Path(path).is_absolute() or ".." in parts or "\0" in path:
        raise Misused(f"{path!r} is not inside the project.", advice="Paths of a change are relative to the project's root.")


def _parse_journal(raw: bytes, folder: Path) -> dict[str, Any]:
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        entry: dict[str, Any] = json.loads(raw)
        steps = entry["pieces"]
        is_complete = all(all(isinstance(step[name], str) for name in _STEP) and isinstance(step["expected"], str | None) for step in steps)
        are_texts = all(len(texts) == 2 and all(isinstance(text, str) for text in texts) for texts in entry["moves"])
        if entry["format"] == 1 and is_complete and are_texts:
            return entry
    raise _refused(folder / JOURNAL, "it cannot be read.")


def _check_journal(journal: Path, root: Path, entry: dict[str, Any]) -> None:
    """Raise `Unavailable` for a journal that would write outside the project or into git's folder: it may come with a cloned project."""
    names = [step[name] for step in entry["pieces"] for name in ("staged", "kept_as")]
    paths = [path for step in entry["pieces"] for path in (step["path"], step["displaced_to"] or step["path"])]
    paths += [path for move in entry["moves"] for path in move]
    try:
        for path in paths:
            check_path(path)
            _target(root, path)
    except (Misused, Refused, ValueError) as error:  # ValueError: characters that no path has
        raise _refused(journal, f"{error}") from None
    if bad := next((name for name in names if name != Path(name).name or "\0" in name), None):
        raise _refused(journal, f"{bad!r} is not a file name.")


def _refused(journal: Path, why: str) -> Unavailable:
    return Unavailable(
        f"An interrupted change of the board cannot be finished from {journal}: {why}",
        code="STATUS_SYNC_FAILED",
        advice=f"If it is yours, compare the files in {journal.parent} with specs/; then move that folder away.",
    )


# ---- putting files in place


def _stage(folder: Path, root: Path, name: str, piece: Piece, stamp: str) -> dict[str, Any]:
    check_path(piece.path)
    target = _target(root, piece.path)
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
    """Put the file in place and read it back. A later save by an editor is not an error."""
    target = _target(root, step["path"])
    _make_folders(target.parent)
    before = staged.stat()
    for _ in range(_TRIES):
        try:
            _put_once(step, staged, target)
            break
        except (FileNotFoundError, FileExistsError):  # an editor saves by renaming: the file may vanish in between
            continue
    else:
        raise Unavailable(f"{target} is being replaced continuously by another program.", code="STATUS_SYNC_FAILED", advice="Try again.")
    if hash_of(read_or_none(target)) == step["new"]:
        return
    with contextlib.suppress(FileNotFoundError):
        found = target.stat()
        if (found.st_ino, found.st_mtime_ns, found.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size):
            raise Unavailable(
                f"{target} was written but reads back differently.",
                code="STATUS_SYNC_FAILED",
                advice="Check the disk; `git diff` shows the difference.",
            )


def _put_once(step: dict[str, Any], staged: Path, target: Path) -> None:
    from remit.system.edits import exchange, name_new  # ctypes is slow to import, and most commands only read

    try:
        if not target.exists():
            name_new(staged, target)
            return
        if exchange(staged, target):
            return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    # Names cannot be exchanged here, or the target is on another disk. `staged` is removed last: its presence means that this is not done.
    found = read_or_none(target)
    if hash_of(found) != step["new"]:
        if found is not None:
            _displaced_at(staged).unlink(missing_ok=True)
            try:
                os.link(target, _displaced_at(staged))  # an editor may still be writing to it
            except OSError:  # another disk, or one without links
                shutil.copyfile(target, _displaced_at(staged))
        beside = target.with_name(f".{target.name}.remit-{os.getpid()}.tmp")
        write_synced(beside, staged.read_bytes(), stat.S_IMODE(staged.stat().st_mode))
        os.replace(beside, target)
    staged.unlink()


def _keep_displaced(root: Path, step: dict[str, Any], staged: Path) -> list[str]:
    """Move the displaced file to its place if it has one, and beside the new file if it is unexpected."""
    displaced = _displaced_at(staged) if _displaced_at(staged).exists() else staged
    data = read_or_none(displaced)
    if data is None or step["expected"] is None or hash_of(data) == step["new"]:
        return []
    if hash_of(data) != step["expected"]:
        kept = write_beside(_target(root, step["path"]).parent, step["kept_as"], data)
        try:
            os.replace(displaced, kept)  # the file itself: an editor may still be writing to it
        except OSError:  # another disk
            displaced.unlink()
        return [f"{step['path']} was changed by another program while it was written: that version is kept as {kept.name}."]
    if step["displaced_to"]:
        _make_folders((root / step["displaced_to"]).parent)
        os.replace(displaced, root / step["displaced_to"])
    return []


def _displaced_at(staged: Path) -> Path:
    """Where the displaced file is if names could not be exchanged."""
    return staged.with_name(f"{staged.name}.out")


def _move_all(root: Path, moves: Iterable[Sequence[str]]) -> None:
    for source, target in moves:
        old, new = root / source, root / target
        if old.exists() and not new.exists():
            _make_folders(new.parent)
            os.rename(old, new)
            _sync_all((old.parent, new.parent))


def _empty(folder: Path) -> None:
    """Without a journal the folder's content is meaningless."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in os.listdir(folder):
        os.unlink(folder / name)


# ---- single files


def hash_of(data: bytes | None) -> str:
    return NOTHING if data is None else hashlib.sha256(data).hexdigest()


def read_or_none(path: Path) -> bytes | None:
    """None: missing. Raises `Unavailable` for unreadable files, pipes (which may block) and devices."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is not a file")
            return opened.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be read: {error.strerror}.", code="STORE_UNAVAILABLE", advice="Check what it is, and its permissions."
        ) from error


def write_synced(path: Path, data: bytes, mode: int | None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        if mode is not None:
            os.fchmod(descriptor, mode)
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _target(root: Path, path: str) -> Path:
    """A link is followed, so that its target is replaced; but not out of the project or into git's folder. Raises `Refused`."""
    target = resolve_inside(root, path)
    if protection_of(os.path.relpath(target, os.path.realpath(root))) is Protection.GIT:
        raise Refused(f"{path} belongs to git: the board writes nothing there.", code="POLICY_DENIED", advice="Remove the link.")
    return target


def _make_folders(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)


def _sync_all(folders: Iterable[Path]) -> None:
    for folder in sorted(set(folders)):
        sync_folder(folder)


def _cannot(root: Path, error: OSError, then: str) -> Unavailable:
    where = error.filename2 or error.filename or root
    return Unavailable(
        f"The board cannot be written: {where}: {error.strerror or error}.",
        code="STATUS_SYNC_FAILED",
        advice=f"Check free space and permissions; {then}.",
    )
