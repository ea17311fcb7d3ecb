"""Opens files beneath a root so that no link leads out of it, whatever is swapped meanwhile.

Paths are walked folder by folder from an open one, and no link is followed: links are resolved by name beforehand. `open_regular` opens a
file at a path that is trusted except for its last part."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from remit.core.errors import Failed, Misused, Refused, RemitError
from remit.core.text import shorten

MAX_PATH = 4096
_PASS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""O_PATH: a folder that may be entered but not listed can be traversed."""
_LIST = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: str | Path, flags: int = os.O_RDONLY, mode: int = 0o600, *, folder: int | None = None) -> int:
    """Open a regular file. Follows no link at the end of the path, waits on no pipe, opens no device. Raises `OSError`."""
    if not flags & os.O_EXCL:  # checked first: opening a device can have side effects
        with suppress(FileNotFoundError):
            _need_regular(path, os.stat(path, dir_fd=folder, follow_symlinks=False))
    descriptor = os.open(path, flags | _FILE, mode, dir_fd=folder)
    try:
        _need_regular(path, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _need_regular(path: str | Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.ELOOP if stat.S_ISLNK(found.st_mode) else errno.EISDIR, f"it is {kind_of(found)}, not a file", str(path))


def open_folder(path: str | Path, *, folder: int | None = None) -> int:
    """Open a folder to list it or work in it. Follows no link at the end of the path. Raises `OSError`."""
    return os.open(path, _LIST, dir_fd=folder)


def real_path(path: str | Path) -> str:
    """`os.path.realpath`. Raises `OSError` for a chain of links that is too long for it: an agent can make one."""
    try:
        return os.path.realpath(path)
    except RecursionError:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


def path_inside(root: str | Path, path: str | Path) -> str | None:
    """The path from `root` to where `path` leads after all links; None: outside, or nowhere."""
    try:
        inside = os.path.relpath(real_path(os.path.join(root, path)), real_path(root))
    except OSError:
        return None
    return None if inside == ".." or inside.startswith("../") else inside


def resolve_inside(root: Path, path: str | Path) -> Path:
    """The real location of one of remit's own paths. Raises `Refused` if links lead out of the project, as they may in a clone."""
    inside = path_inside(root, path)
    if inside is None:
        named = shown(os.path.relpath(root / path, root))
        raise Refused(f"{named} leads out of the project: nothing is written there.", code="POLICY_DENIED", advice="Remove the link.")
    return Path(os.path.realpath(root), inside)


class Place(NamedTuple):
    """A location, existing or not: `with root.place(…) as place`, which closes it."""

    folder: int
    """Its open folder."""
    name: str
    """Its name there: "." for the root itself."""
    inside: tuple[str, ...]
    """Its real path from the root, without links. Empty for the root itself."""
    asked: str
    """The requested path, for messages."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self.folder)

    @property
    def path(self) -> str:
        return "/".join(self.inside) or "."

    def stat(self) -> os.stat_result | None:
        """Of itself, never of a link's target; None if it does not exist."""
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
        """For reading; regular files only. Never waits on a pipe, never opens a device."""
        found = self.need()
        if stat.S_ISDIR(found.st_mode):
            raise Misused(f"{shown(self.asked)} is a folder, not a file.", advice="Name a file in it; list_files shows them.")
        if not stat.S_ISREG(found.st_mode):
            raise leads_out(self.asked, f"is {kind_of(found)}, not a file", "Only regular files are read and written.")
        try:
            return open_regular(self.name, folder=self.folder)
        except OSError as error:
            raise cannot("read", self.asked, error) from None

    def open_folder(self) -> int:
        """For listing, or as a working folder."""
        found = self.need()
        if not stat.S_ISDIR(found.st_mode):
            raise Misused(f"{self.asked} is {kind_of(found)}, not a folder.", advice="Name the folder that contains it.")
        try:
            return open_folder(self.name, folder=self.folder)
        except OSError as error:
            raise cannot("open", self.asked, error) from None


class Root:
    """An open folder."""

    __slots__ = ("descriptor", "path")

    def __init__(self, path: str | Path, *, descriptor: int | None = None) -> None:
        """`descriptor`: the already open folder. This object closes it; `path` is only its name."""
        self.path = os.path.abspath(path)
        try:
            self.descriptor = os.open(self.path, _LIST & ~os.O_NOFOLLOW) if descriptor is None else descriptor
        except OSError as error:
            raise cannot("open", self.path, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self.descriptor)

    def place(self, path: str, *, follow: bool = True) -> Place:
        """Where `path` leads. `follow`: resolve a final link; its target need not exist."""
        parts = parts_of(path, self.path)
        try:
            try:
                return self._enter(parts, path, follow)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                    raise
            return self._enter(self._without_links(parts, path, follow), path, follow)
        except OSError as error:
            raise cannot("find", path, error) from None

    def _enter(self, parts: tuple[str, ...], asked: str, follow: bool) -> Place:
        """Folder by folder, through no link: whatever is swapped meanwhile, nothing outside is reached."""
        folder = os.open(".", _PASS, dir_fd=self.descriptor)
        try:
            for part in parts[:-1]:
                deeper = os.open(part, _PASS, dir_fd=folder)
                os.close(folder)
                folder = deeper
            place = Place(folder=folder, name=parts[-1] if parts else ".", inside=parts, asked=asked)
            if follow and (found := place.stat()) is not None and stat.S_ISLNK(found.st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        except BaseException:
            os.close(folder)
            raise
        return place

    def _without_links(self, parts: tuple[str, ...], asked: str, follow: bool) -> tuple[str, ...]:
        """The same path with its links resolved, by name."""
        top = f"/proc/self/fd/{self.descriptor}"
        before, last = (parts, ()) if follow else (parts[:-1], parts[-1:])
        inside = path_inside(top, "/".join(before))
        if inside is None:
            raise leads_out(asked)
        return (*(part for part in inside.split("/") if part != "."), *last)


def parts_of(path: str, root: str = "") -> tuple[str, ...]:
    """The path's parts, from its text: relative, without `..`. Touches no file."""
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
    """A system error as a message with advice."""
    what = shown(path)
    if error.errno == errno.ENOENT:
        return not_found(path)
    if error.errno in (errno.ENOTDIR, errno.ELOOP):
        why = "its links form a circle" if error.errno == errno.ELOOP else "a part of its path is not a folder"
        return Failed(f"There is no {what}: {why}.", code="FILE_NOT_FOUND", advice="Check the path.")
    if error.errno in (errno.ENAMETOOLONG, errno.EINVAL):
        return Misused(f"{what} cannot be the name of a file: {error.strerror}.", advice="Give a shorter, plain name.")
    advice = "Check its permissions, its folder and the space on its disk."
    return Failed(f"Cannot {verb} {what}: {error.strerror or type(error).__name__}.", advice=advice)


def shown(path: str) -> str:
    """A path for a message, on one short line."""
    text = path if path.isprintable() and path.strip() == path else repr(path)
    return shorten(text, 200)
