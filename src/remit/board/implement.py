"""`remit implement N`: a task carried out, phase by phase where it has a plan, each phase committed; several tasks in turn.

Stops at the first failure and can be run again: it continues where it stopped, also after `kill -9`. One piece of the work is in `phases`.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from remit.app import Remit
from remit.board.archive import archived_tasks
from remit.board.board import SPECS, Board, Draft
from remit.board.claims import claim
from remit.board.command_lifecycle import (
    Find,
    carried_by,
    check_entry,
    claim_seconds,
    claimed_now,
    file_task,
    mark_begun,
    move_task,
    must_exist,
    recovered_return,
    require_agent,
    roles_of,
    route_task,
    run_to_end,
    unfiled_run,
)
from remit.board.commits import find_repository
from remit.board.error_tasks import note_fixed
from remit.board.outcome import Outcome, Waiting, name_tasks, wait_for_result
from remit.board.pending_commits import pay_left
from remit.board.phases import (
    MIN_SECONDS,
    WHOLE,
    FinishedPiece,
    ImplementRun,
    PhaseRecord,
    Piece,
    carry_out,
    completion_summary,
    key_of,
    parse_plan,
    read_plan_text,
    records_of,
    summary_text,
    tell_nobody,
    without_records,
)
from remit.board.plans import Phase, Plan
from remit.board.task import PhaseStatus, State, Status, Task, TaskArtifact
from remit.board.verdicts import STOPPED, stays_inside
from remit.board.view import cycles, graph_of
from remit.core.deadline import allowed_timeout
from remit.core.errors import ErrorInfo, Refused, RemitError, Unavailable
from remit.core.result import Artifact, Evidence, Return, StopReason
from remit.core.settings import Settings
from remit.runtime.artifacts import checked_artifacts
from remit.runtime.verify import acceptance_environment, run_acceptance
from remit.system.threads import off_loop

GIT_SECONDS = 10.0


async def implement(
    remit: Remit,
    board: Board,
    number: int,
    *,
    focus: str = "",
    force: bool = False,
    timeout: float | None = None,
    waiting: Waiting = wait_for_result,
    telling: Callable[[str], None] = tell_nobody,
) -> Outcome:
    """Carry out task `number`. `timeout` is for all of it: each phase gets what is left.

    Raises `Refused` and `Misused` before anything is marked, committed or recorded as an error.
    """
    seconds = allowed_timeout(timeout, remit.settings.limits_for("implement"))
    await off_loop(check_agents, remit, board, [number])
    job = ImplementRun(
        remit=remit, board=board, number=number, focus=focus, ends_at=time.monotonic() + seconds, waiting=waiting, telling=telling
    )
    with claim(board, number, "implement", seconds=claim_seconds(remit, "implement", timeout)) as job.held:
        return await _claimed(job, force)


def check_agents(remit: Remit, board: Board, numbers: Sequence[int]) -> None:
    """The tasks exist, and those that are left to do have an agent. Raises `Misused` and `Refused`. Blocking."""
    must_exist(board, *numbers)
    state = board.look().state
    for task in map(state.task, numbers):
        if task.status is not Status.COMPLETED and not unfiled_run(task, "implement") and next_piece(board, task.number) is not None:
            require_agent(remit.directory.find, route_task(remit.settings.routing, "implement", task))


async def _claimed(job: ImplementRun, force: bool) -> Outcome:
    """The work, by whoever holds the task."""
    job.warn(*await off_loop(pay_left, job.board))
    left = await _left_over(job)
    if left is None:
        entry = await off_loop(lambda: mark_begun(job.board, job.number, "implement", force=force, check=_checked(job, force)))
        job.run, job.before = entry.run, entry.before
        job.warn(*entry.warnings)
    ran: set[int] = set()
    is_proven = False
    while True:
        try:
            piece = await off_loop(next_piece, job.board, job.number)
        except Refused as error:
            return await off_loop(_stuck, job, error.message, error.advice)
        if job.marked.vanished:
            return await off_loop(_stuck, job, *_vanished(job))
        if piece is None:
            return await _completed(job, is_proven=is_proven)
        if piece.phase.number in ran:
            return await off_loop(
                _stuck, job, f"Phase {piece.phase.number} was carried out, and the plan does not say so.", "Look at the plan."
            )
        if left is None and job.seconds_left < MIN_SECONDS:
            return await off_loop(_out_of_time, job, piece)
        _tell(job, piece, is_first=not ran)
        ended = await carry_out(job, piece, left)
        left = job.before = None
        ran.add(piece.phase.number)
        is_proven = piece.is_last
        if not ended.verdict.is_done:
            return _stopped(job, ended)
        if ended.task is None or ended.task.status is not Status.IMPLEMENTING:
            return _stopped_by_person(job, ended)


def _vanished(job: ImplementRun) -> tuple[str, str]:
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
    plan = parse_plan(read_plan_text(board, task))
    if plan.doubled:
        raise Refused(
            f"The plan of task {task.number} cannot be carried out. {' '.join(plan.faults)}",
            code="VALIDATION_FAILED",
            advice=f"Number its phases apart in {task.plan_path}.",
        )
    return plan


def _checked(job: ImplementRun, force: bool) -> Callable[[State, Task], tuple[str, ...]]:
    """What must hold before the task is marked; what it gives are warnings."""

    def check(state: State, task: Task) -> tuple[str, ...]:
        told = check_dependencies(job.board, state, task, force=force)
        plan = plan_of(job.board, task)
        if task.has_plan and not plan.phases:
            told = (*told, f"{task.plan_path} has no phases (`### Phase 1: Name [NOT STARTED]`): it is carried out as a whole.")
        return (*told, *(f"{task.plan_path}: {fault}" for fault in plan.faults))

    return check


async def _left_over(job: ImplementRun) -> Return | None:
    """The return of a run that died before it was filed, if its agent had finished: then that is filed, and nothing runs twice."""
    task = (await off_loop(job.board.look)).state.task(job.number)
    run = unfiled_run(task, "implement")
    if not run:
        return None
    phase = await off_loop(_begun_phase, job.board, task)
    if phase is None:
        return None
    found, _ = await recovered_return(job.remit, key_of(run, phase), job.waiting)
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


def _tell(job: ImplementRun, piece: Piece, *, is_first: bool) -> None:
    if piece.phase is WHOLE:
        return
    phases = piece.plan.phases
    done = [phase for phase in phases if not phase.is_open]
    if is_first and (done or piece.phase.status is not PhaseStatus.NOT_STARTED):
        job.telling(f"Task {job.number} resumes from phase {piece.phase.number} ({len(done)} of {len(phases)} done).")
    at = [phase.number for phase in phases].index(piece.phase.number) + 1
    job.telling(f"phase {at} of {len(phases)}: {piece.phase.name}")


# ---- how it ends


async def _completed(job: ImplementRun, *, is_proven: bool) -> Outcome:
    """Everything is done: proven once more where no agent ran just now, then written down and committed."""
    task = (await off_loop(job.board.look)).state.task(job.number)
    if task.accept and not is_proven:
        env = acceptance_environment(job.remit.settings.accept_env)
        proof = await run_acceptance(task.accept, cwd=job.board.root, seconds_left=max(0.0, job.seconds_left), env=env)
        if proof.error is not None:
            error = replace(proof.error, recommendation=f"Make it exit 0, then: remit implement {job.number}")
            words = f"All phases are done, but the task is not accepted. {error.message}"
            return await off_loop(_halt, job, "partial", words, error, Status.PARTIAL)
    job.must_hold()
    return await run_to_end(_complete, job)


def _complete(job: ImplementRun) -> Outcome:
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
    words = completion_summary(plan, records)

    def change(task: Task, draft: Draft) -> tuple[Task, Sequence[str]]:
        task, told = move_task(task, Status.IMPLEMENTING, Status.COMPLETED, draft.at)
        kept = tuple(one for one in task.artifacts if one.path != path)
        link = TaskArtifact(type="summary", path=path, summary=words)
        return replace(without_records(task), completion_summary=words, artifacts=(*kept, link)), told

    text = summary_text(task, plan if plan.phases else None, records, at).encode("utf-8", "replace")
    subject, paths = f"task {job.number}: complete implementation", (*whole, path, *plans)
    activity, owner = f"Task {job.number} completed", task.session_id
    filed = file_task(board, job.number, "implement", activity, change, session_id=owner, files={path: text}, subject=subject, paths=paths)
    if filed.task is not None:
        note_fixed(board.root, filed.task)
    job.warn(*filed.warnings)
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
            for one in checked_artifacts(board.root, listed)
        ),
        next_steps=f"`remit review {job.number}` looks the work over; `remit todo` archives it.",
        commit=filed.commit,
        session_id=records[-1].session_id if records else "",
        data={"summary_path": path, "commits": {str(one.number): one.commit for one in records if one.commit and one.number}},
    )


def _stopped(job: ImplementRun, ended: FinishedPiece) -> Outcome:
    """The piece was not done."""
    verdict, result, phase = ended.verdict, ended.result, ended.piece.phase
    # What was stopped is continued by the command, not by a delegation of its own.
    again = f"remit implement {job.number}"
    errors = tuple(replace(error, recommendation=again) if error.code in STOPPED else error for error in verdict.errors)
    where = "" if phase is WHOLE else f"Phase {phase.number} ({phase.name}) is not done. "
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
        data={"agent": result.metadata.agent_type, **({} if phase is WHOLE else {"resume_from_phase": phase.number})},
    )


def _stopped_by_person(job: ImplementRun, ended: FinishedPiece) -> Outcome:
    """The task was moved or taken off the board while a phase was carried out: that counts."""
    phase = ended.piece.phase
    now = f"was set to [{ended.task.status.marker}]" if ended.task is not None else "was taken off the board"
    done = "The work" if phase is WHOLE else f"Phase {phase.number}"
    words = f"Task {job.number} {now} while it was worked on. {done} is done and kept; nothing more is begun."
    error = _error("execution", "CANCELLED", words, f"To go on all the same: remit implement {job.number} --force")
    return _outcome(
        job,
        ended.task,
        "partial",
        words,
        artifacts=ended.verdict.artifacts,
        errors=(error,),
        next_steps=error.recommendation,
        commit=job.commits.get(phase.number, ""),
        session_id=ended.result.session_id,
    )


def _out_of_time(job: ImplementRun, piece: Piece) -> Outcome:
    """The time of the command was up between two phases."""
    words = f"The time of the command was up before phase {piece.phase.number} ({piece.phase.name})."
    error = _error("timeout", "TIMEOUT", words, f"Go on with phase {piece.phase.number}: remit implement {job.number}")
    data = {"resume_from_phase": piece.phase.number}
    return _halt(job, "partial", words, error, Status.PARTIAL, stop_reason=str(StopReason.DEADLINE), data=data)


def _stuck(job: ImplementRun, message: str, advice: str) -> Outcome:
    """The plan cannot be continued: the task keeps its marker, and the command can be run again when the plan is corrected."""
    error = _error("validation", "VALIDATION_FAILED", message, advice)
    return _halt(job, "failed", message, error, None, next_steps=f"{advice} Then: remit implement {job.number}".strip())


def _halt(job: ImplementRun, status: str, words: str, error: ErrorInfo, moves_to: Status | None, **more: Any) -> Outcome:
    """End the run; the task's marker becomes `moves_to`, where one is given and nobody has moved it meanwhile."""

    def change(task: Task, draft: Draft) -> tuple[Task, Sequence[str]]:
        return move_task(task, Status.IMPLEMENTING, moves_to, draft.at) if moves_to is not None else (task, ())

    filed = file_task(job.board, job.number, "implement", f"Task {job.number}: implement {status}", change)
    job.warn(*filed.warnings)
    return _outcome(job, filed.task, status, words, errors=(error,), **{"next_steps": error.recommendation, **more})


def _error(kind: str, code: str, message: str, advice: str) -> ErrorInfo:
    return ErrorInfo(type=kind, code=code, message=message, recoverable=True, recommendation=advice)


def _next_steps(job: ImplementRun, ended: FinishedPiece, errors: Sequence[ErrorInfo]) -> str:
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


def _plan_now(job: ImplementRun, task: Task) -> Plan:
    """As it stands; without phases where it is gone: what was done is told from the records then."""
    try:
        return parse_plan(read_plan_text(job.board, task)) if task.has_plan else Plan()
    except Refused:
        return Plan()


def _summary_path(job: ImplementRun, task: Task, at: str) -> str:
    """Of today; what an earlier run wrote is not written over, and no link leads it out of the board's folder."""
    name = f"implementation-summary-{at[:10].replace('-', '')}"
    bases = [f"{task.folder}/summaries/{name}", f"{task.folder}/{name}", f"{SPECS}/{task.number:03d}-{name}"]
    base = next((one for one in bases if stays_inside(job.board.root, f"{one}.md")), bases[-1])
    paths = (f"{base}{more}.md" for more in ("", *(f"-{count}" for count in range(2, 1000))))
    return next(path for path in paths if not os.path.lexists(job.board.root / path))


def _with_commits(job: ImplementRun, records: Sequence[PhaseRecord]) -> tuple[PhaseRecord, ...]:
    """With the commit of each, where git has one that names its session."""
    return tuple(replace(one, commit=job.commits.get(one.number) or _commit_of(job, one)) for one in records)


def _commit_of(job: ImplementRun, record: PhaseRecord) -> str:
    if not record.session_id:
        return ""
    try:
        repository = find_repository(job.board.root, time.monotonic() + GIT_SECONDS)
        asked = ("log", "-1", "--format=%h", "--fixed-strings", f"--grep=Session: {record.session_id}")
        return repository.git.says(*asked) if repository is not None and repository.head() else ""
    except (RemitError, OSError):
        return ""


def _outcome(
    job: ImplementRun, task: Task | None, status: str, summary: str, *, data: dict[str, Any] | None = None, **more: Any
) -> Outcome:
    phases = _plan_now(job, task).phases if task is not None else ()
    statuses = {"phase_statuses": {str(phase.number): str(phase.status) for phase in phases}} if phases else {}
    return Outcome(
        command="implement",
        status=status,
        summary=summary,
        task_number=job.number,
        task_status=task.status.marker if task is not None else "",
        warnings=tuple(job.warnings),
        data={**statuses, **(data or {})},
        **more,
    )


# ---- several tasks in turn


async def implement_each(
    remit: Remit,
    board: Board,
    numbers: Sequence[int],
    *,
    force: bool = False,
    timeout: float | None = None,
    waiting: Waiting = wait_for_result,
    telling: Callable[[str], None] = tell_nobody,
    each: Callable[[Outcome], None] | None = None,
    focus: str = "",
) -> Outcome:
    """Implement them in turn, each in its own time; `each` is told the outcome of one as soon as it is known.

    All are checked before anything is begun: raises `Refused` or `Misused` for one that does not exist or may not be begun.
    """
    await off_loop(check_agents, remit, board, numbers)
    order, done = await off_loop(order_tasks, board, numbers, force)
    outcomes: list[Outcome] = []
    for at, number in enumerate(order, 1):
        telling(f"task {number} ({at} of {len(order)})")
        try:
            outcome = await implement(remit, board, number, focus=focus, force=force, timeout=timeout, waiting=waiting, telling=telling)
        except RemitError as error:  # it may be claimed, or changed, since it was looked at
            outcome = _refused(number, error)
        outcomes.append(outcome)
        if each is not None:
            each(outcome)
        if outcome.status != "completed":
            break
    return _combined(order, done, outcomes)


def order_tasks(board: Board, numbers: Sequence[int], force: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """In which order, after all of them were checked; and those that were completed before. Blocking."""
    must_exist(board, *numbers)
    state = board.look().state
    order = in_turn(state, numbers)
    done = tuple(number for number in order if state.task(number).status is Status.COMPLETED)
    left = tuple(number for number in order if number not in done)
    for number in left:
        task = state.task(number)
        check_entry(task, "implement", force=force)
        check_dependencies(board, state, task, force=force, sparing=left)
        plan_of(board, task)
    return left, done


def _refused(number: int, error: RemitError) -> Outcome:
    reason = StopReason.UNAVAILABLE if isinstance(error, Unavailable) else StopReason.REFUSED
    return Outcome(
        command="implement",
        status="failed",
        summary=error.message,
        task_number=number,
        errors=(_error("refused" if isinstance(error, Refused) else "execution", error.code, error.message, error.advice),),
        next_steps=error.advice,
        stop_reason=str(reason),
    )


def _combined(order: Sequence[int], done: Sequence[int], outcomes: Sequence[Outcome]) -> Outcome:
    completed = [one.task_number for one in outcomes if one.status == "completed" and one.task_number is not None]
    not_begun = order[len(outcomes) :]
    last = outcomes[-1] if outcomes else Outcome(command="implement", status="completed", summary="")
    listed = (("Already completed", done), ("Completed", completed), ("Not begun", not_begun))
    parts = [f"{what}: {name_tasks(numbers).lower()}." for what, numbers in listed if numbers]
    steps = "`remit review N` reviews the work of one; `remit todo` archives them."
    if last.status != "completed":
        parts.insert(-1 if not_begun else len(parts), f"Task {last.task_number} is not completed: {last.summary}")
        steps = last.next_steps
    data = {"completed": completed, "already_completed": list(done), "not_begun": list(not_begun)}
    return Outcome(
        command="implement",
        status=last.status,
        summary=" ".join(parts) or "Nothing was to be done.",
        errors=last.errors,
        next_steps=steps,
        session_id=last.session_id,
        stop_reason=last.stop_reason,
        data={**data, "outcomes": [one.to_dict() for one in outcomes]},
    )


# ---- dry run


def dry_run_implement(
    settings: Settings, board: Board, find: Find, numbers: Sequence[int], *, force: bool = False, timeout: float | None = None
) -> Outcome:
    """Which phases would run, by which agent, and by which commands they would be accepted."""
    allowed_timeout(timeout, settings.limits_for("implement"))
    order, done = order_tasks(board, numbers, force)
    state = board.look().state
    plans = [_implement_plan(settings, board, find, state, state.task(number), force, order) for number in order]
    lines = [line for plan in plans for line in plan.pop("lines")]
    lines += [f"Task {number} is completed already." for number in done]
    return Outcome(
        command="implement",
        status="completed",
        summary="\n".join(lines) or "Nothing would be done.",
        task_number=numbers[0] if len(numbers) == 1 else None,
        task_status=state.task(numbers[0]).status.marker if len(numbers) == 1 else "",
        warnings=tuple(words for plan in plans for words in plan.pop("warnings")),
        data={"dry_run": True, "tasks": plans},
    )


def _implement_plan(
    settings: Settings, board: Board, find: Find, state: State, task: Task, force: bool, order: Sequence[int]
) -> dict[str, Any]:
    plan = plan_of(board, task)
    chosen = route_task(settings.routing, "implement", task)
    require_agent(find, chosen)
    by = {name: carried_by(find(name)) for name in roles_of(find, chosen.agent)}
    phases: Sequence[Phase] = plan.phases or (WHOLE,)
    open_ones = [phase for phase in phases if phase.is_open]
    pieces = [Piece(task=task, state=state, plan=plan, phase=one, is_last=one is open_ones[-1]) for one in open_ones]
    agent = f"{chosen.agent} ({chosen.mode})" if chosen.mode else f"{chosen.agent}"
    lines = [f"Task {task.number}: {task.title} [{task.status.marker}], by {agent}", *(f"  {name}: {one}" for name, one in by.items())]
    lines += [f"  phase {one.number}: {one.name} [{one.status}]: left out" for one in phases if not one.is_open]
    for piece in pieces:
        what = "the task as a whole" if piece.phase is WHOLE else f"phase {piece.phase.number}: {piece.phase.name} [{piece.phase.status}]"
        lines.append(f"  {what}: would run" + "".join(f"\n    accepted by `{command}`" for command in piece.accept))
    lines += [] if pieces else ["  every phase is done: it would be completed at once"]
    warnings = [*claimed_now(board, task.number), *check_entry(task, "implement", force=force)]
    warnings += [*check_dependencies(board, state, task, force=force, sparing=order), *(f"{task.plan_path}: {one}" for one in plan.faults)]
    return {
        "task_number": task.number,
        "agent": chosen.agent,
        "mode": chosen.mode,
        "carried_by": by,
        "would_run": [{"phase": one.phase.number or None, "name": one.phase.name, "accept": list(one.accept)} for one in pieces],
        "left_out": [one.number for one in phases if not one.is_open],
        "warnings": warnings,
        "lines": lines,
    }


# ---- dependencies


def check_dependencies(board: Board, state: State, task: Task, *, force: bool, sparing: Sequence[int] = ()) -> tuple[str, ...]:
    """The warning when only `force` lets it begin. Raises `Refused` and names what is not completed. `sparing`: done before it, by then."""
    waits_for = [number for number in unmet(board, state, task) if number not in sparing]
    if not waits_for:
        return ()
    named = ", ".join(_named(state, number) for number in waits_for)
    words = f"Task {task.number} depends on what is not completed: {named}."
    if force:
        return (f"The check of dependencies was skipped (--force): {words}",)
    advice = f"Complete task {waits_for[0]} first, or use --force to go on all the same."
    raise Refused(words, code="INVALID_STATUS_TRANSITION", advice=advice)


def unmet(board: Board, state: State, task: Task) -> tuple[int, ...]:
    if not task.dependencies:
        return ()
    waits_for = graph_of(state).unmet(task)
    if all(state.find(number) is not None for number in waits_for):
        return waits_for
    return graph_of(state, {one.number: one.status for one in archived_tasks(board)}).unmet(task)


def in_turn(state: State, numbers: Sequence[int]) -> list[int]:
    """The same tasks, each after those of them that it depends on; else in the order given. Raises `Refused` for a circle."""
    tasks = [state.task(number) for number in dict.fromkeys(numbers)]
    if found := cycles(tasks):
        circle = " → ".join(map(str, (*found[0], found[0][0])))
        raise Refused(f"These tasks depend on one another in a circle: {circle}.", code="CYCLE_DETECTED", advice="Change one of them.")
    left, ordered = {task.number: task for task in tasks}, list[int]()
    while left:
        ready = next(task for task in left.values() if not any(number in left for number in task.dependencies))
        ordered.append(ready.number)
        del left[ready.number]
    return ordered


def _named(state: State, number: int) -> str:
    task = state.find(number)
    return f"task {number} [{task.status.marker}]" if task is not None else f"task {number} (not on the board)"
