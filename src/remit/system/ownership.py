"""Ownership of a project: its folders belong to the user, no link leads out of it, and its database was created here.

A database is bound by a file in the user's state folder: its inode, and a random token that is also inside the database. One from a clone
has neither; a moved or restored one has another inode or path. Such a database is read, and written only after a person has adopted it,
because unfinished delegations in a database are run again."""

import hashlib
import hmac
import json
import os
import pwd
import secrets
import stat
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from remit.core.errors import Refused, RemitError, Unavailable
from remit.system.beneath import path_inside
from remit.system.files import file_lock, private_folder, read_private, state_folder, write_private

CODE = "NOT_TRUSTED"
FOLDER = ".remit"
DATABASE = "remit.db"
LOCK_SECONDS = 10.0
_INSIDE = (FOLDER, *(f"{FOLDER}/{DATABASE}{tail}" for tail in ("", "-wal", "-shm", "-journal")))
_LOGS = ("-wal", "-journal")
_OWNED = (".", FOLDER, f"{FOLDER}/{DATABASE}", "remit.toml", "pyproject.toml")


# ---- owner and links


def owner_fault(root: Path) -> str:
    """How another user could have written project files; empty: none could."""
    for name in _OWNED:
        path = root / name
        try:
            found = os.stat(path)
        except OSError:
            continue
        if found.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to another user ({_user(found.st_uid)})"
        if found.st_mode & stat.S_IWOTH:
            return f"{path} can be written by every user"
    return ""


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def must_stay_inside(root: Path) -> None:
    """Raise `Refused` if `.remit` or its database is a link out of the project: remit would write there."""
    for name in _INSIDE:
        path = root / name
        if path.is_symlink() and path_inside(root, name) is None:
            raise Refused(
                f"{path} is a link that leads out of the project.", code=CODE, advice=f"Remove it, and remit makes its own: rm {path}"
            )


# ---- the database


class DatabaseBinding:
    """The binding of the database at `path` in the user's state folder."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))

    @property
    def has_content(self) -> bool:
        return _size(self.path) > 0 or self._has_foreign_log()

    def identity(self) -> str:
        """Identifies the file and its logs: changes with every write."""
        found = [os.stat(path) for path in (self.path, *map(self._log, _LOGS)) if path.exists()]
        return " ".join(f"{one.st_ino} {one.st_size} {one.st_mtime_ns}" for one in found)

    def token(self) -> str | None:
        """The token expected inside the database; None: it is not bound here."""
        try:
            entry: Any = json.loads(read_private(self._place) or b"null")
            is_here = entry is not None and entry["path"] == str(self.path) and entry["inode"] == self.path.stat().st_ino
            return str(entry["token"]) if is_here and not self._has_foreign_log() else None
        except (OSError, ValueError, LookupError, TypeError, RemitError):
            return None

    def bind(self, token: str) -> None:
        """Register the file, created if missing, as the user's own, with `token` inside."""
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        entry = {"path": str(self.path), "inode": self.path.stat().st_ino, "token": token}
        write_private(self._place, json.dumps(entry).encode(), fsync=False)  # lost at a power failure: the person is asked

    def forget(self) -> None:
        self._place.unlink(missing_ok=True)

    def note_open(self) -> None:
        """From here on, under the lock, a SQLite log beside the database is the user's own: the present one, if any."""
        write_private(self._open_note, str(_inode(self._log("-wal")) or "").encode(), fsync=False)

    def note_closed(self) -> None:
        """Under the lock, after a connection was closed. The last one removes the log; if it stays, others have the database open."""
        if not any(self._log(tail).exists() for tail in _LOGS):
            self._open_note.unlink(missing_ok=True)

    def _has_foreign_log(self) -> bool:
        """SQLite replays any log it finds beside a database, and a clone may contain one."""
        if not any(_size(self._log(tail)) for tail in _LOGS):
            return False
        try:
            noted = read_private(self._open_note)
        except RemitError:
            return True
        return noted is None or (bool(_size(self._log("-wal"))) and noted not in (b"", str(_inode(self._log("-wal"))).encode()))

    def _log(self, tail: str) -> Path:
        return self.path.with_name(self.path.name + tail)

    @property
    def _open_note(self) -> Path:
        return self._place.with_suffix(".open")

    def lock(self) -> AbstractContextManager[None]:
        """Against another process that opens or closes the database."""
        try:
            folder = private_folder(self._place.parent)
        except RemitError as error:
            raise Unavailable(
                f"Databases of this user cannot be listed: {error.message}",
                code="STORE_UNAVAILABLE",
                advice="Set XDG_STATE_HOME to a folder that you can write.",
            ) from error
        return file_lock(folder / f"{self._place.stem}.lock", timeout=LOCK_SECONDS)

    @property
    def _place(self) -> Path:
        return state_folder() / "databases" / f"{hashlib.sha256(str(self.path).encode()).hexdigest()[:32]}.json"

    def refused(self) -> Refused:
        why = "was not made here: it came with the project, was moved or restored, or an older remit made it"
        other = f"Or start a new one: mv {self.path} {self.path}.old"
        if self._has_foreign_log():
            log = next(log for log in map(self._log, _LOGS) if _size(log))
            why, other = f"has a log beside it, {log.name}, that none of your processes wrote", f"Or use it without that: rm {log}"
        return Refused(
            f"{self.path} {why}. It is only read.",
            code=CODE,
            advice=f"Look at it (remit history), then adopt it, and what is unfinished in it: remit trust --adopt. {other}",
        )


def _inode(path: Path) -> int:
    """0: the file does not exist."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# ---- secrets that servers of a project accept


def note_made(path: Path, secret: bytes) -> None:
    """Record that this user's remit created the secret in the file at `path`, or that the user adopted it."""
    place = _secret_place(path)
    private_folder(place.parent)
    write_private(place, hashlib.sha256(secret).hexdigest().encode(), fsync=False)


def is_made_here(path: Path, secret: bytes) -> bool:
    """A clone may contain such a file, whose content others know."""
    try:
        return read_private(_secret_place(path)) == hashlib.sha256(secret).hexdigest().encode()
    except RemitError:
        return False


def _secret_place(path: Path) -> Path:
    return state_folder() / "secrets" / hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:32]


# ---- notes of remit inside a project


def seal(text: str) -> str:
    """A keyed hash of `text`, which only this user's remit can create."""
    return hmac.new(_key(), text.encode(), hashlib.sha256).hexdigest()


def is_sealed(text: str, found: object) -> bool:
    return isinstance(found, str) and hmac.compare_digest(seal(text).encode(), found.encode("utf-8", "replace"))


def _key() -> bytes:
    place = state_folder() / "key"
    if (key := read_private(place)) is None:
        with file_lock(private_folder(place.parent) / "key.lock", timeout=LOCK_SECONDS):
            if (key := read_private(place)) is None:
                key = secrets.token_bytes(32)
                write_private(place, key)
    return key
