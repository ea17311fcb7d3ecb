"""Collects the files of a stopped agent, declared or changed, and hashes them within a time limit."""

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from remit.core.context import GIVEN
from remit.core.jsonable import clean_text
from remit.core.result import Artifact
from remit.core.text import list_some
from remit.system.artifact_files import (
    FILE_CLOCK_LAG_SECONDS,
    HASH_LIMIT_BYTES,
    FileInfo,
    FileProblem,
    inspect_artifact,
    relative_path,
)
from remit.system.threads import off_loop

SKIPPED_FOLDERS = frozenset(
    {
        ".git", ".hg", ".svn", ".remit", "node_modules", ".venv", "venv", "__pycache__", ".cache", ".tox", ".nox",
        ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache", ".ipynb_checkpoints", ".gradle",
    }
)  # fmt: skip
"""Folders of tools, never an agent's work."""
_LOOK_AT_CLOCK_EVERY = 256


class FoundFile(NamedTuple):
    path: str
    """Relative to the base folder."""
    size: int
    changed_at: float
    """Wall clock, at the file system's resolution."""


@dataclass(slots=True)
class SearchResult:
    found: list[FoundFile] = field(default_factory=list)
    is_whole: bool = True
    """False: the time was up."""


def search(
    base: Path, below: str, stop_at: float, changed_since: float | None = None, skipped: frozenset[str] = SKIPPED_FOLDERS
) -> SearchResult:
    """Regular files in `base/below` that changed since then (wall clock; None: all). Changed folders are searched first.
    `stop_at`: monotonic clock."""
    result, since = SearchResult(), float("-inf") if changed_since is None else changed_since
    folders, entries = deque([below]), 0
    while folders:
        folder = folders.popleft()
        with contextlib.suppress(OSError), os.scandir(os.path.join(base, folder)) as listed:  # removed meanwhile, or unreadable
            for entry in listed:
                entries += 1
                if entries % _LOOK_AT_CLOCK_EVERY == 0 and time.monotonic() > stop_at:
                    result.is_whole = False
                    return result
                with contextlib.suppress(OSError, UnicodeEncodeError):  # no return can contain a name that is not UTF-8
                    _visit(entry, f"{folder}/{entry.name}" if folder else entry.name, since, skipped, result, folders)
    return result


def _visit(entry: os.DirEntry[str], path: str, since: float, skipped: frozenset[str], result: SearchResult, folders: deque[str]) -> None:
    # Uses the change time, not the modification time: an unpacked, moved or downloaded file may have an old modification time, and only
    # the kernel sets the change time.
    if entry.is_dir(follow_symlinks=False):
        if entry.name not in skipped:
            (folders.appendleft if entry.stat(follow_symlinks=False).st_ctime >= since else folders.append)(path)
    elif entry.is_file(follow_symlinks=False) and (found := entry.stat(follow_symlinks=False)).st_ctime >= since:
        path.encode()
        result.found.append(FoundFile(path, found.st_size, found.st_ctime))


HARVEST_SECONDS = 0.3
_SEARCH_SHARE = 0.45
"""Share of the time for the search: less than half, so that waiting requests have time for their own."""
_MARGIN_SECONDS = 0.1
_COLLECT_SECONDS = 0.002
"""How long a search waits for others: delegations with one deadline end within a few milliseconds."""
MAX_ARTIFACTS = 1000
BOARD_FILES = frozenset({"specs/state.json", "specs/TODO.md"})
"""Written by remit itself while an agent works on a board task."""
_NAMES_SHOWN = 10

_TYPES = {
    "report": "md txt rst html htm pdf adoc tex docx",
    "data": "json jsonl csv tsv yaml yml toml xml parquet db sqlite log png jpg svg zip",
}
_TYPE_OF_SUFFIX = {f".{suffix}": type_ for type_, suffixes in _TYPES.items() for suffix in suffixes.split()}


class HarvestRequest(NamedTuple):
    root: Path
    since: float
    """Wall clock of its start."""
    scratch: Path | None = None
    """Its whole scratch folder; None if it never used one."""
    declared: tuple[Artifact, ...] = ()
    scan_root: bool = False
    """Whether it may have written anywhere in the root."""
    foreign: frozenset[str] = frozenset()
    """Paths declared by other live delegations; not part of its work."""
    below: str = ""
    """The part of the root that it may have written: its own folder, if it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harvest:
    artifacts: tuple[Artifact, ...] = ()
    warnings: tuple[str, ...] = ()


NOTHING = Harvest()


@dataclass(slots=True)
class _SharedSearch:
    """A search of one folder, for all requests that arrive before it begins. Nobody who leaves ends it."""

    since: float
    """The earliest start that it looks back to."""
    has_begun: bool = False
    task: asyncio.Task[SearchResult] | None = None
    seen: dict[str, FileInfo | FileProblem] = field(default_factory=dict)
    """Files hashed after it, each once."""


_Place = tuple[Path, str, asyncio.AbstractEventLoop]
_searches: dict[_Place, _SharedSearch] = {}
"""At most one per folder, so that a file system that hangs does not take one thread after the other."""


async def harvest(what: HarvestRequest, *, seconds: float = HARVEST_SECONDS) -> Harvest:
    """Collect the files. Never raises for the state of the disk and never takes much longer than `seconds`; failures become warnings."""
    if not what.declared and what.scratch is None and not what.scan_root:
        return NOTHING
    stop_at = time.monotonic() + seconds
    try:
        async with asyncio.timeout(seconds + _MARGIN_SECONDS):
            changed, seen = await _search_root(what, seconds) if what.scan_root else (SearchResult(), {})
            if not (changed.found or not changed.is_whole or what.declared or what.scratch is not None):
                return NOTHING  # the frequent case, hundreds at once
            return await off_loop(_HarvestBuilder(what, stop_at, seen).gather, changed)
    except TimeoutError:
        why = f"the disk did not answer within {seconds:g} s"
    except OSError as error:
        why = str(error.strerror or error)
    except RuntimeError as error:  # no thread can be started: the agent may have taken them all
        why = str(error)
    return Harvest(artifacts=what.declared, warnings=(f"harvest: {why}",))


async def _search_root(what: HarvestRequest, seconds: float) -> tuple[SearchResult, dict[str, FileInfo | FileProblem]]:
    """The files changed since its start, by a search that began after this call, and what was hashed of them so far."""
    place = (what.root, what.below, asyncio.get_running_loop())
    while (before := _searches.get(place)) is not None and before.has_begun and before.task is not None:
        await asyncio.wait([before.task])
    shared = _searches.setdefault(place, _SharedSearch(what.since))
    shared.since = min(shared.since, what.since)
    if shared.task is None:
        shared.task = asyncio.create_task(_search(what, shared, seconds))
        shared.task.add_done_callback(partial(_forget, place))
    await asyncio.wait([shared.task])
    return shared.task.result(), shared.seen


async def _search(what: HarvestRequest, shared: _SharedSearch, seconds: float) -> SearchResult:
    await asyncio.sleep(_COLLECT_SECONDS)
    shared.has_begun = True
    stop_at = time.monotonic() + _SEARCH_SHARE * seconds
    return await off_loop(search, what.root, what.below, stop_at, shared.since - FILE_CLOCK_LAG_SECONDS)


def _forget(place: _Place, done: asyncio.Task[SearchResult]) -> None:
    del _searches[place]
    if not done.cancelled():
        done.exception()  # retrieved, so that asyncio does not log it


def guess_type(path: str) -> str:
    """Guess the type of an undeclared artifact by its name."""
    return _TYPE_OF_SUFFIX.get(PurePosixPath(path).suffix.lower(), "implementation")


@dataclass(slots=True)
class _HarvestBuilder:
    """Builds the harvest of one delegation."""

    request: HarvestRequest
    stop_at: float
    seen: dict[str, FileInfo | FileProblem]
    """Shared by all requests of a search: a file is hashed once."""
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    considered: set[str] = field(default_factory=set)
    unhashed: list[str] = field(default_factory=list)

    def gather(self, changed: SearchResult) -> Harvest:
        for artifact in self.request.declared:
            self._declared(artifact)
        left_out = 0
        for path in self._found(changed):
            if len(self.artifacts) >= MAX_ARTIFACTS:
                left_out += 1
                continue
            self._keep(Artifact(type=guess_type(path), path=path))
        if left_out:
            self.warnings.append(f"harvest: {left_out} more changed files are not listed")
        if self.unhashed:
            self.warnings.append(f"harvest: kept without a hash, for want of time: {list_some(self.unhashed, _NAMES_SHOWN)}")
        return Harvest(artifacts=tuple(self.artifacts.values()), warnings=tuple(self.warnings))

    def _declared(self, artifact: Artifact) -> None:
        path = str(PurePosixPath(relative_path(self.request.root, artifact.path)))
        reason = self._keep(Artifact(type=artifact.type, path=path, summary=artifact.summary))
        if reason is not None:
            self.warnings.append(f"harvest: declared artifact {clean_text(path)[:200]!r} {reason}: dropped")

    def _found(self, changed: SearchResult) -> Iterator[str]:
        """Its scratch folder first, then files changed in the root since its start, newest first."""
        request, own = self.request, SearchResult()
        if request.scratch is not None and not request.scratch.is_symlink() and request.scratch.is_dir():
            own = search(request.root, relative_path(request.root, request.scratch.absolute()), self.stop_at, None, frozenset({GIVEN}))
        if not (own.is_whole and changed.is_whole):
            self.warnings.append("harvest: there was no time to search everything; more files may have changed")
        foreign, since = request.foreign | BOARD_FILES, request.since - FILE_CLOCK_LAG_SECONDS
        ours = [one for one in changed.found if one.path not in foreign and one.changed_at >= since] if request.scan_root else []
        for found in (*_newest_first(own.found), *_newest_first(ours)):
            if found.size and found.path not in self.considered:
                yield found.path

    def _keep(self, artifact: Artifact) -> str | None:
        """Add the artifact with its measured values. Returns the reason if it cannot be kept."""
        self.considered.add(artifact.path)
        seen = self._inspect(artifact.path)
        if isinstance(seen, FileProblem):
            return seen.reason
        if seen is None or seen.hashed_bytes < min(seen.size, HASH_LIMIT_BYTES):
            self.unhashed.append(artifact.path)
            self.artifacts[artifact.path] = artifact
            return None
        if not seen.is_whole:
            self.warnings.append(f"harvest: {artifact.path}: only the first {seen.hashed_bytes} of {seen.size} bytes were hashed")
        self.artifacts[artifact.path] = seen.checked(artifact)
        return None

    def _inspect(self, path: str) -> FileInfo | FileProblem | None:
        """None: no time is left. The file is kept without a hash."""
        known = self.seen.get(path)
        if known is not None:
            return known
        if time.monotonic() > self.stop_at:
            return None
        self.seen[path] = inspect_artifact(self.request.root, path, stop_at=self.stop_at)
        return self.seen[path]


def _newest_first(files: list[FoundFile]) -> list[FoundFile]:
    return sorted(files, key=lambda one: one.changed_at, reverse=True)
