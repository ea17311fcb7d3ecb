"""The phases of a plan during implementation: their markers in the plan, the record of each, and the summary of them.

An agent works beside its plan and can do anything to it: remove it, replace it by a link or a pipe, empty it, mark other phases. The plan
at the start of the phase counts; changes of its markers are undone or reported. Records of finished phases are kept in the task's entry of
state.json, so that a later run, also on another machine, knows them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from remit.board.board import Board, Draft
from remit.board.commits import subject_of
from remit.board.plans import Phase, Plan, read_plan, with_phase
from remit.board.task import PhaseStatus, State, Task
from remit.board.task_prompts import depends_on, quote_files, task_block
from remit.core.errors import Misused, Refused
from remit.core.text import fence_untrusted
from remit.system.artifact_files import read_inside

WHOLE = Phase(number=0, name="", status=PhaseStatus.NOT_STARTED)
"""The task as one piece: it has no plan, or one without phases."""
KEY = "phases"
"""Key of the task's entry during its implementation."""
PLAN_BYTES = 8 << 20
RETURNED_FILES = (
    "Name in `artifacts` every file that you wrote or changed, relative to the project's root, as type implementation: what you name is "
    'committed, what you do not name is not. Name files that you deleted in data as {"deleted": ["path"]}. Do not commit, and leave '
    "specs/state.json, specs/TODO.md and the markers of the plan alone: they are kept for you."
)
PLACED = (
    "You work in a git worktree that belongs to this task. All files that you change in it are your work: they are committed and merged "
    "for you. Do not commit, and leave the files below specs/ alone: they are kept for you."
)


# ---- the plan


def read_plan_text(board: Board, task: Task) -> str:
    """Raises `Refused` if the task's plan cannot be read."""
    data = read_inside(board.root, task.plan_path, PLAN_BYTES)
    if data is not None and len(data) <= PLAN_BYTES:
        return data.decode("utf-8", "surrogateescape")
    raise Refused(
        f"The plan of task {task.number} is missing or cannot be read: {task.plan_path}.",
        code="FILE_NOT_FOUND",
        advice=f"Restore it (git log -- {task.plan_path}), or make a new one: remit plan {task.number} --force",
    )


def plan_of(board: Board, task: Task) -> Plan:
    """The task's plan; one without phases if it has none. Raises `Refused` if it cannot be read or executed."""
    if not task.has_plan:
        return Plan()
    plan = read_plan(read_plan_text(board, task))
    if plan.doubled:
        raise Refused(
            f"The plan of task {task.number} cannot be carried out. {' '.join(plan.faults)}",
            code="VALIDATION_FAILED",
            advice=f"Give each phase its own number in {task.plan_path}.",
        )
    return plan


def mark_phase_begun(board: Board, draft: Draft, task: Task, number: int) -> str:
    """Mark the phase [IN PROGRESS]. Returns the resulting plan."""
    text = with_phase(read_plan_text(board, task), number, PhaseStatus.IN_PROGRESS)
    draft.files[task.plan_path] = _to_bytes(text)
    return text


def mark_phase_ended(board: Board, draft: Draft, task: Task, plan: Plan, number: int, status: PhaseStatus, begun: str) -> list[str]:
    """Set the phase's marker. Returns warnings.

    `plan` and `begun`: the plan at the start of the phase, parsed and as text (empty if another process started it)."""
    warnings: list[str] = []
    try:
        text = read_plan_text(board, task) if not begun or os.path.lexists(board.root / task.plan_path) else ""
        now = {phase.number: phase.status for phase in read_plan(text).phases}
        if begun and not all(phase.number in now for phase in plan.open_phases):
            text, now = begun, {}
            warnings.append(f"{task.plan_path} was deleted, or phases were removed from it, during phase {number}: it was restored.")
        for phase in plan.phases:
            if phase.number != number and phase.is_open and now.get(phase.number) is PhaseStatus.COMPLETED:
                text = with_phase(text, phase.number, phase.status)
                warnings.append(f"Phase {phase.number} was marked [COMPLETED] while phase {number} was carried out; it was set back.")
        draft.files[task.plan_path] = _to_bytes(with_phase(text, number, status))
    except (Refused, Misused) as error:
        warnings.append(f"The plan was changed meanwhile, so that phase {number} could not be marked: {error.message}")
    return warnings


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# ---- records and the summary


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRecord:
    number: int
    """0: the task was implemented as a whole."""
    name: str = ""
    summary: str = ""
    session_id: str = ""
    agent: str = ""
    files: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    """Commands that ran and exited 0."""
    finished: str = ""
    commit: str = ""
    """Commit on the branch of the task's worktree; otherwise known only if it was looked up."""

    def to_text(self) -> str:
        return f"Phase {self.number}, {self.name}: {self.summary}"


_RECORD = TypeAdapter(PhaseRecord)


def records_of(task: Task) -> tuple[PhaseRecord, ...]:
    """Records of the task's current plan, by number."""
    kept = task.extra.get(KEY)
    if not isinstance(kept, Mapping) or kept.get("plan") != task.plan_path or not isinstance(kept.get("done"), list):
        return ()
    found = [_RECORD.validate_python(one) for one in kept["done"] if isinstance(one, Mapping) and isinstance(one.get("number"), int)]
    return tuple(sorted(found, key=lambda one: one.number))


def with_record(task: Task, record: PhaseRecord) -> Task:
    others = [one for one in records_of(task) if one.number != record.number]
    entries = [asdict(one) for one in sorted((*others, record), key=lambda one: one.number)]
    done = [{name: value for name, value in entry.items() if value or name == "number"} for entry in entries]
    return replace(task, extra={**task.extra, KEY: {"plan": task.plan_path, "done": done}})


def without_records(task: Task) -> Task:
    return replace(task, extra={key: value for key, value in task.extra.items() if key != KEY})


def summary_text(task: Task, plan: Plan, records: Sequence[PhaseRecord], at: str, stopped: str = "") -> str:
    """The implementation summary: result, commit, files and evidence of each phase. `stopped`: why it is not completed."""
    heads = [f"# Implementation summary: {task.title}", "", f"- **Task**: {task.number}"]
    heads += [f"- **Stopped**: {at}", f"- **Not completed**: {stopped}"] if stopped else [f"- **Completed**: {at}"]
    heads += [f"- **Plan**: {task.plan_path}"] if task.plan_path else []
    heads += [f"- **Continue**: `remit implement {task.number}`"] if stopped else _proofs(task.accept)
    by_number = {one.number: one for one in records}
    parts = ["\n".join(heads)]
    for phase in plan.phases:
        without = "No record: it was marked by hand, or by another program." if phase.status is PhaseStatus.COMPLETED else "Not done."
        lines = _record_lines(by_number[phase.number]) if phase.number in by_number else [without]
        parts.append("\n".join((f"## Phase {phase.number}: {phase.name} [{phase.status}]", "", *lines)))
    if 0 in by_number:
        parts.append("\n".join(("## What was done", "", *_record_lines(by_number[0]))))
    if landing := task.landing:
        parts.append("\n".join(("## Landing", "", *(f"- {line}" for line in landing))))
    return "\n\n".join(parts) + "\n"


def completion_summary(plan: Plan, records: Sequence[PhaseRecord]) -> str:
    """The task's completion in one or two sentences."""
    last = records[-1].summary if records else ""
    if not plan.phases:
        return last or "Implemented."
    done = sum(phase.status is PhaseStatus.COMPLETED for phase in plan.phases)
    return f"Phases carried out: {done} of {len(plan.phases)}.{f' Last: {last}' if last else ''}"


def _record_lines(record: PhaseRecord) -> list[str]:
    facts = (("Session", record.session_id), ("Agent", record.agent), ("Commit", record.commit))
    files = [f"- `{path}`" for path in record.files] + [f"- `{path}` (deleted)" for path in record.deleted]
    listed = [f"- **{name}**: {value}" for name, value in facts if value]
    return [record.summary, "", *listed, *_proofs(record.accept), "", "Files:", "", *files]


def _proofs(commands: Sequence[str]) -> list[str]:
    return [f"- **Accepted by**: `{command}` (exit 0)" for command in commands]


# ---- one piece of work


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The work of one delegation: a phase of the plan, or the whole task."""

    task: Task
    state: State
    plan: Plan
    phase: Phase
    """`WHOLE`, or one of the plan's."""
    is_last: bool

    @property
    def accept(self) -> tuple[str, ...]:
        """The commands of the phase and of the plan; on the last phase also those of the task, since they check the whole."""
        return tuple(dict.fromkeys((*self.phase.accept, *self.plan.accept, *(self.task.accept if self.is_last else ()))))

    @property
    def subject(self) -> str:
        """Subject of its commit."""
        if self.phase is WHOLE:
            return subject_of(f"task {self.task.number}: {self.task.title}")
        return subject_of(f"task {self.task.number} phase {self.phase.number}: {self.phase.name}")

    def parameters(self, focus: str, root: Path, is_placed: bool = False) -> dict[str, Any]:
        """Parameters for the agent: as text, and the same as data. `is_placed`: it works in a worktree. Blocking."""
        task, phase, plan, done = self.task, self.phase, self.plan, records_of(self.task)
        reports = task.reports
        known: dict[str, Any] = {"plan": task.plan_path, "reports": list(reports), "focus": focus}
        words = [PLACED if is_placed else RETURNED_FILES, *quote_files(task.plan_path if phase is WHOLE else "", reports, root)]
        words += task_block(task, focus, "implement", depends_on(self.state, task))
        if phase is not WHOLE:
            words += _phase_words(phase, plan, done)
            known |= {"phase": phase.number, "phase_name": phase.name, "phase_text": phase.text, "phase_count": len(plan.phases)}
            known["done"] = [one.to_text() for one in done]
        if self.accept:
            lines = (f"- `{command}`" for command in self.accept)
            words.append("\n".join(("It is done when each of these commands exits 0; they are run after you:", *lines)))
        return {"task": "\n\n".join(words), "number": task.number, **{name: value for name, value in known.items() if value}}


def _phase_words(phase: Phase, plan: Plan, done: Sequence[PhaseRecord]) -> list[str]:
    parts = ["\n".join(("Done before:", *(f"- {one.to_text()}" for one in done)))] if done else []
    later = [f"- Phase {one.number}: {one.name}" for one in plan.phases if one.number > phase.number]
    parts += ["\n".join(("Later phases have their own turn:", *later))] if later else []
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
