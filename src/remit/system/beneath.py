"""Files beneath a root, opened so that nobody is led out of it: no link is followed, whatever is swapped meanwhile.

By `openat2` where the kernel has it, else step by step. The one way in which this package, workers, boards and servers open files that
others may change."""

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from remit.core.errors import Failed, Misused, Refused, RemitError

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_BENEATH = 0x08
_NUMBER = 437
"""The same on every architecture but alpha, which we do not know."""
_TRIES = 64
"""A folder renamed anywhere while `..` of a link is resolved makes the kernel ask to try again."""


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def _syscall() -> "ctypes._NamedFuncPointer":
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_How), ctypes.c_size_t]
    call.restype = ctypes.c_long
    return call


def open_beneath(folder: int, path: str, flags: int, *, crosses_mounts: bool = True) -> int:
    """An existing file or folder at or below the open `folder`; links are followed as long as they stay there.

    Raises `OSError`: EXDEV for what leads out (every absolute link among it) or, unless it `crosses_mounts`, to where something else is
    mounted; EAGAIN when the tree changes too fast.
    """
    resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (0 if crosses_mounts else RESOLVE_NO_XDEV)
    how = _How(flags | os.O_CLOEXEC, 0, resolve)
    name = os.fsencode(path)
    code = 0
    for _ in range(_TRIES):
        descriptor = _syscall()(_NUMBER, folder, name, ctypes.byref(how), ctypes.sizeof(how))
        if descriptor >= 0:
            return int(descriptor)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code), path)


@cache
def supported() -> bool:
    """Asked once: an old kernel has no such call, and a sandbox may forbid it. /proc is needed to learn where a path led."""
    if sys.platform != "linux" or not hasattr(os, "O_PATH"):
        return False
    try:
        folder = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.close(open_beneath(folder, ".", os.O_PATH | os.O_DIRECTORY))
        return os.readlink(f"/proc/self/fd/{folder}") == "/"
    except OSError:
        return False
    finally:
        os.close(folder)


FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""O_PATH: a folder that may be entered but not listed can be passed through."""
MOST_LINKS = 40
"""As the kernel has it."""
MOST_STEPS = 10_000
"""Links whose targets are thousands of `..` come to an end here."""


class LeadsOut(Exception):
    """The path, or a link on it, leads out of the root."""


def walk(root: int, parts: Sequence[str], *, names: Sequence[str], follow: bool) -> tuple[int, str, tuple[str, ...]]:
    """The folder that holds it, open, its name there, and the folder's own path. The name is no link if `follow`; it need not exist.

    `names`: absolute paths that the root is known by, for absolute links into it. A path that is the root itself has the name ".".
    """
    walker = _Walker(root, parts, names)
    try:
        name = walker.arrive(follow)
    except BaseException:
        os.close(walker.folder)
        raise
    return walker.folder, name, tuple(walker.passed)


class _Walker:
    __slots__ = ("_links", "_names", "_pending", "_root", "_steps", "folder", "passed")

    def __init__(self, root: int, parts: Sequence[str], names: Sequence[str]) -> None:
        self._root, self._names = root, names
        self._pending = list(reversed(parts))
        self._links = self._steps = 0
        self.folder = os.open(".", FOLDER, dir_fd=root)
        self.passed: list[str] = []
        """Folders, none of them a link, from the root to where we are."""

    def arrive(self, follow: bool) -> str:
        while self._pending:
            self._steps += 1
            if self._steps > MOST_STEPS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            part = self._pending.pop()
            if part == "..":
                self._back()
            elif part not in ("", "."):
                if not self._pending:
                    target = self._link_at(part) if follow else None
                    if target is None:
                        return part
                    self._follow(target)
                elif not self._enter(part):
                    self._follow(self._need_link(part))
        return "."

    def _enter(self, part: str) -> bool:
        try:
            deeper = os.open(part, FOLDER, dir_fd=self.folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                return False
            raise
        os.close(self.folder)
        self.folder = deeper
        self.passed.append(part)
        return True

    def _link_at(self, part: str) -> str | None:
        try:
            return os.readlink(part, dir_fd=self.folder)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def _need_link(self, part: str) -> str:
        target = self._link_at(part)
        if target is None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), "/".join((*self.passed, part)))
        return target

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.startswith("/"):
            target = self._below_root(target)
            self._restart()
        self._pending.extend(reversed(target.split("/")))

    def _below_root(self, target: str) -> str:
        for name in self._names:
            if target == name:
                return ""
            if target.startswith(name.rstrip("/") + "/"):
                return target[len(name.rstrip("/")) + 1 :]
        raise LeadsOut

    def _back(self) -> None:
        """Through `..` of a link. From the root again, not by the folder's own "..": that may have been moved out of the root by now."""
        if not self.passed:
            raise LeadsOut
        again = self.passed[:-1]
        self._restart()
        # "." in the end: what is named here are folders to be entered, never what the path arrives at.
        self._pending.extend((*([] if self._pending else ["."]), *reversed(again)))

    def _restart(self) -> None:
        fresh = os.open(".", FOLDER, dir_fd=self._root)
        os.close(self.folder)
        self.folder, self.passed = fresh, []


MAX_PATH = 4096
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_FOLLOWED = FOLDER & ~os.O_NOFOLLOW
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something is or would be: `with root.place(…) as place`, which closes it."""

    folder: int
    """The folder that holds it, open."""
    name: str
    """Its name there: "." for the root itself."""
    inside: tuple[str, ...]
    """Its path from the root as it really is: no link is on it. Empty for the root itself."""
    asked: str
    """As it was asked for, for messages."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self.folder)

    @property
    def path(self) -> str:
        return "/".join(self.inside) or "."

    def stat(self) -> os.stat_result | None:
        """Of itself, never of what a link names; None when nothing is there."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise cannot("look at", self.asked, error) from None

    def need(self) -> os.stat_result:
        found = self.stat()
        if found is None:
            raise not_found(self.asked)
        return found

    def open_file(self) -> int:
        """For reading; of a regular file only. Never waits on a pipe, never opens a device that was seen to be one."""
        return self.open_seen()[0]

    def open_seen(self) -> tuple[int, os.stat_result]:
        """The same, and what was opened."""
        _need_file(self.asked, self.need())
        try:
            descriptor = os.open(self.name, _READ, dir_fd=self.folder)
        except OSError as error:
            raise cannot("read", self.asked, error) from None
        try:
            opened = os.fstat(descriptor)
            _need_file(self.asked, opened)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, opened

    def open_folder(self) -> int:
        """To be listed, or worked in."""
        found = self.need()
        if not stat.S_ISDIR(found.st_mode):
            raise Misused(f"{self.asked} is {kind_of(found)}, not a folder.", advice="Name the folder that holds it.")
        try:
            return os.open(self.name, _LIST, dir_fd=self.folder)
        except OSError as error:
            raise cannot("open", self.asked, error) from None


class Root:
    """An open folder. `by_steps`: resolve paths ourselves even where the kernel could."""

    __slots__ = ("_by_steps", "descriptor", "path")

    def __init__(self, path: str | Path, *, descriptor: int | None = None, by_steps: bool = False) -> None:
        """`descriptor`: the folder, open already; it becomes this one's to close, and `path` is only what it is called."""
        self.path = os.path.abspath(path)
        self._by_steps = by_steps or not supported()
        try:
            self.descriptor = os.open(self.path, _LIST & ~os.O_NOFOLLOW) if descriptor is None else descriptor
        except OSError as error:
            raise cannot("open", self.path, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self.descriptor)

    def place(self, path: str, *, follow: bool = True) -> Place:
        """Where `path` leads. `follow`: a link at its very end is followed, to what it names; what it names need not exist."""
        parts = parts_of(path, self.path)
        try:
            return self._found(path, parts, follow)
        except LeadsOut:
            raise leads_out(path) from None
        except OSError as error:
            raise cannot("find", path, error) from None

    def _found(self, asked: str, parts: Sequence[str], follow: bool) -> Place:
        found = None if self._by_steps else self._by_kernel(parts, follow)
        if found is None:
            names = dict.fromkeys((self.path, os.path.realpath(self.path)))
            found = walk(self.descriptor, parts, names=tuple(names), follow=follow)
        folder, name, passed = found
        if name == ".":
            return Place(folder=folder, name=name, inside=passed, asked=asked)
        return Place(folder=folder, name=name, inside=(*passed, name), asked=asked)

    def _by_kernel(self, parts: Sequence[str], follow: bool) -> tuple[int, str, tuple[str, ...]] | None:
        """None where it must be looked at step by step: a link at the end, or a path the kernel will not follow."""
        above = parts[:-1]
        try:
            # What the root itself holds is there by the root's own descriptor: no path has to be followed, and none can be swapped.
            folder = open_beneath(self.descriptor, "/".join(above), _FOLLOWED) if above else os.dup(self.descriptor)
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.ELOOP, errno.EAGAIN):
                return None
            raise
        try:
            name = parts[-1] if parts else "."
            passed = self._inside(folder) if above else ()
            if passed is None or (follow and parts and _is_link(folder, name)):
                os.close(folder)
                return None
        except BaseException:
            os.close(folder)
            raise
        return folder, name, passed

    def _inside(self, folder: int) -> tuple[str, ...] | None:
        """Where an open folder is now; None when that is no longer below the root."""
        here = os.readlink(f"/proc/self/fd/{self.descriptor}").rstrip("/")
        there = os.readlink(f"/proc/self/fd/{folder}")
        if there == (here or "/"):
            return ()
        return tuple(there[len(here) + 1 :].split("/")) if there.startswith(here + "/") else None


def parts_of(path: str, root: str = "") -> tuple[str, ...]:
    """The path's parts, as text alone: relative, without `..`. Touches no file."""
    if not path or path.isspace():
        raise Misused("The path is empty.", advice='Give a path below the workspace, e.g. "README.md"; "." is the workspace itself.')
    if "\0" in path:
        raise Misused("The path contains a NUL character.", advice="Give a plain path below the workspace.")
    if len(path) > MAX_PATH:
        raise Misused(f"The path is longer than {MAX_PATH} characters.", advice="Give a shorter path.")
    if path.startswith("/"):
        inside = path.removeprefix(root.rstrip("/") + "/") if root else path
        advice = f"Give it as {inside!r}." if not inside.startswith("/") else "Give a path below the workspace, e.g. 'src/main.py'."
        raise leads_out(path, "is absolute; paths are relative to the workspace", advice)
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise leads_out(path, "contains '..'", "Give a path below the workspace, without '..'.")
    return parts


def kind_of(found: os.stat_result) -> str:
    return next((words for is_kind, words in _KINDS if is_kind(found.st_mode)), "a file")


def leads_out(path: str, why: str = "leads out of the workspace", advice: str = "") -> Refused:
    return Refused(f"{shown(path)} {why}.", code="POLICY_DENIED", advice=advice or "Only files of the workspace can be reached.")


def not_found(path: str, advice: str = "") -> Failed:
    return Failed(f"There is no {shown(path)}.", code="FILE_NOT_FOUND", advice=advice or "Look at what there is with list_files.")


def cannot(verb: str, path: str, error: OSError) -> RemitError:
    """An error of the system in words that say what to do."""
    what = shown(path)
    if error.errno == errno.ENOENT:
        return not_found(path)
    if error.errno == errno.ENOTDIR:
        return Failed(f"There is no {what}: a part of its path is not a folder.", code="FILE_NOT_FOUND", advice="Check the path.")
    if error.errno == errno.ELOOP:
        return Failed(f"There is no {what}: its links lead round in a circle.", code="FILE_NOT_FOUND", advice="Mend the link.")
    if error.errno in (errno.ENAMETOOLONG, errno.EINVAL):
        return Misused(f"{what} cannot be the name of a file: {error.strerror}.", advice="Give a shorter, plain name.")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = "Change its permissions, or those of its folder; or work elsewhere."
    elif error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "Make room on the disk; nothing was changed."
    else:
        advice = "Look at the file and its disk."
    return Failed(f"Cannot {verb} {what}: {error.strerror or type(error).__name__}.", advice=advice)


def shown(path: str) -> str:
    """A path for a message: whatever it holds, in one short line."""
    text = path if path.isprintable() and path.strip() == path else repr(path)
    return text if len(text) <= 200 else text[:197] + "…"


def _need_file(asked: str, found: os.stat_result) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISDIR(found.st_mode):
        raise Misused(f"{shown(asked)} is a folder, not a file.", advice="Name a file in it; list_files shows them.")
    raise leads_out(asked, f"is {kind_of(found)}, not a file", "Only regular files are read and written.")


def _is_link(folder: int, name: str) -> bool:
    try:
        os.readlink(name, dir_fd=folder)
    except OSError:
        return False
    return True
