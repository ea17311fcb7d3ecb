"""The use of a workspace by one delegation: opened before its agent runs, its changes taken at the end, merged or kept.

Workspaces themselves are in `workspaces`. Here is what their changes mean for the return.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from remit.core.agents import WorkspaceKind
from remit.core.delegation import Delegation
from remit.core.errors import ErrorInfo, RemitError
from remit.core.jsonable import clean_text
from remit.core.result import Artifact, Return, Status
from remit.core.text import shorten_with_count
from remit.runtime.authorize import filter_allowed, step_requests
from remit.runtime.harvest import MAX_ARTIFACTS, Harvest, HarvestRequest, guess_type, harvest
from remit.runtime.workspace_cleanup import is_unchanged, remove_workspace
from remit.runtime.workspaces import (
    Changes,
    MergeIntent,
    MergeResult,
    MergeWrite,
    Workspace,
    is_merged,
    merge_permitted,
    merge_writes,
    open_workspace,
    take_changes,
)
from remit.system.artifact_files import FILE_CLOCK_LAG_SECONDS, checked_artifacts
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.runtime.work import Work


OWN_FOLDER = frozenset({WorkspaceKind.WORKTREE, WorkspaceKind.COPY})
MERGE_ENDS_SECONDS = 0.2
"""How long a merge that can no longer be called off is waited for when its delegation is stopped."""
MERGED_BEFORE = "Its changes were merged into the project before it was stopped."
AFTER_CRASH_SECONDS = 10.0
_NAMES_SHOWN = 10


@dataclass(slots=True)
class WorkspaceSession:
    """A delegation and its workspace."""

    workspace: Workspace
    host: Workspace | None = None
    """The workspace of its caller, where its changes go back to."""
    taking: "asyncio.Future[Changes] | None" = field(default=None, repr=False)
    """The changes, being taken: only once."""
    is_removable: bool = False
    """It was stopped, and nothing is in its workspace that anybody could want."""

    @property
    def began_at(self) -> float:
        return changes_since(self.workspace)

    def take(self, work: "Work") -> "asyncio.Future[Changes]":
        if self.taking is None:
            message = commit_message(work.delegation)
            scratch = work.scratch()
            self.taking = asyncio.ensure_future(off_loop(lambda: take_changes(self.workspace, message=message, diff_in=scratch)))
            self.taking.add_done_callback(
                lambda taken: taken.cancelled() or taken.exception()
            )  # retrieved, so that asyncio does not log it
        return self.taking

    @property
    def taken(self) -> Changes | None:
        done = self.taking is not None and self.taking.done() and not self.taking.cancelled() and self.taking.exception() is None
        return self.taking.result() if done and self.taking is not None else None


def commit_message(delegation: Delegation) -> str:
    """Of the commit that holds its changes. A task of the board says what they are for; then the session of the whole tree is named."""
    said = delegation.task.extra.get("commit_message") if delegation.task is not None else None
    if isinstance(said, str) and said.strip():
        return f"{clean_text(said).strip()}\n\nSession: {delegation.lineage.root_id}"
    return f"{delegation.session_id}: {delegation.agent}"


def changes_since(workspace: Workspace) -> float:
    """What is no older was written in it. A file dated in the same tick of the clock as the workspace's own was there before."""
    return workspace.made_at + FILE_CLOCK_LAG_SECONDS + 1e-6


async def open_session(work: "Work") -> None:
    """Make the workspace, or find the one that it goes on in. What the agent must know of it is told as warnings."""
    if work.workspace_session is not None:
        return
    delegation, kind, host = work.delegation, work.agent.spec.workspace, work.own_workspace
    seconds = max(0.0, work.remaining())
    opening = asyncio.ensure_future(
        off_loop(lambda: open_workspace(work.root, delegation.session_id, kind, earlier=delegation.resumes, seconds=seconds, host=host))
    )
    try:
        workspace, was_there = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_remove_unused)
        raise
    work.workspace_session, work.own_workspace = WorkspaceSession(workspace, host), workspace
    if was_there:
        work.notice(f"It continues in the workspace {workspace.inside}.")
    elif delegation.resumes is not None:
        gone = f"The workspace of {delegation.resumes} is not there any more (merged, removed, or nothing was changed in it)"
        work.warnings = (*work.warnings, f"{gone}; this one began from a new one.")
    if workspace.is_dirty and not was_there:
        work.warnings = (*work.warnings, "The project has uncommitted changes; they are not in the worktree that the agent worked in.")


def _remove_unused(opening: "asyncio.Future[tuple[Workspace, bool]]") -> None:
    """Remove a workspace that was ready too late, and never used."""
    if opening.cancelled() or opening.exception() is not None:
        return
    workspace, was_there = opening.result()
    if not was_there:
        with contextlib.suppress(RuntimeError):  # the loop is closing: it is found, and named, by the next recovery
            clearing = asyncio.ensure_future(off_loop(lambda: remove_workspace(workspace, with_branch=True)))
            clearing.add_done_callback(lambda done: done.cancelled() or done.exception())


async def with_changes(work: "Work", result: Return) -> Return:
    """The return with the diff as an artifact; what went wrong with it is a warning, and nothing is lost: the folder stays."""
    session = work.workspace_session
    assert session is not None
    await work.end_children()  # children in the same folder: nothing may change under the diff
    try:
        async with asyncio.timeout(max(0.0, work.remaining())):
            changes = await asyncio.shield(session.take(work))
    except (RemitError, OSError, TimeoutError) as error:
        return replace(result, warnings=(*result.warnings, *_diff_failed(session.workspace, error)))
    result = replace(result, warnings=(*result.warnings, *changes.warnings))
    if changes.diff is not None:
        result = replace(result, artifacts=(*result.artifacts, *await diff_artifact(session.workspace, changes)))
    return result


async def diff_artifact(workspace: Workspace, changes: Changes) -> tuple[Artifact, ...]:
    if changes.diff is None:
        return ()
    files = f"{changes.count} {'file' if changes.count == 1 else 'files'} changed."
    artifact = Artifact(type="data", path=changes.diff.relative_to(workspace.root).as_posix(), summary=files)
    return await off_loop(checked_artifacts, workspace.root, (artifact,))


def _diff_failed(workspace: Workspace, error: Exception) -> tuple[str, ...]:
    why = error.message if isinstance(error, RemitError) else str(error) or "there was no time left"
    return (clean_text(f"The diff of the workspace could not be taken: {why} The work is in {workspace.inside}.")[:1000],)


async def late_changes(work: "Work", seconds: float) -> tuple[Changes | None, tuple[str, ...]]:
    """The changes of one that was stopped, if git has them in time; it goes on without us if not."""
    session = work.workspace_session
    assert session is not None
    taking = session.take(work)
    await asyncio.wait([taking], timeout=seconds)
    if (changes := session.taken) is not None:
        return changes, changes.warnings
    if not taking.done():
        return None, (f"git had not made the diff of the workspace after {seconds:.1f} s; it may still come.",)
    error = taking.exception() if not taking.cancelled() else None
    return None, _diff_failed(session.workspace, error if isinstance(error, Exception) else TimeoutError())


def kept_message(workspace: Workspace) -> str:
    branch = f" (branch {workspace.branch})" if workspace.branch else ""
    return f"Its workspace stays: {workspace.inside}{branch}."


async def is_removable(workspace: Workspace, changes: Changes | None, artifacts: Iterable[Artifact], *, seconds: float) -> bool:
    """Whether the workspace of one that was stopped can go: nothing changed, nothing of worth that git ignores, no artifact in it.

    Only when that is known in time; what is not is left to upkeep.
    """
    if changes is None or changes.count or changes.warnings or changes.doubt or seconds <= 0:
        return False
    tree = f"{workspace.tree.relative_to(workspace.root).as_posix()}/"
    if any(artifact.path.startswith(tree) for artifact in artifacts):
        return False
    try:
        async with asyncio.timeout(seconds):
            return await off_loop(lambda: is_unchanged(workspace, seconds=seconds))
    except TimeoutError:
        return False


async def left_in_workspace(workspace: Workspace, hunt: HarvestRequest, scratch: Path, agent: str) -> tuple[Harvest, bool]:
    """The work that a dead run left in its workspace, and whether the workspace can be removed because there is none."""
    found = await harvest(hunt._replace(scan_root=True, below=workspace.inside, since=WorkspaceSession(workspace).began_at))

    def take() -> tuple[Changes, bool]:
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = take_changes(workspace, message=f"{workspace.session_id}: {agent}", diff_in=scratch, seconds=AFTER_CRASH_SECONDS)
        could_be = bool(taken.count and taken.commit and not workspace.host)
        return taken, could_be and is_merged(workspace, taken.commit or "", seconds=AFTER_CRASH_SECONDS)

    try:
        changes, was_merged = await off_loop(take)
    except (RemitError, OSError) as error:
        return replace(found, warnings=(*found.warnings, *_diff_failed(workspace, error))), False
    merged = (MERGED_BEFORE,) if was_merged else ()
    spare = await is_removable(workspace, changes, found.artifacts, seconds=AFTER_CRASH_SECONDS)
    return await with_workspace_changes(workspace, found, changes, (*merged, *changes.warnings)), spare


async def with_workspace_changes(workspace: Workspace, found: Harvest, changes: Changes | None, told: tuple[str, ...]) -> Harvest:
    """What the search found and what git says has changed, each once; the diff last."""
    warnings = (*found.warnings, *told)
    if changes is None:
        return Harvest(artifacts=found.artifacts, warnings=warnings)
    diff = await diff_artifact(workspace, changes)
    known = {artifact.path for artifact in found.artifacts}
    tree = workspace.tree.relative_to(workspace.root).as_posix()
    named = [Artifact(type=guess_type(path), path=f"{tree}/{path}") for path in changes.changed[:MAX_ARTIFACTS] if _is_text(path)]
    more = await off_loop(checked_artifacts, workspace.root, [artifact for artifact in named if artifact.path not in known])
    ours = {artifact.path for artifact in diff}
    artifacts = (*(artifact for artifact in found.artifacts if artifact.path not in ours), *more, *diff)
    return Harvest(artifacts=artifacts, warnings=warnings)


def _is_text(path: str) -> bool:
    """A name that a return can carry."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


async def close_session(work: "Work", result: Return) -> Return:
    """Merge the changes if asked to, remove the workspace if it is no longer needed, and say where the rest is."""
    session = work.workspace_session
    assert session is not None
    changes = session.taken
    is_to_merge = work.agent.spec.merge and result.status is Status.COMPLETED
    if is_to_merge and (changes is None or changes.doubt):
        reason = "its changes could not be taken" if changes is None else changes.doubt
        return _not_merged(work, session, MergeResult(is_done=False, reason=reason), changes, result)
    if changes is None:
        return _kept_return(session, None, result)
    if changes.count == 0:
        return await _remove_after_merge(work, result, changes)
    if not is_to_merge or changes.commit is None:
        return _kept_return(session, changes, result)
    work.hold(result)
    outcome = await _merge_changes(work, session, changes.commit, result)
    if not outcome.is_done:
        return _not_merged(work, session, outcome, changes, result)
    work.notice(f"Merged into {outcome.into}.")
    result = replace(result, extra={**result.extra, "workspace": {"kind": str(session.workspace.kind), "merged_into": outcome.into}})
    if outcome.left_out:
        return _merged_in_part(work, session, outcome, changes, result)
    work.hold(replace(result, warnings=(*result.warnings, MERGED_BEFORE)))
    return await _remove_after_merge(work, result, changes)


def _merged_in_part(work: "Work", session: WorkspaceSession, outcome: MergeResult, changes: Changes, result: Return) -> Return:
    """The workspace stays, with the files that its agent may not write."""
    workspace = session.workspace
    named = ", ".join(outcome.left_out[:_NAMES_SHOWN])
    more = f" and {len(outcome.left_out) - _NAMES_SHOWN} more" if len(outcome.left_out) > _NAMES_SHOWN else ""
    how = _by_hand(session, changes, f"Look at them, then take them: remit workspaces {workspace.session_id} --merge --protected")
    warning = clean_text(
        f"Left out of the merge, because the policy does not allow {work.delegation.agent} to write them: {named}{more}. {how}"
    )
    extra = {**result.extra["workspace"], "left_out": list(outcome.left_out)}
    return _with_location(replace(result, warnings=(*result.warnings, warning), extra={**result.extra, "workspace": extra}), workspace)


async def _left_out(work: "Work", workspace: Workspace, commit: str) -> list[MergeWrite]:
    """Files that its agent may not write. A person is not asked: they stay on the branch, and are merged by hand."""
    writes = await off_loop(lambda: merge_writes(workspace, commit, seconds=max(0.0, work.remaining())))
    (alike,) = step_requests(work, "", {})
    allowed = await filter_allowed(work.deps, (one.request(alike) for one in writes), work.delegation)
    return [one for one, is_allowed in zip(writes, allowed, strict=True) if not is_allowed]


def _refuse_merge(session: WorkspaceSession) -> MergeResult | None:
    workspace, host = session.workspace, session.host
    if workspace.host == ("" if host is None else host.maker):
        return None
    began = f"the workspace of {workspace.host}" if workspace.host else "the project itself"
    return MergeResult(is_done=False, reason=f"it began from {began}, which its caller does not work in")


async def _merge_changes(work: "Work", session: WorkspaceSession, commit: str, result: Return) -> MergeResult:
    intent, workspace, message = MergeIntent(), session.workspace, commit_message(work.delegation)
    try:
        left_out = await _left_out(work, workspace, commit)
    except (RemitError, OSError) as error:
        return MergeResult(is_done=False, reason=error.message if isinstance(error, RemitError) else str(error))
    seconds = max(0.0, work.remaining())

    def merge() -> MergeResult:
        return _refuse_merge(session) or merge_permitted(
            workspace, commit, left_out, intent, message=message, seconds=seconds, host=session.host
        )

    merging = asyncio.ensure_future(off_loop(merge))
    try:
        return await asyncio.shield(merging)
    except (RemitError, OSError) as error:
        return MergeResult(is_done=False, reason=error.message if isinstance(error, RemitError) else str(error))
    except asyncio.CancelledError:
        merging.add_done_callback(lambda done: done.cancelled() or done.exception())
        if not intent.call_off():
            await asyncio.wait([merging], timeout=MERGE_ENDS_SECONDS)
            is_known = merging.done() and merging.exception() is None
            said = "Its changes were being merged when it was stopped: look at `git log`."
            if is_known:
                said = MERGED_BEFORE if merging.result().is_done else ""
            work.hold(replace(result, warnings=(*result.warnings, *((said,) if said else ()))))
        raise


def _not_merged(work: "Work", session: WorkspaceSession, outcome: MergeResult, changes: Changes | None, result: Return) -> Return:
    """The work is done and safe, on its branch or in its folder; the project, or the workspace of its caller, is as it was."""
    where = "the project" if session.host is None else session.host.inside
    into = outcome.into or where
    named = ", ".join(outcome.conflicts[:_NAMES_SHOWN])
    more = f" and {len(outcome.conflicts) - _NAMES_SHOWN} more" if len(outcome.conflicts) > _NAMES_SHOWN else ""
    files = f" ({named}{more})" if named else ""
    error = ErrorInfo(
        type="merge_conflict",
        code="MERGE_CONFLICT",
        message=clean_text(f"The work of {work.delegation.agent} could not be merged into {into}: {outcome.reason}{files}.")[:2000],
        recoverable=True,
        recommendation=f"Nothing was changed in {where}; the work is {_kept_in(session, changes)}",
    )
    result = replace(
        result,
        status=Status.PARTIAL,
        summary=shorten_with_count(f"The work was done, but not merged. {error.message}"),
        errors=(*result.errors, error),
        next_steps=error.recommendation,
    )
    return _kept_return(session, changes, result)


def _kept_in(session: WorkspaceSession, changes: Changes | None) -> str:
    if changes is None or changes.doubt:
        return f"in {session.workspace.inside}. Look at the warnings, then take it over by hand."
    how = _by_hand(session, changes, f"Merge it and resolve the conflicts: git merge {session.workspace.branch}")
    return f"on the branch {session.workspace.branch}. {how}"


def _by_hand(session: WorkspaceSession, changes: Changes, merge: str) -> str:
    """In the workspace of a caller the changes are taken over by their diff: the branch holds what was there before as well."""
    if session.host is not None and changes.diff is not None:
        diff, there = os.path.relpath(changes.diff, session.host.tree), session.host.tree.relative_to(session.host.root).as_posix()
        return f"Take it over in {there}: git add --all && git apply --3way {diff}"
    return merge if session.workspace.branch else ""


def _kept_return(session: WorkspaceSession, changes: Changes | None, result: Return) -> Return:
    """Folder and branch stay; the return says where the work is."""
    workspace = session.workspace
    result = _with_location(result, workspace)
    if changes is None or result.next_steps:
        return result
    where = f"on the branch {workspace.branch}" if workspace.branch else f"in {workspace.inside}"
    how = _by_hand(session, changes, f"Merge them: remit workspaces {workspace.session_id} --merge")
    return replace(result, next_steps=f"Its changes are {where}. {how}".rstrip())


def describe_workspace(workspace: Workspace) -> dict[str, Any]:
    """Where the work is, for the return."""
    return {"kind": str(workspace.kind), "folder": workspace.inside, **({"branch": workspace.branch} if workspace.branch else {})}


def _with_location(result: Return, workspace: Workspace) -> Return:
    return replace(result, extra={**result.extra, "workspace": {**describe_workspace(workspace), **result.extra.get("workspace", {})}})


async def _remove_after_merge(work: "Work", result: Return, changes: Changes) -> Return:
    """Remove a workspace whose changes were merged, unless an artifact exists only there."""
    session = work.workspace_session
    assert session is not None
    workspace = session.workspace
    if changes.warnings:  # something is in the folder and in no diff
        return _with_location(result, workspace)
    below, there_is = f"{workspace.inside}/", "" if session.host is None else f"{session.host.inside}/"
    inside = [artifact for artifact in result.artifacts if artifact.path.startswith(below)]
    moved = {a.path: replace(a, path=f"{there_is}{a.path.removeprefix(below)}") for a in inside}
    seen = {a.path: a for a in await off_loop(checked_artifacts, work.root, list(moved.values()))} if moved else {}
    missing = [path for path, there in moved.items() if there.path not in seen or seen[there.path].sha256 != there.sha256]
    if missing:
        names = ", ".join(PurePosixPath(path).name for path in missing[:_NAMES_SHOWN])
        warning = f"The workspace stays for the sake of {names}: what git ignores is in no diff."
        return _with_location(replace(result, warnings=(*result.warnings, warning)), workspace)
    artifacts = tuple(replace(seen[moved[a.path].path], evidence=a.evidence) if a.path in moved else a for a in result.artifacts)
    result = replace(result, artifacts=artifacts)
    if work.held is not None:
        work.hold(replace(work.held, artifacts=artifacts))
    try:
        await asyncio.shield(asyncio.ensure_future(off_loop(lambda: remove_workspace(workspace, with_branch=True))))
    except (RemitError, OSError) as error:
        result = replace(result, warnings=(*result.warnings, f"The workspace {workspace.inside} could not be removed: {error}"))
    return result
