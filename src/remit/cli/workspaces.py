"""`remit workspaces`: list, merge and remove the worktrees that delegations worked in."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from typer import Argument, Option

from remit.board.board import Board
from remit.board.claims import holder_of
from remit.board.implement import merge_work
from remit.board.task import State as BoardState
from remit.board.task import Task
from remit.board.task_landing import forget_work
from remit.cli import completion
from remit.cli.exits import Exit
from remit.cli.install import consent
from remit.cli.live import GONE, lost_sessions
from remit.cli.project import Project, find_session, need_store
from remit.cli.render import count, duration, harmless, one_line, say, say_aside, say_table
from remit.core.deadline import SYSTEM_CLOCK
from remit.core.errors import Misused, RemitError
from remit.core.policy import PolicyRequest
from remit.core.ports import Store
from remit.core.record import Record
from remit.policy.engine import open_policy
from remit.runtime.workspace_cleanup import (
    WorkspaceStatus,
    diff_text,
    discard_merged,
    discard_workspace,
    merge_by_hand,
    remove_unchanged,
    workspace_status,
)
from remit.runtime.workspaces import MergeWrite, Workspace, list_workspaces, load_workspace

FORGOTTEN = "forgotten"


@dataclass(slots=True, kw_only=True)
class Place:
    """A workspace in the list."""

    workspace: "Workspace"
    record: "Record | None"
    """The delegation that used it last; None if it is no longer in the history."""
    runs: str = ""
    """Why its delegation has not ended."""
    seen: "WorkspaceStatus | None" = None
    """None while it is in use."""
    task: "Task | None" = None
    """The board task whose work it contains."""
    did: str = ""
    """removed, merged or kept, by this command."""
    why: str = ""

    @property
    def state(self) -> str:
        """The state of its work: of the board task, or of its delegation."""
        if self.workspace.task:
            return FORGOTTEN if self.task is None else str(self.task.status)
        return FORGOTTEN if self.record is None else str(self.record.state)


def workspaces(
    project: Project,
    sessions: Annotated[
        list[str] | None,
        Argument(metavar="SESSION|N", help="Only those of these delegations or tasks.", autocompletion=completion.sessions),
    ] = None,
    remove: Annotated[bool, Option("--remove", help="Remove them with their branches; asks when that loses work.")] = False,
    merge: Annotated[bool, Option("--merge", help="Merge them into the branch that is checked out, then remove them.")] = False,
    protected: Annotated[bool, Option("--protected", help="With --merge: also files that the policy does not allow the agent.")] = False,
    diff: Annotated[bool, Option("--diff", help="Show what was changed in them.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
) -> Exit:
    """List the worktrees that agents worked in; show, remove or merge them."""
    if (remove and merge) or (protected and not merge):
        raise Misused("--merge and --remove exclude one another, and --protected belongs to --merge.", advice="Use one of them.")
    if (merge or remove) and not sessions:
        raise Misused("Name the delegations to merge or to remove.", advice="remit workspaces SESSION --merge, or --remove")
    places = _places(project, sessions or [])
    if diff:
        return _print_diffs(project, places)
    code = _permitted(places, project) if remove and not yes else Exit.OK
    acts = code is Exit.OK and (remove or merge)
    if acts:
        for place in places:
            place.did, place.why = _done(place, _removed if remove else partial(_merged, project=project, with_protected=protected))
        kept = sum(place.did == "kept" for place in places)
        code = Exit.OK if not kept else Exit.PARTIAL if kept < len(places) else Exit.REFUSED if remove else Exit.FAILED

    def shown() -> None:
        if acts:
            say("\n".join(map(_outcome_line, places)))
        elif code is Exit.OK:
            _print(places, project)

    return project.answer({"workspaces": [_document(place) for place in places]}, shown, code)


# ---- which there are


def _places(project: Project, names: Sequence[str]) -> list[Place]:
    found = [
        workspace for session_id in list_workspaces(project.root) if (workspace := load_workspace(project.root, session_id)) is not None
    ]
    found.sort(key=lambda workspace: workspace.made_at)
    board = Board(project.root).look().state if any(workspace.task for workspace in found) else BoardState()
    tasks = {workspace.session_id: board.find(workspace.task) for workspace in found if workspace.task}
    with project.history() as store:
        if names:
            found = _named(store, found, names)
        last = {name: task.session_id for name, task in tasks.items() if task is not None}
        sessions = {workspace.session_id: last.get(workspace.session_id, workspace.session_id) for workspace in found}
        records = {} if store is None else {name: store.get(session) for name, session in sessions.items() if session}
        known = [record for record in records.values() if record is not None]
        gone = set() if store is None else lost_sessions(known, store, project.root)

    def place(workspace: "Workspace") -> Place:
        record = records.get(workspace.session_id)
        if workspace.task:
            runs = _in_use(project, workspace.task)
            seen = None if runs else workspace_status(workspace)
            return Place(workspace=workspace, record=record, task=tasks[workspace.session_id], runs=runs, seen=seen)
        if record is not None and not record.state.is_settled:
            return Place(workspace=workspace, record=record, runs=GONE if workspace.session_id in gone else f"it is {record.state}")
        return Place(workspace=workspace, record=record, seen=workspace_status(workspace))

    return [place(workspace) for workspace in found]


def _in_use(project: Project, number: int) -> str:
    """The process that works on its task; empty if none does."""
    holder = holder_of(Board(project.root), number)
    return f"`remit {holder.command}` works on task {number} (process {holder.pid})" if holder is not None else ""


def _named(store: "Store | None", found: "list[Workspace]", names: Sequence[str]) -> "list[Workspace]":
    """Find workspaces by the delegation that used them last or that they were created for, or by the beginning or end of its id."""
    chosen: dict[str, Workspace] = {}
    for name in names:
        if name.isdigit():
            of_task = [workspace for workspace in found if workspace.task == int(name)]
            if not of_task:
                advice = "`remit workspaces` lists all."
                raise Misused(f"Task {name} has no worktree: it was merged, discarded or not begun.", code="INVALID_TARGET", advice=advice)
            chosen[of_task[-1].session_id] = of_task[-1]
            continue
        matching = [r for r in found if name and any(s.startswith(name) or s.endswith(name) for s in (r.session_id, r.maker))]
        if len(matching) != 1:
            session_id = find_session(need_store(store), name).session_id  # raises if the name itself is invalid
            matching = [workspace for workspace in found if session_id in (workspace.session_id, workspace.maker)]
            if not matching:
                advice = "`remit workspaces` lists all."
                raise Misused(f"{session_id} has no workspace of its own, or it was removed.", code="INVALID_TARGET", advice=advice)
        chosen[matching[0].session_id] = matching[0]
    return list(chosen.values())


# ---- removing and merging


def _permitted(places: Sequence[Place], project: Project) -> Exit:
    """Ask whether work that exists nowhere else may be lost."""
    needed = [place for place in places if place.seen is not None and place.seen.is_needed]
    for place in needed:
        say_aside(f"{place.workspace.session_id}  {_agent(place)}  {place.workspace.branch}: {_contents(place)}")
    return consent(project, "This work exists nowhere else. Remove it?", yes=not needed)


def _done(place: Place, do: "Callable[[Place], tuple[str, str]]") -> tuple[str, str]:
    """The action, and its reason."""
    if place.seen is None:
        return "kept", place.runs
    try:
        return do(place)
    except RemitError as error:
        return "kept", f"{error.message} {error.advice}".strip()
    except OSError as error:
        return "kept", str(error)


def _removed(place: Place) -> tuple[str, str]:
    workspace = place.workspace
    if workspace.task or place.seen is None or not place.seen.is_unchanged:
        discard_workspace(workspace)
        if workspace.task:
            forget_work(Board(workspace.root), workspace.task)
    elif not remove_unchanged(workspace.root, workspace.session_id):  # inspected again under its lock: newer changes were not confirmed
        return "kept", "another workspace began from it, or it was changed just now"
    return "removed", ""


def _permitted_writes(project: Project, place: Place, writes: "Sequence[MergeWrite]") -> Sequence[bool]:
    """Whether the policy lets the agent of the workspace write each of these files."""
    record, agent, mode = place.record, _agent(place), project.settings.policy_mode
    depth, path = (1, (agent,)) if record is None else (record.depth, record.path)
    session_id = place.workspace.session_id
    alike = PolicyRequest(caller=agent, action=agent, depth=depth, path=path, is_delegation=False, session_id=session_id)
    policy = open_policy(project.folder, mode, owner="remit workspaces", clock=SYSTEM_CLOCK, trust=project.trust)
    try:
        return policy.filter_allowed([one.request(alike) for one in writes])
    finally:
        policy.close()


def _merged(place: Place, *, project: Project, with_protected: bool) -> tuple[str, str]:
    workspace = place.workspace
    if workspace.task:
        return asyncio.run(_landed(place, project))
    permitted = (lambda writes: [True] * len(writes)) if with_protected else partial(_permitted_writes, project, place)
    outcome = merge_by_hand(workspace, f"{_agent(place)}\n\nSession: {workspace.session_id}", permitted, project.settings)
    if not outcome.is_done:
        files = f" ({', '.join(outcome.conflicts[:10])})" if outcome.is_protected else ""
        how = ". To merge them nevertheless: --merge --protected" if outcome.is_protected else ""
        return "kept", f"{outcome.reason}{files}; nothing was changed in the project{how}"
    left = discard_merged(workspace)
    return "merged", f"into {outcome.into}" + (f"; {workspace.inside} stays: {left}" if left else "")


async def _landed(place: Place, project: Project) -> tuple[str, str]:
    """Merge the work of a task as its command would, and complete the task."""
    async with project.open() as remit:
        outcome = await merge_work(remit, Board(project.root), place.workspace.task)
    if outcome.status == "completed":
        return "merged", f"into {place.workspace.onto}; {outcome.summary}"
    return "kept", f"{outcome.summary} {outcome.next_steps}"


def _print_diffs(project: Project, places: Sequence[Place]) -> Exit:
    texts = {place.workspace.session_id: diff_text(place.workspace).decode(errors="replace") for place in places}
    documents = [{**_document(place), "diff": texts[place.workspace.session_id]} for place in places]
    return project.answer({"workspaces": documents}, lambda: print(harmless("".join(texts.values())), end=""))


# ---- in words


def _outcome_line(place: Place) -> str:
    why = f": {one_line(place.why, 600)}" if place.why else ""
    return f"{place.did}  {place.workspace.session_id}  {_agent(place)}{why}"


def _agent(place: Place) -> str:
    return "-" if place.record is None else place.record.agent


def _contents(place: Place) -> str:
    """A short description of its content."""
    seen = place.seen
    if seen is None:
        return "in use"
    words = [count(len(seen.changed), "file") + " changed"] if seen.changed else []
    words += ["merged" if seen.is_merged else "not merged"] if seen.is_merged is not None else []
    words += [f"{len(seen.ignored)} ignored by git"] if seen.ignored else []
    words += [f"not certain: {one_line(seen.doubt, 80)}"] if seen.doubt else []
    return ", ".join(words) or "unchanged"


def _document(place: Place) -> dict[str, Any]:
    workspace, seen = place.workspace, place.seen
    document: dict[str, Any] = {
        "session_id": workspace.session_id,
        "task": workspace.task or None,
        "agent": None if place.record is None else place.record.agent,
        "folder": workspace.inside,
        "branch": workspace.branch,
        "state": place.state,
        "age_seconds": round(max(0.0, time.time() - workspace.made_at), 3),
        "is_in_use": seen is None,
        "changed_files": None if seen is None else len(seen.changed),
        "ignored": None if seen is None else list(seen.ignored),
        "is_unchanged": None if seen is None else seen.is_unchanged,
        "is_merged": None if seen is None else seen.is_merged,
        "doubt": (seen.doubt if seen is not None else place.runs) or None,
    }
    return document | ({"did": place.did, "why": place.why or None} if place.did else {})


def _print(places: Sequence[Place], project: Project) -> None:
    if not places:
        say(f"No agent has left a workspace in {project.root}.")
        return
    rows = [
        {
            "task": str(place.workspace.task or ""),
            "session": place.workspace.session_id,
            "agent": _agent(place),
            "verdict": place.state,
            "age": duration(time.time() - place.workspace.made_at),
            "in it": _contents(place),
            "branch": place.workspace.branch,
        }
        for place in places
    ]
    say_table(rows, shrinking=("in it", "branch"))
