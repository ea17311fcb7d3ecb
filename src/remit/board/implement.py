"""`remit implement N`: a task carried out, phase by phase where it has a plan, each phase committed; several tasks in turn.

Stops at the first failure and can be run again: it continues where it stopped, also after `kill -9`. Each phase is marked, delegated,
judged, filed and committed, with one write of the board before and one after.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from remit.app import Remit
from remit.board.archive import archived_tasks
from remit.board.board import SPECS, Board, Draft
from remit.board.command_lifecycle import (
    Find,
    TaskRun,
    carried_by,
    check_entry,
    claimed_now,
    must_exist,
    new_error,
    require_agent,
    roles_of,
    route_task,
    run_to_end,
    unfiled_run,
)
from remit.board.commits import find_repository
from remit.board.error_tasks import note_fixed
from remit.board.outcome import Outcome, Waiting, name_tasks, wait_for_result
from remit.board.phases import (
    WHOLE,
    PhaseRecord,
    Piece,
    completion_summary,
    mark_phase_begun,
    mark_phase_ended,
    parse_plan,
    plan_of,
    read_plan_text,
    records_of,
    summary_text,
    with_record,
    without_records,
)
from remit.board.plans import Phase, Plan
from remit.board.task import PhaseStatus, State, Status, Task, TaskArtifact
from remit.board.verdicts import (
    STOPPED,
    Changes,
    Verdict,
    judge_work,
    name_files,
    stays_inside,
    uncommitted_changes,
    unnamed_changes,
    untouched_changes,
)
from remit.board.view import cycles, graph_of
from remit.core.deadline import allowed_timeout
from remit.core.errors import ErrorInfo, Refused, RemitError, Unavailable
from remit.core.result import Artifact, Evidence, Return, StopReason
from remit.core.settings import Settings
from remit.runtime.deps import AcceptanceRules
from remit.runtime.verify import AcceptanceSite, run_acceptance
from remit.system.artifact_files import checked_artifacts
from remit.system.threads import off_loop

GIT_SECONDS = 10.0
MIN_SECONDS = 1.0
"""With less time than that no phase is begun; one that was begun just before has at least that."""


def show_nothing(_words: str) -> None:
    """Show no progress."""


async def implement(
    remit: Remit,
    board: Board,
    number: int,
    *,
    focus: str = "",
    force: bool = False,
    timeout: float | None = None,
    waiting: Waiting = wait_for_result,
    show: Callable[[str], None] = show_nothing,
) -> Outcome:
    """Carry out task `number`. `timeout` is for all of it: each phase gets what is left.

    Raises `Refused` and `Misused` before anything is marked, committed or recorded as an error.
    """
    run = ImplementRun(remit, board, number, "implement", focus=focus, force=force, timeout=timeout, waiting=waiting)
    run.show = show
    await off_loop(check_agents, remit, board, [number])
    with run.claimed():
        return await run.carry_out()


def check_agents(remit: Remit, board: Board, numbers: Sequence[int]) -> None:
    """The tasks exist, and those that are not done have an agent. Raises `Misused` and `Refused`. Blocking."""
    state = must_exist(board, *numbers)
    for task in map(state.task, numbers):
        if task.status is not Status.COMPLETED and not unfiled_run(task, "implement") and next_piece(board, task.number) is not None:
            require_agent(remit.directory.find, route_task(remit.settings.routing, "implement", task))


def next_piece(board: Board, number: int) -> Piece | None:
    """What is to be done next; None: everything is done. Raises `Refused` when the plan cannot be carried out."""
    state = board.look().state
    task = state.task(number)
    plan = plan_of(board, task)
    phase = plan.first_open
    if not plan.phases:
        phase = None if any(one.number == WHOLE.number for one in records_of(task)) else WHOLE
    is_last = not plan.phases or len(plan.open_phases) == 1
    return None if phase is None else Piece(task=task, state=state, plan=plan, phase=phase, is_last=is_last)


class ImplementRun(TaskRun):
    """One task being implemented by this process, which holds it."""

    show: Callable[[str], None] = staticmethod(show_nothing)
    plan_begun = ""
    """The plan as it was marked when the present phase began; empty: another process began it."""
    vanished: tuple[int, ...] = ()
    """Phases that were taken out of the plan while the last one was carried out."""

    async def carry_out(self) -> Outcome:
        left = await self._left_over()
        if left is None:
            await off_loop(self.mark, self._check)
        commits: dict[int, str] = {}
        while True:
            try:
                piece = await off_loop(next_piece, self.board, self.number)
            except Refused as error:
                return await off_loop(self._stuck, error.message, error.advice)
            if self.vanished:
                gone = ", ".join(map(str, self.vanished))
                words = f"Phases were removed from the plan while phase {max(commits)} was carried out: {gone}."
                return await off_loop(self._stuck, words, "Look at the plan (`git diff` shows the change), and correct it.")
            if piece is None:
                return await self._completed(commits)
            number = piece.phase.number
            if number in commits:
                return await off_loop(self._stuck, f"Phase {number} was carried out, but the plan does not say so.", "Look at the plan.")
            if left is None and self.seconds_left < MIN_SECONDS:
                return await off_loop(self._out_of_time, piece)
            self._show(piece, is_first=not commits)
            result, verdict, task = await self._carry_out_piece(piece, left)
            left = self.before = None
            commits[number] = self.commit
            if not verdict.is_done:
                return self._stopped(piece, result, verdict, task)
            if task is None or task.status is not Status.IMPLEMENTING:
                return self._stopped_by_person(piece, result, verdict, task)

    def _check(self, state: State, task: Task) -> tuple[str, ...]:
        """What must be true before the task is marked; returns warnings."""
        warnings = check_dependencies(self.board, state, task, force=self.force)
        plan = plan_of(self.board, task)
        if task.has_plan and not plan.phases:
            warnings += (f"{task.plan_path} has no phases (`### Phase 1: Name [NOT STARTED]`): it is carried out as a whole.",)
        return (*warnings, *(f"{task.plan_path}: {fault}" for fault in plan.faults))

    async def _left_over(self) -> Return | None:
        """The return of a run that was killed before it was filed, if its agent had finished: it is filed now, and nothing runs twice."""
        task = await off_loop(self.task)
        run = unfiled_run(task, "implement")
        piece = await off_loop(next_piece, self.board, self.number) if run else None
        if piece is None or (piece.phase is not WHOLE and piece.phase.status is not PhaseStatus.IN_PROGRESS):
            return None
        found, _ = await self.recovered(_key(run, piece.phase))
        if found is not None:
            self.run = run
            what = "The work" if piece.phase is WHOLE else f"Phase {piece.phase.number}"
            self.show(f"{what} had been finished by a run that was killed ({found.session_id}): its return is filed now.")
        return found

    def _show(self, piece: Piece, *, is_first: bool) -> None:
        if piece.phase is WHOLE:
            return
        phases = piece.plan.phases
        done = [phase for phase in phases if not phase.is_open]
        if is_first and (done or piece.phase.status is not PhaseStatus.NOT_STARTED):
            self.show(f"Task {self.number} resumes from phase {piece.phase.number} ({len(done)} of {len(phases)} done).")
        at = [phase.number for phase in phases].index(piece.phase.number) + 1
        self.show(f"phase {at} of {len(phases)}: {piece.phase.name}")

    # ---- one piece

    async def _carry_out_piece(self, piece: Piece, left: Return | None) -> tuple[Return, Verdict, Task | None]:
        """Mark it, delegate it, judge and file the return. `left`: the return that a killed process did not file."""
        root, own = self.board.root, piece.task.folder
        before: Changes | None = None
        if left is None:
            before = await off_loop(uncommitted_changes, root, own)
            await off_loop(self._mark_phase, piece)
            left = await self._delegate_piece(piece)
        self.must_hold()
        verdict = await off_loop(self._judge, piece, before, left)
        self.warn(*(words for words in left.warnings if not words.startswith("summary:")))  # on its style: for the author of the agent
        task = await run_to_end(self._file_piece, piece, left, verdict)
        others = await off_loop(unnamed_changes, root, own, before, {*verdict.files, *verdict.deleted, piece.task.plan_path})
        if verdict.is_done and others:
            self.warn(f"Changed meanwhile, not named by the agent, and not committed: {name_files(others)}.")
        elif not verdict.is_done and (left_there := {*verdict.files, *others}):
            self.warn(f"Left in the project, not committed: {name_files(left_there)}.")
        return left, verdict, task

    def _mark_phase(self, piece: Piece) -> None:
        if piece.phase is WHOLE:
            return
        with self.board.change() as draft:
            self.plan_begun = mark_phase_begun(self.board, draft, draft.state.task(self.number), piece.phase.number)
            words = f"Task {self.number}: phase {piece.phase.number} begun ({piece.phase.name})"
            draft.state = draft.state.noting(draft.at, words, task_number=self.number)
        self.warn(*draft.notices)

    async def _delegate_piece(self, piece: Piece) -> Return:
        extra: dict[str, Any] = {"commit_message": piece.subject}
        if piece.phase is not WHOLE:
            extra |= {"phase": piece.phase.number, "phase_name": piece.phase.name, "plan": piece.task.plan_path}
        return await self.delegate(
            piece.task,
            await off_loop(piece.parameters, self.focus, self.board.root),
            key=_key(self.run, piece.phase),
            state=piece.state,
            phases=len(piece.plan.phases),
            extra=extra,
            accept=piece.accept,
            timeout=max(MIN_SECONDS, self.seconds_left),  # looking and marking took some of it
        )

    def _judge(self, piece: Piece, before: Changes | None, result: Return) -> Verdict:
        """The verdict without the files that are not its agent's to commit."""
        verdict = judge_work(self.board.root, result, piece.task.folder)
        if verdict.not_its_own:
            self.warn(f"Named by the agent, but not its own to commit: {name_files(verdict.not_its_own)}.")
        was_begun_before = piece.phase.status is not PhaseStatus.NOT_STARTED or (
            piece.phase is WHOLE and (self.before is None or self.before.status in (Status.IMPLEMENTING, Status.PARTIAL, Status.BLOCKED))
        )
        others = untouched_changes(self.board.root, before, verdict.files) if not was_begun_before else ()
        if others:
            self.warn(f"Named by the agent, but changed before it began and not by it, so not committed: {name_files(others)}.")
        return replace(verdict, artifacts=tuple(one for one in verdict.artifacts if one.path not in others))

    def _file_piece(self, piece: Piece, result: Return, verdict: Verdict) -> Task | None:
        """Plan, state.json, TODO.md and the pending commit as one set; then the commit."""
        phase, plan_path = piece.phase, piece.task.plan_path

        def change(task: Task, draft: Draft) -> tuple[Task, Sequence[str]]:
            if phase is not WHOLE:
                marker = verdict.phase_status(phase.status)
                warnings, self.vanished = mark_phase_ended(self.board, draft, task, piece.plan, phase.number, marker, self.plan_begun)
                self.warn(*warnings)
                if plan_path not in draft.files:  # it cannot be read: whatever is there now is not committed
                    paths.remove(plan_path)
            if verdict.is_done:
                return with_record(task, _record(piece, result, verdict, draft.at)), ()
            if verdict.is_undone:
                return self.undo(task), ()
            return self.move(task, verdict.moves_to, draft.at, reason=verdict.reason) if verdict.moves_to else (task, ())

        where = "implement" if phase is WHOLE else f"phase {phase.number}"
        stops = f"task {self.number}: {'block' if verdict.moves_to is Status.BLOCKED else 'stop'} at {where}"
        done = piece.subject if phase is not WHOLE else ""  # the whole of a task is committed with its summary, when it is completed
        work = (*verdict.files, *verdict.deleted) if verdict.is_done else ()  # unfinished work is not committed, only that it is
        paths = [*work, *([plan_path] if plan_path else [])]
        outcome = "done" if verdict.is_done else f"not done ({verdict.status})"
        return self.file(
            f"Task {self.number}: {where if phase is not WHOLE else 'implementation'} {outcome}",
            change,
            session_id=result.session_id,
            subject=done if verdict.is_done else stops if verdict.moves_to else "",
            paths=paths,
            ends_run=not verdict.is_done,
        )

    # ---- how it ends

    async def _completed(self, commits: dict[int, str]) -> Outcome:
        """Everything is done: verified once more where no agent ran just now, then written down and committed."""
        task = await off_loop(self.task)
        if task.accept and not commits:
            site = AcceptanceSite(folder=self.board.root, root=self.board.root, rules=AcceptanceRules.from_settings(self.remit.settings))
            proof = await run_acceptance(task.accept, site, seconds_left=max(0.0, self.seconds_left))
            if proof.error is not None:
                error = replace(proof.error, recommendation=f"Make it exit 0, then: remit implement {self.number}. {proof.hidden}")
                words = f"All phases are done, but the task is not accepted. {error.message}"
                return await off_loop(self._halt, "partial", words, error, Status.PARTIAL)
        self.must_hold()
        return await run_to_end(self._complete, commits)

    def _complete(self, commits: dict[int, str]) -> Outcome:
        board, task = self.board, self.task()
        plan = self._plan_now(task)
        records = [replace(one, commit=commits.get(one.number) or self._commit_of(one)) for one in records_of(task)]
        given_up = [str(phase.number) for phase in plan.phases if phase.status is PhaseStatus.ABANDONED]
        if given_up:
            self.warn(f"Abandoned in the plan and not carried out: phase {', '.join(given_up)}.")
        at = board.now()
        path = self._summary_path(task, at)
        words = completion_summary(plan, records)

        def change(task: Task, draft: Draft) -> tuple[Task, Sequence[str]]:
            task, warnings = self.move(task, Status.COMPLETED, draft.at)
            link = TaskArtifact(type="summary", path=path, summary=words)
            return replace(without_records(task), completion_summary=words, artifacts=(*task.artifacts, link)), warnings

        whole = [path for record in records if record.number == WHOLE.number for path in (*record.files, *record.deleted)]
        filed = self.file(
            f"Task {self.number} completed",
            change,
            session_id=task.session_id,
            files={path: summary_text(task, plan, records, at).encode("utf-8", "replace")},
            subject=f"task {self.number}: complete implementation",
            paths=(*whole, path, *([task.plan_path] if task.plan_path else [])),
        )
        if filed is not None:
            note_fixed(board, filed)
        artifacts = [Artifact(type="implementation", path=one) for record in records for one in record.files]
        listed = (*{one.path: one for one in artifacts}.values(), Artifact(type="summary", path=path, summary=words))
        accepted = {one for record in records if record.accept or task.accept for one in record.files}
        return self._outcome(
            filed,
            "completed",
            words,
            artifacts=tuple(
                replace(one, evidence=Evidence.VERIFIED if one.path in accepted else Evidence.CHECKED)
                for one in checked_artifacts(board.root, listed)
            ),
            next_steps=f"`remit review {self.number}` reviews the work; `remit todo` archives the task.",
            commit=self.commit,
            session_id=records[-1].session_id if records else "",
            data={"summary_path": path, "commits": {str(one.number): one.commit for one in records if one.commit and one.number}},
        )

    def _stopped(self, piece: Piece, result: Return, verdict: Verdict, task: Task | None) -> Outcome:
        """The piece was not done."""
        phase, again = piece.phase, f"remit implement {self.number}"
        # A stopped phase is continued by the command, not by a delegation of its own.
        errors = tuple(replace(error, recommendation=again) if error.code in STOPPED else error for error in verdict.errors)
        where = "" if phase is WHOLE else f"Phase {phase.number} ({phase.name}) is not done. "
        was_believed = verdict.status is result.status
        return self._outcome(
            task,
            str(verdict.status),
            f"{where}{verdict.summary}",
            artifacts=verdict.artifacts,
            errors=errors,
            next_steps=_next_steps(phase, result, verdict, errors, again),
            commit=self.commit,
            session_id=result.session_id,
            stop_reason=str(result.stop_reason if was_believed else StopReason.INVALID_RETURN),
            data={"agent": result.metadata.agent_type, **({} if phase is WHOLE else {"resume_from_phase": phase.number})},
        )

    def _stopped_by_person(self, piece: Piece, result: Return, verdict: Verdict, task: Task | None) -> Outcome:
        """The task was moved or taken off the board while a phase was carried out: that counts."""
        now = f"was set to [{task.status.marker}]" if task is not None else "was taken off the board"
        done = "The work" if piece.phase is WHOLE else f"Phase {piece.phase.number}"
        words = f"Task {self.number} {now} while it was worked on. {done} is done and kept; no further phase is begun."
        error = new_error("execution", "CANCELLED", words, f"To continue all the same: remit implement {self.number} --force")
        more: dict[str, Any] = {"next_steps": error.recommendation, "commit": self.commit, "session_id": result.session_id}
        return self._outcome(task, "partial", words, artifacts=verdict.artifacts, errors=(error,), **more)

    def _out_of_time(self, piece: Piece) -> Outcome:
        """The time of the command was up between two phases."""
        number = piece.phase.number
        words = f"The time of the command was up before phase {number} ({piece.phase.name})."
        error = new_error("timeout", "TIMEOUT", words, f"Continue with phase {number}: remit implement {self.number}")
        data = {"resume_from_phase": number}
        return self._halt("partial", words, error, Status.PARTIAL, stop_reason=str(StopReason.DEADLINE), data=data)

    def _stuck(self, message: str, advice: str) -> Outcome:
        """The plan cannot be continued: the task keeps its marker, and the command can be run again when the plan is corrected."""
        error = new_error("validation", "VALIDATION_FAILED", message, advice)
        return self._halt("failed", message, error, None, next_steps=f"{advice} Then: remit implement {self.number}".strip())

    def _halt(self, status: str, words: str, error: ErrorInfo, moves_to: Status | None, **more: Any) -> Outcome:
        """End the run; the task's marker becomes `moves_to`, where one is given and no person has moved it meanwhile."""

        def change(task: Task, draft: Draft) -> tuple[Task, Sequence[str]]:
            return self.move(task, moves_to, draft.at) if moves_to is not None else (task, ())

        task = self.file(f"Task {self.number}: implement {status}", change)
        return self._outcome(task, status, words, errors=(error,), **{"next_steps": error.recommendation, **more})

    def _plan_now(self, task: Task) -> Plan:
        """As it is; without phases where it cannot be read."""
        try:
            return parse_plan(read_plan_text(self.board, task)) if task.has_plan else Plan()
        except Refused:
            return Plan()

    def _summary_path(self, task: Task, at: str) -> str:
        """Of today; an earlier summary is not overwritten, and no link leads it out of the board's folder."""
        name = f"implementation-summary-{at[:10].replace('-', '')}"
        bases = [f"{task.folder}/summaries/{name}", f"{task.folder}/{name}", f"{SPECS}/{task.number:03d}-{name}"]
        base = next((one for one in bases if stays_inside(self.board.root, f"{one}.md")), bases[-1])
        paths = (f"{base}{more}.md" for more in ("", *(f"-{count}" for count in range(2, 1000))))
        return next(path for path in paths if not os.path.lexists(self.board.root / path))

    def _commit_of(self, record: PhaseRecord) -> str:
        """The commit that names the session of the record."""
        if not record.session_id:
            return ""
        try:
            repository = find_repository(self.board.root, time.monotonic() + GIT_SECONDS)
            asked = ("log", "-1", "--format=%h", "--fixed-strings", f"--grep=Session: {record.session_id}")
            return repository.git.says(*asked) if repository is not None and repository.head() else ""
        except (RemitError, OSError):
            return ""

    def _outcome(self, task: Task | None, status: str, summary: str, *, data: dict[str, Any] | None = None, **more: Any) -> Outcome:
        phases = self._plan_now(task).phases if task is not None else ()
        statuses = {"phase_statuses": {str(phase.number): str(phase.status) for phase in phases}} if phases else {}
        return Outcome(
            command="implement",
            status=status,
            summary=summary,
            task_number=self.number,
            task_status=task.status.marker if task is not None else "",
            warnings=tuple(self.warnings),
            data={**statuses, **(data or {})},
            **more,
        )


def _key(run: str, phase: Phase) -> str:
    """The key of the delegation that carries out a phase in a run: by it a later process finds what became of it."""
    return f"{run}-phase-{phase.number}"


def _record(piece: Piece, result: Return, verdict: Verdict, at: str) -> PhaseRecord:
    return PhaseRecord(
        number=piece.phase.number,
        name=piece.phase.name,
        summary=result.summary,
        session_id=result.session_id,
        agent=result.metadata.agent_type,
        files=verdict.files,
        deleted=verdict.deleted,
        accept=piece.accept,
        finished=at,
    )


def _next_steps(phase: Phase, result: Return, verdict: Verdict, errors: Sequence[ErrorInfo], again: str) -> str:
    advice = errors[0].recommendation if errors else ""
    if verdict.moves_to is Status.BLOCKED:
        return f"{result.next_steps or advice or 'Resolve what it is blocked by.'} Then: {again}"
    if verdict.is_undone:
        return advice
    where = "Resume it:" if phase is WHOLE else f"Continue with phase {phase.number}:"
    # Work in a workspace of its own is not in the project: the return says where it is.
    apart = f"{result.next_steps} " if "workspace" in result.extra and result.next_steps else ""
    return f"{apart}{where} {again}"


# ---- several tasks in turn


async def implement_each(
    remit: Remit,
    board: Board,
    numbers: Sequence[int],
    *,
    force: bool = False,
    timeout: float | None = None,
    waiting: Waiting = wait_for_result,
    show: Callable[[str], None] = show_nothing,
    each: Callable[[Outcome], None] | None = None,
    focus: str = "",
) -> Outcome:
    """Implement them in turn, each in its own time; `each` gets the outcome of one as soon as it is known.

    All are checked before anything is begun: raises `Refused` or `Misused` for one that does not exist or may not be begun.
    """
    await off_loop(check_agents, remit, board, numbers)
    order, done = await off_loop(order_tasks, board, numbers, force)
    outcomes: list[Outcome] = []
    for at, number in enumerate(order, 1):
        show(f"task {number} ({at} of {len(order)})")
        try:
            outcome = await implement(remit, board, number, focus=focus, force=force, timeout=timeout, waiting=waiting, show=show)
        except RemitError as error:  # it may be claimed, or changed, since it was checked
            outcome = _refused(number, error)
        outcomes.append(outcome)
        if each is not None:
            each(outcome)
        if outcome.status != "completed":
            break
    return _combined(order, done, outcomes)


def order_tasks(board: Board, numbers: Sequence[int], force: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """In which order, after all of them were checked; and those that were completed before. Blocking."""
    state = must_exist(board, *numbers)
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
        errors=(new_error("refused" if isinstance(error, Refused) else "execution", error.code, error.message, error.advice),),
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
        summary=" ".join(parts) or "There was nothing to do.",
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
        summary="\n".join(lines) or "There is nothing to do.",
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
    advice = f"Complete task {waits_for[0]} first, or use --force to continue all the same."
    raise Refused(words, code="INVALID_STATUS_TRANSITION", advice=advice)


def unmet(board: Board, state: State, task: Task) -> tuple[int, ...]:
    if not task.dependencies:
        return ()
    waits_for = graph_of(state).unmet(task)
    if all(state.find(number) is not None for number in waits_for):
        return waits_for
    return graph_of(state, {one.number: one.status for one in archived_tasks(board)}).unmet(task)


def in_turn(state: State, numbers: Sequence[int]) -> list[int]:
    """The same tasks, each after those of them that it depends on; else in the order given. Raises `Refused` for a cycle."""
    tasks = [state.task(number) for number in dict.fromkeys(numbers)]
    if found := cycles(tasks):
        circle = " → ".join(map(str, (*found[0], found[0][0])))
        raise Refused(f"These tasks depend on one another in a cycle: {circle}.", code="CYCLE_DETECTED", advice="Change one of them.")
    left, ordered = {task.number: task for task in tasks}, list[int]()
    while left:
        ready = next(task for task in left.values() if not any(number in left for number in task.dependencies))
        ordered.append(ready.number)
        del left[ready.number]
    return ordered


def _named(state: State, number: int) -> str:
    task = state.find(number)
    return f"task {number} [{task.status.marker}]" if task is not None else f"task {number} (not on the board)"
