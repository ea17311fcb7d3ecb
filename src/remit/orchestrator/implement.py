"""`remit implement N`: a task carried out, phase by phase where it has a plan, each phase committed (S6.7).

Stops at the first failure and can be run again: it goes on where it stood, also after `kill -9`. One piece of the work is `phases`,
the end of it `implemented`, several tasks in turn `implement_many`.
"""

import time
from collections.abc import Callable

from remit.app import Remit
from remit.board.board import Board
from remit.board.claims import claim
from remit.board.pending_commits import pay_left
from remit.board.plans import Phase, Plan
from remit.board.statuses import PhaseStatus, Status
from remit.board.task import State, Task
from remit.core.deadline import allowed_timeout
from remit.core.errors import Refused
from remit.core.result import Return
from remit.orchestrator.dependencies import check_dependencies
from remit.orchestrator.implemented import completed, out_of_time, stopped, stopped_by_person, stuck
from remit.orchestrator.outcome import Outcome, Waiting, plainly
from remit.orchestrator.phase_marks import plan_as_read, plan_text
from remit.orchestrator.phase_records import records_of
from remit.orchestrator.phases import WHOLE, Job, Piece, carry_out, key_of, silently
from remit.orchestrator.working import claim_seconds, entered, must_exist, return_left, run_left_by
from remit.system.threads import off_loop

SHORTEST_SECONDS = 1.0
"""With less time than that no phase is begun."""


async def implement(
    remit: Remit,
    board: Board,
    number: int,
    *,
    force: bool = False,
    timeout: float | None = None,
    waiting: Waiting = plainly,
    telling: Callable[[str], None] = silently,
) -> Outcome:
    """Carry out task `number`. `timeout` is for all of it: each phase gets what is left.

    Raises `Refused` and `Misused` before anything runs.
    """
    seconds = allowed_timeout(timeout, remit.settings.limits_for("implement"))
    await off_loop(must_exist, board)
    (await off_loop(board.look)).state.task(number)
    job = Job(remit=remit, board=board, number=number, ends_at=time.monotonic() + seconds, waiting=waiting, telling=telling)
    with claim(board, number, "implement", seconds=claim_seconds(remit, "implement", timeout)) as job.held:
        return await _claimed(job, force)


async def _claimed(job: Job, force: bool) -> Outcome:
    """The work, by whoever holds the task."""
    job.warn(*await off_loop(pay_left, job.board))
    left = await _left_over(job)
    if left is None:
        entry = await off_loop(lambda: entered(job.board, job.number, "implement", force=force, check=_checked(job, force)))
        job.run, job.before = entry.run, entry.before
        job.warn(*entry.warnings)
    ran: set[int] = set()
    is_proven = False
    while True:
        try:
            piece = await off_loop(next_piece, job.board, job.number)
        except Refused as error:
            return await off_loop(stuck, job, error.message, error.advice)
        if job.marked.vanished:
            return await off_loop(stuck, job, *_vanished(job))
        if piece is None:
            return await completed(job, is_proven=is_proven)
        if piece.phase.number in ran:
            return await off_loop(
                stuck, job, f"Phase {piece.phase.number} was carried out, and the plan does not say so.", "Look at the plan."
            )
        if left is None and job.seconds_left < SHORTEST_SECONDS:
            return await off_loop(out_of_time, job, piece)
        _tell(job, piece, is_first=not ran)
        ended = await carry_out(job, piece, left)
        left = job.before = None
        ran.add(piece.phase.number)
        is_proven = piece.is_last
        if not ended.verdict.is_done:
            return stopped(job, ended)
        if ended.task is None or ended.task.status is not Status.IMPLEMENTING:
            return stopped_by_person(job, ended)


def _vanished(job: Job) -> tuple[str, str]:
    """Whoever took them out, nobody has said that the task is done without them."""
    gone = ", ".join(map(str, job.marked.vanished))
    words = f"What stood in the plan when phase {job.marked.number} began does not any more: phase {gone}."
    return words, "Look at the plan (git diff shows what was changed), and set it right."


def next_piece(board: Board, number: int) -> Piece | None:
    """What is to be done next; None: everything is. Raises `Refused` when the plan cannot be carried out."""
    state = board.look().state
    task = state.task(number)
    plan = plan_of(board, task)
    if plan.phases:
        phase = plan.first_open
        is_last = len(plan.open_phases) == 1
    else:
        phase = None if any(one.number == WHOLE.number for one in records_of(task)) else WHOLE
        is_last = True
    return None if phase is None else Piece(task=task, state=state, plan=plan, phase=phase, is_last=is_last)


def plan_of(board: Board, task: Task) -> Plan:
    """The task's plan; one without phases where it has none. Raises `Refused` for one that cannot be read or carried out."""
    if not task.has_plan:
        return Plan()
    plan = plan_as_read(plan_text(board, task))
    if plan.doubled:
        raise Refused(
            f"The plan of task {task.number} cannot be carried out. {' '.join(plan.faults)}",
            code="VALIDATION_FAILED",
            advice=f"Number its phases apart in {task.plan_path}.",
        )
    return plan


def _checked(job: Job, force: bool) -> Callable[[State, Task], tuple[str, ...]]:
    """What must hold before the task is marked; what it gives are warnings."""

    def check(state: State, task: Task) -> tuple[str, ...]:
        told = check_dependencies(job.board, state, task, force=force)
        plan = plan_of(job.board, task)
        if task.has_plan and not plan.phases:
            told = (*told, f"{task.plan_path} has no phases (`### Phase 1: Name [NOT STARTED]`): it is carried out as a whole.")
        return (*told, *(f"{task.plan_path}: {fault}" for fault in plan.faults))

    return check


async def _left_over(job: Job) -> Return | None:
    """The return of a run that died before it was filed, if its agent had finished: then that is filed, and nothing runs twice."""
    task = (await off_loop(job.board.look)).state.task(job.number)
    run = run_left_by(task, "implement")
    if not run:
        return None
    phase = await off_loop(_begun_phase, job.board, task)
    if phase is None:
        return None
    found, _ = await return_left(job.remit, key_of(run, phase), job.waiting)
    if found is not None:
        job.run = run
        what = "The work" if phase is WHOLE else f"Phase {phase.number}"
        job.telling(f"{what} had been finished by a run that was killed ({found.session_id}): its return is filed now.")
    return found


def _begun_phase(board: Board, task: Task) -> Phase | None:
    """The piece that a dead run was at; None: it was at none."""
    plan = plan_of(board, task)
    if not plan.phases:
        return WHOLE
    phase = plan.first_open
    return phase if phase is not None and phase.status is PhaseStatus.IN_PROGRESS else None


def _tell(job: Job, piece: Piece, *, is_first: bool) -> None:
    if piece.phase is WHOLE:
        return
    phases = piece.plan.phases
    done = [phase for phase in phases if not phase.is_open]
    if is_first and (done or piece.phase.status is not PhaseStatus.NOT_STARTED):
        job.telling(f"Task {job.number} resumes from phase {piece.phase.number} ({len(done)} of {len(phases)} done).")
    at = [phase.number for phase in phases].index(piece.phase.number) + 1
    job.telling(f"phase {at} of {len(phases)}: {piece.phase.name}")
