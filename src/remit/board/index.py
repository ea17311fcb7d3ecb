"""The user's index of git around a commit of ours: as it was when nothing came of it, and true to HEAD in our paths when something did.

Used by `committing` alone.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from remit.board.repository import Repository, chunks, literal
from remit.core.errors import Unavailable

_PAUSE_SECONDS = 0.05
_OURS_AGAIN_SECONDS = 2.0


class InTheWay(Unavailable):
    """Somebody else is at something that must end first: the same commit can be made later."""


def wait_for_index(repository: Repository, seconds: float) -> None:
    """Until nobody writes it. Raises `InTheWay` naming the lock."""
    lock = repository.index.with_name("index.lock")
    give_up_at = min(time.monotonic() + seconds, repository.git.stop_at)
    while os.path.lexists(lock):
        if time.monotonic() >= give_up_at:
            age = _age_of(lock)
            raise InTheWay(f"{lock} is held{age}. If no git is running here, one that died left it: remove it")
        time.sleep(_PAUSE_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptIndex:
    """The index as it was, and as we have left it."""

    path: Path
    before: bytes | None
    """None: there was none."""
    ours: bytes | None
    added: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: Path) -> "KeptIndex":
        found = _bytes_of(path)
        return cls(path=path, before=found, ours=found)

    def changed_by_us(self, added: Sequence[str]) -> "KeptIndex":
        return replace(self, ours=_bytes_of(self.path), added=tuple(added))

    def restore(self, repository: Repository) -> None:
        """Put back what was; where somebody else has changed it since, only take our entries out again."""
        if self.ours == self.before:
            return
        with contextlib.suppress(Unavailable):  # in somebody's hands: our entries without content harm nobody
            with _held(self.path) as lock:
                if _bytes_of(self.path) == self.ours:
                    self._put_back(lock)
                    return
            entries = b"".join(os.fsencode(path) + b"\0" for path in self.added)
            repository.git.run("update-index", "--force-remove", "-z", "--stdin", stdin=entries)

    def _put_back(self, lock: Path) -> None:
        if self.before is None:
            self.path.unlink()
            return
        lock.write_bytes(self.before)
        os.chmod(lock, self.path.stat().st_mode & 0o777)
        os.replace(lock, self.path)


def settle_index(repository: Repository, before: str, after: str, named: Sequence[str]) -> set[str]:
    """Make the index say what HEAD says of the paths that the commit changed: these.

    Git has done it for what we named, except where a hook has changed the files on their way (a formatter that adds its result), and
    where it was stopped in between. A path that only a hook has added is left alone where the user has staged something of it.
    """
    committed = _raw(repository, "diff-tree", "-r", *((before, after) if before else ("--root", "--no-commit-id", after)))
    old = {path: entry[:2] for path, entry in committed.items()}
    lines = []
    for some in chunks([literal(path) for path in old]):
        for path, (head_mode, head_hash, mode, blob) in _raw(repository, "diff-index", "--cached", after, "--", *some).items():
            if path in named or (mode, blob) == old[path]:
                lines.append(os.fsencode(f"{head_mode} {head_hash}\t{path}") + b"\0")
    if lines:
        repository.git.run("update-index", "-z", "--index-info", stdin=b"".join(lines))
    return set(committed)


def _raw(repository: Repository, *arguments: str) -> dict[str, tuple[str, str, str, str]]:
    """By path: mode and hash before, mode and hash after."""
    command, *rest = arguments
    output = os.fsdecode(repository.git.run(command, "--raw", "-z", "--no-renames", "--no-abbrev", *rest)).split("\0")
    entries = {}
    for head, path in zip(output[::2], output[1::2], strict=False):
        old_mode, new_mode, old_hash, new_hash, _ = head.lstrip(":").split(" ")
        entries[path] = (old_mode, old_hash, new_mode, new_hash)
    return entries


@contextlib.contextmanager
def _held(index: Path) -> Iterator[Path]:
    """Git's own lock of the index, taken as git takes it."""
    lock = index.with_name("index.lock")
    give_up_at = time.monotonic() + _OURS_AGAIN_SECONDS
    while True:
        try:
            os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
            break
        except FileExistsError:
            if time.monotonic() > give_up_at:
                raise Unavailable(f"{lock} is held.") from None
            time.sleep(_PAUSE_SECONDS)
    try:
        yield lock
    finally:
        lock.unlink(missing_ok=True)  # gone when it became the index


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _age_of(lock: Path) -> str:
    with contextlib.suppress(OSError):
        return f" since {max(0.0, time.time() - lock.stat().st_mtime):.0f} s"
    return ""
