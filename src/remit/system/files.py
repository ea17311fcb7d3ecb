"""Remit's own files: written atomically, appended, locked, set aside, made private (0600)."""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from remit.core.errors import Refused, Unavailable
from remit.system.beneath import open_folder, open_regular, resolve_inside

FIRST_WAIT_SECONDS = 0.001
LONGEST_WAIT_SECONDS = 0.02


def atomic_write(path: Path, data: bytes, *, fsync: bool = True) -> None:
    """Write `data` to `path` atomically: a reader, or a crash at any moment, finds the old file or the new one, never a part.

    Permissions of an existing file are kept; a link is followed, so that its target is replaced."""
    target = Path(os.path.realpath(path))
    try:
        mode = stat.S_IMODE(target.stat().st_mode)
    except OSError:
        mode = None
    _replace_file(target, data, mode, fsync=fsync)


def write_private(path: Path, data: bytes, *, fsync: bool = True) -> None:
    """The same for a file that only its owner may read. A link is replaced, not followed."""
    _replace_file(path, data, 0o600, fsync=fsync)


def _replace_file(target: Path, data: bytes, mode: int | None, *, fsync: bool) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        descriptor = open_regular(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, new_file_mode(target.parent) if mode is None else mode & 0o700
        )
        try:
            if mode is not None:
                os.fchmod(descriptor, mode)
            write_all(descriptor, data)
            if fsync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, target)
        if fsync:
            sync_folder(target.parent)
    except OSError as error:
        raise _cannot("write", target, error) from error
    finally:
        with contextlib.suppress(OSError):  # gone if all went well; if it cannot be removed, the first error is more important
            temporary.unlink()


def new_file_mode(folder: int | str | Path) -> int:
    """Permissions of a new file, before the umask: not wider than those of its folder."""
    return os.stat(folder).st_mode & 0o666


def write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(folder: str | Path, *, dir_fd: int | None = None) -> None:
    """Sync the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def file_lock(path: Path, *, timeout: float) -> Iterator[None]:
    """Lock the file `path` against other processes and threads; wait at most `timeout` seconds.

    The kernel releases it when its holder dies. The file stays: removing it would let two holders lock two files of one name."""
    try:
        descriptor = _acquire(path, time.monotonic() + timeout)
    except OSError as error:
        raise _cannot("lock", path, error) from error
    if descriptor is None:
        raise Unavailable(
            f"{path} is locked by {_holder(path)}; waited {timeout:g} s.",
            code="STORE_UNAVAILABLE",
            advice="Try again when it has finished.",
        )
    try:
        yield
    finally:
        # Unlock, not only close: a child forked meanwhile shares the open file and would keep the lock.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def write_beside(folder: Path, name: str, data: bytes) -> Path:
    """A new file in a folder that others write to: never through an existing link, pipe or file."""
    stem, dot, suffix = name.partition(".")
    opened = open_folder(folder)
    try:
        mode = new_file_mode(opened) & 0o644
        for number in range(1, 1000):
            chosen = name if number == 1 else f"{stem}-{number}{dot}{suffix}"
            with contextlib.suppress(FileExistsError):
                with os.fdopen(open_regular(chosen, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, folder=opened), "wb") as file:
                    file.write(data)
                return folder / chosen
    finally:
        os.close(opened)
    raise FileExistsError(f"{folder} contains a thousand of {name}")


def walk(top: str | Path, on_error: Callable[[OSError], None] = lambda _error: None) -> Iterator[tuple[str, list[str], list[str]]]:
    """`os.walk`, by name, with links to folders among the files, and without recursion: a clone may contain folders deeper than the stack.
    Folders removed from the second part are left out."""
    pending = [os.fspath(top)]
    while pending:
        place = pending.pop()
        try:
            with os.scandir(place) as entries:
                found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except OSError as error:
            on_error(error)
            continue
        folders = [name for name, is_folder in found if is_folder]
        yield place, folders, [name for name, is_folder in found if not is_folder]
        pending += (os.path.join(place, name) for name in reversed(folders))


STALE_SECONDS = 60.0
"""Time in which a new temporary folder is locked."""


def _is_mine(uid: int) -> bool:
    return uid == os.geteuid()


@contextlib.contextmanager
def temporary_folder(prefix: str, parent: Path | None = None, *, is_ours: Callable[[int], bool] = _is_mine) -> Iterator[Path]:
    """A folder below `parent`, or the system's temporary one. Its lock marks it as in use; where files cannot be locked, its age does.
    Left-overs of killed processes are removed with the next call."""
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    sweep_folders(parent, prefix, is_ours=is_ours)
    folder = Path(tempfile.mkdtemp("", prefix, parent))
    descriptor = open_folder(folder)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        os.close(descriptor)
        remove_folder(folder)


def sweep_folders(
    parent: Path, prefix: str, *, is_ours: Callable[[int], bool] = _is_mine, stale_seconds: float = STALE_SECONDS
) -> None:  # fmt: skip
    """Remove folders with this prefix whose owners were killed. `is_ours`: whether a user id is this process's own."""
    for path in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            descriptor = open_folder(path)
            try:
                about = os.fstat(descriptor)
                if is_ours(about.st_uid) and time.time() - about.st_ctime > stale_seconds:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_folder(path)
            finally:
                os.close(descriptor)


def remove_folder(folder: str | Path) -> None:
    """Remove a folder with its content, as far as possible and however deep it is; or the link in its place."""
    from remit.system.sandbox.keeper import clear  # rarely needed

    if os.path.islink(folder):
        os.unlink(folder)
    else:
        clear(str(folder))


def set_aside(path: Path, *, at: float | None = None) -> Path:
    """Rename a damaged file to NAME.damaged-YYYYmmddTHHMMSS (UTC) beside it. Returns the new name. Callers hold their own lock."""
    moment = datetime.fromtimestamp(time.time() if at is None else at, UTC).strftime("%Y%m%dT%H%M%S")
    target = path.with_name(f"{path.name}.damaged-{moment}")
    if os.path.lexists(target):
        target = target.with_name(f"{target.name}-{secrets.token_hex(4)}")
    try:
        os.rename(path, target)
    except OSError as error:
        raise _cannot("set aside", path, error) from error
    return target


def _acquire(path: Path, give_up_at: float) -> int | None:
    """An open, locked descriptor; None when time ran out."""
    wait = FIRST_WAIT_SECONDS
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, new_file_mode(path.parent))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _still_named(descriptor, path):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, str(os.getpid()).encode(), 0)
                return descriptor
        except BlockingIOError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        left = give_up_at - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(wait, left))
        wait = min(wait * 2, LONGEST_WAIT_SECONDS)


def _still_named(descriptor: int, path: Path) -> bool:
    """Whether the locked file is still the one at `path`: it may have been removed between open and lock."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (mine.st_dev, mine.st_ino) == (found.st_dev, found.st_ino)


def _holder(path: Path) -> str:
    try:
        pid = path.read_text(errors="replace").strip()
    except OSError:
        pid = ""
    return f"process {pid}" if pid.isdigit() else "another process"


def _cannot(verb: str, path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"Cannot {verb} {path}: {error.strerror or error}.",
        code="STORE_UNAVAILABLE",
        advice="Check free space and permissions of its folder; nothing was changed.",
    )


_OTHERS = 0o077
_IGNORED = """\
# made by remit: what runs here is not for the repository; agents, commands, flows, the policy and assistant.md are
*
!.gitignore
!agents/
!agents/**
!commands/
!commands/**
!flows/
!flows/**
!context/
!context/**
!policy.*
!assistant.md
"""


def make_folder(folder: Path) -> None:
    """Create `.remit` for its owner only. Removes other users' access to an own one."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.stat()
        if found.st_uid == os.geteuid() and found.st_mode & _OTHERS:
            folder.chmod(0o700)
        _refuse_links(folder)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            _replace_file(ignore, _IGNORED.encode(), None, fsync=False)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        fault, advice = f"cannot be used: {error.strerror}", "Make the project folder writable, or work in a copy of it."
        if folder.is_file():
            fault, advice = "is a file, and remit keeps a folder of that name", f"Move it: mv {folder} {folder}.old"
        raise Unavailable(f"{folder} {fault}.", code="STORE_UNAVAILABLE", advice=advice) from None


_SHARED = frozenset({"agents", "commands", "context", "flows", "policy.cedar", "assistant.md"})
"""Repository files in `.remit` that remit only reads."""


def _refuse_links(folder: Path) -> None:
    """Remit's writes in `.remit` must stay in the project, whatever links a clone contains."""
    for entry in os.scandir(folder):
        if entry.name in _SHARED:
            continue
        inner = [] if entry.name == "scratch" or not entry.is_dir() else list(os.scandir(entry))  # one folder per delegation
        for one in (entry, *inner):
            if one.is_symlink():
                resolve_inside(folder.parent, one.path)


# ---- private files


FOLDER = "access"
"""Below `.remit`."""
LARGEST_BYTES = 16 * 1024 * 1024


def state_folder() -> Path:
    """Folder of user data, outside projects; not created."""
    return _user_folder("XDG_STATE_HOME", ".local/state")


def cache_folder() -> Path:
    """Folder of data that can be recreated; not created."""
    return _user_folder("XDG_CACHE_HOME", ".cache")


def _user_folder(variable: str, default: str) -> Path:
    given = os.environ.get(variable, "")
    if os.path.isabs(given):
        return Path(given) / "remit"
    home = os.environ.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):
        raise Unavailable("There is no home folder to keep approvals in.", advice=f"Set HOME or {variable}.")
    return Path(home) / default / "remit"


def private_folder(path: Path) -> Path:
    """Created if necessary. Removes other users' access to an own one."""
    try:
        path.mkdir(mode=0o700, exist_ok=True, parents=True)
        found = os.stat(path, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise Refused(f"{path} is not a folder of yours.", code="FORBIDDEN", advice="Move it away; remit makes its own.")
        if found.st_mode & _OTHERS:
            os.chmod(path, 0o700)
    except OSError as error:
        raise _cannot("use", path, error) from error
    return path


def read_private(path: Path) -> bytes | None:
    """Its content; None if it does not exist. Raises `Refused` if others can read or write it, or it belongs to another user."""
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _cannot("read", path, error) from error
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
            raise Refused(
                f"{path} can be read or written by other users, so it is not trusted.",
                code="FORBIDDEN",
                advice=f"Remove it and create its content again; or, if you trust it: chown $USER {path} && chmod 600 {path}",
            )
        return opened.read(LARGEST_BYTES)


def stamp_of(path: Path) -> tuple[int, ...] | None:
    """Changes with every write: one system call, cheap enough for every request."""
    try:
        seen = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino, seen.st_mode, seen.st_uid
