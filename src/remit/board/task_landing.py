"""The worktree of a task being implemented, and the merge of its work: the only place where the board merges.

`TaskLanding` gives every delegation of the task its place in the worktree, passes the finished work to the merge queue, and returns it to
the agent's session if it fails or conflicts. Each step is recorded beside the worktree first, so that the command continues after a crash
between any two of them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from remit.app import Remit
from remit.board.board import Board
from remit.board.claims import holder_of
from remit.board.command_lifecycle import Find, new_error, roles_of, route_task
from remit.board.phases import PhaseRecord, read_plan_text, records_of, without_records
from remit.board.plans import Plan, with_phase
from remit.board.task import PhaseStatus, State, Status, Task
from remit.core.agents import AgentSpec, WorkspaceKind
from remit.core.errors import ErrorInfo, Misused, Refused, RemitError, Unavailable
from remit.core.ports import Store
from remit.core.result import Return
from remit.core.result import Status as ReturnStatus
from remit.core.settings import Settings
from remit.core.text import fence_untrusted
from remit.runtime.landing import (
    RebaseResult,
    begin_return,
    end_return,
    finish_return,
    landed_as,
    newest_tip,
    read_state,
    rename_return,
    subject_of_commit,
    unresolved,
    write_state,
)
from remit.runtime.merge_queue import CODES, CONFLICT, RED, Candidate, Landing, MergeQueue
from remit.runtime.task_workspace import (
    Place,
    commit_by_hand,
    find_task_workspace,
    make_task_workspace,
    snapshot_tree,
)
from remit.runtime.verify import prepare_folder
from remit.runtime.workspace_cleanup import discard_workspace, remove_left, workspace_status
from remit.runtime.workspaces import Workspace, find_workspace, list_workspaces
from remit.system.threads import off_loop

RETURNS = 2
"""How often work goes back to its agent before a person is asked."""
MAKING_SECONDS = 120.0
QUEUE = "queue"
OUTPUT_CHARACTERS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingOptions:
    """How the work of a command's tasks is merged."""

    queue: MergeQueue | None = None
    """Shared by tasks implemented in parallel; None: the command has its own."""
    mode: bool | str | None = None
    """False, True or "queue"; None: the declaration of the task's agent."""
    is_accepting: bool = True
    """`--no-accept`: also without acceptance commands."""
    is_taken: bool = False
    """A person takes the work as it is: failures that its agent did not fix are no longer returned to it."""
    slots: asyncio.Semaphore | None = None
    """Maximum parallel agents; None: unlimited."""


def merge_mode(settings: Settings, find: Find, task: Task) -> bool | str | None:
    """The merge mode that the task's agent declares; None: it works in the project itself."""
    chosen = route_task(settings.routing, "implement", task)
    for name in roles_of(find, chosen.agent):
        agent = find(name)
        spec: AgentSpec | None = agent.spec if agent is not None else None
        if spec is not None and spec.workspace is WorkspaceKind.WORKTREE:
            return spec.merge
    return None


def commands_of(task: Task, plan: Plan) -> tuple[str, ...]:
    """All acceptance commands of a task: its own, of its plan and of each phase."""
    return tuple(dict.fromkeys((*(one for phase in plan.phases for one in phase.accept), *plan.accept, *task.accept)))


def check_acceptance(settings: Settings, task: Task, plan: Plan, options: LandingOptions) -> None:
    """Raise `Refused` if work would be merged through the queue without any acceptance command."""
    if options.mode == QUEUE and options.is_accepting and not (settings.workspace.accept or commands_of(task, plan)):
        raise Refused(
            f"Task {task.number} has no acceptance command, so the merge queue cannot check its work.",
            code="INVALID_OPERATION",
            advice='Add to remit.toml: [workspace] accept = ["make test"]. Or use --no-accept to merge it unchecked.',
        )


class TaskLanding:
    """One task's worktree in this command."""

    def __init__(self, remit: Remit, number: int, options: LandingOptions, *, hand_back: "HandBack", stop_at: float) -> None:
        """`stop_at`: monotonic, the end of the command."""
        self._hand_back = hand_back
        self._stop_at = stop_at
        self._remit = remit
        self._number = number
        self._options = options
        is_accepting = options.mode == QUEUE and options.is_accepting
        self._queue = options.queue or MergeQueue(remit.root, remit.settings, is_accepting=is_accepting, marks=remit.process_marks)
        self._workspace: Workspace | None = None
        self.notes: tuple[str, ...] = ()
        """Warnings: what was flaky, what was handed back."""
        self.summary = ""
        """How the work landed; empty: it did not."""

    @property
    def workspace(self) -> Workspace:
        assert self._workspace is not None
        return self._workspace

    @property
    def is_wanted(self) -> bool:
        """Whether the work is merged at all."""
        return self._options.mode is not False

    @contextlib.asynccontextmanager
    async def agent_slot(self) -> AsyncIterator[None]:
        """While an agent works; work that waits for its merge takes no slot."""
        async with self._options.slots or contextlib.nullcontext():
            yield

    async def open(self, records: Sequence[PhaseRecord], *, seconds: float) -> None:
        """Find or create the worktree. Raises `Refused` if the branch itself fails acceptance, or finished work is gone."""
        root = self._remit.root
        self._workspace = await off_loop(find_task_workspace, root, self._number)
        is_new = self._workspace is None
        if is_new:
            done = [str(one.number) for one in records if one.commit]
            if done:
                raise Refused(
                    f"The worktree of task {self._number} is gone, with the unmerged work of phase {', '.join(done)}.",
                    code="FILE_NOT_FOUND",
                    advice="Mark those phases [NOT STARTED] in the plan, and run the command again.",
                )
            self._workspace = await self._make(root, seconds)
        if self._options.mode == QUEUE and self._options.is_accepting and not await self.landed():
            try:
                await self._require_green(seconds)
            except Refused:
                if is_new:  # the next one begins from the branch when it is green
                    await self.close()
                raise

    async def _make(self, root: Path, seconds: float) -> Workspace:
        workspace = await off_loop(lambda: make_task_workspace(root, self._number, seconds=min(seconds, MAKING_SECONDS)))
        try:
            await prepare_folder(workspace.folder, root, self._remit.settings, seconds=seconds, marks=self._remit.process_marks)
        except (RemitError, OSError):
            with contextlib.suppress(RemitError, OSError):
                await off_loop(discard_workspace, workspace)
            raise
        return workspace

    async def _require_green(self, seconds: float) -> None:
        proof = await self._queue.base_proof(self.workspace, time.monotonic() + seconds)
        if proof.error is not None:
            raise Refused(
                f"{self.workspace.onto} itself fails its acceptance commands, so nothing can be merged into it. {proof.error.message}",
                code="MERGE_RED",
                advice=f"Fix {self.workspace.onto} first, then run the command again.",
            )

    async def landed(self) -> str:
        """The commit under which the work was merged before this process died; empty: it was not."""
        return await off_loop(landed_as, self.workspace)

    async def begin_run(self, *, is_continued: bool) -> None:
        """`is_continued`: a killed run is resumed, so its changes count."""

        def begin() -> None:
            state = read_state(self.workspace)
            state = replace(state, is_queued=state.is_queued or self._options.mode == QUEUE)
            if not (is_continued and state.baseline):
                state = replace(state, baseline=snapshot_tree(self.workspace))
            write_state(self.workspace, state)

        await off_loop(begin)

    async def place(self, task: Task, records: Sequence[PhaseRecord]) -> dict[str, str]:
        """The place of the next delegation, for its task."""
        shared = self._remit.settings.workspace

        def describe() -> dict[str, str]:
            return Place(
                workspace=self.workspace.session_id,
                parent=newest_tip(self.workspace, [one.commit for one in records if one.commit]),
                baseline=read_state(self.workspace).baseline,
                own=task.folder,
                plan=task.plan_path,
                shared="\n".join((*shared.copy, *shared.link)),
            ).to_dict()

        return await off_loop(describe)

    # ---- landing

    async def land(self, task: Task, records: Sequence[PhaseRecord], commands: tuple[str, ...]) -> ErrorInfo | None:
        """Land the work; None: it has landed. Red or conflicting, it goes back to its agent at most twice."""
        if commit := await self.landed():
            self.summary = f"Merged into {self.workspace.onto} as {commit[:9]}, by a command that was killed after that."
            return None
        if (error := await self._take_over(task, records)) is not None:
            return error
        landing = await self._try(records, commands)
        for turn in range(1, RETURNS + 1):
            if not self._can_return(landing):
                break
            try:
                async with self._queue.exclusive(self.workspace, self._stop_at) if turn == RETURNS else contextlib.nullcontext():
                    if turn == RETURNS:  # on the current branch: from here on nothing else is merged before this
                        landing = await self._try(records, commands)
                        if not self._can_return(landing):
                            break
                    if (error := await self._give_back(landing, await self._tip(records))) is not None:
                        return error
                    landing = await self._try(records, commands)
            except Unavailable:
                if time.monotonic() < self._stop_at:
                    raise
                break  # the queue was not free before the end: what was found before counts
        if landing.error is None:
            return None
        return replace(landing.error, recommendation=self._advice(landing.state))

    async def _try(self, records: Sequence[PhaseRecord], commands: tuple[str, ...]) -> Landing:
        tip = await self._tip(records)
        landing = await self._queue.land(Candidate(workspace=self.workspace, tip=tip, accept=commands, stop_at=self._stop_at))
        self.notes, self.summary = (*self.notes, *landing.notes), landing.summary
        return landing

    def _can_return(self, landing: Landing) -> bool:
        is_returned = self._options.mode == QUEUE and landing.state in (RED, CONFLICT) and landing.rebased is not None
        return is_returned and time.monotonic() < self._stop_at

    async def _give_back(self, landing: Landing, tip: str) -> ErrorInfo | None:
        """Return failing or conflicting work to its agent; None: it has changed it."""
        assert landing.error is not None
        assert landing.rebased is not None
        reason = _without_output(landing.error)
        self.notes += (f"Handed back to its agent: {reason}",)
        # Conflicting work becomes one commit with the name of the last one.
        subject = f"task {self._number}: fix it on top of {self.workspace.onto}"
        if landing.state == CONFLICT:
            subject = await off_loop(subject_of_commit, self.workspace, tip)
        message = _message(self._number, landing, self.workspace.onto)
        await off_loop(begin_return, self.workspace, landing.rebased, message, subject, landing.state)
        error = await self._return()
        if error is None:
            return None
        words = f"{reason} Its agent did not fix that: {error.message}"
        return replace(landing.error, message=words, recommendation=self._advice(landing.state))

    async def _tip(self, records: Sequence[PhaseRecord]) -> str:
        return await off_loop(newest_tip, self.workspace, [one.commit for one in records if one.commit])

    async def comment(self, records: Sequence[PhaseRecord], words: str) -> ErrorInfo | None:
        """Pass a person's comments to the agent's session; None: it has changed its work."""
        tip = await self._tip(records)
        subject = f"task {self._number}: change it after review"
        await off_loop(begin_return, self.workspace, RebaseResult(onto=self.workspace.base, tip=tip), words, subject)
        return await self._return()

    async def _take_over(self, task: Task, records: Sequence[PhaseRecord]) -> ErrorInfo | None:
        """Uncommitted files in the folder: of a person who resolved a conflict or a failure there; or of an unanswered return, which is
        handed back again."""
        owed = read_state(self.workspace).returning
        is_taken = self._options.is_taken
        if owed and not owed.get("is_placed"):
            if not is_taken:
                return await self._return_again()
            self._workspace = await off_loop(finish_return, self.workspace)
        placed = Place(**await self.place(task, records))
        parent = str(owed["tip"]) if owed else placed.parent
        subject = str(owed["subject"]) if owed.get("conflicts") else f"task {self._number}: change it by hand"
        message = f"{subject}\n\nSession: {task.session_id or self.workspace.maker}\n"
        changes = await off_loop(commit_by_hand, self.workspace, replace(placed, parent=parent), message)
        left = await off_loop(unresolved, self.workspace, changes.commit, owed["conflicts"]) if owed else ()
        if left and is_taken:
            return _unresolved_error(left, self._advice(CONFLICT))
        if owed and not is_taken and (left or changes.tree == owed["tree"]):
            return await self._return_again()
        if owed or changes.count:
            await off_loop(end_return, self.workspace, changes.commit)
        return None

    async def _return_again(self) -> ErrorInfo | None:
        """The same for the pending return of an earlier command."""
        error = await self._return()
        state = read_state(self.workspace).returning.get("state")
        if error is None or not state:
            return error
        words = f"Its agent did not fix it: {error.message}"
        return new_error("merge_conflict", CODES[state], words, self._advice(state))

    async def _return(self) -> ErrorInfo | None:
        """Give pending work back to its agent and wait; None: it has changed it. Otherwise it stays pending."""
        self._workspace = await off_loop(finish_return, self.workspace)
        owed = read_state(self.workspace).returning
        result = await self._hand_back(str(owed["message"]), str(owed["name"]), str(owed["subject"]))
        place = result.extra.get("workspace")
        commit = place.get("commit") if isinstance(place, dict) else None
        error: ErrorInfo | None = None
        if result.status is not ReturnStatus.COMPLETED or not isinstance(commit, str):
            error = result.errors[0] if result.errors else new_error("execution", "UNKNOWN_ERROR", result.summary, "")
        elif left := await off_loop(unresolved, self.workspace, commit, owed["conflicts"]):
            error = _unresolved_error(left)
        if error is not None:
            await off_loop(rename_return, self.workspace)
            return error
        await off_loop(end_return, self.workspace, commit)
        return None

    def _advice(self, state: str) -> str:
        again = f"remit implement {self._number}"
        if state == CONFLICT:
            return (
                f"Look at it: remit workspaces {self._number} --diff. Resolve it in {self.workspace.inside}, or discard it; then: {again}"
            )
        if state == RED:
            return f"Look at it: remit workspaces {self._number} --diff. Fix it in {self.workspace.inside}, then: {again}"
        return f"Commit or stash what is in the way, then: {again} (its agent does not run again)."

    async def close(self) -> None:
        """Remove the worktree of merged work."""
        with contextlib.suppress(RemitError, OSError):
            await off_loop(discard_workspace, self.workspace)


HandBack = Callable[[str, str, str], Awaitable[Return]]
"""Asks the agent of the task: its message, the name of the return, and the subject of the commit."""


def _message(number: int, landing: Landing, onto: str) -> str:
    """The message to the agent about work that could not be merged."""
    assert landing.error is not None
    head = f"Your work on task {number} is finished, but cannot be merged yet. It was rebased on the present state of the branch {onto}"
    if landing.state == CONFLICT:
        assert landing.rebased is not None
        files = "\n".join(f"- {path}" for path in landing.rebased.conflicts)
        return (
            f"{head}, where others changed the same lines. These files in your folder contain both sides, between the marks <<<<<<< "
            f"(the branch), ======= and >>>>>>> (your work):\n{files}\n\nKeep what both sides meant, and remove all marks."
        )
    shown = fence_untrusted(landing.output[-OUTPUT_CHARACTERS:]) if landing.output.strip() else "(it printed nothing)"
    return (
        f"{head}, and there it fails: {_without_output(landing.error)}\n\nThe end of its output:\n\n{shown}\n\n"
        "Your folder contains the merged state. Fix it there, and keep what others changed."
    )


def _unresolved_error(files: Sequence[str], advice: str = "") -> ErrorInfo:
    return new_error("merge_conflict", CODES[CONFLICT], f"Conflict markers are left in {', '.join(files[:5])}.", advice)


def _without_output(error: ErrorInfo) -> str:
    return error.message.partition(" Its output ended:")[0]


def remove_landed(board: Board) -> None:
    """Remove worktrees of completed tasks, archived ones too, that a dead process left: their work is in the project. Blocking."""
    remove_left(board.root)
    names = list_workspaces(board.root)
    state = board.look().state if names else State()
    for name in names:
        with contextlib.suppress(RemitError, OSError):
            workspace = find_workspace(board.root, name)
            if workspace is None or not workspace.task or holder_of(board, workspace.task) is not None:
                continue
            task = state.find(workspace.task)
            if (task is None or task.status is Status.COMPLETED) and landed_as(workspace):
                discard_workspace(workspace)


def remove_copy(root: Path, session_id: str, document: str) -> bool:
    """Remove the worktree or copy of an agent that wrote only this document there, which is filed; False: it stays. Blocking."""
    with contextlib.suppress(RemitError, OSError):
        workspace = find_workspace(root, session_id)
        if workspace is None or workspace.task:
            return False
        seen = workspace_status(workspace)
        changed = [str((workspace.tree / path).relative_to(workspace.root)) for path in seen.changed]
        if changed == [document] and not (seen.ignored or seen.doubt):
            discard_workspace(workspace)
            return True
    return False


def forget_work(board: Board, number: int) -> None:
    """After the worktree of a task was removed with its work: reopen its phases. Blocking."""
    with contextlib.suppress(Misused), board.change(f"Task {number}: its work was discarded") as draft:
        task = draft.state.find(number)
        lost = [one for one in records_of(task) if one.commit] if task is not None else []
        if task is None or not lost:
            return
        if task.has_plan:
            text = read_plan_text(board, task)
            for one in lost:
                text = with_phase(text, one.number, PhaseStatus.NOT_STARTED)
            draft.write(task.plan_path, text)
        draft.state = draft.state.with_task(without_records(task))


def last_session(store: Store, session_id: str) -> tuple[str, str]:
    """The agent whose own session did the work, and its delegation; empty: none kept a session. Blocking."""
    record = store.get(session_id)
    tree = store.tree(record.root_id) if record is not None else []
    kept = [one for one in tree if store.checkpoint(one.session_id) is not None]
    newest = max(kept, key=lambda one: one.created_at, default=None)
    return (newest.agent, newest.session_id) if newest is not None else ("", "")
