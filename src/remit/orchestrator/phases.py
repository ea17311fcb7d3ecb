"""One piece of an implementation, a phase of the plan or the whole task: marked, handed over, judged, filed and committed.

In that order, with one write of the board before and one after. `implement` decides which piece is next and what becomes of the task.
Whoever calls holds the task's claim.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from remit.app import Remit
from remit.board.board import Board, Draft
from remit.board.claims import Held
from remit.board.commits import subject_of
from remit.board.pending_commits import owed
from remit.board.plans import Phase, Plan
from remit.board.statuses import PhaseStatus, Status
from remit.board.task import State, Task
from remit.core.errors import Refused
from remit.core.result import Return
from remit.orchestrator.changes import commit_debt
from remit.orchestrator.lifecycle import hand_over, move_task, note_session, run_to_end, without_run
from remit.orchestrator.outcome import Waiting, wait_for_result
from remit.orchestrator.phase_records import (
    PhaseRecord,
    PlanMark,
    mark_phase_begun,
    mark_phase_ended,
    records_of,
    with_record,
)
from remit.orchestrator.prompts import PhaseBrief, phase_parameters
from remit.orchestrator.verdicts import (
    Changes,
    WorkVerdict,
    judge_work,
    name_files,
    uncommitted_changes,
    unnamed_changes,
    untouched_changes,
)
from remit.system.threads import off_loop

MIN_SECONDS = 1.0
"""What a phase is given that was begun just before the time was up."""
WHOLE = Phase(number=0, name="", status=PhaseStatus.NOT_STARTED)
"""The task as one piece: it has no plan, or one without phases."""


def tell_nobody(_words: str) -> None:
    """Show no progress."""


@dataclass(slots=True)
class ImplementRun:
    """One task being implemented by this process."""

    remit: Remit
    board: Board
    number: int
    ends_at: float
    """Monotonic: when the time of the whole command is up."""
    waiting: Waiting = wait_for_result
    telling: Callable[[str], None] = tell_nobody
    focus: str = ""
    """The user's own words."""
    run: str = ""
    """The name of this run; the keys of its delegations begin with it."""
    warnings: list[str] = field(default_factory=list)
    commits: dict[int, str] = field(default_factory=dict)
    """By phase, abbreviated."""
    before: Task | None = None
    """As it was before this run marked it; None: this run goes on with one that was killed, or has done a phase already."""
    held: Held | None = None
    """The claim of the task."""
    plan_begun: str = ""
    """The plan as it was marked when the phase of now began; empty: another process began it."""
    marked: PlanMark = field(default_factory=PlanMark)
    """What became of the plan when the last phase ended."""

    @property
    def seconds_left(self) -> float:
        return self.ends_at - time.monotonic()

    def must_hold(self) -> None:
        """Raises `Refused` when another has taken the task over: the board is theirs then."""
        if self.held is not None and self.held.is_lost:
            raise Refused(
                f"The time for task {self.number} had run out and another took it over: the board is left to them.",
                code="INVALID_OPERATION",
                advice=f"What was done is in the project, uncommitted. When they have ended: remit implement {self.number}",
            )

    def warn(self, *words: str) -> None:
        self.warnings += [one for one in words if one and one not in self.warnings]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What is to be done by one delegation."""

    task: Task
    state: State
    plan: Plan
    phase: Phase
    """`WHOLE`, or one of the plan's."""
    is_last: bool

    @property
    def accept(self) -> tuple[str, ...]:
        """The phase's own commands and the plan's decide on the phase; the task's, on the last one, for they judge the whole."""
        return tuple(dict.fromkeys((*self.phase.accept, *self.plan.accept, *(self.task.accept if self.is_last else ()))))

    @property
    def subject(self) -> str:
        """Of its commit."""
        if self.phase is WHOLE:
            return f"task {self.task.number}: complete implementation"
        return subject_of(f"task {self.task.number} phase {self.phase.number}: {self.phase.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedPiece:
    """A piece after its delegation."""

    piece: Piece
    result: Return
    verdict: WorkVerdict
    task: Task | None
    """As it is filed now; None: it was taken off the board."""


def key_of(run: str, phase: Phase) -> str:
    """The key of the delegation that carries out a phase in a run: by it a later process finds what became of it."""
    return f"{run}-phase-{phase.number}"


async def carry_out(job: ImplementRun, piece: Piece, left: Return | None = None) -> FinishedPiece:
    """Mark it, hand it over, file what came of it. `left`: the return of an earlier process that died before it was filed."""
    root = job.board.root
    before: Changes | None = None
    if left is None:
        before = await off_loop(uncommitted_changes, root, piece.task.folder)
        await off_loop(_mark_begun, job, piece)
        left = await _handed_over(job, piece)
    job.must_hold()
    verdict = await off_loop(_own_work, job, piece, before, left)
    job.warn(*(words for words in left.warnings if not words.startswith("summary:")))  # on its style: for the author of the agent
    task = await run_to_end(_file, job, piece, left, verdict)
    others = await off_loop(unnamed_changes, root, piece.task.folder, before, {*verdict.files, *verdict.deleted, piece.task.plan_path})
    if verdict.is_done and others:
        job.warn(f"Changed meanwhile, not named by the agent, and left uncommitted: {name_files(others)}.")
    elif not verdict.is_done and (left_there := {*verdict.files, *others}):
        job.warn(f"Left in the project, not committed: {name_files(left_there)}.")
    return FinishedPiece(piece=piece, result=left, verdict=verdict, task=task)


def _own_work(job: ImplementRun, piece: Piece, before: Changes | None, result: Return) -> WorkVerdict:
    """What the return comes to, without the files that are not its agent's to commit."""
    root, own = job.board.root, piece.task.folder
    verdict = judge_work(root, result, own)
    if verdict.not_its_own:
        job.warn(f"Named by the agent, but not its own to commit: {name_files(verdict.not_its_own)}.")
    was_begun_before = piece.phase.status is not PhaseStatus.NOT_STARTED or (
        piece.phase is WHOLE and (job.before is None or job.before.status in (Status.IMPLEMENTING, Status.PARTIAL, Status.BLOCKED))
    )
    others = untouched_changes(root, before, verdict.files) if not was_begun_before else ()
    if others:
        job.warn(f"Named by the agent, but changed before it began and not by it, so left uncommitted: {name_files(others)}.")
    return replace(verdict, artifacts=tuple(one for one in verdict.artifacts if one.path not in others))


async def _handed_over(job: ImplementRun, piece: Piece) -> Return:
    task, phase = piece.task, None if piece.phase is WHOLE else piece.phase
    brief = PhaseBrief(
        task=task,
        state=piece.state,
        plan=piece.plan if phase else None,
        phase=phase,
        done=records_of(task),
        accept=piece.accept,
        focus=job.focus,
    )
    extra: dict[str, Any] = {"commit_message": piece.subject}
    if phase is not None:
        extra |= {"phase": phase.number, "phase_name": phase.name, "plan": task.plan_path}

    async def begun(session_id: str) -> None:
        if job.held is not None:  # for those who would wait for it or cancel it
            await off_loop(job.held.session, session_id)
        job.warn(*await off_loop(note_session, job.board, job.number, session_id))

    return await hand_over(
        job.remit,
        "implement",
        task=task,
        parameters=await off_loop(phase_parameters, brief, job.board.root),
        state=piece.state,
        phases=len(piece.plan.phases),
        extra=extra,
        accept=piece.accept,
        timeout=max(MIN_SECONDS, job.seconds_left),  # looking and marking took some of it
        key=key_of(job.run, piece.phase),
        begun=begun,
        waiting=job.waiting,
    )


def _mark_begun(job: ImplementRun, piece: Piece) -> None:
    if piece.phase is WHOLE:
        return
    with job.board.change() as draft:
        job.plan_begun = mark_phase_begun(job.board, draft, draft.state.task(job.number), piece.phase.number)
        words = f"Task {job.number}: phase {piece.phase.number} begun ({piece.phase.name})"
        draft.state = draft.state.noting(draft.at, words, task_number=job.number)
    job.warn(*draft.notices)


def _file(job: ImplementRun, piece: Piece, result: Return, verdict: WorkVerdict) -> Task | None:
    """Plan, state.json, TODO.md and the commit that is owed, as one set; then the commit."""
    with job.board.change() as draft:
        job.warn(*draft.notices)
        task = draft.state.find(job.number)
        if piece.phase is not WHOLE and task is not None:
            marker = verdict.phase if verdict.phase is not None else piece.phase.status
            job.marked = mark_phase_ended(job.board, draft, task, piece.plan, piece.phase.number, marker, job.plan_begun)
            job.warn(*job.marked.warnings)
        if task is not None:
            task = _moved(job, piece, result, verdict, task, draft)
            draft.state = draft.state.with_task(task)
            done = "done" if verdict.is_done else f"not done ({verdict.status})"
            what = f"phase {piece.phase.number}" if piece.phase is not WHOLE else "implementation"
            more = {"task_number": job.number, "session_id": result.session_id}
            draft.state = draft.state.noting(draft.at, f"Task {job.number}: {what} {done}", **more)
        subject, paths = _to_commit(job, piece, verdict)
        debt = owed(job.board, subject, paths, session_id=result.session_id) if subject else None
        if debt is not None:
            draft.files[debt.note] = debt.to_bytes()
    if debt is not None:
        made = commit_debt(job.board, debt, "implement", job.number)
        job.warn(made.warning)
        job.commits[piece.phase.number] = made.short
    return task


def _to_commit(job: ImplementRun, piece: Piece, verdict: WorkVerdict) -> tuple[str, tuple[str, ...]]:
    """Subject and paths of the commit; no subject: none is made here. Unfinished work is not committed, only that it is."""
    record = (piece.task.plan_path,) if piece.task.plan_path and job.marked.is_whole else ()
    if verdict.is_done:
        # The whole of a task is committed with its summary, when it is completed.
        return ("", ()) if piece.phase is WHOLE else (piece.subject, (*verdict.files, *verdict.deleted, *record))
    if verdict.task is None:
        return "", ()
    where = "implement" if piece.phase is WHOLE else f"phase {piece.phase.number}"
    return f"task {job.number}: {'block' if verdict.task is Status.BLOCKED else 'stop'} at {where}", record


def _moved(job: ImplementRun, piece: Piece, result: Return, verdict: WorkVerdict, task: Task, draft: Draft) -> Task:
    """The task with what was done on record; stopped here, its run is over and its marker says why."""
    task = replace(task, session_id=result.session_id or task.session_id, last_updated=draft.at)
    if verdict.is_done:
        record = PhaseRecord(
            number=piece.phase.number,
            name=piece.phase.name,
            summary=result.summary,
            session_id=result.session_id,
            agent=result.metadata.agent_type,
            files=verdict.files,
            deleted=verdict.deleted,
            accept=piece.accept,
            finished=draft.at,
        )
        return with_record(task, record)
    if verdict.is_undone and job.before is not None and task.status is Status.IMPLEMENTING:
        task = replace(task, status=job.before.status, started=job.before.started, blocking_reason=job.before.blocking_reason)
    if verdict.task is not None:
        reason = verdict.reason if verdict.task is Status.BLOCKED else ""
        task, told = move_task(task, Status.IMPLEMENTING, verdict.task, draft.at, reason=reason)
        job.warn(*told)
    return without_run(task)
