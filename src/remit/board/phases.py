"""One piece of an implementation, a phase of the plan or the whole task: marked, handed over, judged, filed and committed.

In that order, with one write of the board before and one after. `implement` decides which piece is next and what becomes of the task.
Whoever calls holds the task's claim.

An agent works beside its plan and can do anything to it: remove it, put a link or a pipe there, empty it, mark phases that are not its own.
The plan that counts is the one at the beginning of the phase; changes of its markers are undone or reported. The records of finished phases
are kept in the task's entry of state.json, so that a later run, also on another machine, can tell the next agent what was done, and the
summary is written by program code.
"""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from remit.app import Remit
from remit.board.board import Board, Draft
from remit.board.claims import Held
from remit.board.command_lifecycle import file_task, hand_over, move_task, note_session, run_to_end
from remit.board.commits import subject_of
from remit.board.outcome import Waiting, wait_for_result
from remit.board.plans import Phase, Plan, read_plan, with_phase
from remit.board.task import PhaseStatus, State, Status, Task
from remit.board.task_prompts import depends_on, quote_files, task_block
from remit.board.verdicts import (
    Changes,
    WorkVerdict,
    judge_work,
    name_files,
    uncommitted_changes,
    unnamed_changes,
    untouched_changes,
)
from remit.core.errors import Misused, Refused
from remit.core.result import Return
from remit.core.text import fence_untrusted
from remit.runtime.artifacts import read_bounded
from remit.system.threads import off_loop

MIN_SECONDS = 1.0
"""With less time than that no phase is begun; one that was begun just before has at least that."""
WHOLE = Phase(number=0, name="", status=PhaseStatus.NOT_STARTED)
"""The task as one piece: it has no plan, or one without phases."""
KEY = "phases"
"""Of the task's entry, while it is being implemented."""
PLAN_BYTES = 8 << 20
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1b\x7f\ud800-\udfff]")
"""Neither in JSON nor on a command line; and what would steer a terminal."""
RETURNED_FILES = (
    "Name in `artifacts` every file that you wrote or changed, relative to the project's root, as type implementation: what you name is "
    'committed, what you do not name is not. Name files that you deleted in data as {"deleted": ["path"]}. Do not commit, and leave '
    "specs/state.json, specs/TODO.md and the markers of the plan alone: they are kept for you."
)


def tell_nobody(_words: str) -> None:
    """Show no progress."""


# ---- the plan, and what is kept of each phase


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMark:
    """What became of the plan's marker when a phase ended."""

    number: int = 0
    """Of the phase."""
    warnings: tuple[str, ...] = ()
    is_whole: bool = True
    """The plan still has all its phases: it can be committed and continued."""
    vanished: tuple[int, ...] = ()
    """Phases that were open when this one began, and are no longer in the plan."""


def read_plan_text(board: Board, task: Task) -> str:
    """Raises `Refused` when the plan that the board names cannot be read."""
    path = board.root / task.plan_path
    try:
        real = path.resolve()
        if not real.is_relative_to(board.root.resolve()):
            raise OSError("it leads out of the project")
        real.stat()  # says why, where there is nothing
        data = read_bounded(real, PLAN_BYTES)
        if data is None or len(data) > PLAN_BYTES:
            raise OSError("it is no file that can be read" if data is None else f"it has more than {PLAN_BYTES >> 20} MiB")
        return data.decode("utf-8", "surrogateescape")
    except (OSError, RuntimeError) as error:
        raise Refused(
            f"The plan of task {task.number} cannot be read: {task.plan_path} ({getattr(error, 'strerror', None) or error}).",
            code="FILE_NOT_FOUND",
            advice=f"Bring it back (git log -- {task.plan_path}), or make a new one: remit plan {task.number} --force",
        ) from None


def parse_plan(text: str) -> Plan:
    """The plan with control characters replaced: its words go into JSON and onto screens."""
    return read_plan(_NO_TEXT.sub("\ufffd", text))


def mark_phase_begun(board: Board, draft: Draft, task: Task, number: int) -> str:
    """Mark the phase [IN PROGRESS]; returns the plan as it is then."""
    text = with_phase(read_plan_text(board, task), number, PhaseStatus.IN_PROGRESS)
    draft.files[task.plan_path] = _to_bytes(text)
    return text


def mark_phase_ended(board: Board, draft: Draft, task: Task, plan: Plan, number: int, status: PhaseStatus, begun: str) -> PlanMark:
    """`plan` and `begun`: as it was when the phase began, read and as text (empty where another process began it)."""
    warnings: list[str] = []
    vanished: tuple[int, ...] = ()
    try:
        if begun and task.plan_path and not os.path.lexists(board.root / task.plan_path):
            text = begun
            warnings.append(f"{task.plan_path} was gone after phase {number}: it was put back as it stood.")
        else:
            text = read_plan_text(board, task)
        now = {phase.number: phase.status for phase in parse_plan(text).phases}
        vanished = tuple(phase.number for phase in plan.open_phases if phase.number not in now)
        for phase in plan.phases:
            if phase.number != number and phase.is_open and now.get(phase.number) is PhaseStatus.COMPLETED:
                text = with_phase(text, phase.number, phase.status)
                warnings.append(f"Phase {phase.number} was marked [COMPLETED] while phase {number} was carried out; it was set back.")
        draft.files[task.plan_path] = _to_bytes(with_phase(text, number, status))
    except (Refused, Misused) as error:
        warnings.append(f"The plan was changed meanwhile, so that phase {number} could not be marked: {error.message}")
        return PlanMark(number=number, warnings=tuple(warnings), is_whole=False, vanished=vanished)
    return PlanMark(number=number, warnings=tuple(warnings), is_whole=not vanished, vanished=vanished)


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRecord:
    number: int
    """0: the task was implemented as a whole."""
    name: str
    summary: str = ""
    session_id: str = ""
    agent: str = ""
    files: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    """Commands that ran and exited 0."""
    finished: str = ""
    commit: str = ""
    """Known only where it was looked up: it is made after the record is written."""

    @property
    def in_words(self) -> str:
        return f"Phase {self.number}, {self.name}: {self.summary}"


def records_of(task: Task) -> tuple[PhaseRecord, ...]:
    """Of the plan that the task has now, by number."""
    kept = task.extra.get(KEY)
    if not isinstance(kept, Mapping) or kept.get("plan") != task.plan_path or not isinstance(kept.get("done"), list):
        return ()
    found = [_read(one) for one in kept["done"] if isinstance(one, Mapping) and isinstance(one.get("number"), int)]
    return tuple(sorted(found, key=lambda one: one.number))


def with_record(task: Task, record: PhaseRecord) -> Task:
    others = [one for one in records_of(task) if one.number != record.number]
    done = [_plain(one) for one in sorted((*others, record), key=lambda one: one.number)]
    return replace(task, extra={**task.extra, KEY: {"plan": task.plan_path, "done": done}})


def without_records(task: Task) -> Task:
    return replace(task, extra={key: value for key, value in task.extra.items() if key != KEY})


def summary_text(task: Task, plan: Plan | None, records: Sequence[PhaseRecord], at: str) -> str:
    """The implementation summary: what each phase did, its commit, its files, and what proves it."""
    heads = [f"# Implementation summary: {task.title}", ""]
    heads += [f"- **Task**: {task.number}", f"- **Completed**: {at}"]
    heads += [f"- **Plan**: {task.plan_path}"] if task.plan_path else []
    heads += [f"- **Accepted by**: `{command}` (exit 0)" for command in task.accept]
    by_number = {one.number: one for one in records}
    parts = ["\n".join(heads)]
    for phase in plan.phases if plan is not None else ():
        title = f"## Phase {phase.number}: {phase.name} [{phase.status}]"
        parts.append("\n".join((title, "", *_lines_of(by_number.get(phase.number), phase.status))))
    if 0 in by_number:
        parts.append("\n".join(("## What was done", "", *_lines_of(by_number[0], PhaseStatus.COMPLETED))))
    return "\n\n".join(parts) + "\n"


def completion_summary(plan: Plan | None, records: Sequence[PhaseRecord]) -> str:
    """The task's completion in a sentence or two."""
    if plan is None or not plan.phases:
        return records[-1].summary if records else "Implemented."
    done = sum(phase.status is PhaseStatus.COMPLETED for phase in plan.phases)
    words = f"{done} of {len(plan.phases)} phases carried out" if done < len(plan.phases) else f"All {done} phases carried out"
    last = f" Last: {records[-1].summary}" if records and records[-1].summary else ""
    return f"{'The phase was carried out' if len(plan.phases) == done == 1 else words}.{last}"


def _lines_of(record: PhaseRecord | None, status: PhaseStatus) -> list[str]:
    if record is None:
        given_up = "It was given up: the plan says so." if status is PhaseStatus.ABANDONED else ""
        return [given_up or "Nothing is on record of it: the plan was marked by hand, or by another program."]
    files = [f"- `{path}`" for path in record.files] + [f"- `{path}` (deleted)" for path in record.deleted]
    proof = [f"- **Accepted by**: `{command}` (exit 0)" for command in record.accept]
    facts = [f"- **Session**: {record.session_id}"] if record.session_id else []
    facts += [f"- **Agent**: {record.agent}"] if record.agent else []
    facts += [f"- **Commit**: {record.commit}"] if record.commit else []
    return [record.summary, "", *facts, *(proof or ["- **Evidence**: files checked; no acceptance command"]), "", "Files:", "", *files]


def _plain(record: PhaseRecord) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(record).items() if value or name == "number"}


def _read(fields: Mapping[str, Any]) -> PhaseRecord:
    def names(key: str) -> tuple[str, ...]:
        value = fields.get(key)
        return tuple(map(str, value)) if isinstance(value, list) else ()

    texts = {key: str(fields.get(key) or "") for key in ("name", "summary", "session_id", "agent", "finished", "commit")}
    return PhaseRecord(number=int(fields["number"]), files=names("files"), deleted=names("deleted"), accept=names("accept"), **texts)


# ---- one piece of a run


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
    task = piece.task
    extra: dict[str, Any] = {"commit_message": piece.subject}
    if piece.phase is not WHOLE:
        extra |= {"phase": piece.phase.number, "phase_name": piece.phase.name, "plan": task.plan_path}

    async def begun(session_id: str) -> None:
        if job.held is not None:  # for those who would wait for it or cancel it
            await off_loop(job.held.session, session_id)
        job.warn(*await off_loop(note_session, job.board, job.number, session_id))

    return await hand_over(
        job.remit,
        "implement",
        task=task,
        parameters=await off_loop(phase_parameters, piece, job.focus, job.board.root),
        state=piece.state,
        phases=len(piece.plan.phases),
        extra=extra,
        accept=piece.accept,
        timeout=max(MIN_SECONDS, job.seconds_left),  # looking and marking took some of it
        key=key_of(job.run, piece.phase),
        begun=begun,
        waiting=job.waiting,
    )


def phase_parameters(piece: Piece, focus: str, root: Path) -> dict[str, Any]:
    """What the agent is told of a piece: as text, and the same as data beside it."""
    task, phase, plan, done = piece.task, piece.phase, piece.plan, records_of(piece.task)
    reports = tuple(one.path for one in task.artifacts if one.type in ("research", "report"))
    known: dict[str, Any] = {"plan": task.plan_path, "reports": list(reports), "focus": focus}
    words = [RETURNED_FILES, *quote_files(task.plan_path if phase is WHOLE else "", reports, root)]
    words += task_block(task, focus, "implement", depends_on(piece.state, task))
    if phase is not WHOLE:
        words += _phase_words(phase, plan, done)
        known |= {
            "phase": phase.number,
            "phase_name": phase.name,
            "phase_text": phase.text,
            "phase_count": len(plan.phases),
            "done": [one.in_words for one in done],
        }
    if piece.accept:
        lines = (f"- `{command}`" for command in piece.accept)
        words.append("\n".join(("It is done when each of these commands exits 0; they are run after you:", *lines)))
    return {"task": "\n\n".join(words), "number": task.number, **{name: value for name, value in known.items() if value}}


def _phase_words(phase: Phase, plan: Plan, done: Sequence[PhaseRecord]) -> list[str]:
    parts = []
    if done:
        parts.append("\n".join(("Done before:", *(f"- {one.in_words}" for one in done))))
    later = [f"- Phase {one.number}: {one.name}" for one in plan.phases if one.number > phase.number]
    if later:
        parts.append("\n".join(("Later phases have their own turn:", *later)))
    at = [one.number for one in plan.phases].index(phase.number) + 1
    parts.append(
        f"Carry out phase {phase.number} of its plan ({at} of {len(plan.phases)}), and that phase only:\n\n{fence_untrusted(phase.text)}"
    )
    if phase.status in (PhaseStatus.IN_PROGRESS, PhaseStatus.PARTIAL, PhaseStatus.BLOCKED):
        parts.append(
            "An earlier run began this phase and did not finish it. What it wrote may be in the project, uncommitted: look first, keep "
            "what is right, and name it in your artifacts too."
        )
    return parts


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
    subject, paths = _to_commit(job, piece, verdict)

    def change(task: Task, draft: Draft) -> tuple[Task, Sequence[str]]:
        if piece.phase is not WHOLE:
            marker = verdict.phase if verdict.phase is not None else piece.phase.status
            job.marked = mark_phase_ended(job.board, draft, task, piece.plan, piece.phase.number, marker, job.plan_begun)
            job.warn(*job.marked.warnings)
            if not job.marked.is_whole and piece.task.plan_path in paths:
                paths.remove(piece.task.plan_path)
        return _moved(job, piece, result, verdict, task, draft.at)

    done = "done" if verdict.is_done else f"not done ({verdict.status})"
    what = f"phase {piece.phase.number}" if piece.phase is not WHOLE else "implementation"
    filed = file_task(
        job.board,
        job.number,
        "implement",
        f"Task {job.number}: {what} {done}",
        change,
        session_id=result.session_id,
        subject=subject,
        paths=paths,
        ends_run=not verdict.is_done,
    )
    job.warn(*filed.warnings)
    job.commits[piece.phase.number] = filed.commit
    return filed.task


def _to_commit(job: ImplementRun, piece: Piece, verdict: WorkVerdict) -> tuple[str, list[str]]:
    """Subject and paths of the commit; no subject: none is made here. Unfinished work is not committed, only that it is."""
    record = [piece.task.plan_path] if piece.task.plan_path else []
    if verdict.is_done:
        # The whole of a task is committed with its summary, when it is completed.
        return ("", []) if piece.phase is WHOLE else (piece.subject, [*verdict.files, *verdict.deleted, *record])
    if verdict.task is None:
        return "", []
    where = "implement" if piece.phase is WHOLE else f"phase {piece.phase.number}"
    return f"task {job.number}: {'block' if verdict.task is Status.BLOCKED else 'stop'} at {where}", record


def _moved(job: ImplementRun, piece: Piece, result: Return, verdict: WorkVerdict, task: Task, at: str) -> tuple[Task, Sequence[str]]:
    """The task with what was done on record; stopped here, its marker says why."""
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
            finished=at,
        )
        return with_record(task, record), ()
    if verdict.is_undone and job.before is not None and task.status is Status.IMPLEMENTING:
        task = replace(task, status=job.before.status, started=job.before.started, blocking_reason=job.before.blocking_reason)
    if verdict.task is None:
        return task, ()
    return move_task(task, Status.IMPLEMENTING, verdict.task, at, reason=verdict.reason if verdict.task is Status.BLOCKED else "")
