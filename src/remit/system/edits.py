"""Replaces, exchanges and removes files and folders beneath a root atomically, following no link."""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from remit.core.errors import Failed, Stopped
from remit.system.beneath import Place, cannot, kind_of, leads_out, open_folder, open_regular, shown
from remit.system.files import sync_folder, write_all

_AT_FDCWD, _EXCHANGE = -100, 2
_UNKNOWN = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM})
"""Errors of a kernel, file system or sandbox without the call."""


def exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two files atomically. False: not supported; nothing was done.

    Raises `OSError`: `FileNotFoundError` if either is missing, EXDEV if they are on two disks."""
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:  # an older C library
        return False
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_EXCHANGE)) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNKNOWN:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


def name_new(source: Path, target: Path) -> None:
    """Rename without overwriting: raises `FileExistsError`. On a disk without links, a file that appears meanwhile is lost."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
        os.rename(source, target)
    else:
        os.unlink(source)


TEMPORARY = re.compile(r"\.(?P<name>.+)\.remit-(?P<pid>\d+)-[0-9a-f]{8}\.tmp\Z", re.DOTALL)
_NAME_BYTES = 255
_ACCESS_LIST = "system.posix_acl_access"


def replace_file(place: Place, data: bytes | Callable[[int], None], stop: Callable[[], bool] = lambda: False) -> bool:
    """Whether it is new. Permissions of the one before are kept, and its owner as far as we may; but nothing stays setuid, as with any
    write, and no other user gains access. Access lists are not kept. `data` may be what writes it to a descriptor.

    A hard link to it elsewhere keeps the old content: it is another name for the old file, and may be outside."""
    before = place.stat()
    _need_writable(place, before)
    temporary = _temporary_name(place.name)
    try:
        try:
            _write_new(place, temporary, data, before)
            if stop():
                raise Stopped(f"{shown(place.asked)} was not changed: the delegation was stopped.")
            os.rename(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
            with contextlib.suppress(PermissionError):  # a folder that may be written but not read cannot be synced
                sync_folder(".", dir_fd=place.folder)
        except OSError as error:
            raise cannot("write", place.asked, error) from None
    finally:
        with contextlib.suppress(OSError):  # gone if all went well; if it cannot be removed, the first error is more important
            os.unlink(temporary, dir_fd=place.folder)
    return before is None


def make_folder(place: Place) -> bool:
    """Returns whether it was created."""
    try:
        os.mkdir(place.name, 0o777, dir_fd=place.folder)
    except FileExistsError:
        return False
    except OSError as error:
        raise cannot("make", place.asked, error) from None
    return True


def _need_writable(place: Place, before: os.stat_result | None) -> None:
    if before is None:
        return
    if stat.S_ISDIR(before.st_mode):
        raise leads_out(place.asked, "is a folder, not a file", "Name a file in it.")
    if not stat.S_ISREG(before.st_mode):
        raise leads_out(place.asked, f"is {kind_of(before)}, not a file", "Only regular files are read and written.")
    if not os.access(place.name, os.W_OK, dir_fd=place.folder, effective_ids=True, follow_symlinks=False):
        raise Failed(f"{shown(place.asked)} is read-only.", advice="Change its permissions if it is to be written.")


def _write_new(place: Place, name: str, data: bytes | Callable[[int], None], before: os.stat_result | None) -> None:
    # Private until it has the permissions of the file it replaces.
    mode = 0o666 if before is None else 0o600
    descriptor = open_regular(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, folder=place.folder)
    try:
        if before is not None:
            _permit_as(place, descriptor, before)
        write_all(descriptor, data) if isinstance(data, bytes) else data(descriptor)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _permit_as(place: Place, descriptor: int, before: os.stat_result) -> None:
    """Give the new file the permissions of the old one, or fewer if that is not permitted."""
    mode = stat.S_IMODE(before.st_mode) & ~(stat.S_ISUID | stat.S_ISGID)
    try:
        os.fchown(descriptor, before.st_uid, before.st_gid)
    except PermissionError:  # the file belongs to another user
        try:
            os.fchown(descriptor, -1, before.st_gid)
        except PermissionError:
            mode &= ~stat.S_IRWXG  # its group would change
    with contextlib.suppress(OSError):  # defaults that the folder gives to new files were not the old one's
        os.removexattr(descriptor, _ACCESS_LIST)
    with contextlib.suppress(OSError):
        if _ACCESS_LIST in os.listxattr(f"/proc/self/fd/{place.folder}/{place.name}", follow_symlinks=False):
            mode &= ~stat.S_IRWXG  # then the group's bits are the maximum for everyone on the list
    os.fchmod(descriptor, mode)


def _temporary_name(name: str) -> str:
    tail = f".remit-{os.getpid()}-{secrets.token_hex(4)}.tmp"
    kept = os.fsencode(name)[: _NAME_BYTES - len(tail) - 1].decode("utf-8", "ignore")
    return f".{kept or 'file'}{tail}"


DEEPEST = 100
"""Maximum open levels; deeper folders are left alone."""
_FAULTS_KEPT = 20


@dataclass(slots=True)
class RemovalReport:
    """Counts of removed entries, and the faults of the rest."""

    files: int = 0
    """Links among them."""
    folders: int = 0
    size_bytes: int = 0
    faults: list[str] = field(default_factory=list)
    """Remaining entries and reasons; the first of them."""
    left: int = 0


def remove_one(place: Place) -> RemovalReport:
    """A file, a link, or an empty folder."""
    found = place.need()
    try:
        if stat.S_ISDIR(found.st_mode):
            os.rmdir(place.name, dir_fd=place.folder)
            return RemovalReport(folders=1)
        os.unlink(place.name, dir_fd=place.folder)
    except OSError as error:
        raise cannot("delete", place.asked, error) from None
    return RemovalReport(files=1, size_bytes=found.st_size)


def remove_tree(place: Place, stop: Callable[[], bool]) -> RemovalReport:
    """A folder with all its content. `stop`: whether to stop halfway."""
    removal = _Removal(stop)
    removal.remove(place.folder, place.name, place.path, 0)
    return removal.removed


class _Removal:
    def __init__(self, stop: Callable[[], bool]) -> None:
        self._stop = stop
        self.removed = RemovalReport()

    def remove(self, folder: int, name: str, path: str, depth: int) -> None:
        """A folder in an open folder."""
        left = self.removed.left
        try:
            if depth > DEEPEST:
                raise OSError(errno.ELOOP, f"it is more than {DEEPEST} levels down")
            inner = open_folder(name, folder=folder)
            try:
                if _mount_of(inner) != _mount_of(folder):
                    raise OSError(errno.EXDEV, "something else is mounted there")
                self._empty(inner, path, depth)
            finally:
                os.close(inner)
            if self.removed.left == left:
                os.rmdir(name, dir_fd=folder)
                self.removed.folders += 1
        except OSError as error:
            self._leave(path, error)

    def _empty(self, folder: int, path: str, depth: int) -> None:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_folder in found:
            where = f"{path}/{name}"
            try:
                if self._stop():
                    self._leave(where, OSError(errno.ETIME, "there was no time left"))
                    return
                if is_folder:
                    self.remove(folder, name, where, depth + 1)
                    continue
                size = os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
                os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._leave(where, error)
                continue
            self.removed.files += 1
            self.removed.size_bytes += size

    def _leave(self, path: str, why: OSError) -> None:
        self.removed.left += 1
        if len(self.removed.faults) < _FAULTS_KEPT:
            self.removed.faults.append(f"{path}: {why.strerror}")


def _mount_of(folder: int) -> str:
    """Its mount: a bind mount of the same disk has the same device."""
    with open(f"/proc/self/fdinfo/{folder}", encoding="ascii") as file:
        return next(line for line in file if line.startswith("mnt_id"))
