"""A path resolved step by step below an open folder: the careful way, where the kernel cannot do it in one go.

Each folder is opened from the one before it without following anything, and links are read and resolved here, so that whoever swaps a
folder for a link meanwhile leads nobody out. Also finds what `openat2` refuses though it stays inside: an absolute link into the root.
Used by `system.beneath` alone.
"""

import errno
import os
from collections.abc import Sequence

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
