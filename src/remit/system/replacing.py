"""A file put in its place whole: at any moment, and after any crash, the old one is there or the new one, never a part.

Written beside it under a name of its own (`.NAME.remit-PID-xxxxxxxx.tmp`: whoever finds one knows that its writer died), on disk, then
renamed over it; all in one open folder. Used by `agents.builtin.worker` through a `Place`.
"""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Callable

from remit.core.errors import Failed, Stopped
from remit.system.beneath import Place, cannot, kind_of, leads_out, shown

TEMPORARY = re.compile(r"\.(?P<name>.+)\.remit-(?P<pid>\d+)-[0-9a-f]{8}\.tmp\Z", re.DOTALL)
_NAME_BYTES = 255
_ACCESS_LIST, _CAPABILITY = "system.posix_acl_access", "security.capability"


def replace_file(place: Place, data: bytes, stop: Callable[[], bool] = lambda: False) -> bool:
    """Whether it is new. Permissions of the one before are kept, access lists and other attributes with them, its owner as far as we may;
    but nothing stays setuid, as with any write, and nobody else gains anything by it.

    A hard link to it elsewhere keeps the old content: it is another name for the old file, and may be outside.
    """
    before = place.stat()
    _need_writable(place, before)
    temporary = _temporary_name(place.name)
    try:
        try:
            _write_new(place, temporary, data, before)
            if stop():
                raise Stopped(f"{shown(place.asked)} was left as it is: nobody waits for it any more.")
            os.rename(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
            _sync(place.folder)
        except OSError as error:
            raise cannot("write", place.asked, error) from None
    finally:
        with contextlib.suppress(OSError):  # gone when all went well; if it cannot be removed, the first error matters more
            os.unlink(temporary, dir_fd=place.folder)
    return before is None


def make_folder(place: Place) -> bool:
    """Whether it had to be made."""
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
    try:
        may_write = os.access(place.name, os.W_OK, dir_fd=place.folder, effective_ids=True, follow_symlinks=False)
    except NotImplementedError:  # a C library without it: the folder's permissions decide, as with any rename
        return
    if not may_write:
        raise Failed(f"{shown(place.asked)} is read-only.", advice="Change its permissions if it is to be written.")


def _write_new(place: Place, name: str, data: bytes, before: os.stat_result | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # Nobody else may read it until it has the permissions of the one it replaces.
    descriptor = os.open(name, flags, 0o666 if before is None else 0o600, dir_fd=place.folder)
    try:
        if before is not None:
            _permit_as(place, descriptor, before)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _permit_as(place: Place, descriptor: int, before: os.stat_result) -> None:
    """Who may do what with the new file: exactly those who might with the one before, or fewer where that is not ours to give."""
    mode = stat.S_IMODE(before.st_mode) & ~(stat.S_ISUID | stat.S_ISGID)
    try:
        os.fchown(descriptor, before.st_uid, before.st_gid)
    except PermissionError:  # another's file in a folder of ours
        try:
            os.fchown(descriptor, -1, before.st_gid)
        except PermissionError:
            mode &= ~stat.S_IRWXG  # its group would be another one now
    held = _attributes(place)
    with contextlib.suppress(OSError):  # what the folder hands on to new files was not the old one's
        os.removexattr(descriptor, _ACCESS_LIST)
    # Of a file with an access list the group's bits are the most that anybody on the list may do, not what the group may.
    os.fchmod(descriptor, mode & ~stat.S_IRWXG if _ACCESS_LIST in held else mode)
    for name, value in held.items():
        with contextlib.suppress(OSError):  # not ours to set, or the disk knows none
            os.setxattr(descriptor, name, value)


def _attributes(place: Place) -> dict[str, bytes]:
    """Of the file before, without what any write takes away from it."""
    held: dict[str, bytes] = {}
    if not hasattr(os, "listxattr"):
        return held
    path = f"/proc/self/fd/{place.folder}/{place.name}"
    with contextlib.suppress(OSError):
        for name in os.listxattr(path, follow_symlinks=False):
            if name != _CAPABILITY:
                with contextlib.suppress(OSError):
                    held[name] = os.getxattr(path, name, follow_symlinks=False)
    return held


def _sync(folder: int) -> None:
    """The name too is on disk then. A folder that may be written but not read cannot be synced; the file is whole all the same."""
    with contextlib.suppress(PermissionError):
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _temporary_name(name: str) -> str:
    tail = f".remit-{os.getpid()}-{secrets.token_hex(4)}.tmp"
    kept = os.fsencode(name)[: _NAME_BYTES - len(tail) - 1].decode("utf-8", "ignore")
    return f".{kept or 'file'}{tail}"
