"""Files and folders removed by what they are, not by where a path leads: links are removed themselves, never what they name.

Goes down by open folders alone, so a folder that is swapped for a link meanwhile is not entered; of any depth. Where something else is
mounted is no part of the tree: it is not entered either. Used by `agents.builtin.worker` through a `Place`.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass, field

from remit.core.errors import Refused
from remit.system import openat2
from remit.system.beneath import Place, cannot, leads_out

DEEPEST = 64
"""Levels that are open at once. What lies deeper is moved up first: file descriptors are few, and trees can be deep without end."""
_LIST = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_FAULTS_KEPT = 20


@dataclass(slots=True)
class Removed:
    files: int = 0
    """Links among them."""
    folders: int = 0
    size_bytes: int = 0
    faults: list[str] = field(default_factory=list)
    """What is left, and why; the first of them."""
    left: int = 0


def remove_one(place: Place) -> Removed:
    """A file, a link, or a folder that is empty."""
    found = place.need()
    try:
        if stat.S_ISDIR(found.st_mode):
            os.rmdir(place.name, dir_fd=place.folder)
            return Removed(folders=1)
        os.unlink(place.name, dir_fd=place.folder)
    except OSError as error:
        raise cannot("delete", place.asked, error) from None
    return Removed(files=1, size_bytes=found.st_size)


def remove_tree(place: Place, keep: Callable[[str], str | None], stop: Callable[[], bool]) -> Removed:
    """A folder and all that is in it. `keep`: why something of that name is not to be touched, or None; `stop`: whether to stop halfway."""
    try:
        top = _opened(place.folder, place.name)
    except OSError as error:
        raise _is_mounted(place) if error.errno == errno.EXDEV else cannot("delete", place.asked, error) from None
    removal = _Removal(top, keep, stop)
    try:
        removal.empty(top, place.path, 0)
        while removal.moved_up:
            name, path = removal.moved_up.pop()
            removal.remove(top, name, path, 0)
    finally:
        os.close(top)
    if not removal.removed.left:
        removal.remove_folder(place.folder, place.name, place.path)
    return removal.removed


class _Removal:
    __slots__ = ("_keep", "_stop", "_top", "moved_up", "removed")

    def __init__(self, top: int, keep: Callable[[str], str | None], stop: Callable[[], bool]) -> None:
        self._top, self._keep, self._stop = top, keep, stop
        self.removed = Removed()
        self.moved_up: list[tuple[str, str]] = []
        """Names that now stand in the top folder, and where they came from."""

    def empty(self, folder: int, path: str, depth: int) -> None:
        """All that is in an open folder."""
        try:
            with os.scandir(folder) as entries:
                found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError as error:
            self._leave(path, error)
            return
        for name, is_folder in found:
            if self._stop():
                self._leave(f"{path}/{name}", "there was no time left")
                return
            if (why := self._keep(name)) is not None:
                self._leave(f"{path}/{name}", why)
            elif is_folder:
                self.remove(folder, name, f"{path}/{name}", depth)
            else:
                self._unlink(folder, name, f"{path}/{name}")

    def remove(self, folder: int, name: str, path: str, depth: int) -> None:
        """A folder in an open folder."""
        left = self.removed.left
        try:
            if depth >= DEEPEST:
                self._move_up(folder, name, path)
                return
            inner = _opened(folder, name)
        except OSError as error:
            self._leave(path, "something else is mounted there" if error.errno == errno.EXDEV else error)
            return
        try:
            self.empty(inner, path, depth + 1)
        finally:
            os.close(inner)
        if self.removed.left == left:
            self.remove_folder(folder, name, path)

    def remove_folder(self, folder: int, name: str, path: str) -> None:
        try:
            os.rmdir(name, dir_fd=folder)
            self.removed.folders += 1
        except OSError as error:
            self._leave(path, error)

    def _move_up(self, folder: int, name: str, path: str) -> None:
        new = f".remit-{secrets.token_hex(8)}.tmp"
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=self._top)
        self.moved_up.append((new, path))

    def _unlink(self, folder: int, name: str, path: str) -> None:
        try:
            size = os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            self._leave(path, error)
            return
        self.removed.files += 1
        self.removed.size_bytes += size

    def _leave(self, path: str, why: str | OSError) -> None:
        self.removed.left += 1
        if len(self.removed.faults) < _FAULTS_KEPT:
            self.removed.faults.append(f"{path}: {why if isinstance(why, str) else why.strerror}")


def _opened(folder: int, name: str) -> int:
    """A folder in an open folder, to be emptied. Raises EXDEV where something else is mounted: a disk, or a folder from outside."""
    if openat2.supported():
        return openat2.open_beneath(folder, name, _LIST, crosses_mounts=False)
    inner = os.open(name, _LIST, dir_fd=folder)
    if os.fstat(inner).st_dev != os.fstat(folder).st_dev:
        os.close(inner)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return inner


def _is_mounted(place: Place) -> Refused:
    return leads_out(place.asked, "is where something else is mounted", "Unmount it first; nothing was deleted.")
