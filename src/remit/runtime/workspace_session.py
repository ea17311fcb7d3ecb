"""The use of a workspace by one delegation: opened before its agent runs; at the end its changes are taken, then merged or kept.

`workspaces` implements workspaces. This module maps their changes to the return."""

import asyncio
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from remit.core.delegation import Delegation
from remit.core.errors import ErrorInfo, RemitError
from remit.core.jsonable import clean_text
from remit.core.result import Artifact, Return, Status
from remit.core.text import list_some, one_line, shorten_with_count
from remit.runtime.authorize import filter_allowed, step_requests
from remit.runtime.harvest import MAX_ARTIFACTS, Harvest, HarvestRequest, guess_type, harvest
from remit.runtime.landing import forget_candidate, is_merged, landed_as
from remit.runtime.workspace_cleanup import remove_workspace
from remit.runtime.workspaces import (
    KIND,
    UNMERGED,
    Changes,
    MergeResult,
    Workspace,
    merge_writes,
    not_permitted,
    open_workspace,
    take_changes,
)
from remit.system.artifact_files import FILE_CLOCK_LAG_SECONDS, checked_artifacts
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.runtime.local_context import LocalRun


MERGE_ENDS_SECONDS = 0.2
"""To find out whether a delegation that is stopped was merged."""
MERGE_STOP_SECONDS = 0.15
"""A stopped merge is waited for this long, less than the grace of a stop."""
MERGED_BEFORE = "Its changes were merged into the project before it was stopped."
AFTER_CRASH_SECONDS = 10.0
_NAMES_SHOWN = 10
SUBJECT_CHARACTERS = 72


def _own(work: "LocalRun") -> Workspace:
    assert work.own_workspace is not None
    return work.own_workspace


def _take(work: "LocalRun") -> "asyncio.Future[Changes]":
    """Its changes; they are taken only once."""
    if work.changes is None:
        workspace, message, scratch = _own(work), commit_message(work.delegation), work.scratch()
        work.changes = asyncio.ensure_future(off_loop(lambda: take_changes(workspace, message=message, diff_in=scratch)))
        work.changes.add_done_callback(lambda taken: taken.cancelled() or taken.exception())  # retrieved, so that asyncio does not log it
    return work.changes


def _taken(work: "LocalRun") -> Changes | None:
    taking = work.changes
    return taking.result() if taking is not None and taking.done() and not taking.cancelled() and taking.exception() is None else None


def commit_message(delegation: Delegation) -> str:
    """Message of the commit with its changes. For a board task it states the purpose and names the session of the whole tree."""
    said = delegation.task.extra.get("commit_message") if delegation.task is not None else None
    if isinstance(said, str) and said.strip():
        return f"{clean_text(said).strip()}\n\nSession: {delegation.lineage.root_id}"
    asked = delegation.parameters.get("task")
    words = f"{delegation.agent}: {clean_text(asked)}" if isinstance(asked, str) and asked.strip() else delegation.agent
    return f"{one_line(words, SUBJECT_CHARACTERS, at_word=True)}\n\nSession: {delegation.session_id}"


def changes_since(workspace: Workspace) -> float:
    """Files that are not older were written in it. A file dated in the same clock tick as the workspace was there before."""
    return workspace.made_at + FILE_CLOCK_LAG_SECONDS + 1e-6


async def open_session(work: "LocalRun") -> None:
    """Create the workspace, or find the one to continue in. Facts that the agent must know become warnings."""
    if work.own_workspace is not None:
        return  # below an agent with a workspace, and in the worktree of a task, all work in the same folder
    delegation = work.delegation
    seconds = max(0.0, work.remaining())
    # If this is cancelled, it is made nevertheless, and maintenance removes it unused.
    workspace, was_there = await off_loop(
        lambda: open_workspace(work.root, delegation.session_id, earlier=delegation.resumes, seconds=seconds)
    )
    work.own_workspace = workspace
    if was_there:
        await off_loop(forget_candidate, workspace)
        work.notice(f"It continues in the workspace {workspace.inside}.")
    elif delegation.resumes is not None:
        gone = f"The workspace of {delegation.resumes} no longer exists (merged, removed, or unchanged)"
        work.warnings = (*work.warnings, f"{gone}; this delegation uses a new one.")
    if workspace.is_dirty and not was_there:
        work.warnings = (*work.warnings, "The project has uncommitted changes; they are not in the worktree that the agent worked in.")


async def with_changes(work: "LocalRun", result: Return) -> Return:
    """The return with the diff as an artifact. Failures become warnings, and nothing is lost: the folder stays."""
    workspace = _own(work)
    await work.end_children()  # children in the same folder: nothing may change during the diff
    try:
        async with asyncio.timeout(max(0.0, work.remaining())):
            changes = await asyncio.shield(_take(work))
    except (RemitError, OSError, TimeoutError) as error:
        return replace(result, warnings=(*result.warnings, *_diff_failed(workspace, error)))
    result = replace(result, warnings=(*result.warnings, *changes.warnings))
    if changes.diff is not None:
        result = replace(result, artifacts=(*result.artifacts, *await diff_artifact(workspace, changes)))
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


async def late_changes(work: "LocalRun", seconds: float) -> tuple[Changes | None, tuple[str, ...]]:
    """The changes of a stopped delegation, if git has them in time; git continues otherwise."""
    workspace = _own(work)
    taking = _take(work)
    await asyncio.wait([taking], timeout=seconds)
    if (changes := _taken(work)) is not None:
        return changes, changes.warnings
    if not taking.done():
        return None, (f"git did not finish the diff of the workspace within {seconds:.1f} s; it may follow later.",)
    error = taking.exception() if not taking.cancelled() else None
    return None, _diff_failed(workspace, error if isinstance(error, Exception) else TimeoutError())


def kept_message(workspace: Workspace) -> str:
    return f"Its workspace stays: {workspace.inside} (branch {workspace.branch})."


async def left_in_workspace(workspace: Workspace, hunt: HarvestRequest, scratch: Path, agent: str) -> Harvest:
    """The work that a dead run left in its workspace."""
    found = await harvest(hunt._replace(scan_root=True, below=workspace.inside, since=changes_since(workspace)))

    def take() -> tuple[Changes, tuple[str, ...]]:
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = take_changes(workspace, message=f"{agent}\n\nSession: {workspace.session_id}", diff_in=scratch, seconds=AFTER_CRASH_SECONDS)
        return taken, (MERGED_BEFORE,) if taken.count and _was_merged(workspace, taken.commit) else ()

    try:
        changes, merged = await off_loop(take)
    except (RemitError, OSError) as error:
        return replace(found, warnings=(*found.warnings, *_diff_failed(workspace, error)))
    return await with_workspace_changes(workspace, found, changes, (*merged, *changes.warnings))


def _was_merged(workspace: Workspace, commit: str) -> bool:
    return is_merged(workspace, commit) or bool(landed_as(workspace, seconds=AFTER_CRASH_SECONDS))


async def with_workspace_changes(workspace: Workspace, found: Harvest, changes: Changes | None, told: tuple[str, ...]) -> Harvest:
    """Files found by the search and by git, each once; the diff last."""
    warnings = (*found.warnings, *told)
    if changes is None:
        return Harvest(artifacts=found.artifacts, warnings=warnings)
    diff = await diff_artifact(workspace, changes)
    known = {artifact.path for artifact in found.artifacts}
    tree = workspace.tree.relative_to(workspace.root).as_posix()
    named = [Artifact(type=guess_type(path), path=f"{tree}/{path}") for path in changes.changed[:MAX_ARTIFACTS] if clean_text(path) == path]
    more = await off_loop(checked_artifacts, workspace.root, [artifact for artifact in named if artifact.path not in known])
    ours = {artifact.path for artifact in diff}
    artifacts = (*(artifact for artifact in found.artifacts if artifact.path not in ours), *more, *diff)
    return Harvest(artifacts=artifacts, warnings=warnings)


async def close_session(work: "LocalRun", result: Return) -> Return:
    """Merge the changes if requested, remove the workspace if it is not needed, and report where the rest is."""
    workspace = _own(work)
    changes = _taken(work)
    task = work.delegation.task
    is_filed = task is not None and task.extra.get(UNMERGED) is True and work.submission.caller is None
    is_to_merge = work.agent.spec.merge and result.status is Status.COMPLETED and not is_filed
    if is_to_merge and (changes is None or changes.doubt):
        reason = "its changes could not be taken" if changes is None else changes.doubt
        return _not_merged(work, MergeResult(is_done=False, reason=reason), changes, result)
    if changes is None:
        return _kept_return(workspace, None, result)
    if changes.count == 0:
        return await _remove_after_merge(work, result, changes)
    if not is_to_merge:
        return _kept_return(workspace, changes, result)
    if work.deps.settings.engine.ships_files:
        reason = "its worker has another checkout of the project than its caller"
        return _not_merged(work, MergeResult(is_done=False, reason=reason, code="MERGE_WAITING"), changes, result)
    work.hold(result)
    outcome = await _merge_changes(work, changes.commit, result)
    if not outcome.is_done:
        return _not_merged(work, outcome, changes, result)
    work.notice(f"Merged into {outcome.into}.")
    result = replace(result, extra={**result.extra, "workspace": {"kind": KIND, "merged_into": outcome.into}})
    work.hold(replace(result, warnings=(*result.warnings, MERGED_BEFORE)))
    return await _remove_after_merge(work, result, changes)


async def _refused_writes(work: "LocalRun", workspace: Workspace, commit: str) -> list[str]:
    """Files that its agent may not write. No person is asked: the work stays on its branch for a manual merge."""
    writes = await off_loop(lambda: merge_writes(workspace, commit, seconds=max(0.0, work.remaining())))
    (alike,) = step_requests(work, "", {})
    allowed = await filter_allowed(work.deps, (one.request(alike) for one in writes), work.delegation)
    return [one.path for one, is_allowed in zip(writes, allowed, strict=True) if not is_allowed]


async def _merge_changes(work: "LocalRun", commit: str, result: Return) -> MergeResult:
    """Rebase the work on the branch that is checked out, and move that forward; with `merge = "queue"`, if the merged tree is accepted."""
    from remit.runtime.merge_queue import merge_work

    workspace, settings, is_queued = _own(work), work.deps.settings, work.agent.spec.merge == "queue"
    accept = work.delegation.accept if is_queued else ()
    if is_queued and not (accept or settings.workspace.accept):
        return MergeResult(is_done=False, reason='no acceptance command is configured: add [workspace] accept = ["make test"]')
    merging: asyncio.Future[MergeResult] | None = None
    try:
        if refused := await _refused_writes(work, workspace, commit):
            return not_permitted(refused)
        seconds = max(0.0, work.remaining())
        merging = asyncio.ensure_future(
            merge_work(workspace, commit, work.root, settings, accept=accept, is_accepting=is_queued, seconds=seconds, marks=work.marks())
        )
        outcome = await asyncio.shield(merging)
    except (RemitError, OSError) as error:
        return MergeResult(is_done=False, reason=error.message if isinstance(error, RemitError) else str(error))
    except asyncio.CancelledError:
        if merging is not None:
            merging.add_done_callback(lambda done: None if done.cancelled() else done.exception())
            merging.cancel()
            await asyncio.wait([merging], timeout=MERGE_STOP_SECONDS)
            warning = "Its changes were being merged when it was stopped: look at `git log`."
            if merging.done():
                warning = MERGED_BEFORE if await off_loop(lambda: landed_as(workspace, seconds=MERGE_ENDS_SECONDS)) else ""
            work.hold(replace(result, warnings=(*result.warnings, *((warning,) if warning else ()))))
        raise
    for note in outcome.notes:
        work.notice(note)
    return outcome


def _not_merged(work: "LocalRun", outcome: MergeResult, changes: Changes | None, result: Return) -> Return:
    """The work is done and safe, on its branch or in its folder; the project is unchanged."""
    workspace = _own(work)
    into = outcome.into or "the project"
    files = f" ({list_some(outcome.conflicts, _NAMES_SHOWN)})" if outcome.is_protected else ""
    error = ErrorInfo(
        type="merge_conflict",
        code=outcome.code,
        message=clean_text(f"The work of {work.delegation.agent} could not be merged into {into}: {outcome.reason}{files}.")[:2000],
        recoverable=True,
        recommendation=f"Nothing was changed in the project; the work is {_kept_in(workspace, changes, outcome)}",
    )
    result = replace(
        result,
        status=Status.PARTIAL,
        summary=shorten_with_count(f"The work was done, but not merged. {error.message}"),
        errors=(*result.errors, error),
        next_steps=error.recommendation,
    )
    return _with_location(result, workspace)


def _kept_in(workspace: Workspace, changes: Changes | None, outcome: MergeResult) -> str:
    if changes is None or changes.doubt:
        return f"in {workspace.inside}. Look at the warnings, then take it over by hand."
    if outcome.is_protected:
        return f"on the branch {workspace.branch}. Look at it, then merge it: remit workspaces {workspace.session_id} --merge --protected"
    merge = f"git merge {workspace.branch}" if outcome.conflicts else f"remit workspaces {workspace.session_id} --merge"
    return f"on the branch {workspace.branch}. Merge it{' and resolve the conflicts' if outcome.conflicts else ''}: {merge}"


def _kept_return(workspace: Workspace, changes: Changes | None, result: Return) -> Return:
    """Folder and branch stay; the return names them."""
    result = _with_location(result, workspace)
    if changes is None or result.next_steps:
        return result
    kept = f"Its changes are on the branch {workspace.branch}. Merge them: remit workspaces {workspace.session_id} --merge"
    return replace(result, next_steps=kept)


def describe_workspace(workspace: Workspace) -> dict[str, Any]:
    """The location of the work, for the return."""
    return {"kind": KIND, "folder": workspace.inside, "branch": workspace.branch}


def _with_location(result: Return, workspace: Workspace) -> Return:
    return replace(result, extra={**result.extra, "workspace": {**describe_workspace(workspace), **result.extra.get("workspace", {})}})


async def _remove_after_merge(work: "LocalRun", result: Return, changes: Changes) -> Return:
    """Remove a workspace after its merge, unless an artifact exists only there."""
    workspace = _own(work)
    if changes.warnings:  # the folder contains something that is in no diff
        return _with_location(result, workspace)
    below = f"{workspace.inside}/"
    moved = {a.path: replace(a, path=a.path.removeprefix(below)) for a in result.artifacts if a.path.startswith(below)}
    seen = {a.path: a for a in await off_loop(checked_artifacts, work.root, list(moved.values()))} if moved else {}
    missing = [path for path, there in moved.items() if there.path not in seen or seen[there.path].sha256 != there.sha256]
    if missing:
        names = ", ".join(PurePosixPath(path).name for path in missing[:_NAMES_SHOWN])
        warning = f"The workspace is kept because of {names}: files that git ignores are in no diff."
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
