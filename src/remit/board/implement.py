"""`remit implement N`: executes a task, phase by phase if it has a plan, with a commit per phase; several tasks in order.

Stops at the first failure and can be run again: it continues where it stopped, also after `kill -9`. Each phase is marked, delegated,
checked, filed and committed, with one write of the board before and one after."""

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from remit.app import Remit
from remit.board.board import SPECS, Board, Draft
from remit.board.command_lifecycle import (
    LEAST_SECONDS,
    TaskRun,
    check_dependencies,
    check_entry,
    must_exist,
    new_error,
    require_route,
    run_to_end,
    unfiled_run,
)
from remit.board.error_tasks import note_fixed
from remit.board.outcome import Outcome, Waiting, wait_for_result
from remit.board.phases import (
    PLACED,
    WHOLE,
    PhaseRecord,
    Piece,
    completion_summary,
    mark_phase_begun,
    mark_phase_ended,
    plan_of,
    records_of,
    summary_text,
    with_record,
    without_records,
)
from remit.board.plans import Phase, read_plan
from remit.board.task import PhaseStatus, State, Status, Task, TaskArtifact
from remit.board.task_landing import (
    QUEUE,
    LandingOptions,
    TaskLanding,
    check_acceptance,
    commands_of,
    last_session,
    merge_mode,
    remove_landed,
)
from remit.board.task_prompts import depends_on, plan_at, task_block
from remit.board.verdicts import (
    STOPPED,
    Changes,
    Verdict,
    judge_placed,
    judge_work,
    name_files,
    stays_inside,
    uncommitted_changes,
    untouched_changes,
)
from remit.core.errors import ErrorInfo, Refused, RemitError, Unavailable
from remit.core.result import Artifact, Return, StopReason
from remit.core.text import fence_untrusted
from remit.runtime.landing import read_state
from remit.runtime.task_workspace import PLACE, find_task_workspace
from remit.runtime.verify import AcceptanceSite, run_acceptance
from remit.runtime.workspace_cleanup import workspace_status
from remit.system.artifact_files import checked_artifacts
from remit.system.threads import off_loop


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
    landing: LandingOptions = LandingOptions(),  # noqa: B008 - frozen
) -> Outcome:
    """Execute task `number`. `timeout` is for all of it: each phase gets the rest. `landing`: how its work is merged.

    Raises `Refused` and `Misused` before anything is marked, committed or recorded as an error."""
    run = ImplementRun(remit, board, number, "implement", focus=focus, force=force, timeout=timeout, waiting=waiting, show=show)
    await off_loop(check_agents, remit, board, [number])
    run.landing = await off_loop(run.landing_for, landing)
    await off_loop(remove_landed, board)
    with run.claimed():
        return await run.carry_out()


async def comment_on_work(
    remit: Remit, board: Board, number: int, comments: Sequence[str], *, timeout: float | None = None, waiting: Waiting = wait_for_result
) -> Outcome:
    """Pass comments on the unmerged work of a task to the agent's own session. Raises `Refused` if there is no such work."""
    await off_loop(must_exist, board, number)
    if await off_loop(find_task_workspace, remit.root, number) is None:
        raise Refused(
            f"Task {number} has no work that is not merged.",
            code="INVALID_OPERATION",
            advice=f'Make a task of it: remit task "TEXT" --depends {number}',
        )
    listed = "\n".join(f"- {one.strip()}" for one in comments)
    words = f"A person reviewed your work on task {number}, which is in your folder, and asks for changes:\n\n{fence_untrusted(listed)}"
    run = ImplementRun(remit, board, number, "implement", timeout=timeout, waiting=waiting)
    run.landing = run.landing_with(LandingOptions(mode=False))
    with run.claimed():
        return await run.take_comments(words)


async def merge_work(remit: Remit, board: Board, number: int) -> Outcome:
    """Land the work of a task as a person asks for, and complete it. Raises `Refused` where a phase of its plan is open."""
    piece = await off_loop(next_piece, board, number)
    if piece is not None:
        await off_loop(_take_as_done, board, piece)
    task = await off_loop(lambda: board.look().state.task(number))
    commands = commands_of(task, await off_loop(plan_of, board, task))
    is_accepted = bool(commands or remit.settings.workspace.accept)
    return await implement(remit, board, number, landing=LandingOptions(mode=QUEUE if is_accepted else True, is_taken=True))


def _take_as_done(board: Board, piece: Piece) -> None:
    """A person takes the work of a task without a plan as it is, whatever its agent said. Blocking."""
    number, workspace = piece.task.number, find_task_workspace(board.root, piece.task.number)
    if piece.phase is not WHOLE or workspace is None or not workspace_status(workspace).changed:
        why = "it has no work" if piece.phase is WHOLE else f"phase {piece.phase.number} is open"
        raise Refused(f"Task {number} cannot be merged: {why}.", code="INVALID_OPERATION", advice=f"remit implement {number}")
    with board.change(f"Task {number}: its work was taken as done by hand") as draft:
        task = draft.state.task(number)
        check_entry(task, "implement", force=False)
        record = PhaseRecord(number=WHOLE.number, summary="Taken as it is, by hand.", session_id=task.session_id, finished=draft.at)
        draft.state = draft.state.with_task(with_record(task, record))


def check_agents(remit: Remit, board: Board, numbers: Sequence[int]) -> None:
    """Check that the tasks exist, and that unfinished ones have an agent. Raises `Misused` and `Refused`. Blocking."""
    state = must_exist(board, *numbers)
    for task in map(state.task, numbers):
        if task.status is not Status.COMPLETED and not unfiled_run(task, "implement") and next_piece(board, task.number) is not None:
            require_route(remit.settings, remit.directory.find, "implement", task)


def next_piece(board: Board, number: int) -> Piece | None:
    """The next piece of work; None: all is done. Raises `Refused` if the plan cannot be executed."""
    state = board.look().state
    task = state.task(number)
    plan = plan_of(board, task)
    phase = plan.first_open
    if not plan.phases:
        phase = None if any(one.number == WHOLE.number for one in records_of(task)) else WHOLE
    is_last = not plan.phases or len(plan.open_phases) == 1
    return None if phase is None else Piece(task=task, state=state, plan=plan, phase=phase, is_last=is_last)


@dataclass(eq=False)
class ImplementRun(TaskRun):
    """One task being implemented and claimed by this process."""

    show: Callable[[str], None] = show_nothing
    plan_begun: str = ""
    """The plan when the present phase was marked; empty: another process marked it."""
    landing: TaskLanding | None = None
    """The worktree of the task; None: its agent works in the project itself."""

    def landing_for(self, options: LandingOptions) -> TaskLanding | None:
        """Raises `Refused` if its work could not be accepted. Blocking."""
        task = self.task()
        declared = merge_mode(self.remit.settings, self.remit.directory.find, task)
        mode = declared if options.mode is None else options.mode
        if options.mode is None and (begun := find_task_workspace(self.remit.root, self.number)) and read_state(begun).is_queued:
            mode = QUEUE
        if mode is None or task.status is Status.COMPLETED:
            return None
        options = replace(options, mode=mode)
        check_acceptance(self.remit.settings, task, plan_of(self.board, task), options)
        return self.landing_with(options)

    def landing_with(self, options: LandingOptions) -> TaskLanding:
        return TaskLanding(self.remit, self.number, options, hand_back=self._hand_back, stop_at=self.ends_at)

    async def carry_out(self) -> Outcome:
        left = await self._begin()
        commits: dict[int, str] = {}
        while True:
            try:
                piece = await off_loop(next_piece, self.board, self.number)
            except Refused as error:
                return await off_loop(self._stuck, error.message, error.advice)
            if piece is None:
                return await self._completed(commits)
            number = piece.phase.number
            if number in commits:
                return await off_loop(self._stuck, f"Phase {number} was completed, but the plan does not show it.", "Look at the plan.")
            if left is None and self.seconds_left < LEAST_SECONDS:
                return await off_loop(self._out_of_time, piece)
            self._show(piece, is_first=not commits)
            result, verdict, task = await self._carry_out_piece(piece, left)
            left = self.before = None
            commits[number] = self.commit
            if not verdict.is_done:
                return self._stopped(piece, result, verdict, task)
            if task is None or task.status is not Status.IMPLEMENTING:
                return self._stopped_by_person(piece, result, verdict, task)

    async def _begin(self) -> Return | None:
        """Check and mark the task, or take over a killed run: its return, if its agent had finished."""
        was_killed = bool(unfiled_run(await off_loop(self.task), "implement"))
        left = await self._left_over()
        if self.landing is not None:
            if left is None:
                await off_loop(self._check_first)
            await self.landing.open(records_of(await off_loop(self.task)), seconds=max(LEAST_SECONDS, self.seconds_left))
        if left is None:
            await off_loop(self.mark, self._check)
        if self.landing is not None:
            await self.landing.begin_run(is_continued=was_killed)
        return left

    def _check_first(self) -> None:
        """The checks of `mark`, before a worktree is created for the task."""
        state, task = self.board.look().state, self.task()
        check_entry(task, "implement", force=self.force)
        self._check(state, task)

    def _check(self, state: State, task: Task) -> tuple[str, ...]:
        """Conditions for marking the task; returns warnings."""
        warnings = check_dependencies(self.board, state, task, force=self.force)
        plan = plan_of(self.board, task)
        if task.has_plan and not plan.phases:
            warnings += (f"{task.plan_path} has no phases (`### Phase 1: Name [NOT STARTED]`): it is carried out as a whole.",)
        return (*warnings, *(f"{task.plan_path}: {fault}" for fault in plan.faults))

    async def _left_over(self) -> Return | None:
        """The return of a killed, unfiled run whose agent had finished: it is filed now, and nothing runs twice."""
        task = await off_loop(self.task)
        run = unfiled_run(task, "implement")
        piece = await off_loop(next_piece, self.board, self.number) if run else None
        if piece is None or (piece.phase is not WHOLE and piece.phase.status is not PhaseStatus.IN_PROGRESS):
            return None
        found, _ = await self.recover_return(_key(run, piece.phase))
        if found is not None:
            self.run = run
            what = "The work" if piece.phase is WHOLE else f"Phase {piece.phase.number}"
            self.show(f"{what} had been finished by a run that was killed ({found.session_id}): its return is filed now.")
        return found

    def _show(self, piece: Piece, *, is_first: bool) -> None:
        if piece.phase is not WHOLE:
            phases = piece.plan.phases
            done = len(phases) - len(piece.plan.open_phases)
            if is_first and (done or piece.phase.status is not PhaseStatus.NOT_STARTED):
                self.show(f"Task {self.number} resumes from phase {piece.phase.number} ({done} of {len(phases)} done).")
            at = [phase.number for phase in phases].index(piece.phase.number) + 1
            self.show(f"phase {at} of {len(phases)}: {piece.phase.name}")

    async def take_comments(self, words: str) -> Outcome:
        """Pass a person's comments on the work to its agent's session; the work stays in its worktree."""
        await self._begin()
        assert self.landing is not None
        error = await self.landing.comment(records_of(await off_loop(self.task)), words)
        self.must_hold()
        look = f"Look at it: remit workspaces {self.number} --diff. Merge it: remit workspaces {self.number} --merge"
        if error is not None:
            message = f"The comments were not applied. {error.message}"
            return await off_loop(partial(self._halt, "partial", message, error, Status.PARTIAL, next_steps=look))
        message = f"The agent changed its work on task {self.number} after the comments."
        return await off_loop(partial(self._halt, "completed", message, None, Status.PARTIAL, next_steps=look))

    # ---- one piece

    async def _carry_out_piece(self, piece: Piece, left: Return | None) -> tuple[Return, Verdict, Task | None]:
        """Mark it, delegate it, check and file the return. `left`: the return that a killed process did not file."""
        root, own = self.board.root, piece.task.folder
        before: Changes | None = None
        if left is None:
            before = await off_loop(uncommitted_changes, root, own) if self.landing is None else None
            await off_loop(self._mark_phase, piece)
            async with self.landing.agent_slot() if self.landing is not None else contextlib.nullcontext():
                left = await self._delegate_piece(piece)
        self.must_hold()
        verdict = await off_loop(self._judge, piece, before, left)
        self.warn(*(words for words in left.warnings if not words.startswith("summary:")))  # on its style: for the author of the agent
        task = await run_to_end(self._file_piece, piece, left, verdict)
        if self.landing is not None and not verdict.is_done:
            self.warn(f"Its work so far is in {self.landing.workspace.inside}, not merged.")
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
        if self.landing is not None:
            extra[PLACE] = await self.landing.place(piece.task, records_of(piece.task))
        else:
            extra["requires_files"] = True
        return await self.delegate(
            piece.task,
            await off_loop(piece.parameters, self.focus, self.board.root, self.landing is not None),
            key=_key(self.run, piece.phase),
            state=piece.state,
            phases=len(piece.plan.phases),
            extra=extra,
            accept=piece.accept,
            timeout=max(LEAST_SECONDS, self.seconds_left),  # checking and marking took some of it
        )

    def _judge(self, piece: Piece, before: Changes | None, result: Return) -> Verdict:
        """The verdict without files that its agent must not commit."""
        if self.landing is not None:
            return judge_placed(result)
        verdict = judge_work(self.board.root, result, piece.task.folder)
        was_begun_before = piece.phase.status is not PhaseStatus.NOT_STARTED or (
            piece.phase is WHOLE and (self.before is None or self.before.status in (Status.IMPLEMENTING, Status.PARTIAL, Status.BLOCKED))
        )
        others = untouched_changes(self.board.root, before, verdict.files) if not was_begun_before else ()
        if others or verdict.not_its_own:
            self.warn(f"Named by the agent, but not its work, so not committed: {name_files((*others, *verdict.not_its_own))}.")
        return replace(verdict, artifacts=tuple(one for one in verdict.artifacts if one.path not in others))

    def _file_piece(self, piece: Piece, result: Return, verdict: Verdict) -> Task | None:
        """Write plan, state.json, TODO.md and the pending commit as one set; then commit."""
        phase, plan_path = piece.phase, piece.task.plan_path

        def change(task: Task, draft: Draft) -> tuple[Task, Sequence[str]]:
            if phase is not WHOLE:
                marker = verdict.phase_status(phase.status)
                self.warn(*mark_phase_ended(self.board, draft, task, piece.plan, phase.number, marker, self.plan_begun))
                if plan_path not in draft.files:  # it cannot be read: its current content is not committed
                    paths.remove(plan_path)
            if verdict.is_done:
                return with_record(task, _record(piece, result, verdict, draft.at)), ()
            if verdict.is_undone:
                return self.undo(task), ()
            if verdict.moves_to is None:
                return task, ()
            task, moved = self.move(task, verdict.moves_to, draft.at, reason=verdict.reason)
            return self._sum_up(task, draft, verdict.summary, paths), moved

        where = "implement" if phase is WHOLE else f"phase {phase.number}"
        stops = f"task {self.number}: {'block' if verdict.moves_to is Status.BLOCKED else 'stop'} at {where}"
        # A whole task is committed with its summary when it is completed; work in a worktree is committed there.
        done = piece.subject if phase is not WHOLE and self.landing is None else ""
        # Unfinished work is not committed, only its status.
        work = (*verdict.files, *verdict.deleted) if verdict.is_done and self.landing is None else ()
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
        """All is done: merge it, or verify it again if no agent ran just now; then record and commit it."""
        task = await off_loop(self.task)
        if self.landing is not None:
            if (stopped := await self._land(self.landing, task)) is not None:
                return stopped
        elif task.accept and not commits:
            site = AcceptanceSite(folder=self.board.root, root=self.board.root, settings=self.remit.settings)
            proof = await run_acceptance(task.accept, site, seconds_left=max(0.0, self.seconds_left))
            if proof.error is not None:
                error = replace(proof.error, recommendation=f"Make it exit 0, then: remit implement {self.number}. {proof.hidden}")
                words = f"All phases are done, but the task is not accepted. {error.message}"
                return await off_loop(self._halt, "partial", words, error, Status.PARTIAL)
        self.must_hold()
        outcome = await run_to_end(self._complete, commits)
        if self.landing is not None:
            await self.landing.close()
        return outcome

    async def _land(self, landing: TaskLanding, task: Task) -> Outcome | None:
        """Merge the work of all phases; returns the outcome if that was not possible."""
        records, workspace = records_of(task), landing.workspace
        if not landing.is_wanted:
            words = f"All phases are done, on the branch {workspace.branch}; its agent is declared with merge = false."
            steps = f"Look at it: remit workspaces {self.number} --diff. Then merge it: remit workspaces {self.number} --merge"
            return await off_loop(partial(self._halt, "partial", words, None, Status.PARTIAL, next_steps=steps))
        commands = commands_of(task, await off_loop(plan_at, self.board.root, task.plan_path))
        self.show(f"task {self.number}: landing on {workspace.onto}")
        error = await landing.land(task, records, commands)
        self.warn(*landing.notes)
        if error is None:
            return None
        self.must_hold()
        return await off_loop(self._halt, "partial", f"The work is done, but not merged. {error.message}", error, Status.PARTIAL)

    def _landing_lines(self, why: str = "") -> tuple[str, ...]:
        """The record of the merge. `why`: the reason if it was not merged."""
        if self.landing is None or not (self.landing.summary or self.landing.notes):
            return ()
        return (*self.landing.notes, self.landing.summary or why)

    async def _hand_back(self, message: str, name: str, subject: str) -> Return:
        """Ask the agent of the task to change its work, in its own session if it kept one."""
        assert self.landing is not None
        task = await off_loop(self.task)
        agent, session_id = await off_loop(last_session, self.remit.store, task.session_id or "")
        state, plan = (await off_loop(self.board.look)).state, await off_loop(plan_at, self.board.root, task.plan_path)
        words = "\n\n".join((message, PLACED, *task_block(task, self.focus, "implement", depends_on(state, task))))
        place = await self.landing.place(task, records_of(task))
        async with self.landing.agent_slot():
            result = await self.delegate_again(
                task,
                {"task": words, "number": task.number},
                key=f"board-{self.number}-return-{name}",
                state=state,
                phases=len(plan.phases),
                extra={"commit_message": subject, PLACE: place},
                accept=commands_of(task, plan),
                **({"agent": agent, "resume": session_id} if agent else {}),
            )
        self.warn(*result.warnings)
        return result

    def _complete(self, commits: dict[int, str]) -> Outcome:
        board, task = self.board, self.task()
        plan = plan_at(self.board.root, task.plan_path)
        records = [replace(one, commit=commits.get(one.number) or one.commit) for one in records_of(task)]
        given_up = [str(phase.number) for phase in plan.phases if phase.status is PhaseStatus.ABANDONED]
        if given_up:
            self.warn(f"Abandoned in the plan and not carried out: phase {', '.join(given_up)}.")
        at = board.now()
        path = self._summary_path(task, at)
        words = completion_summary(plan, records)

        def change(task: Task, draft: Draft) -> tuple[Task, Sequence[str]]:
            task, warnings = self.move(task, Status.COMPLETED, draft.at)
            link = TaskArtifact(type="summary", path=path, summary=words)
            task = task.with_landing(self._landing_lines())
            return replace(without_records(task), completion_summary=words, artifacts=(*task.artifacts, link)), warnings

        is_whole = self.landing is None
        whole = [path for record in records if is_whole and record.number == WHOLE.number for path in (*record.files, *record.deleted)]
        filed = self.file(
            f"Task {self.number} completed",
            change,
            session_id=task.session_id,
            files={path: summary_text(task.with_landing(self._landing_lines()), plan, records, at).encode("utf-8", "replace")},
            subject=f"task {self.number}: complete implementation",
            paths=(*whole, path, *([task.plan_path] if task.plan_path else [])),
        )
        if filed is not None:
            note_fixed(board, filed)
        artifacts = {one: Artifact(type="implementation", path=one) for record in records for one in record.files}
        return self._outcome(
            filed,
            "completed",
            words,
            artifacts=checked_artifacts(board.root, (*artifacts.values(), Artifact(type="summary", path=path, summary=words))),
            next_steps=f"`remit review {self.number}` reviews the work; `remit todo` archives the task.",
            commit=self.commit,
            session_id=records[-1].session_id if records else "",
            data={"summary_path": path, "commits": {str(one.number): one.commit for one in records if one.commit and one.number}},
        )

    def _stopped(self, piece: Piece, result: Return, verdict: Verdict, task: Task | None) -> Outcome:
        """The piece was not completed."""
        phase, again = piece.phase, f"remit implement {self.number}"
        # The command continues a stopped phase, not a separate delegation.
        errors = tuple(replace(error, recommendation=again) if error.code in STOPPED else error for error in verdict.errors)
        where = "" if phase is WHOLE else f"Phase {phase.number} ({phase.name}) is not done. "
        advice = errors[0].recommendation if errors else ""
        steps = advice if verdict.is_undone else f"Continue with {'it' if phase is WHOLE else f'phase {phase.number}'}: {again}"
        if verdict.moves_to is Status.BLOCKED:
            steps = f"{result.next_steps or advice or 'Resolve what it is blocked by.'} Then: {again}"
        return self._outcome(
            task,
            str(verdict.status),
            f"{where}{verdict.summary}",
            artifacts=verdict.artifacts,
            errors=errors,
            next_steps=steps,
            commit=self.commit,
            session_id=result.session_id,
            stop_reason=str(result.stop_reason if verdict.status is result.status else StopReason.INVALID_RETURN),
            data={"agent": result.metadata.agent_type, **({} if phase is WHOLE else {"resume_from_phase": phase.number})},
        )

    def _stopped_by_person(self, piece: Piece, result: Return, verdict: Verdict, task: Task | None) -> Outcome:
        """A person moved or removed the task during a phase, which counts."""
        now = f"was set to [{task.status.marker}]" if task is not None else "was removed from the board"
        words = f"Task {self.number} {now} while it was worked on. Its work is kept; no further phase is begun."
        error = new_error("execution", "CANCELLED", words, f"To continue all the same: remit implement {self.number} --force")
        more: dict[str, Any] = {"next_steps": error.recommendation, "commit": self.commit, "session_id": result.session_id}
        return self._outcome(task, "partial", words, artifacts=verdict.artifacts, errors=(error,), **more)

    def _out_of_time(self, piece: Piece) -> Outcome:
        """The time of the command ended between two phases."""
        number = piece.phase.number
        words = f"The time limit of the command was reached before phase {number} ({piece.phase.name})."
        error = new_error("timeout", "TIMEOUT", words, f"Continue with phase {number}: remit implement {self.number}")
        data = {"resume_from_phase": number}
        return self._halt("partial", words, error, Status.PARTIAL, stop_reason=str(StopReason.DEADLINE), data=data)

    def _stuck(self, message: str, advice: str) -> Outcome:
        """The plan cannot be continued: the task keeps its marker, and the command can be run again after the plan is corrected."""
        error = new_error("validation", "VALIDATION_FAILED", message, advice)
        return self._halt("failed", message, error, None, next_steps=f"{advice} Then: remit implement {self.number}".strip())

    def _halt(self, status: str, words: str, error: ErrorInfo | None, moves_to: Status | None, **more: Any) -> Outcome:
        """End the run; the task's marker becomes `moves_to`, if given and not changed by a person meanwhile."""

        paths: list[str] = []

        def change(task: Task, draft: Draft) -> tuple[Task, Sequence[str]]:
            if moves_to is None:
                return task, ()
            task, moved = self.move(task, moves_to, draft.at)
            return self._sum_up(task, draft, words, paths), moved

        subject = f"task {self.number}: stop" if moves_to is Status.PARTIAL else ""
        task = self.file(f"Task {self.number}: implement {status}", change, subject=subject, paths=paths)
        steps = error.recommendation if error is not None else ""
        return self._outcome(task, status, words, errors=(error,) if error is not None else (), **{"next_steps": steps, **more})

    def _sum_up(self, task: Task, draft: Draft, why: str, paths: list[str]) -> Task:
        """A partial end has a summary too: the result of each phase, and why it stopped. It is added to the `paths` of the commit."""
        if task.status is not Status.PARTIAL:
            return task
        path, marked = self._summary_path(task, draft.at), draft.files.get(task.plan_path or "")
        plan = plan_at(self.board.root, task.plan_path) if marked is None else read_plan(marked.decode("utf-8", "replace"))
        task = task.with_landing(self._landing_lines(why))
        text = summary_text(task, plan, records_of(task), draft.at, stopped=" ".join(why.split())[:400])
        draft.files[path] = text.encode("utf-8", "replace")
        paths.append(path)
        return replace(task, artifacts=(*task.artifacts, TaskArtifact(type="summary", path=path, summary="Not completed.")))

    def _summary_path(self, task: Task, at: str) -> str:
        """Today's path; an earlier summary is not overwritten, and no link leads it out of the board's folder."""
        name = f"implementation-summary-{at[:10].replace('-', '')}"
        base = f"{task.folder}/summaries/{name}"
        if not stays_inside(self.board.root, f"{base}.md"):
            base = f"{SPECS}/{task.number:03d}-{name}"
        paths = (f"{base}{more}.md" for more in ("", *(f"-{count}" for count in range(2, 1000))))
        return next(path for path in paths if not os.path.lexists(self.board.root / path))

    def _outcome(self, task: Task | None, status: str, summary: str, *, data: dict[str, Any] | None = None, **more: Any) -> Outcome:
        phases = plan_at(self.board.root, task.plan_path).phases if task is not None else ()
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
    """Key of the delegation for a phase in a run, by which a later process finds its result."""
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
        commit=verdict.commit,
    )


def refused_outcome(number: int, error: RemitError) -> Outcome:
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
