"""What comes of a review: the report filed, the board told, tasks made of findings when asked, all committed; and the outcome in words.

What the agent hands back is taken as it is found: the report where it was wanted, else where the return names it; findings from its data.
Blocking. Used by `review` alone.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from remit.board.board import Board
from remit.board.commits import Committed
from remit.board.pending_commits import Debt, owed, pay, pay_left
from remit.board.task import Task, TaskArtifact
from remit.core.errors import ErrorInfo
from remit.core.result import Artifact, Return, Status, StopReason
from remit.flow.artifacts import Seen, inspect_artifact, read_bounded, seen_artifacts
from remit.orchestrator.findings import Finding, counted, findings_of, told
from remit.orchestrator.outcome import Outcome
from remit.orchestrator.record_check import RecordCheck
from remit.orchestrator.review_tasks import WORTH_A_TASK, Made, listed, make_tasks
from remit.system.files import atomic_write

LARGEST_BYTES = 16 << 20
_PROSE_ALONE = (
    "No tasks were made: the reviewer gave its findings as prose alone. It should put them into data.findings, each with severity, file, "
    "line, message and suggestion, or into the report as a list fenced as json."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be reviewed."""

    path: str = ""
    """From the root; empty: all of it."""
    number: int | None = None
    """The task; then there is no path."""
    focus: str = ""
    base: str = ""
    """A commit since which changes are looked at; empty: what is not committed, else the last commits."""
    make_tasks: bool = False
    timeout: float | None = None

    @property
    def what(self) -> str:
        return f"task {self.number}" if self.number is not None else self.path or "the project"

    @property
    def again(self) -> str:
        """The command that asks for the same."""
        return " ".join(["remit review", *([str(self.number)] if self.number is not None else [self.path] if self.path else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """A review that has returned and is not filed."""

    asked: Asked
    task: Task | None
    """As it was before."""
    write_to: str
    result: Return
    record: RecordCheck | None
    """Of a task's review: whether the board is right about it."""
    warnings: tuple[str, ...] = ()

    @property
    def wants_tasks(self) -> bool:
        return self.asked.make_tasks


def file_review(board: Board, done: Reviewed, languages: Sequence[str]) -> Outcome:
    text = _report(board.root, done.write_to, done.result)
    if text is None:
        return _without_report(board, done)
    findings = findings_of(done.result.data, text)
    whole = text.rstrip("\n") + "\n" + (done.record.section() if done.record is not None else "")
    left = pay_left(board)
    debt = owed(board, _subject(done.asked, findings), [done.write_to], session_id=done.result.session_id)
    made, notices = _written(board, done, whole, findings, languages, debt)
    committed = pay(board, debt)
    warnings = (*done.warnings, *left, *notices, *done.result.warnings, *_about_tasks(done, findings, made), committed.warning)
    done = replace(done, warnings=tuple(dict.fromkeys(one for one in warnings if one)))
    return _outcome(board, done, findings, made, committed)


def _report(root: Path, write_to: str, result: Return) -> str | None:
    """Where it was wanted; else a report that the return names; else the text in its data."""
    for path in (write_to, *(one.path for one in result.artifacts if one.type == "report")):
        if isinstance(inspect_artifact(root, path), Seen):
            data = read_bounded((root / path).resolve(), LARGEST_BYTES)
            if data is not None and data.strip():
                return data.decode("utf-8", "replace")
    text = result.data.get("report") if isinstance(result.data, dict) else None
    return text if isinstance(text, str) and "\n" in text.strip() else None


def _written(
    board: Board, done: Reviewed, text: str, findings: list[Finding] | None, languages: Sequence[str], debt: Debt
) -> tuple[Made | None, tuple[str, ...]]:
    """The report and, where there is a board or one is to be made, what the board says of it, as one change. None: no board."""
    makes_tasks = done.wants_tasks and any(one.rank <= WORTH_A_TASK for one in findings or ())
    if not (makes_tasks or board.look().exists):
        atomic_write(board.root / done.write_to, text.encode())
        return None, ()
    with board.change(make=makes_tasks) as draft:
        made = Made(state=draft.state)
        if makes_tasks:
            made = make_tasks(board, draft.state, findings or (), (done.write_to, text), languages=languages, at=draft.at)
        state, number = made.state, done.asked.number
        task = state.find(number) if number is not None else None
        if task is not None:
            link = TaskArtifact(type="review", path=done.write_to, summary=told(findings) if findings is not None else "")
            state = state.with_task(replace(task, artifacts=(*task.artifacts, link), last_updated=draft.at))
        more = {"session_id": done.result.session_id, **({"task_number": number} if number is not None else {})}
        draft.state = state.noting(draft.at, f"Review of {done.asked.what}: {done.write_to}", **more)
        draft.write(done.write_to, text + listed(made))
        draft.files[debt.note] = debt.to_bytes()
    return replace(made, state=draft.state), draft.notices


def _subject(asked: Asked, findings: list[Finding] | None) -> str:
    if asked.number is not None:
        return f"task {asked.number}: review"
    count = "" if findings is None else f" ({len(findings)} finding{'s' * (len(findings) != 1)})"
    return f"review: {asked.what}{count}"


def _about_tasks(done: Reviewed, findings: list[Finding] | None, made: Made | None) -> Iterator[str]:
    if not done.wants_tasks:
        return
    if findings is None:
        yield _PROSE_ALONE
    elif not any(one.rank <= WORTH_A_TASK for one in findings):
        yield "No tasks were made: nothing found is medium or worse."
    if made is not None and made.known:
        numbers = ", ".join(map(str, sorted(made.known)))
        yield f"{sum(made.known.values())} of the findings have an open task already: {numbers}."
    if made is not None and made.left_out:
        yield f"{made.left_out} more files have findings: settle these tasks first, then review again."


def _outcome(board: Board, done: Reviewed, findings: list[Finding] | None, made: Made | None, committed: Committed) -> Outcome:
    result, task = done.result, done.task
    tasks = made.tasks if made is not None else ()
    now = made.state.find(task.number) if made is not None and task is not None else task
    artifact = Artifact(type="report", path=done.write_to, summary="")
    return Outcome(
        command="review",
        status=str(result.status),
        summary=_summary(done, findings, tasks),
        task_number=done.asked.number,
        task_status=now.status.marker if now is not None else "",
        artifacts=seen_artifacts(board.root, (artifact,)),
        errors=result.errors,
        next_steps=_next_steps(done, findings, tasks),
        warnings=done.warnings,
        commit=committed.short,
        session_id=result.session_id,
        stop_reason=str(result.stop_reason),
        data={
            "agent": result.metadata.agent_type,
            "report": done.write_to,
            "counts": counted(findings) if findings is not None else None,
            "findings": [one.to_dict() for one in findings] if findings is not None else None,
            "created": [one.number for one in tasks],
            **_record_data(done.record),
        },
    )


def _summary(done: Reviewed, findings: list[Finding] | None, tasks: Sequence[Task]) -> str:
    words = [done.result.summary.strip()]
    if findings is not None and "findings" not in words[0].lower():
        words.append(told(findings))
    gaps = done.record.gaps if done.record is not None else ()
    if gaps:
        words.append(f"The task's record has {len(gaps)} gap{'s' * (len(gaps) > 1)}: {gaps[0].what}")
    if tasks:
        words.append(f"Tasks made: {', '.join(str(one.number) for one in tasks)}.")
    return " ".join(words)


def _next_steps(done: Reviewed, findings: list[Finding] | None, tasks: Sequence[Task]) -> str:
    if tasks:
        return f"`remit research {tasks[0].number}` begins with the first of them."
    steps = [gap.follow_up for gap in done.record.gaps if gap.follow_up][:1] if done.record is not None else []
    if findings and not done.wants_tasks and findings[0].rank <= WORTH_A_TASK:
        steps.append(f"`{done.asked.again} --tasks` makes tasks of the findings.")
    return " ".join(steps)


def _record_data(record: RecordCheck | None) -> dict[str, object]:
    return {"gaps": [gap.to_dict() for gap in record.gaps], "record": list(record.checked)} if record is not None else {}


def _without_report(board: Board, done: Reviewed) -> Outcome:
    """Nothing to file. Whatever the agent says of it, a review without a report is none (S6.6)."""
    result = done.result
    errors, status, stop_reason = result.errors, result.status, result.stop_reason
    if status is Status.COMPLETED:
        again = f"Run `{done.asked.again}` again; `remit show {result.session_id}` shows what it did."
        message = f"{result.metadata.agent_type} says completed, but there is no report: {done.write_to} is missing or empty."
        missing = ErrorInfo(type="validation", message=message, code="FILE_NOT_FOUND", recoverable=True, recommendation=again)
        errors, status, stop_reason = (missing, *errors), Status.FAILED, StopReason.INVALID_RETURN
    with contextlib.suppress(OSError):
        (board.root / done.write_to).parent.rmdir()  # only where it is empty: it was made for the report that never came
    return Outcome(
        command="review",
        status=str(status),
        summary=result.summary if status is result.status else errors[0].message,
        task_number=done.asked.number,
        task_status=done.task.status.marker if done.task is not None else "",
        errors=errors,
        next_steps=result.next_steps,
        warnings=(*done.warnings, *result.warnings),
        session_id=result.session_id,
        stop_reason=str(stop_reason),
        data=_record_data(done.record),
    )
