"""The result cache: reuses completed results of agents that only read, through automatic idempotency keys.

A key consists of the agent and its declaration, the parameters, the principal, the workspace, the content of the files that the agent
reads, the index of git, which every merge rewrites, and the project's epoch: the newest recorded delegation that may have written. So a
starting writer changes every key; while one is alive the cache is not used. There is no second store: an entry is a recorded delegation."""

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pydantic_core import to_json

from remit.core.agents import WorkspaceKind, may_write
from remit.core.cache import CACHE_KEYS, CacheTerms
from remit.core.context import Handle, SettledHandle
from remit.core.delegation import on_behalf_of
from remit.core.record import CACHED_FROM, Record
from remit.core.redaction import SECRETS_REMOVED
from remit.core.result import Return, StopReason
from remit.core.states import State
from remit.runtime import reply
from remit.runtime.deps import Submission
from remit.runtime.policy_facts import as_declared, default_of
from remit.system.artifact_files import FileInfo, inspect_artifact
from remit.system.files import walk
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.runtime.engine import Engine, EngineConfig

READS = "reads"
"""Metadata key of a return: a digest of the files that were read; set only if they did not change meanwhile."""
MOST_FILES = 2_000
MOST_BYTES = 64 * 1024 * 1024
RECORDS_KEPT = 128
AT_ONCE_BYTES = 256 * 1024
"""Files up to this size in all are hashed on the event loop; larger ones and folders on a thread."""
_INSTALLED_AT = os.stat(__file__).st_mtime_ns
"""Another version of remit has other built-in agents."""
_NOT_WALKED = frozenset({".git", ".remit"})

Given = ParamSpec("Given")
Found = TypeVar("Found")


# ---- the files that a result depends on


@dataclass(frozen=True, slots=True)
class FilesRead:
    """The state of files at one moment."""

    folder: Path
    paths: tuple[str, ...]
    digest: str
    """Digest of their names and contents."""
    stamps: tuple[tuple[int, int, int], ...]
    """Inode, change time and size of each, which differ if a file was changed and changed back."""

    async def note_in(self, result: Return) -> Return:
        """`result` with the digest if the files are unchanged; otherwise it is not reused."""
        extra = {name: value for name, value in result.metadata.extra.items() if name != READS}
        if await look_at_files(self.folder, self.paths) == self:
            extra[READS] = self.digest
        return replace(result, metadata=result.metadata._replace(extra=extra))


async def look_at_files(folder: Path, paths: tuple[str, ...]) -> FilesRead | None:
    """None: too many or too large, outside `folder`, or not files."""
    if not paths:
        return FilesRead(folder, (), "", ())
    with contextlib.suppress(OSError):
        found = [os.stat(folder / path) for path in paths]
        if all(stat.S_ISREG(one.st_mode) for one in found) and sum(one.st_size for one in found) <= AT_ONCE_BYTES:
            return _look(folder, paths)
    return await off_loop(_look, folder, paths)


class _Digest:
    """Digest of files below one folder, which is a real path. Raises `ValueError` for files outside it or beyond
    the limits, and `OSError`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._hash = hashlib.sha256()
        self._left = MOST_BYTES
        self.stamps: list[tuple[int, int, int]] = []

    def __str__(self) -> str:
        return self._hash.hexdigest()

    def add(self, path: str) -> None:
        place = os.path.join(self._folder, path)
        try:
            mode = os.stat(place).st_mode
        except FileNotFoundError:
            self._note(path, self._inside(os.path.realpath(place)), "nothing")
            return
        if not stat.S_ISDIR(mode):
            self._add_file(path, place, mode)
            return
        for folder, folders, files in walk(os.path.realpath(place), _fail):
            skipped = _NOT_WALKED if folder == self._folder else frozenset()
            folders[:] = [name for name in folders if name not in skipped]
            self._note(path, self._inside(folder), *folders)
            for name in files:
                if name not in skipped:
                    file = os.path.join(folder, name)
                    self._add_file(name, file, os.stat(file).st_mode)

    def _add_file(self, name: str, place: str, mode: int) -> None:
        """`mode`: checked before, because opening a device can have side effects."""
        if not stat.S_ISREG(mode):
            raise ValueError(f"{place} is not a file.")
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            seen = os.fstat(descriptor)
            self._left -= seen.st_size
            if not stat.S_ISREG(seen.st_mode) or self._left < 0 or len(self.stamps) >= MOST_FILES:
                raise ValueError(f"{place} is not a file, or is too large to hash.")
            self.stamps.append((seen.st_ino, seen.st_ctime_ns, seen.st_size))
            content, length = hashlib.sha256(), 0
            while length < seen.st_size and (block := os.read(descriptor, AT_ONCE_BYTES)):
                content.update(block)
                length += len(block)
            self._note(name, self._inside(os.readlink(f"/proc/self/fd/{descriptor}")), content.hexdigest())
        finally:
            os.close(descriptor)

    def _inside(self, real: str) -> str:
        if real != self._folder and not real.startswith(self._folder + os.sep):
            raise ValueError(f"{real} is outside {self._folder}.")
        return real[len(self._folder) :]

    def _note(self, *words: str) -> None:
        self._hash.update("\0".join((*words, "\n")).encode("utf-8", "surrogateescape"))


def _fail(error: OSError) -> None:
    raise error  # a folder that cannot be read may have changed


def _look(folder: Path, paths: tuple[str, ...]) -> FilesRead | None:
    digest = _Digest(os.fspath(folder))
    try:
        for path in paths:
            digest.add(path)
    except (OSError, ValueError):
        return None
    return FilesRead(folder, paths, str(digest), tuple(digest.stamps))


# ---- the project's epoch


class Writers:
    """Tracks which recorded delegations may have written, in all processes of the project."""

    def __init__(self, engine: "Engine", config: "EngineConfig") -> None:
        self._engine = engine
        self._config = config
        self._seen = 0
        """Number of the newest recorded delegation that was examined."""
        self._newest = 0
        """Number of the newest one that may have written."""
        self._live_elsewhere = True

    def _may_write(self, agent: str) -> bool:
        found = self._config.deps.agents.find(agent)
        return found is None or may_write(found.spec)

    def _may_write_for_caller(self, agent: str) -> bool:
        """Below an agent with a workspace, an agent that declares one of its own works in that of its caller."""
        found = self._config.deps.agents.find(agent)
        return found is not None and not found.spec.effects and found.spec.workspace is WorkspaceKind.WORKTREE

    def epoch(self) -> int:
        """Changes when a delegation that may write is recorded. Call `is_any_alive` after it, not before."""
        recorded = self._config.store.newest_by_agent(self._seen)
        self._seen = max((self._seen, *recorded.values()))
        writers = [number for agent, number in recorded.items() if self._may_write(agent) or self._may_write_for_caller(agent)]
        if writers:
            self._newest = max(self._newest, *writers)
            self._live_elsewhere = True  # possibly; checked below
        return self._newest

    def is_any_alive(self, submission: Submission) -> bool:
        """Ignores callers of `submission` that declare no effects: they wait for it."""
        caller = submission.caller
        waiting = set() if caller is None else {one.session_id for one in caller.ancestors()}
        for session_id, live in self._engine.live().items():
            spec = live.agent.spec
            is_lent = live.own_workspace is not None and not live.has_workspace and self._may_write_for_caller(spec.name)
            if (may_write(spec) or is_lent) and (spec.effects or session_id not in waiting):
                return True
        if self._live_elsewhere:
            ours = self._engine.owner.owner_id
            self._live_elsewhere = any(one.owner != ours and self._may_write(one.agent) for one in self._config.store.live())
        return self._live_elsewhere


def _caller_that_may_write(submission: Submission, may: Callable[[str], bool]) -> str:
    """The caller's session, if it or a caller above it may write: only that caller reuses its results."""
    caller = submission.caller
    if caller is None or not any(may(one.agent) for one in caller.ancestors()):
        return ""
    return caller.delegation.session_id


# ---- the cache


@dataclass(frozen=True, slots=True)
class _Entry:
    """A possible cache entry of a call: its key without the final number, and the files it depends on."""

    prefix: str
    files: FilesRead
    terms: CacheTerms


class ResultCache:
    """The cache of one engine, which calls `run` or `start` for a submission that the cache may answer."""

    def __init__(self, engine: "Engine", config: "EngineConfig") -> None:
        self._engine = engine
        self._config = config
        self._writers = Writers(engine, config)
        self._git_index = _git_index(config.deps.root)
        self._ended: dict[str, Record] = {}

    async def run(self, submission: Submission) -> Return:
        entry, answer = await self._look_up(submission)
        if answer is not None:
            return answer
        return await (self._engine.run(submission) if entry is None else self._run(submission, entry))

    async def _run(self, submission: Submission, entry: _Entry) -> Return:
        return await self._joined(submission, entry, await self._engine.run(submission))

    async def start(self, submission: Submission) -> Handle:
        entry, answer = await self._look_up(submission)
        if answer is not None:
            return SettledHandle(answer)
        handle = await self._engine.start(submission)
        if entry is None or handle.session_id == submission.delegation.session_id:
            return handle
        # It belongs to an identical call: this one has its own events, and is cancelled by itself.
        submission.delegation = submission.delegation._replace(key=None)
        return await self._engine.start(submission)

    async def _look_up(self, submission: Submission) -> tuple[_Entry | None, Return | None]:
        """Its entry, if the cache may answer it, and the answer, if there is one."""
        entry = await self._entry(submission)
        held = None if entry is None else await self._hold(submission, entry)
        return entry, None if held is None else await self._answer(submission, held)

    async def _joined(self, submission: Submission, entry: _Entry, result: Return) -> Return:
        """`result` belongs to the delegation that has the key. If that was another one and did not complete, run this one itself."""
        if result.session_id == submission.delegation.session_id:
            return result
        holder = await self._record(result.session_id)
        if holder is not None and await self._is_usable(holder, entry):
            return await self._answer(submission, holder)
        if holder is None or holder.state is not State.CANCELLED:
            submission.delegation = submission.delegation._replace(key=None)
            return await self._engine.run(submission)
        # Its caller has left, which says nothing about the call: those that waited run it once, not each by itself.
        held = await self._hold(submission, entry)
        return await (self._run(submission, entry) if held is None else self._answer(submission, held))

    async def _entry(self, submission: Submission) -> _Entry | None:
        """None: run it without the cache. The submission is not offered to the cache again."""
        terms, submission.cache = submission.cache, None
        agent, delegation = submission.agent, submission.delegation
        assert terms is not None
        assert agent is not None
        spec, caller, root = agent.spec, submission.caller, self._config.deps.root
        parameters = as_declared(spec, delegation.parameters)
        named = {name: parameters.get(name, default_of(spec, name)) for name in terms.reads}
        read = [one for value in named.values() if value is not None for one in (value if isinstance(value, list | tuple) else (value,))]
        paths = tuple(read) if all(isinstance(one, str) and one and "\0" not in one for one in read) else None
        files = None if paths is None else await look_at_files(root if caller is None else caller.workspace, paths)
        epoch = await self._ask(self._writers.epoch)
        if files is None or await self._ask(self._writers.is_any_alive, submission):
            return None
        meant = (
            _INSTALLED_AT, spec.source, spec.fingerprint, sorted(parameters.items()),
            None if delegation.task is None else delegation.task.to_dict(),
            on_behalf_of(delegation.caller_info), str(files.folder), _caller_that_may_write(submission, self._writers._may_write),
            files.digest, epoch, self._checkout(),
        )  # fmt: skip
        digest = hashlib.sha256(to_json(meant)).hexdigest()
        return _Entry(f"{CACHE_KEYS}{delegation.agent}:{digest[:40]}:", files, terms)

    def _checkout(self) -> tuple[int, int]:
        """Changes with each merge, which rewrites the index of git."""
        with contextlib.suppress(OSError):
            found = os.stat(self._git_index)
            return found.st_ino, found.st_mtime_ns
        return 0, 0

    async def _hold(self, submission: Submission, entry: _Entry) -> Record | None:
        """The delegation whose result answers this one; None: the submission now has the key under which it runs or joins."""
        newest = await self._ask(self._config.store.keys, entry.prefix, 1)
        number = 0
        for key, session_id in newest.items():
            record = await self._record(session_id)
            if not entry.terms.is_refreshed and await self._is_usable(record, entry):
                return record
            number = int(key.rpartition(":")[2]) + (record is None or record.state.is_settled or entry.terms.is_refreshed)
        submission.delegation = submission.delegation._replace(key=f"{entry.prefix}{number:08}")
        submission.watched = entry.files if entry.files.paths else None
        return None

    async def _record(self, session_id: str) -> Record | None:
        """Caches ended records, which do not change."""
        record = self._ended.get(session_id) or await self._ask(self._config.store.get, session_id)
        if record is not None and record.state.is_settled:
            self._ended[session_id] = record
            if len(self._ended) > RECORDS_KEPT:
                del self._ended[next(iter(self._ended))]
        return record

    async def _is_usable(self, record: Record | None, entry: _Entry) -> bool:
        if record is None or record.state is not State.COMPLETED or record.result is None:
            return False
        result, began = record.result, record.started_at or record.created_at
        if result.stop_reason is not StopReason.FINISHED:
            return False
        if not 0 <= self._config.deps.clock.wall() - began <= entry.terms.seconds or SECRETS_REMOVED in result.warnings:
            return False
        if entry.files.paths and result.metadata.extra.get(READS) != entry.files.digest:
            return False
        return not result.artifacts or await off_loop(_are_unchanged, self._config.deps.root, result)

    async def _answer(self, submission: Submission, held: Record) -> Return:
        """Record a separate delegation, which cost nothing."""
        assert held.result is not None
        assert submission.agent is not None
        spec = submission.agent.spec
        submission.delegation = submission.delegation._replace(key=None)
        extra = {**held.result.metadata.extra, CACHED_FROM: held.session_id}
        metadata = reply.metadata_of(submission.delegation, 0.0, extra)
        result = replace(held.result, metadata=metadata, warnings=(*submission.warnings, *held.result.warnings))
        submission.tree.note_agent(spec)
        submission.tree.note_result(spec, submission.delegation.parameters, result.data)
        submission.budget.enter()
        try:
            return await self._engine.record(submission, result)
        finally:
            submission.budget.leave()

    async def _ask(self, function: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
        """On the loop if commits run there too: a thread costs more than the query."""
        return function(*given, **named) if self._config.commit_in_loop else await off_loop(function, *given, **named)


def _git_index(root: Path) -> str:
    """Of the checkout that the project is in; empty: none."""
    with contextlib.suppress(OSError, ValueError):
        for folder in (root, *root.parents):
            if (folder / ".git").is_dir():
                return str(folder / ".git" / "index")
            if (folder / ".git").is_file():  # a worktree or submodule
                return os.path.join(folder, (folder / ".git").read_text().removeprefix("gitdir:").strip(), "index")
    return ""


def _are_unchanged(root: Path, result: Return) -> bool:
    for artifact in result.artifacts:
        seen = inspect_artifact(root, artifact.path)
        if not isinstance(seen, FileInfo) or (seen.sha256, seen.size) != (artifact.sha256, artifact.size):
            return False
    return True
