"""Files of delegations that run on other machines: a worker uploads them to the object store, its caller fetches them from there.

Uploaded are declared files, scratch folders, workspaces and the diffs of worktrees; every ten seconds while an agent runs, and at its end.
A manifest comes from another machine and is not trusted: what it names is written only inside the project, to no protected path, through no
link, and over no file whose content would be lost.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from remit.core.context import GIVEN
from remit.core.errors import Failed, Misused, RemitError, Unavailable
from remit.core.ports import Blobs, Manifest, ShippedFile
from remit.core.protected_paths import is_private, is_pyproject, protection_of, session_of
from remit.core.result import Artifact, Evidence, Return
from remit.core.text import list_some, plural
from remit.runtime.harvest import MAX_ARTIFACTS, guess_type, search
from remit.runtime.reply import PartialWork
from remit.runtime.workspaces import (
    DIFF,
    METADATA_FILE,
    Workspace,
    clear_worktree,
    draft_diff,
    find_workspace,
    is_recorded_diff,
    open_git,
    open_workspace,
    stage_changes,
    take_changes,
    work_root,
)
from remit.system.artifact_files import FileProblem, open_artifact, path_fault, relative_path
from remit.system.beneath import Root
from remit.system.edits import make_folder, replace_file
from remit.system.git import Git, GitFailed
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.runtime.local_context import LocalRun

log = logging.getLogger("remit.files")

SYNC_SECONDS = 10.0
SYNC_SHARE = 0.1
"""Of its time a worker spends at most on uploading the files of an agent that still runs."""
FETCHED_BYTES = 64 << 20
"""Of one delegation; more is fetched on demand."""
APPLIED_BYTES = 512 << 20
"""Memory to apply the diff of a worktree. git has all files in memory before it writes the first one, so this limits what they take."""
FETCHED_FILES = 1_000
MOST_FILES = 2_000
"""Of one delegation in the object store."""
AT_ONCE = 8
SEARCH_SECONDS = 2.0
DIFF_SECONDS = 20.0
SPARE_SECONDS = 0.5
"""Of the time of a delegation: what is not uploaded by then is uploaded after its return."""
LONGEST_SECONDS = 60.0
STOPPED_SECONDS = 0.25
"""For uploads of one that was stopped: its return is due."""
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
CLOSE_SECONDS = 5.0
NAMES_SHOWN = 10


class Shipment:
    """Uploads the files of one delegation. Blocking."""

    def __init__(self, blobs: Blobs, root: Path, session_id: str, attempt: int, worker: str) -> None:
        self._blobs = blobs
        self._root = root
        self._session_id = session_id
        self._manifest = Manifest((), 0.0, attempt, worker)
        self._shipped: dict[str, ShippedFile] = {}
        self._stamps: dict[str, tuple[int, int, int]] = {}
        """Of files as they were shipped."""
        self._lock = threading.Lock()
        """One at a time: a sync, then the end."""

    def ship(self, artifacts: Sequence[Artifact], workspace: Workspace | None) -> dict[str, str]:
        """At the end: upload these, the smallest first, and write the manifest. Why not, by path. Raises `Unavailable`."""
        with self._lock:
            ordered = sorted(artifacts, key=lambda artifact: artifact.size or 0)
            if len(self._shipped) + len(ordered) > MOST_FILES:  # it has made many: those of its return count
                self._shipped = {one.path: file for one in ordered if (file := self._shipped.get(one.path)) is not None}
            with ThreadPoolExecutor(AT_ONCE) as pool:
                shipped = zip(ordered, pool.map(lambda one: self._ship_file(one.path, one.sha256), ordered), strict=True)
                problems = {artifact.path: problem for artifact, problem in shipped if problem is not None}
            self._write_manifest(workspace)
            return problems

    def sync(self, declared: Iterable[str], scratch: Path | None, workspace: Workspace | None) -> None:
        """While it runs: upload files that changed. Raises `Unavailable`."""
        with self._lock:
            before = dict(self._shipped)
            changed = [path for path in self._found(declared, scratch, workspace) if self._has_changed(path)]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda path: self._ship_file(path, None), changed))
            if workspace is not None:
                self._ship_diff(workspace)
            if self._shipped != before:
                self._write_manifest(workspace)

    def shipped(self, path: str) -> ShippedFile | None:
        return self._shipped.get(path)

    def _found(self, declared: Iterable[str], scratch: Path | None, workspace: Workspace | None) -> Iterator[str]:
        paths = dict.fromkeys(relative_path(self._root, path) for path in declared)
        stop_at = time.monotonic() + SEARCH_SECONDS
        if scratch is not None:
            inside = relative_path(self._root, scratch.absolute())
            paths |= dict.fromkeys(found.path for found in search(self._root, inside, stop_at, None, frozenset({GIVEN})).found)
        if workspace is not None:
            paths |= dict.fromkeys(found.path for found in search(self._root, workspace.inside, stop_at, workspace.made_at).found)
        for number, path in enumerate(paths):
            if number < MAX_ARTIFACTS and path_fault(path) is None and not is_private(path):
                yield path

    def _has_changed(self, path: str) -> bool:
        """Since it was shipped. Large files are shipped at the end."""
        try:
            found = os.lstat(self._root / path)
        except OSError:
            return False
        before, self._stamps[path] = self._stamps.get(path), (found.st_ino, found.st_size, found.st_ctime_ns)
        return 0 < found.st_size <= FETCHED_BYTES and before != self._stamps[path]

    def _ship_file(self, path: str, sha256: str | None) -> str | None:
        """Why it could not be shipped, or None. Raises `Unavailable`: then it is tried again later."""
        if is_private(path):
            return "it is protected"
        if not path.isprintable():
            return "its name contains control characters"
        if len(self._shipped) >= MOST_FILES and path not in self._shipped:
            return f"{MOST_FILES} files were uploaded before"
        descriptor = open_artifact(self._root, path, is_forbidden=is_private)
        if isinstance(descriptor, FileProblem):
            return f"it {descriptor.reason}"
        try:
            self._shipped[path] = ShippedFile(path, *self._blobs.put(descriptor, sha256))
        except Unavailable:
            self._stamps.pop(path, None)
            raise
        except (Failed, OSError) as error:
            return error.message.lower().rstrip(".") if isinstance(error, Failed) else str(error.strerror)
        finally:
            os.close(descriptor)
        return None

    def _ship_diff(self, workspace: Workspace) -> None:
        with contextlib.suppress(RemitError, OSError):  # git is slow or damaged: the files themselves are shipped
            with open_git(workspace, seconds=DIFF_SECONDS) as git:  # nothing is committed
                stage_changes(git)
                draft = draft_diff(git, workspace)
                file = open(draft, "rb")  # noqa: SIM115 - read when the workspace is unlocked
                draft.unlink()  # the next diff has this name, too
            with file:
                if os.fstat(file.fileno()).st_size:
                    path = f".remit/scratch/{self._session_id}/{DIFF}"
                    self._shipped[path] = ShippedFile(path, *self._blobs.put(file.fileno()))

    def _write_manifest(self, workspace: Workspace | None) -> None:
        if not self._shipped:
            return
        base = workspace.base if workspace is not None else ""
        files = tuple(self._shipped.values())
        self._manifest = replace(self._manifest, files=files, at=time.time(), base=base)
        self._blobs.write_manifest(self._session_id, self._manifest)


@dataclass(slots=True)
class FetchReport:
    """What became of the files of a delegation."""

    written: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    """They were here before."""
    large: list[str] = field(default_factory=list)
    """Left out: they are fetched on demand."""
    refused: dict[str, str] = field(default_factory=dict)
    """Path and why."""


class FileFetcher:
    """Fetches the files of a delegation into the project. Blocking."""

    def __init__(self, blobs: Blobs, root: Path, session_id: str) -> None:
        self._blobs = blobs
        self._root = root
        self._session_id = session_id

    def fetch(self, artifacts: Sequence[Artifact] | None = None, *, limit_bytes: int | None = FETCHED_BYTES) -> FetchReport:
        """`artifacts`: those of its return; None: all that was shipped. Raises `Unavailable`, or `Failed` if the manifest is damaged."""
        report = FetchReport()
        manifest = self._blobs.manifest(self._session_id)
        files = {} if manifest is None else {file.path: file for file in manifest.files}
        wanted = [Artifact(type="", path=path) for path in files] if artifacts is None else artifacts
        if manifest is not None and manifest.base and find_workspace(self._root, self._session_id) is None:
            self._restore_worktree(manifest.base, files, report)
        left = limit_bytes
        for artifact in sorted(wanted, key=lambda one: files[one.path].size if one.path in files else 0):
            file = files.get(artifact.path)
            if file is None:  # in no manifest: a process that shares this folder wrote it, or it was never uploaded
                present = self._hash_of(artifact.path, artifact.size)
                if present is not None and artifact.sha256 in (None, present):
                    report.same.append(artifact.path)
                elif not artifact.path.startswith(self._in_worktree):
                    report.refused[artifact.path] = "it was not uploaded"
            elif artifact.sha256 is not None and artifact.sha256 != file.sha256:
                report.refused[file.path] = "the object store has another content than the record says"
            elif left is not None and (file.size > left or len(report.written) >= FETCHED_FILES) and not self._is_here(file):
                report.large.append(file.path)
            else:
                left = None if left is None else left - file.size
                self._fetch_file(file, report)
        return report

    @property
    def _in_worktree(self) -> str:
        return f".remit/work/{self._session_id}/"

    def _is_here(self, file: ShippedFile) -> bool:
        return self._hash_of(file.path, file.size) == file.sha256

    def _hash_of(self, path: str, size: int | None) -> str | None:
        """Hash of the local file; None if it does not exist or has another size."""
        descriptor = open_artifact(self._root, path)
        if isinstance(descriptor, FileProblem):
            return None
        with os.fdopen(descriptor, "rb") as file:
            if size is not None and os.fstat(file.fileno()).st_size != size:
                return None
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _fetch_file(self, file: ShippedFile, report: FetchReport) -> None:
        if file.path.startswith(self._in_worktree) and not work_root(self._root).joinpath(self._session_id).is_dir():
            return  # its changes are in the diff
        if self._is_here(file):
            report.same.append(file.path)
            return
        try:
            self._write(file)
            report.written.append(file.path)
        except Unavailable:
            raise
        except RemitError as error:
            report.refused[file.path] = error.message.rstrip(".")

    def _must_be_free(self, path: str, *, is_file: bool = True) -> None:
        """Raises `Failed` if this real path of the project is protected. Its own scratch folder and worktree are not; a file in their place
        is."""
        own = (f".remit/scratch/{self._session_id}", f".remit/work/{self._session_id}")
        if not is_file and (path in own or (session_of(path) == "" and any(folder.startswith(f"{path}/") for folder in own))):
            return  # folders above its files
        if path in own:
            raise Failed("a folder of remit has this name")
        inner = path.split("/", 3)[3] if session_of(path) == self._session_id else path
        protection = protection_of(inner)
        if protection is not None or is_pyproject(inner):
            raise Failed(f"it is protected ({protection or 'settings'})")

    def _write(self, file: ShippedFile) -> None:
        parts = file.path.split("/")
        self._must_be_free(file.path)
        with Root(self._root) as opened:
            for number in range(1, len(parts)):
                with opened.place("/".join(parts[:number])) as folder:
                    self._must_be_free(folder.path, is_file=False)
                    if folder.stat() is None:
                        make_folder(folder)
            with opened.place(file.path, follow=False) as place:
                self._must_be_free(place.path)
                present = None if session_of(place.path) == self._session_id else self._hash_of(place.path, None)
                if present is not None and not self._blobs.has(present):  # its content is nowhere else
                    raise Failed("another file is here under this name, and was kept")
                replace_file(place, lambda descriptor: self._blobs.get(file.sha256, file.size, descriptor))

    def _restore_worktree(self, base: str, files: dict[str, ShippedFile], report: FetchReport) -> None:
        diff = next((file for path, file in files.items() if is_recorded_diff(path) and session_of(path) == self._session_id), None)
        if diff is None or diff.size > FETCHED_BYTES:
            return
        self._fetch_file(diff, report)
        if diff.path not in (*report.written, *report.same):
            return
        try:
            workspace = restore_worktree(self._root, self._session_id, base, self._root / diff.path, seconds=DIFF_SECONDS)
            take_changes(workspace, message=f"Shipped\n\nSession: {self._session_id}", diff_in=None, seconds=DIFF_SECONDS)
        except (RemitError, OSError) as error:
            why = error.message if isinstance(error, RemitError) else str(error)
            report.refused[f"{self._in_worktree}…"] = f"{why.rstrip('.')}; apply {diff.path} by hand (git apply --3way)"


def restore_worktree(root: Path, session_id: str, base: str, diff: Path, *, seconds: float) -> Workspace:
    """The worktree of a delegation that ran in another checkout: begun from the same commit, with its changes. All of it or nothing."""
    stop_at = time.monotonic() + seconds
    try:
        Git(folder=root, stop_at=stop_at, may_fetch=False).run("cat-file", "-e", f"{base}^{{commit}}")
    except GitFailed:
        message = f"This checkout does not have the commit {base}, which the work began from."
        raise Misused(message, advice="Fetch it, then try again.") from None
    workspace, was_there = open_workspace(root, session_id, earlier=None, seconds=seconds, base=base)
    if was_there:
        return workspace
    try:
        git = Git(folder=workspace.tree, stop_at=stop_at, git_dir=workspace.git_dir, memory_bytes=APPLIED_BYTES)
        git.run("apply", "--whitespace=nowarn", "--allow-empty", "-", stdin=diff.read_bytes())
    except BaseException as error:
        (workspace.metadata_folder / METADATA_FILE).unlink(missing_ok=True)  # never finished: removed with the next clean-up
        with contextlib.suppress(GitFailed, Unavailable):
            clear_worktree(Git(folder=root, stop_at=time.monotonic() + seconds), session_id, workspace.tree)
        if isinstance(error, GitFailed) and "memory" in error.words:
            raise Failed(f"Its changes take more than {APPLIED_BYTES >> 20} MB: read the diff before you use it.") from None
        raise
    return workspace


class FileShipping:
    """What a process does with the files of delegations: as a worker it ships those it runs, as a caller it fetches them."""

    def __init__(self, blobs: Blobs, root: Path, worker: str, *, hand_over_seconds: float) -> None:
        """`hand_over_seconds`: for the files of a delegation that another worker is about to continue."""
        self._blobs = blobs
        self._root = root
        self._worker = worker
        self._hand_over_seconds = hand_over_seconds
        self._shipments: dict[str, Shipment] = {}
        self._late: set[asyncio.Task[None]] = set()
        """Uploads that go on after the return."""

    async def open(self) -> None:
        await off_loop(self._blobs.check)

    async def close(self) -> None:
        """Uploads that are not finished by then are lost, as their files are not."""
        if self._late:
            await asyncio.wait(self._late, timeout=CLOSE_SECONDS)
        for task in self._late:
            task.cancel()

    # ---- as a worker

    def begin(self, session_id: str, attempt: int) -> None:
        """From here on the files of this delegation are shipped: its caller is elsewhere."""
        self._shipments[session_id] = Shipment(self._blobs, self._root, session_id, attempt, self._worker)

    def end(self, session_id: str) -> None:
        self._shipments.pop(session_id, None)

    async def perform(
        self, work: "LocalRun", inner: "Callable[[LocalRun], Awaitable[Return]]", is_handed_over: "Callable[[LocalRun], bool]"
    ) -> Return:
        """Around the performance of every delegation. `is_handed_over`: cancelled here because another worker continues it."""
        shipment = self._shipments.get(work.delegation.session_id)
        if shipment is None:
            return await inner(work)
        syncing = asyncio.get_running_loop().create_task(self._sync(work, shipment))
        try:
            result = await inner(work)
        except asyncio.CancelledError:
            if is_handed_over(work):
                await asyncio.wait([asyncio.ensure_future(self._sync_once(work, shipment))], timeout=self._hand_over_seconds)
            raise
        finally:
            syncing.cancel()
        work.hold(result)
        seconds = max(STOPPED_SECONDS, min(LONGEST_SECONDS, work.remaining() - SPARE_SECONDS))
        artifacts, warnings = await self._ship(work, shipment, result.artifacts, seconds)
        return replace(result, artifacts=artifacts, warnings=(*result.warnings, *warnings)) if artifacts or warnings else result

    async def ship_left(self, work: "LocalRun", left: PartialWork) -> PartialWork:
        """The partial work of one that was stopped."""
        shipment = self._shipments.get(work.delegation.session_id)
        if shipment is None:
            return left
        artifacts, warnings = await self._ship(work, shipment, left.artifacts, STOPPED_SECONDS)
        return left._replace(artifacts=artifacts, warnings=(*left.warnings, *warnings))

    async def _sync(self, work: "LocalRun", shipment: Shipment) -> None:
        pause = SYNC_SECONDS
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            await self._sync_once(work, shipment)
            pause = max(SYNC_SECONDS, (time.monotonic() - began) / SYNC_SHARE)

    async def _sync_once(self, work: "LocalRun", shipment: Shipment) -> None:
        declared = [artifact.path for artifact in work.declared()]
        try:
            await off_loop(shipment.sync, declared, work.scratch_path, work.own_workspace)
        except (RemitError, OSError) as error:
            log.warning("The files of %s could not be uploaded: %s", work.delegation.session_id, error)

    async def _ship(
        self, work: "LocalRun", shipment: Shipment, artifacts: tuple[Artifact, ...], seconds: float
    ) -> tuple[tuple[Artifact, ...], tuple[str, ...]]:
        """The artifacts as they were shipped, and warnings."""
        session_id = work.delegation.session_id
        if not artifacts:
            return artifacts, ()
        shipping = asyncio.ensure_future(off_loop(shipment.ship, artifacts, work.own_workspace))
        await asyncio.wait([shipping], timeout=seconds)
        if not shipping.done() or isinstance(shipping.exception(), Unavailable):
            task = asyncio.get_running_loop().create_task(self._finish(shipping, shipment, artifacts, work.own_workspace))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            names = list_some([one.path for one in artifacts if shipment.shipped(one.path) is None], NAMES_SHOWN)
            return artifacts, (f"Files could not be uploaded yet, and are on {self._worker}: {names}. Later: remit fetch {session_id}",)
        found = shipping.result()
        warnings = [f"{path} was not uploaded: {why}." for path, why in found.items()]
        updated = []
        for one in artifacts:
            file = shipment.shipped(one.path)
            if file is None or one.sha256 in (None, file.sha256):
                updated.append(one)
                continue
            if one.size != file.size:
                warnings.append(f"{one.path} changed after it was checked; it was uploaded as it was later.")
            updated.append(replace(one, sha256=file.sha256, size=file.size))
        return tuple(updated), tuple(warnings)

    async def _finish(
        self, shipping: "asyncio.Future[dict[str, str]]", shipment: Shipment, artifacts: tuple[Artifact, ...], workspace: Workspace | None
    ) -> None:
        """Until everything is uploaded, or it was tried often enough."""
        for pause in (*RETRY_SECONDS, None):
            await asyncio.wait([shipping])
            if not isinstance(shipping.exception(), Unavailable) or pause is None:
                break
            await asyncio.sleep(pause)
            shipping = asyncio.ensure_future(off_loop(shipment.ship, artifacts, workspace))
        if (error := shipping.exception()) is not None:
            log.error("%s could not be uploaded and stay on this machine: %s", plural(len(artifacts), "file"), error)

    # ---- as a caller

    async def fetch(self, session_id: str, result: Return, until: float) -> Return:
        """The return, when its files are here as far as they are fetched by themselves, or at `until`."""
        if not result.artifacts:
            return result
        fetching = asyncio.ensure_future(off_loop(FileFetcher(self._blobs, self._root, session_id).fetch, result.artifacts))
        await asyncio.wait([fetching], timeout=max(STOPPED_SECONDS, until - asyncio.get_running_loop().time()))
        if not fetching.done():
            fetching.add_done_callback(lambda done: done.cancelled() or done.exception())
            return replace(result, warnings=(*result.warnings, f"Its files are still being fetched. Later: remit fetch {session_id}"))
        try:
            warnings = fetch_warnings(fetching.result(), session_id)
        except RemitError as error:
            warnings = (f"Its files could not be fetched: {error} Later: remit fetch {session_id}",)
        return replace(result, warnings=(*result.warnings, *warnings)) if warnings else result

    # ---- after the loss of a worker

    async def left_behind(self, session_id: str, left: PartialWork) -> PartialWork:
        """The partial work of a lost worker: beside what is here, what it uploaded last."""
        try:
            manifest = await off_loop(self._blobs.manifest, session_id)
        except RemitError as error:
            return left._replace(warnings=(*left.warnings, f"Files that its worker uploaded are not listed: {error}"))
        if manifest is None:
            return left
        here = {artifact.path for artifact in left.artifacts}
        more = tuple(
            Artifact(
                type=guess_type(file.path), path=file.path, evidence=Evidence.CHECKED, size=file.size, sha256=file.sha256, mtime=manifest.at
            )
            for file in manifest.files
            if file.path not in here
        )
        moment = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(manifest.at))
        note = f"Files are as of {moment}, when its worker {manifest.worker} last uploaded them."
        return left._replace(artifacts=(*left.artifacts, *more), warnings=(*left.warnings, *((note,) if more else ())))

    async def restore(self, session_id: str, seconds: float) -> tuple[str, ...]:
        """Fetch the files of an attempt that another worker lost. Warnings for the next attempt."""
        try:
            async with asyncio.timeout(seconds):
                report = await off_loop(FileFetcher(self._blobs, self._root, session_id).fetch)
        except TimeoutError:
            return (f"Files of the attempt before were not here after {seconds:g} s, and may still come.",)
        except RemitError as error:
            return (f"Files of the attempt before could not be fetched: {error}",)
        return fetch_warnings(report, session_id)


def fetch_warnings(report: FetchReport, session_id: str) -> tuple[str, ...]:
    warnings = [f"{path} was not fetched: {why}." for path, why in list(report.refused.items())[:NAMES_SHOWN]]
    if len(report.refused) > NAMES_SHOWN:
        warnings.append(f"{len(report.refused) - NAMES_SHOWN} more files were not fetched.")
    if report.large:
        names = list_some(report.large, NAMES_SHOWN)
        warnings.append(f"Not fetched because of their size or number: {names}. To get them: remit fetch {session_id}")
    return tuple(warnings)
