"""One piece of an implementation: a phase of the plan, or the whole task: marked, handed over, judged, filed and committed (S6.7).

In that order, and the board written once before and once after. `implement` decides which piece is next and what becomes of the task.
Whoever calls holds the task's claim.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from remit.app import Remit
from remit.board.book import Board, Draft
from remit.board.committing import subject_of
from remit.board.owing import owed, pay
from remit.board.plans import Phase, Plan, read_plan, with_phase
from remit.board.statuses import PhaseStatus, Status
from remit.board.task import State, Task
from remit.core.errors import Misused, Refused
from remit.core.result import Return
from remit.orchestrator.bystanders import Sight, sight, unnamed, warning_of
from remit.orchestrator.outcome import Waiting, plainly
from remit.orchestrator.phase_records import PhaseRecord, records_of, with_record
from remit.orchestrator.phase_words import PhaseBrief, parameters_of
from remit.orchestrator.verdicts import Verdict, verdict_of
from remit.orchestrator.working import RUN, hand_over, moved_on, note_session
from remit.system.threads import off_loop

WHOLE = Phase(number=0, name="", status=PhaseStatus.NOT_STARTED)
"""The task as one piece: it has no plan, or one without phases."""


def silently(_words: str) -> None:
    """Tell nobody."""


@dataclass(slots=True)
class Job:
    """One task being implemented by this process."""

    remit: Remit
    board: Board
    number: int
    ends_at: float
    """Monotonic: when the time of the whole command is up."""
    waiting: Waiting = plainly
    telling: Callable[[str], None] = silently
    run: str = ""
    """The name of this run; the keys of its delegations begin with it."""
    warnings: list[str] = field(default_factory=list)
    commits: dict[int, str] = field(default_factory=dict)
    """By phase, abbreviated."""
    before: Task | None = None
    """As it was before this run marked it; None: this run goes on with one that was killed, or has done a phase already."""

    @property
    def seconds_left(self) -> float:
        return self.ends_at - time.monotonic()

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
class Ended:
    """A piece after its delegation."""

    piece: Piece
    result: Return
    verdict: Verdict
    task: Task | None
    """As it is filed now; None: it was taken off the board."""


def key_of(run: str, phase: Phase) -> str:
    """The key of the delegation that carries out a phase in a run: by it a later process finds what became of it."""
    return f"{run}-phase-{phase.number}"


def plan_text(board: Board, task: Task) -> str:
    """Raises `Refused` when the plan that the board names cannot be read."""
    path = board.root / task.plan_path
    try:
        if not path.resolve().is_relative_to(board.root.resolve()):
            raise OSError("it leads out of the project")
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise Refused(
            f"The plan of task {task.number} cannot be read: {task.plan_path} ({error.strerror or error}).",
            code="FILE_NOT_FOUND",
            advice=f"Bring it back (git log -- {task.plan_path}), or make a new one: remit plan {task.number} --force",
        ) from None


def plan_as_read(text: str) -> Plan:
    """The plan with what is no text in it shown as such: its words go into JSON and onto screens."""
    return read_plan("".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text))


async def carry_out(job: Job, piece: Piece, left: Return | None = None) -> Ended:
    """Mark it, hand it over, file what came of it. `left`: the return of an earlier process that died before it was filed."""
    root = job.board.root
    before: Sight | None = None
    if left is None:
        before = await off_loop(sight, root, piece.task.folder)
        await off_loop(_mark_begun, job, piece)
        left = await _handed_over(job, piece)
    verdict = await off_loop(verdict_of, root, left)
    job.warn(*(words for words in left.warnings if not words.startswith("summary:")))  # on its style: for the author of the agent
    task = await off_loop(_file, job, piece, left, verdict)
    others = await off_loop(unnamed, root, piece.task.folder, before, {*verdict.files, *verdict.deleted, piece.task.plan_path})
    if verdict.is_done and others:
        job.warn(warning_of(others))
    elif not verdict.is_done and (left_there := sorted({*verdict.files, *others})):
        job.warn(f"Left in the project, not committed: {', '.join(left_there[:10])}{', …' if left_there[10:] else ''}.")
    return Ended(piece=piece, result=left, verdict=verdict, task=task)


async def _handed_over(job: Job, piece: Piece) -> Return:
    task, phase = piece.task, None if piece.phase is WHOLE else piece.phase
    brief = PhaseBrief(
        task=task, state=piece.state, plan=piece.plan if phase else None, phase=phase, done=records_of(task), accept=piece.accept
    )
    extra: dict[str, Any] = {"commit_message": piece.subject}
    if phase is not None:
        extra |= {"phase": phase.number, "phase_name": phase.name, "plan": task.plan_path}

    async def begun(session_id: str) -> None:
        await off_loop(note_session, job.board, job.number, session_id)

    return await hand_over(
        job.remit,
        "implement",
        task=task,
        parameters=await off_loop(parameters_of, brief, job.board.root),
        state=piece.state,
        phases=len(piece.plan.phases),
        extra=extra,
        accept=piece.accept,
        timeout=job.seconds_left,
        key=key_of(job.run, piece.phase),
        begun=begun,
        waiting=job.waiting,
    )


def _mark_begun(job: Job, piece: Piece) -> None:
    """The phase is IN PROGRESS before anybody works on it."""
    if piece.phase is WHOLE:
        return
    with job.board.change() as draft:
        task = draft.state.task(job.number)
        draft.files[task.plan_path] = _marked(plan_text(job.board, task), piece.phase.number, PhaseStatus.IN_PROGRESS)
        words = f"Task {job.number}: phase {piece.phase.number} begun ({piece.phase.name})"
        draft.state = draft.state.noting(draft.at, words, task_number=job.number)


def _file(job: Job, piece: Piece, result: Return, verdict: Verdict) -> Task | None:
    """Plan, state.json, TODO.md and the commit that is owed, as one set; then the commit."""
    with job.board.change() as draft:
        job.warn(*draft.notices)
        task = draft.state.find(job.number)
        if piece.phase is not WHOLE and task is not None:
            _mark_ended(job, piece, verdict, draft, task)
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
        made = pay(job.board, debt)
        job.warn(made.warning)
        job.commits[piece.phase.number] = made.short
    return task


def _to_commit(job: Job, piece: Piece, verdict: Verdict) -> tuple[str, tuple[str, ...]]:
    """Subject and paths of the commit; no subject: none is made here. Unfinished work is not committed, only that it is."""
    record = (piece.task.plan_path,) if piece.task.plan_path else ()
    if verdict.is_done:
        # The whole of a task is committed with its summary, when it is completed.
        return ("", ()) if piece.phase is WHOLE else (piece.subject, (*verdict.files, *verdict.deleted, *record))
    if verdict.task is None:
        return "", ()
    where = "implement" if piece.phase is WHOLE else f"phase {piece.phase.number}"
    return f"task {job.number}: {'block' if verdict.task is Status.BLOCKED else 'stop'} at {where}", record


def _moved(job: Job, piece: Piece, result: Return, verdict: Verdict, task: Task, draft: Draft) -> Task:
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
        task, told = moved_on(task, Status.IMPLEMENTING, verdict.task, draft.at, reason=reason)
        job.warn(*told)
    return replace(task, extra={key: value for key, value in task.extra.items() if key != RUN})


def _mark_ended(job: Job, piece: Piece, verdict: Verdict, draft: Draft, task: Task) -> None:
    """The phase's marker by what happened. Markers that an agent set to COMPLETED for other phases are set back: that is not its to say."""
    try:
        text = plan_text(job.board, task)
        now = {phase.number: phase.status for phase in plan_as_read(text).phases}
        for phase in piece.plan.phases:
            if phase.number != piece.phase.number and phase.is_open and now.get(phase.number) is PhaseStatus.COMPLETED:
                text = with_phase(text, phase.number, phase.status)
                job.warn(f"Phase {phase.number} was marked [COMPLETED] while phase {piece.phase.number} was carried out; it was set back.")
        marker = verdict.phase if verdict.phase is not None else piece.phase.status
        draft.files[task.plan_path] = _marked(text, piece.phase.number, marker)
    except (Refused, Misused) as error:
        job.warn(f"The plan was changed meanwhile, so that phase {piece.phase.number} could not be marked: {error.message}")


def _marked(text: str, number: int, status: PhaseStatus) -> bytes:
    return with_phase(text, number, status).encode("utf-8", "surrogateescape")
