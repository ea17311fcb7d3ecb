"""The plan of a task while it is carried out, and what is kept of each phase.

An agent works beside its plan and can do anything to it: remove it, put a link or a pipe there, empty it, mark phases that are not its own.
The plan that counts is the one at the beginning of the phase; changes of its markers are undone or reported. The records of finished phases
are kept in the task's entry of state.json, so that a later run, also on another machine, can tell the next agent what was done, and the
summary is written by program code. Blocking.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from remit.board.board import Board, Draft
from remit.board.plans import Plan, read_plan, with_phase
from remit.board.statuses import PhaseStatus
from remit.board.task import Task
from remit.core.errors import Misused, Refused
from remit.flow.artifacts import read_bounded

KEY = "phases"
"""Of the task's entry, while it is being implemented."""
PLAN_BYTES = 8 << 20
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1b\x7f\ud800-\udfff]")
"""Neither in JSON nor on a command line; and what would steer a terminal."""


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
