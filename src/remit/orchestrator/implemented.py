"""How an implementation ends: completed, its summary written and committed; or stopped, with how to go on (S6.6, S6.7).

Used by `implement` alone.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from remit.board.board import SPECS
from remit.board.commits import find_repository
from remit.board.pending_commits import owed, pay
from remit.board.plans import Plan
from remit.board.statuses import PhaseStatus, Status
from remit.board.task import Task, TaskArtifact
from remit.core.errors import ErrorInfo, Refused, RemitError
from remit.core.result import Artifact, Evidence, StopReason
from remit.flow.artifacts import seen_artifacts
from remit.flow.verify import acceptance_environment, run_acceptance
from remit.orchestrator.error_tasks import note_fixed
from remit.orchestrator.outcome import Outcome
from remit.orchestrator.phase_marks import plan_as_read, plan_text
from remit.orchestrator.phase_records import PhaseRecord, completion_words, records_of, summary_text, without_records
from remit.orchestrator.phases import WHOLE, Ended, Job, Piece
from remit.orchestrator.processing import stays_inside
from remit.orchestrator.working import moved_on, settled, to_the_end
from remit.system.threads import off_loop

LOOKING_SECONDS = 10.0
STOPPED = frozenset({"TIMEOUT", "CANCELLED", "AGENT_CRASHED"})


async def completed(job: Job, *, is_proven: bool) -> Outcome:
    """Everything is done: proven once more where no agent ran just now, then written down and committed."""
    task = (await off_loop(job.board.look)).state.task(job.number)
    if task.accept and not is_proven:
        env = acceptance_environment(job.remit.settings.accept_env)
        proof = await run_acceptance(task.accept, cwd=job.board.root, seconds_left=max(0.0, job.seconds_left), env=env)
        if proof.error is not None:
            error = replace(proof.error, recommendation=f"Make it exit 0, then: remit implement {job.number}")
            return await off_loop(_not_accepted, job, error)
    job.must_hold()
    return await to_the_end(_complete, job)


def _complete(job: Job) -> Outcome:
    board = job.board
    task = board.look().state.task(job.number)
    plan, records = _plan_now(job, task), _with_commits(job, records_of(task))
    given_up = [str(phase.number) for phase in plan.phases if phase.status is PhaseStatus.ABANDONED]
    if given_up:
        job.warn(f"Given up in the plan and not carried out: phase {', '.join(given_up)}.")
    at = board.now()
    path = _summary_path(job, task, at)
    whole = [path for record in records if record.number == WHOLE.number for path in (*record.files, *record.deleted)]
    plans = [task.plan_path] if task.plan_path else []
    debt = owed(board, f"task {job.number}: complete implementation", (*whole, path, *plans), session_id=task.session_id)
    words = completion_words(plan, records)
    moved: list[str] = []

    def change(task: Task, at: str) -> Task:
        task, told = moved_on(task, Status.IMPLEMENTING, Status.COMPLETED, at)
        moved.extend(told)
        kept = tuple(one for one in task.artifacts if one.path != path)
        link = TaskArtifact(type="summary", path=path, summary=words)
        return replace(without_records(task), completion_summary=words, artifacts=(*kept, link))

    text = summary_text(task, plan if plan.phases else None, records, at).encode("utf-8", "replace")
    filed = settled(board, job.number, f"Task {job.number} completed", change, files={debt.note: debt.to_bytes(), path: text})
    made = pay(board, debt)
    if filed.task is not None:
        note_fixed(board.root, filed.task)
    job.warn(*moved, *filed.warnings, made.warning)
    artifacts = [Artifact(type="implementation", path=one) for record in records for one in record.files]
    listed = (*{one.path: one for one in artifacts}.values(), Artifact(type="summary", path=path, summary=words))
    accepted = {one for record in records if record.accept or task.accept for one in record.files}
    return _outcome(
        job,
        filed.task,
        "completed",
        words,
        artifacts=tuple(
            replace(one, evidence=Evidence.VERIFIED if one.path in accepted else Evidence.CHECKED)
            for one in seen_artifacts(board.root, listed)
        ),
        next_steps=f"`remit review {job.number}` looks the work over; `remit todo` archives it.",
        commit=made.short,
        session_id=records[-1].session_id if records else "",
        data={"summary_path": path, "commits": {str(one.number): one.commit for one in records if one.commit and one.number}},
    )


def stopped(job: Job, ended: Ended) -> Outcome:
    """The piece was not done."""
    verdict, result, phase = ended.verdict, ended.result, ended.piece.phase
    errors = tuple(_with_way_back(job, error) for error in verdict.errors)
    where = "" if phase is WHOLE else f"Phase {phase.number} ({phase.name}) is not done. "
    data: dict[str, Any] = {} if phase is WHOLE else {"resume_from_phase": phase.number}
    was_believed = verdict.status == str(result.status)
    return _outcome(
        job,
        ended.task,
        verdict.status,
        f"{where}{verdict.summary}",
        artifacts=verdict.artifacts,
        errors=errors,
        next_steps=_next_steps(job, ended, errors),
        commit=job.commits.get(phase.number, ""),
        session_id=result.session_id,
        stop_reason=str(result.stop_reason if was_believed else StopReason.INVALID_RETURN),
        data={**data, "agent": result.metadata.agent_type},
    )


def stopped_by_person(job: Job, ended: Ended) -> Outcome:
    """Somebody set the task to something else, or took it off the board, while a phase was carried out: that counts."""
    phase = ended.piece.phase
    now = f"was set to [{ended.task.status.marker}]" if ended.task is not None else "was taken off the board"
    done = "The work" if phase is WHOLE else f"Phase {phase.number}"
    error = ErrorInfo(
        type="execution",
        code="CANCELLED",
        message=f"Task {job.number} {now} while it was worked on. {done} is done and kept; nothing more is begun.",
        recoverable=True,
        recommendation=f"To go on all the same: remit implement {job.number} --force",
    )
    return _outcome(
        job, ended.task, "partial", error.message, artifacts=ended.verdict.artifacts, errors=(error,), next_steps=error.recommendation,
        commit=job.commits.get(phase.number, ""), session_id=ended.result.session_id,
    )  # fmt: skip


def out_of_time(job: Job, piece: Piece) -> Outcome:
    """The time of the command was up between two phases: nothing is lost, and nothing more is begun."""
    again = f"Go on with phase {piece.phase.number}: remit implement {job.number}"
    error = ErrorInfo(
        type="timeout", code="TIMEOUT", message=f"The time of the command was up before phase {piece.phase.number} ({piece.phase.name}).",
        recoverable=True, recommendation=again,
    )  # fmt: skip
    task = _halted(job, Status.PARTIAL, f"Task {job.number}: out of time before phase {piece.phase.number}")
    data = {"resume_from_phase": piece.phase.number}
    return _outcome(job, task, "partial", error.message, errors=(error,), next_steps=again, stop_reason=str(StopReason.DEADLINE), data=data)


def stuck(job: Job, message: str, advice: str) -> Outcome:
    """The plan cannot be gone on with: the task keeps its marker, and whoever looks after the plan can run it again."""
    error = ErrorInfo(type="validation", code="VALIDATION_FAILED", message=message, recoverable=True, recommendation=advice)
    task = _halted(job, None, f"Task {job.number}: the plan cannot be gone on with")
    again = f"{advice} Then: remit implement {job.number}"
    return _outcome(job, task, "failed", message, errors=(error,), next_steps=again.strip())


def _not_accepted(job: Job, error: ErrorInfo) -> Outcome:
    words = f"All phases are done, but the task is not accepted. {error.message}"
    task = _halted(job, Status.PARTIAL, f"Task {job.number}: acceptance not met")
    return _outcome(job, task, "partial", words, errors=(error,), next_steps=error.recommendation)


def _halted(job: Job, status: Status | None, activity: str) -> Task | None:
    """The run is over; the marker becomes `status`, where one is given and nobody has moved it meanwhile."""

    def change(task: Task, at: str) -> Task:
        if status is None:
            return task
        task, told = moved_on(task, Status.IMPLEMENTING, status, at)
        job.warn(*told)
        return task

    filed = settled(job.board, job.number, activity, change)
    job.warn(*filed.warnings)
    return filed.task


def _next_steps(job: Job, ended: Ended, errors: Sequence[ErrorInfo]) -> str:
    phase = ended.piece.phase
    again = f"remit implement {job.number}"
    if ended.verdict.status == "blocked":
        first = ended.result.next_steps or (errors[0].recommendation if errors else "")
        return f"{first or 'Settle what it is blocked by.'} Then: {again}"
    if ended.verdict.is_undone:
        return errors[0].recommendation if errors else ""
    where = "It is taken up again by" if phase is WHOLE else f"Go on with phase {phase.number}:"
    # What it did in a folder of its own is not in the project: where it is, its return says.
    apart = f"{ended.result.next_steps} " if "workspace" in ended.result.extra and ended.result.next_steps else ""
    return f"{apart}{where} {again}"


def _with_way_back(job: Job, error: ErrorInfo) -> ErrorInfo:
    """What was stopped is gone on with by the command, not by a delegation of its own."""
    return replace(error, recommendation=f"remit implement {job.number}") if error.code in STOPPED else error


def _plan_now(job: Job, task: Task) -> Plan:
    """As it stands; without phases where it is gone: what was done is told from the records then."""
    try:
        return plan_as_read(plan_text(job.board, task)) if task.has_plan else Plan()
    except Refused:
        return Plan()


def _summary_path(job: Job, task: Task, at: str) -> str:
    """Of today; what an earlier run wrote is not written over, and no link leads it out of the board's folder."""
    name = f"implementation-summary-{at[:10].replace('-', '')}"
    bases = [f"{task.folder}/summaries/{name}", f"{task.folder}/{name}", f"{SPECS}/{task.number:03d}-{name}"]
    base = next((one for one in bases if stays_inside(job.board.root, f"{one}.md")), bases[-1])
    paths = (f"{base}{more}.md" for more in ("", *(f"-{count}" for count in range(2, 1000))))
    return next(path for path in paths if not os.path.lexists(job.board.root / path))


def _with_commits(job: Job, records: Sequence[PhaseRecord]) -> tuple[PhaseRecord, ...]:
    """With the commit of each, where git has one that names its session."""
    return tuple(replace(one, commit=job.commits.get(one.number) or _commit_of(job, one)) for one in records)


def _commit_of(job: Job, record: PhaseRecord) -> str:
    if not record.session_id:
        return ""
    try:
        repository = find_repository(job.board.root, time.monotonic() + LOOKING_SECONDS)
        asked = ("log", "-1", "--format=%h", "--fixed-strings", f"--grep=Session: {record.session_id}")
        return repository.git.says(*asked) if repository is not None and repository.head() else ""
    except (RemitError, OSError):
        return ""


def _outcome(
    job: Job,
    task: Task | None,
    status: str,
    summary: str,
    *,
    artifacts: tuple[Artifact, ...] = (),
    errors: tuple[ErrorInfo, ...] = (),
    next_steps: str = "",
    commit: str = "",
    session_id: str = "",
    stop_reason: str = "finished",
    data: dict[str, Any] | None = None,
) -> Outcome:
    phases = _plan_now(job, task).phases if task is not None else ()
    told = {"phase_statuses": {str(phase.number): str(phase.status) for phase in phases}} if phases else {}
    return Outcome(
        command="implement",
        status=status,
        summary=summary,
        task_number=job.number,
        task_status=task.status.marker if task is not None else "",
        artifacts=artifacts,
        errors=errors,
        next_steps=next_steps,
        warnings=tuple(job.warnings),
        commit=commit,
        session_id=session_id,
        stop_reason=stop_reason,
        data={**told, **(data or {})},
    )
