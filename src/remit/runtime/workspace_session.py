"""A delegation's stay in a folder of its own: entered before the agent runs, its changes taken when it says done, left or kept at the end.

What a room is and how git is asked is `remit.workspaces`; what becomes of the return is decided here. Used by `flow.perform`, and by the
engine for what was stopped.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from remit.core.agents import Workspace
from remit.core.delegation import Delegation
from remit.core.errors import ErrorInfo, RemitError
from remit.core.jsonable import clean
from remit.core.result import Artifact, Return, Status
from remit.runtime import reply
from remit.runtime.artifacts import FILE_CLOCK_LAG_SECONDS, seen_artifacts
from remit.runtime.harvest import MAX_ARTIFACTS, Harvest, Hunt, guess_type, harvest
from remit.runtime.workspace_cleanup import is_unchanged, remove
from remit.runtime.workspaces import Changes, Intent, Merged, Room, is_merged, merge, merge_into_room, open_room, take_changes
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.runtime.perform import Work


OWN_FOLDER = frozenset({Workspace.WORKTREE, Workspace.COPY})
MERGE_ENDS_SECONDS = 0.2
"""How long a merge that can no longer be called off is waited for when its delegation is stopped."""
MERGED_BEFORE = "Its changes were merged into the project before it was stopped."
AFTER_CRASH_SECONDS = 10.0
_NAMES_SHOWN = 10


@dataclass(slots=True)
class Stay:
    """A delegation and its room."""

    room: Room
    host: Room | None = None
    """The room of its caller, where its changes go back to."""
    taking: "asyncio.Future[Changes] | None" = field(default=None, repr=False)
    """The changes, being taken: asked for once, by whoever comes first."""
    is_spare: bool = False
    """It was stopped, and nothing is in its room that anybody could want."""

    @property
    def began_at(self) -> float:
        return begun_in(self.room)

    def take(self, work: "Work") -> "asyncio.Future[Changes]":
        if self.taking is None:
            message = commit_message(work.delegation)
            scratch = work.scratch()
            self.taking = asyncio.ensure_future(off_loop(lambda: take_changes(self.room, message=message, diff_in=scratch)))
            self.taking.add_done_callback(lambda taken: taken.cancelled() or taken.exception())  # seen, whoever still waits
        return self.taking

    @property
    def taken(self) -> Changes | None:
        done = self.taking is not None and self.taking.done() and not self.taking.cancelled() and self.taking.exception() is None
        return self.taking.result() if done and self.taking is not None else None


def commit_message(delegation: Delegation) -> str:
    """Of the commit that holds its changes. A task of the board says what they are for; then the session of the whole tree is named."""
    said = delegation.task.extra.get("commit_message") if delegation.task is not None else None
    if isinstance(said, str) and said.strip():
        return f"{clean(said).strip()}\n\nSession: {delegation.lineage.root_id}"
    return f"{delegation.session_id}: {delegation.agent}"


def begun_in(room: Room) -> float:
    """What is no older was written in it. A file dated in the same tick of the clock as the room's own was there before."""
    return room.made_at + FILE_CLOCK_LAG_SECONDS + 1e-6


async def enter(work: "Work") -> None:
    """Make the room, or find the one that it goes on in. What the agent must know of it is told as warnings."""
    if work.stay is not None:
        return
    delegation, kind, host = work.delegation, work.agent.spec.workspace, work.room
    seconds = max(0.0, work.remaining())
    opening = asyncio.ensure_future(
        off_loop(lambda: open_room(work.root, delegation.session_id, kind, earlier=delegation.resumes, seconds=seconds, host=host))
    )
    try:
        room, was_there = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_unused)
        raise
    work.stay, work.room = Stay(room, host), room
    if was_there:
        work.notice(f"It goes on in the workspace {room.inside}.")
    elif delegation.resumes is not None:
        gone = f"The workspace of {delegation.resumes} is not there any more (merged, removed, or nothing was changed in it)"
        work.warnings = (*work.warnings, f"{gone}; this one began from a new one.")
    if room.is_dirty and not was_there:
        work.warnings = (*work.warnings, "The project has uncommitted changes; they are not in the worktree that the agent worked in.")


def _unused(opening: "asyncio.Future[tuple[Room, bool]]") -> None:
    """A room that was ready too late: nobody has worked in it."""
    if opening.cancelled() or opening.exception() is not None:
        return
    room, was_there = opening.result()
    if not was_there:
        with contextlib.suppress(RuntimeError):  # the loop is closing: it is found, and named, by the next recovery
            clearing = asyncio.ensure_future(off_loop(lambda: remove(room, with_branch=True)))
            clearing.add_done_callback(lambda done: done.cancelled() or done.exception())


async def with_changes(work: "Work", result: Return) -> Return:
    """The return with the diff as an artifact; what went wrong with it is a warning, and nothing is lost: the folder stays."""
    stay = work.stay
    assert stay is not None
    await work.end_children()  # whoever still worked in the same folder: nothing may change under the diff
    try:
        async with asyncio.timeout(max(0.0, work.remaining())):
            changes = await asyncio.shield(stay.take(work))
    except (RemitError, OSError, TimeoutError) as error:
        return replace(result, warnings=(*result.warnings, *_untaken(stay.room, error)))
    result = replace(result, warnings=(*result.warnings, *changes.warnings))
    if changes.diff is not None:
        result = replace(result, artifacts=(*result.artifacts, *await diff_artifact(stay.room, changes)))
    return result


async def diff_artifact(room: Room, changes: Changes) -> tuple[Artifact, ...]:
    if changes.diff is None:
        return ()
    files = f"{changes.count} {'file' if changes.count == 1 else 'files'} changed."
    artifact = Artifact(type="data", path=changes.diff.relative_to(room.root).as_posix(), summary=files)
    return await off_loop(seen_artifacts, room.root, (artifact,))


def _untaken(room: Room, error: Exception) -> tuple[str, ...]:
    why = error.message if isinstance(error, RemitError) else str(error) or "there was no time left"
    return (clean(f"The diff of the workspace could not be taken: {why} The work is in {room.inside}.")[:1000],)


async def late_changes(work: "Work", seconds: float) -> tuple[Changes | None, tuple[str, ...]]:
    """The changes of one that was stopped, if git has them in time; it goes on without us if not."""
    stay = work.stay
    assert stay is not None
    taking = stay.take(work)
    await asyncio.wait([taking], timeout=seconds)
    if (changes := stay.taken) is not None:
        return changes, changes.warnings
    if not taking.done():
        return None, (f"git had not made the diff of the workspace after {seconds:.1f} s; it may still come.",)
    error = taking.exception() if not taking.cancelled() else None
    return None, _untaken(stay.room, error if isinstance(error, Exception) else TimeoutError())


def where_it_stays(room: Room) -> str:
    branch = f" (branch {room.branch})" if room.branch else ""
    return f"Its workspace stays: {room.inside}{branch}."


async def is_spare(room: Room, changes: Changes | None, artifacts: Iterable[Artifact], *, seconds: float) -> bool:
    """Whether the room of one that was stopped can go: nothing changed, nothing of worth that git ignores, no artifact in it.

    Only when that is known in time; what is not is left to upkeep.
    """
    if changes is None or changes.count or changes.warnings or changes.doubt or seconds <= 0:
        return False
    tree = f"{room.tree.relative_to(room.root).as_posix()}/"
    if any(artifact.path.startswith(tree) for artifact in artifacts):
        return False
    try:
        async with asyncio.timeout(seconds):
            return await off_loop(lambda: is_unchanged(room, seconds=seconds))
    except TimeoutError:
        return False


async def left_in_room(room: Room, hunt: Hunt, scratch: Path, agent: str) -> tuple[Harvest, bool]:
    """What a dead run left in its room: nobody else has worked there, so all that is new in it is its own. And whether that is nothing."""
    found = await harvest(replace(hunt, scan_root=True, below=room.inside, since=Stay(room).began_at))

    def take() -> tuple[Changes, bool]:
        scratch.mkdir(parents=True, exist_ok=True)
        taken = take_changes(room, message=f"{room.session_id}: {agent}", diff_in=scratch, seconds=AFTER_CRASH_SECONDS)
        could_be = bool(taken.count and taken.commit and not room.host)
        return taken, could_be and is_merged(room, taken.commit or "", seconds=AFTER_CRASH_SECONDS)

    try:
        changes, was_merged = await off_loop(take)
    except (RemitError, OSError) as error:
        return replace(found, warnings=(*found.warnings, *_untaken(room, error))), False
    merged = (MERGED_BEFORE,) if was_merged else ()
    spare = await is_spare(room, changes, found.artifacts, seconds=AFTER_CRASH_SECONDS)
    return await joined(room, found, changes, (*merged, *changes.warnings)), spare


async def joined(room: Room, found: Harvest, changes: Changes | None, told: tuple[str, ...]) -> Harvest:
    """What the search found and what git says has changed, each once; the diff last."""
    warnings = (*found.warnings, *told)
    if changes is None:
        return Harvest(artifacts=found.artifacts, warnings=warnings)
    diff = await diff_artifact(room, changes)
    known = {artifact.path for artifact in found.artifacts}
    tree = room.tree.relative_to(room.root).as_posix()
    named = [Artifact(type=guess_type(path), path=f"{tree}/{path}") for path in changes.changed[:MAX_ARTIFACTS] if _is_text(path)]
    more = await off_loop(seen_artifacts, room.root, [artifact for artifact in named if artifact.path not in known])
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


async def leave(work: "Work", result: Return) -> Return:
    """Merge what is to be merged; remove what nobody needs; say where the rest is."""
    stay = work.stay
    assert stay is not None
    changes = stay.taken
    is_to_merge = work.agent.spec.merge and result.status is Status.COMPLETED
    if is_to_merge and (changes is None or changes.doubt):
        reason = "its changes could not be taken" if changes is None else changes.doubt
        return _not_merged(work, stay, Merged(is_done=False, reason=reason), changes, result)
    if changes is None:
        return _staying(stay, None, result)
    if changes.count == 0:
        return await _released(work, result, changes)
    if not is_to_merge or changes.commit is None:
        return _staying(stay, changes, result)
    work.hold(result)
    outcome = await _merged(work, stay, changes.commit, result)
    if outcome.is_done:
        work.notice(f"Merged into {outcome.into}.")
        result = replace(result, extra={**result.extra, "workspace": {"kind": str(stay.room.kind), "merged_into": outcome.into}})
        work.hold(replace(result, warnings=(*result.warnings, MERGED_BEFORE)))
        return await _released(work, result, changes)
    return _not_merged(work, stay, outcome, changes, result)


def _merge(stay: Stay, commit: str, intent: Intent, seconds: float) -> Merged:
    room, host = stay.room, stay.host
    if room.host != ("" if host is None else host.maker):
        began = f"the workspace of {room.host}" if room.host else "the project itself"
        return Merged(is_done=False, reason=f"it began from {began}, which its caller does not work in")
    if host is not None:
        return merge_into_room(room, commit, host, intent, seconds=seconds)
    return merge(room, commit, intent, seconds=seconds)


async def _merged(work: "Work", stay: Stay, commit: str, result: Return) -> Merged:
    intent, seconds = Intent(), max(0.0, work.remaining())
    merging = asyncio.ensure_future(off_loop(lambda: _merge(stay, commit, intent, seconds)))
    try:
        return await asyncio.shield(merging)
    except (RemitError, OSError) as error:
        return Merged(is_done=False, reason=error.message if isinstance(error, RemitError) else str(error))
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


def _not_merged(work: "Work", stay: Stay, outcome: Merged, changes: Changes | None, result: Return) -> Return:
    """The work is done and safe, on its branch or in its folder; the project, or the workspace of its caller, is as it was."""
    where = "the project" if stay.host is None else stay.host.inside
    into = outcome.into or where
    named = ", ".join(outcome.conflicts[:_NAMES_SHOWN])
    more = f" and {len(outcome.conflicts) - _NAMES_SHOWN} more" if len(outcome.conflicts) > _NAMES_SHOWN else ""
    files = f" ({named}{more})" if named else ""
    error = ErrorInfo(
        type="merge_conflict",
        code="MERGE_CONFLICT",
        message=clean(f"The work of {work.delegation.agent} could not be merged into {into}: {outcome.reason}{files}.")[:2000],
        recoverable=True,
        recommendation=f"Nothing was changed in {where}; the work is {_kept_in(stay, changes)}",
    )
    result = replace(
        result,
        status=Status.PARTIAL,
        summary=reply.shortened(f"The work was done, but not merged. {error.message}"),
        errors=(*result.errors, error),
        next_steps=error.recommendation,
    )
    return _staying(stay, changes, result)


def _kept_in(stay: Stay, changes: Changes | None) -> str:
    if changes is None or changes.doubt:
        return f"in {stay.room.inside}. Look at the warnings, then take it over by hand."
    how = _by_hand(stay, changes, f"Merge it and resolve the conflicts: git merge {stay.room.branch}")
    return f"on the branch {stay.room.branch}. {how}"


def _by_hand(stay: Stay, changes: Changes, merge: str) -> str:
    """In the room of a caller the changes are taken over by their diff: the branch holds what was there before as well."""
    if stay.host is not None and changes.diff is not None:
        diff, there = os.path.relpath(changes.diff, stay.host.tree), stay.host.tree.relative_to(stay.host.root).as_posix()
        return f"Take it over in {there}: git add --all && git apply --3way {diff}"
    return merge if stay.room.branch else ""


def _staying(stay: Stay, changes: Changes | None, result: Return) -> Return:
    """Folder and branch stay; the return says where the work is."""
    room = stay.room
    result = _placed(result, room)
    if changes is None or result.next_steps:
        return result
    where = f"on the branch {room.branch}" if room.branch else f"in {room.inside}"
    how = _by_hand(stay, changes, f"Merge them: remit workspaces {room.session_id} --merge")
    return replace(result, next_steps=f"Its changes are {where}. {how}".rstrip())


def place_of(room: Room) -> dict[str, Any]:
    """Where the work is, for the return."""
    return {"kind": str(room.kind), "folder": room.inside, **({"branch": room.branch} if room.branch else {})}


def _placed(result: Return, room: Room) -> Return:
    return replace(result, extra={**result.extra, "workspace": {**place_of(room), **result.extra.get("workspace", {})}})


async def _released(work: "Work", result: Return, changes: Changes) -> Return:
    """The room is no longer needed: its files are the project's, or its caller's. Unless an artifact is nowhere else: then it stays."""
    stay = work.stay
    assert stay is not None
    room = stay.room
    if changes.warnings:  # something is in the folder and in no diff
        return _placed(result, room)
    below, there_is = f"{room.inside}/", "" if stay.host is None else f"{stay.host.inside}/"
    inside = [artifact for artifact in result.artifacts if artifact.path.startswith(below)]
    moved = {a.path: replace(a, path=f"{there_is}{a.path.removeprefix(below)}") for a in inside}
    seen = {a.path: a for a in await off_loop(seen_artifacts, work.root, list(moved.values()))} if moved else {}
    missing = [path for path, there in moved.items() if there.path not in seen or seen[there.path].sha256 != there.sha256]
    if missing:
        names = ", ".join(PurePosixPath(path).name for path in missing[:_NAMES_SHOWN])
        warning = f"The workspace stays for the sake of {names}: what git ignores is in no diff."
        return _placed(replace(result, warnings=(*result.warnings, warning)), room)
    artifacts = tuple(replace(seen[moved[a.path].path], evidence=a.evidence) if a.path in moved else a for a in result.artifacts)
    result = replace(result, artifacts=artifacts)
    if work.held is not None:
        work.hold(replace(work.held, artifacts=artifacts))
    try:
        await asyncio.shield(asyncio.ensure_future(off_loop(lambda: remove(room, with_branch=True))))
    except (RemitError, OSError) as error:
        result = replace(result, warnings=(*result.warnings, f"The workspace {room.inside} could not be removed: {error}"))
    return result
