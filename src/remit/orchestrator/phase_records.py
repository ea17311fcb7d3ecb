"""What is kept of each phase that was carried out, in its task's entry of state.json, and the summary that is written of all in the end.

So that a later run, on another machine too, can tell the next agent what was done, and the summary can be written by program code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from remit.board.plans import Plan
from remit.board.statuses import PhaseStatus
from remit.board.task import Task

KEY = "phases"
"""Of the task's entry, while it is being implemented."""


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


def completion_words(plan: Plan | None, records: Sequence[PhaseRecord]) -> str:
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
