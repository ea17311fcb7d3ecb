"""Inspects artifacts: whether the path is inside the root, and the file's size, hash and time.

Follows no symlink out of the root, waits on no pipe, opens no device, reads no endless file. Only reports; `validate` and `harvest` decide.
Blocking: call it off the event loop if files may be large."""

import errno
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from remit.core.errors import Refused, RemitError
from remit.core.protected_paths import is_private
from remit.core.result import Artifact, Evidence
from remit.system.beneath import Root, open_regular

HASH_LIMIT_BYTES = 1 << 30
"""Maximum bytes hashed of a file, which may grow for ever."""
FILE_CLOCK_LAG_SECONDS = 0.02
"""Resolution of file times: a file just written can seem older, on a busy machine by several ticks."""
SEEING_SECONDS = 2.0
_BLOCK = 1 << 18
_MAX_PATH = 4096


class FileInfo(NamedTuple):
    size: int
    sha256: str
    """Of the first `hashed_bytes` bytes."""
    mtime: float
    hashed_bytes: int

    @property
    def is_whole(self) -> bool:
        return self.hashed_bytes >= self.size

    def checked(self, artifact: Artifact) -> Artifact:
        """The artifact with the measured values of its file."""
        return replace(artifact, evidence=Evidence.CHECKED, size=self.size, sha256=self.sha256, mtime=self.mtime)


class FileProblem(NamedTuple):
    """Why there is nothing to record."""

    reason: str
    """Continues a sentence: "does not exist"."""
    is_outside: bool = False
    """The path leads out of the root: a violation with any status, not merely a missing file."""


def path_fault(path: str) -> str | None:
    """The fault of the path as text, or None; touches no file."""
    if not path or not path.strip():
        return "is empty"
    if "\0" in path:
        return "contains a NUL character"
    if len(path) > _MAX_PATH:
        return f"is longer than {_MAX_PATH} characters"
    if path.startswith(("/", "~")):
        return "is not relative to the project root"
    if ".." in path.split("/"):
        return "contains '..'"
    if not PurePosixPath(path).parts:
        return "names the project root itself"
    return None


def relative_path(root: Path, path: str | Path) -> str:
    """`path` as an artifact's path: relative to `root` if it is absolute and inside; otherwise unchanged."""
    given = os.fspath(path)
    if not os.path.isabs(given):
        return given
    for base in (os.path.abspath(root), os.path.realpath(root)):
        if given.startswith(base.rstrip("/") + "/"):
            return os.path.relpath(given, base)
    return given


def inspect_artifact(root: Path, path: str, *, within: str = "", stop_at: float | None = None) -> FileInfo | FileProblem:
    """Size, hash and time of the file at `path` in `root`, or why not. `stop_at` (monotonic) ends the hashing early."""
    descriptor = open_artifact(root, path, within=within)
    if isinstance(descriptor, FileProblem):
        return descriptor
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        return _read(file.fileno(), stop_at)


def open_artifact(
    root: Path, path: str, *, within: str = "", is_forbidden: Callable[[str], bool] = lambda _real: False
) -> int | FileProblem:
    """A descriptor of the regular file at `path` in `root`, or why not.

    `within`: a folder of the root (a workspace) that `path` is relative to and that no link may leave either. `is_forbidden`: asked about
    the path that links lead to."""
    fault = path_fault(path)
    if fault is not None:
        return FileProblem(reason=fault, is_outside=True)
    try:
        with Root(os.path.join(root, within)) as opened, opened.place(path) as place:
            return FileProblem(reason="is protected") if is_forbidden(place.path) else open_regular(place.name, folder=place.folder)
    except Refused:
        return FileProblem(reason=f"leads out of the {'workspace' if within else 'project root'} by a symlink", is_outside=True)
    except RemitError as error:
        return FileProblem(reason="does not exist" if error.code == "FILE_NOT_FOUND" else error.message)
    except (OSError, ValueError) as error:
        return FileProblem(reason=_why(error))


def checked_artifacts(root: Path, artifacts: Sequence[Artifact]) -> tuple[Artifact, ...]:
    """Existing artifacts, with their size, hash and time."""
    found = []
    stop_at = time.monotonic() + SEEING_SECONDS
    for artifact in artifacts:
        seen = inspect_artifact(root, artifact.path, stop_at=stop_at)
        if isinstance(seen, FileInfo) and seen.size > 0:
            found.append(seen.checked(artifact))
    return tuple(found)


def read_bounded(path: Path, limit_bytes: int) -> bytes | None:
    """The content of a regular file, at most `limit_bytes` plus one; None if unreadable."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read(limit_bytes + 1)
    except (OSError, ValueError):
        return None


def read_inside(root: Path, path: str, limit_bytes: int) -> bytes | None:
    """The content of a file of the project, at most `limit_bytes` plus one; None if missing, outside, private or unreadable."""
    descriptor = open_artifact(root, path, is_forbidden=is_private)
    if isinstance(descriptor, FileProblem):
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit_bytes + 1)


def _read(descriptor: int, stop_at: float | None) -> FileInfo | FileProblem:
    found = os.fstat(descriptor)
    if found.st_size == 0:
        return FileProblem(reason="is empty")
    digest, hashed = hashlib.sha256(), 0
    try:
        # Up to its size when opened: a growing file is recorded with that size.
        most = min(found.st_size, HASH_LIMIT_BYTES)
        while hashed < most:
            block = os.read(descriptor, min(_BLOCK, most - hashed))
            if not block:
                break
            digest.update(block)
            hashed += len(block)
            if stop_at is not None and time.monotonic() > stop_at:
                break
    except OSError as error:
        return FileProblem(reason=_why(error))
    return FileInfo(size=found.st_size, sha256=digest.hexdigest(), mtime=found.st_mtime, hashed_bytes=hashed)


def _why(error: OSError | ValueError) -> str:
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.ENOENT, errno.ENOTDIR):
        return "does not exist"
    if code == errno.EISDIR:
        return "is not a regular file"
    if code == errno.ELOOP:
        return "is a symlink that leads nowhere"
    return f"cannot be read ({error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__})"
