"""`remit workspaces`: list, merge and remove the worktrees and copies that delegations worked in."""

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.exits import Exit
from remit.cli.live import GONE, gone_among
from remit.cli.project import Project, find_session, need_store
from remit.cli.render import MARKS, ROOMY_COLUMNS, console, count, cut, duration, one_line, say, say_aside, short, table
from remit.core.deadline import SYSTEM_CLOCK
from remit.core.errors import Misused, RemitError
from remit.core.policy import PolicyRequest
from remit.core.ports import Store
from remit.core.record import Record

if TYPE_CHECKING:
    from remit.runtime.workspace_cleanup import WorkspaceStatus
    from remit.runtime.workspaces import MergeWrite, Workspace


AT_ONCE = 4
"""Workspaces inspected at the same time: each costs a few short runs of git."""
FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A workspace as it is listed."""

    workspace: "Workspace"
    record: "Record | None"
    """Of the delegation that worked there last; None when it is not in the history any more."""
    runs: str = ""
    """Why its delegation has not ended."""
    seen: "WorkspaceStatus | None" = None
    """None while it is in use."""

    @property
    def state(self) -> str:
        return FORGOTTEN if self.record is None else str(self.record.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    place: Place
    did: str
    """removed, merged or kept."""
    why: str = ""


def workspaces(
    project: Project,
    sessions: Annotated[
        list[str] | None, typer.Argument(metavar="SESSION", help="Only those of these delegations.", show_default=False)
    ] = None,
    unchanged: Annotated[bool, typer.Option("--unchanged", help="Only those without changes.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove them with their branches; asks when that loses work.")] = False,
    merge: Annotated[bool, typer.Option("--merge", help="Merge them into the branch that is checked out, then remove them.")] = False,
    protected: Annotated[
        bool, typer.Option("--protected", help="With --merge: also files that the policy does not allow the agent.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> Exit:
    """List the worktrees and copies that agents worked in; remove or merge them."""
    if remove and merge:
        raise Misused("--merge and --remove exclude one another.", advice="--merge removes what it has merged.")
    if merge and not sessions:
        raise Misused("--merge needs to know which.", advice="Name the delegations: remit workspaces SESSION --merge")
    if protected and not merge:
        raise Misused("--protected belongs to --merge.", advice="remit workspaces SESSION --merge --protected")
    if remove and not (sessions or unchanged):
        raise Misused("--remove needs to know which.", advice="Name the delegations, or add --unchanged.")
    places = _places(project, sessions or [])
    if unchanged:
        places = [place for place in places if place.seen is not None and place.seen.is_unchanged]
    outcomes: list[Outcome] = []
    code = _permitted(places, project) if remove and not yes else Exit.OK
    if (remove or merge) and code is Exit.OK:
        merged = partial(_merged, project=project, with_protected=protected)
        outcomes = [_done(place, _removed if remove else merged) for place in places]
        kept = sum(outcome.did == "kept" for outcome in outcomes)
        code = Exit.OK if not kept else Exit.PARTIAL if kept < len(outcomes) else Exit.REFUSED if remove else Exit.FAILED
        lines = [_outcome_line(outcome) for outcome in outcomes] or ["Nothing to remove."]
        text: Callable[[], object] | str = "\n".join(lines)
    else:
        text = (lambda: None) if code is not Exit.OK else (lambda: _print(places, project, is_filtered=bool(sessions) or unchanged))
    by_session = {outcome.place.workspace.session_id: outcome for outcome in outcomes}
    documents = [_document(place, by_session.get(place.workspace.session_id)) for place in places]
    return project.answer({"workspaces": documents}, text, code)


# ---- which there are


def _places(project: Project, names: Sequence[str]) -> list[Place]:
    from remit.runtime.workspace_cleanup import workspace_status
    from remit.runtime.workspaces import list_workspaces, load_workspace

    found = [
        workspace for session_id in list_workspaces(project.root) if (workspace := load_workspace(project.root, session_id)) is not None
    ]
    found.sort(key=lambda workspace: workspace.made_at)
    with project.history() as store:
        if names:
            found = _named(store, found, names)
        records = {} if store is None else {workspace.session_id: store.get(workspace.session_id) for workspace in found}
        known = [record for record in records.values() if record is not None]
        gone = set() if store is None else gone_among(known, store, project.root)

    def place(workspace: "Workspace") -> Place:
        record = records.get(workspace.session_id)
        if record is not None and not record.state.is_settled:
            return Place(workspace=workspace, record=record, runs=GONE if workspace.session_id in gone else f"it is {record.state}")
        return Place(workspace=workspace, record=record, seen=workspace_status(workspace))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(place, found))


def _named(store: "Store | None", found: "list[Workspace]", names: Sequence[str]) -> "list[Workspace]":
    """By the delegation that worked there last or the one it was made for, or the beginning or end of its id."""
    chosen: dict[str, Workspace] = {}
    for name in names:
        matching = [r for r in found if name and any(s.startswith(name) or s.endswith(name) for s in (r.session_id, r.maker))]
        if len(matching) != 1:
            session_id = find_session(need_store(store), name).session_id  # raises if the name itself is wrong
            matching = [workspace for workspace in found if session_id in (workspace.session_id, workspace.maker)]
            if not matching:
                advice = "`remit workspaces` lists all."
                raise Misused(f"{session_id} has no workspace of its own, or it was removed.", code="INVALID_TARGET", advice=advice)
        chosen[matching[0].session_id] = matching[0]
    return list(chosen.values())


# ---- removing and merging


def _permitted(places: Sequence[Place], project: Project) -> Exit:
    """Whether work that exists nowhere else may be lost."""
    needed = [place for place in places if place.seen is not None and place.seen.is_needed]
    if not needed:
        return Exit.OK
    for place in needed:
        name = place.workspace.branch or place.workspace.inside
        say_aside(f"{place.workspace.session_id}  {_agent(place)}  {name}: {_contents(place)}")
    if project.as_json or not sys.stdin.isatty():
        say_aside("Nothing was removed: this work exists nowhere else, and there is no terminal to ask at. Run it again with --yes.")
        return Exit.BLOCKED
    try:
        return Exit.OK if typer.confirm("This work exists nowhere else. Remove it?", default=False) else Exit.CANCELLED
    except typer.Abort:
        say_aside("")
        return Exit.INTERRUPTED


def _done(place: Place, do: Callable[[Place], Outcome]) -> Outcome:
    if place.seen is None:
        return Outcome(place=place, did="kept", why=place.runs)
    try:
        return do(place)
    except RemitError as error:
        return Outcome(place=place, did="kept", why=f"{error.message} {error.advice}".strip())
    except OSError as error:
        return Outcome(place=place, did="kept", why=str(error))


def _removed(place: Place) -> Outcome:
    from remit.runtime.workspace_cleanup import discard_workspace, remove_unchanged

    workspace = place.workspace
    if place.seen is None or not place.seen.is_unchanged:
        discard_workspace(workspace)
    elif not remove_unchanged(workspace.root, workspace.session_id):  # inspected again under its lock: newer changes were not confirmed
        return Outcome(place=place, did="kept", why="another workspace began from it, or it was changed just now")
    return Outcome(place=place, did="removed")


def _permitted_writes(project: Project, place: Place, writes: "Sequence[MergeWrite]") -> Sequence[bool]:
    """Which files the agent of a workspace may write, by the policy of the project."""
    from remit.policy.engine import open_policy

    record, agent, mode = place.record, _agent(place), project.settings.policy_mode
    depth, path = (1, (agent,)) if record is None else (record.depth, record.path)
    session_id = place.workspace.session_id
    alike = PolicyRequest(caller=agent, action=agent, depth=depth, path=path, is_delegation=False, session_id=session_id)
    policy = open_policy(project.folder, mode, owner="remit workspaces", clock=SYSTEM_CLOCK, trust=project.trust)
    try:
        return policy.filter_allowed([one.request(alike) for one in writes])
    finally:
        policy.close()


def _merged(place: Place, *, project: Project, with_protected: bool) -> Outcome:
    from remit.runtime.workspace_cleanup import discard_merged
    from remit.runtime.workspaces import merge_by_hand

    workspace = place.workspace
    permitted = (lambda writes: [True] * len(writes)) if with_protected else partial(_permitted_writes, project, place)
    outcome = merge_by_hand(workspace, f"{workspace.session_id}: {_agent(place)}", permitted)
    if not outcome.is_done:
        files = f" ({', '.join(outcome.conflicts[:10])})" if outcome.conflicts else ""
        return Outcome(place=place, did="kept", why=f"{outcome.reason}{files}; nothing was changed in the project")
    if outcome.left_out:
        left = f"left out, because the policy does not allow {_agent(place)} to write them: {', '.join(outcome.left_out[:10])}"
        return Outcome(place=place, did="merged", why=f"into {outcome.into}; {left}. To merge them too: --merge --protected")
    left = discard_merged(workspace)
    return Outcome(place=place, did="merged", why=f"into {outcome.into}" + (f"; {workspace.inside} stays: {left}" if left else ""))


# ---- in words


def _outcome_line(outcome: Outcome) -> str:
    why = f": {one_line(outcome.why, 600)}" if outcome.why else ""
    return f"{outcome.did}  {outcome.place.workspace.session_id}  {_agent(outcome.place)}{why}"


def _agent(place: Place) -> str:
    return "-" if place.record is None else place.record.agent


def _contents(place: Place) -> str:
    """What is in it, in a few words."""
    seen = place.seen
    if seen is None:
        return "in use"
    words = [count(len(seen.changed), "file") + " changed"] if seen.changed else []
    if seen.has_commits and not seen.changed:
        words.append("commits that change nothing")
    if seen.is_merged is not None:
        words.append("merged" if seen.is_merged else "not merged")
    if seen.ignored:
        words.append(f"{len(seen.ignored)} ignored by git")
    if seen.doubt:
        words.append(f"not certain: {one_line(seen.doubt, 80)}")
    return ", ".join(words) or "unchanged"


def _document(place: Place, outcome: Outcome | None) -> dict[str, Any]:
    workspace, seen = place.workspace, place.seen
    document: dict[str, Any] = {
        "session_id": workspace.session_id,
        "agent": None if place.record is None else place.record.agent,
        "kind": str(workspace.kind),
        "folder": workspace.inside,
        "branch": workspace.branch or None,
        "state": place.state,
        "age_seconds": round(max(0.0, time.time() - workspace.made_at), 3),
        "is_in_use": seen is None,
        "changed_files": None if seen is None else len(seen.changed),
        "ignored": None if seen is None else list(seen.ignored),
        "is_unchanged": None if seen is None else seen.is_unchanged,
        "is_merged": None if seen is None else seen.is_merged,
        "doubt": (seen.doubt if seen is not None else place.runs) or None,
    }
    return document if outcome is None else document | {"did": outcome.did, "why": outcome.why or None}


def _print(places: Sequence[Place], project: Project, *, is_filtered: bool) -> None:
    from rich.text import Text

    if not places:
        say("No workspace matches." if is_filtered else f"No agent has left a workspace in {project.root}.")
        return
    now = time.time()
    is_roomy = console().width >= ROOMY_COLUMNS
    columns = ("session", "agent", "kind", "state", "age", "in it")
    shown = table(*columns, *(("branch",) if is_roomy else ()), shrinking=("branch",))
    for place in places:
        workspace, record = place.workspace, place.record
        mark, style = ("?", "dim") if record is None else MARKS[record.state]
        state = Text(f"{mark} {place.state}", style=style)
        session = workspace.session_id if is_roomy else short(workspace.session_id)
        branch = (cut(workspace.branch or "-"),) if is_roomy else ()
        shown.add_row(session, _agent(place), str(workspace.kind), state, duration(now - workspace.made_at), _contents(place), *branch)
    console().print(shown)
