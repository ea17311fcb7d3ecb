"""`review [PATH|N]`: have a path or a task reviewed, file the report, and make tasks of the findings when asked.

Statuses of tasks are left alone. The report is taken where it was wanted, else where the return names it; findings come from its data.
`findings` reads them and compares a task's record with the facts.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from remit.app import Remit
from remit.board import claims
from remit.board.board import Board
from remit.board.pending_commits import Debt, owed, pay_left
from remit.board.statuses import ENDED
from remit.board.task import Priority, State, Task, TaskArtifact
from remit.core.deadline import allowed_timeout
from remit.core.errors import ErrorInfo, Misused
from remit.core.result import Artifact, Return, Status, StopReason
from remit.flow.artifacts import Seen, inspect_artifact, read_bounded, seen_artifacts
from remit.flow.route import GENERAL
from remit.orchestrator.changes import commit_debt, find_tasks
from remit.orchestrator.findings import Finding, RecordCheck, check_record, count_findings, findings_of, summarize
from remit.orchestrator.lifecycle import Find, hand_over, require_agent, route_task
from remit.orchestrator.outcome import Outcome, Waiting, wait_for_result
from remit.orchestrator.prompts import review_words
from remit.orchestrator.tasks import Wanted, number_task
from remit.settings import Settings
from remit.system.files import atomic_write
from remit.system.threads import off_loop

FOLDER = "specs/reviews"
ACCEPT_SECONDS = 600.0
"""For the acceptance commands of a task together."""
MAX_BYTES = 16 << 20
MAX_TASKS = 20
MAX_LISTED = 30
WORTH_A_TASK = 2
"""The rank of medium: findings of this rank or worse become tasks."""
KEY = "review_findings"
"""Of a task's entry in state.json: the fingerprints of the findings it settles."""
_PROSE_ALONE = (
    "No tasks were made: the reviewer gave its findings as prose alone. It should put them into data.findings, each with severity, file, "
    "line, message and suggestion."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRequest:
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
class Review:
    """A review that has returned: what it was of, and its result."""

    asked: ReviewRequest
    task: Task | None
    """As it was before."""
    write_to: str
    result: Return
    record: RecordCheck | None
    """Of a task's review: whether the board is right about it."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUps:
    """Tasks made of findings."""

    state: State
    tasks: tuple[Task, ...] = ()
    known: Mapping[int, int] = field(default_factory=dict)
    """How many of the findings an open task has already, by its number."""
    left_out: int = 0
    """Files beyond the most that are made at once."""


async def review(remit: Remit, board: Board, asked: ReviewRequest, *, waiting: Waiting = wait_for_result) -> Outcome:
    """Raises `Misused` where there is nothing of that name."""
    task, warnings = await off_loop(check, board, remit.settings, asked)
    require_agent(remit.directory.find, route_task(remit.settings.routing, "review", task))
    with _reserved_path(board, task) as write_to:
        parameters = await off_loop(_parameters, board, asked, task, write_to)
        extra = {"write_to": write_to} if task is not None else {"write_to": write_to, "language": GENERAL, "title": f"Review {asked.what}"}
        result = await hand_over(remit, "review", task=task, parameters=parameters, extra=extra, timeout=asked.timeout, waiting=waiting)
        record = None
        if task is not None and result.stop_reason not in (StopReason.CANCELLED, StopReason.REFUSED):
            record = await check_record(board, task, besides=write_to, seconds=ACCEPT_SECONDS, accept_env=remit.settings.accept_env)
        done = Review(asked=asked, task=task, write_to=write_to, result=result, record=record, warnings=warnings)
        return await off_loop(_file, board, done)


def dry_run_review(board: Board, settings: Settings, find: Find, asked: ReviewRequest) -> Outcome:
    """What would be looked at and where the report would go. Blocking; touches nothing."""
    task, warnings = check(board, settings, asked)
    chosen = route_task(settings.routing, "review", task)
    require_agent(find, chosen)
    write_to = _next_path(board, task, set())
    return Outcome(
        command="review",
        status="completed",
        summary=f"Would review {asked.what} and file the report as {write_to}.",
        task_number=asked.number,
        task_status=task.status.marker if task is not None else "",
        warnings=warnings,
        data={"dry_run": True, "route": chosen.log_line, "write_to": write_to, "tasks": asked.make_tasks},
    )


def check(board: Board, settings: Settings, asked: ReviewRequest) -> tuple[Task | None, tuple[str, ...]]:
    """The task, if one is asked for, and warnings. Raises `Misused`. Blocking; touches nothing."""
    allowed_timeout(asked.timeout, settings.limits_for("review"))
    task, warnings = None, tuple[str, ...]()
    if asked.number is None:
        real, top = os.path.realpath(board.root / (asked.path or ".")), os.path.realpath(board.root)
        if real != top and not real.startswith(f"{top.rstrip('/')}/"):
            raise Misused(f"{asked.path} is outside of the project.", advice="Name a folder or file inside it.")
        if not os.path.exists(real):
            raise Misused(f"There is no {asked.path} in the project.", advice="Name a folder, a file or a task's number.")
    else:
        seen = board.look()
        task = find_tasks(board, seen.state, [asked.number])[0]
        holder = claims.holder_of(board, asked.number)
        busy = f"Task {asked.number} is being worked on (`remit {holder.command}`): it was reviewed as it is." if holder else ""
        warnings = (*seen.notices, *([busy] if busy else []))
    return task, warnings


@contextlib.contextmanager
def _reserved_path(board: Board, task: Task | None) -> Iterator[str]:
    """A path for the report that no other review uses meanwhile."""
    folder = board.folder / "reviews"
    folder.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    while True:
        path = _next_path(board, task, taken)
        mark = folder / path.replace("/", "%")
        try:
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
            break
        except FileExistsError:
            taken.add(path)
    try:
        yield path
    finally:
        mark.unlink(missing_ok=True)


def _next_path(board: Board, task: Task | None, taken: set[str]) -> str:
    folder = f"{task.folder}/reports" if task is not None else FOLDER
    place = board.root / folder
    names = [one.name for one in place.iterdir()] if place.is_dir() else []
    linked = [one.path for one in task.artifacts] if task is not None else []
    names += [path.rpartition("/")[2] for path in (*taken, *linked)]
    number = 1 + max((int(found[1]) for name in names if (found := re.match(r"review-(\d+)\.", name))), default=0)
    return f"{folder}/review-{number:03d}.md"


def _parameters(board: Board, asked: ReviewRequest, task: Task | None, write_to: str) -> dict[str, Any]:
    place = (board.root / write_to).parent
    if not place.resolve().is_relative_to(board.root.resolve()):
        raise Misused(f"{write_to} leads out of the project by a symlink.", advice="Remove the link.")
    place.mkdir(parents=True, exist_ok=True)
    more = {"path": asked.path, "number": asked.number, "base": asked.base, "focus": asked.focus}
    words = review_words(board.root, asked.what, task, write_to, focus=asked.focus, base=asked.base)
    return {"task": words, "write_to": write_to, **{name: value for name, value in more.items() if value not in ("", None)}}


# ---- filing


def _file(board: Board, done: Review) -> Outcome:
    """File the report and what follows from it as one change, and commit it."""
    text = _report(board.root, done.write_to, done.result)
    if text is None:
        return _without_report(board, done)
    findings, asked = findings_of(done.result.data), done.asked
    text = text.rstrip("\n") + "\n" + (done.record.section() if done.record is not None else "")
    count = "" if findings is None else f" ({len(findings)} finding{'s' * (len(findings) != 1)})"
    subject = f"task {asked.number}: review" if asked.number is not None else f"review: {asked.what}{count}"
    left = pay_left(board)
    debt = owed(board, subject, [done.write_to], session_id=done.result.session_id)
    follow_ups, notices = _write(board, done, text, findings, debt)
    made = commit_debt(board, debt, "review", asked.number)
    warnings = (*done.warnings, *left, *notices, *done.result.warnings, *_task_warnings(done, findings, follow_ups), made.warning)
    return _outcome(board, done, findings, follow_ups, tuple(dict.fromkeys(one for one in warnings if one)), made.short)


def _report(root: Path, write_to: str, result: Return) -> str | None:
    """Where it was wanted; else a report that the return names; else the text in its data."""
    for path in (write_to, *(one.path for one in result.artifacts if one.type == "report")):
        if isinstance(inspect_artifact(root, path), Seen):
            data = read_bounded((root / path).resolve(), MAX_BYTES)
            if data is not None and data.strip():
                return data.decode("utf-8", "replace")
    text = result.data.get("report") if isinstance(result.data, dict) else None
    return text if isinstance(text, str) and "\n" in text.strip() else None


def _write(board: Board, done: Review, text: str, findings: list[Finding] | None, debt: Debt) -> tuple[FollowUps | None, tuple[str, ...]]:
    """The report and, where there is a board or one is to be made, its entry on the board. None: no board."""
    makes_tasks = done.asked.make_tasks and any(one.rank <= WORTH_A_TASK for one in findings or ())
    if not (makes_tasks or board.look().exists):
        atomic_write(board.root / done.write_to, text.encode())
        return None, ()
    with board.change(make=makes_tasks) as draft:
        follow_ups = (
            make_tasks(board, draft.state, findings or (), done.write_to, at=draft.at) if makes_tasks else FollowUps(state=draft.state)
        )
        state, number = follow_ups.state, done.asked.number
        task = state.find(number) if number is not None else None
        if task is not None:
            link = TaskArtifact(type="review", path=done.write_to, summary=summarize(findings) if findings is not None else "")
            state = state.with_task(replace(task, artifacts=(*task.artifacts, link), last_updated=draft.at))
        more = {"session_id": done.result.session_id, **({"task_number": number} if number is not None else {})}
        draft.state = state.noting(draft.at, f"Review of {done.asked.what}: {done.write_to}", **more)
        draft.write(done.write_to, text + _task_section(follow_ups))
        draft.files[debt.note] = debt.to_bytes()
    return replace(follow_ups, state=draft.state), draft.notices


def _task_warnings(done: Review, findings: list[Finding] | None, follow_ups: FollowUps | None) -> Iterator[str]:
    if not done.asked.make_tasks:
        return
    if findings is None:
        yield _PROSE_ALONE
    elif not any(one.rank <= WORTH_A_TASK for one in findings):
        yield "No tasks were made: nothing found is medium or worse."
    if follow_ups is not None and follow_ups.known:
        numbers = ", ".join(map(str, sorted(follow_ups.known)))
        yield f"{sum(follow_ups.known.values())} of the findings have an open task already: {numbers}."
    if follow_ups is not None and follow_ups.left_out:
        yield f"{follow_ups.left_out} more files have findings: settle these tasks first, then review again."


def _outcome(
    board: Board, done: Review, findings: list[Finding] | None, follow_ups: FollowUps | None, warnings: tuple[str, ...], commit: str
) -> Outcome:
    result, record, tasks = done.result, done.record, follow_ups.tasks if follow_ups is not None else ()
    now = follow_ups.state.find(done.task.number) if follow_ups is not None and done.task is not None else done.task
    gaps = record.gaps if record is not None else ()
    words = [result.summary.strip()]
    words += [summarize(findings)] if findings is not None and "findings" not in words[0].lower() else []
    words += [f"The task's record has {len(gaps)} gap{'s' * (len(gaps) > 1)}: {gaps[0].what}"] if gaps else []
    words += [f"Tasks made: {', '.join(str(one.number) for one in tasks)}."] if tasks else []
    steps = [f"`remit research {tasks[0].number}` begins with the first of them."] if tasks else [gap.follow_up for gap in gaps][:1]
    if findings and not done.asked.make_tasks and findings[0].rank <= WORTH_A_TASK:
        steps.append(f"`{done.asked.again} --tasks` makes tasks of the findings.")
    return Outcome.of_return(
        "review",
        result,
        summary=" ".join(words),
        task_number=done.asked.number,
        task_status=now.status.marker if now is not None else "",
        artifacts=seen_artifacts(board.root, (Artifact(type="report", path=done.write_to),)),
        next_steps=" ".join(steps),
        warnings=warnings,
        commit=commit,
        data={
            "agent": result.metadata.agent_type,
            "report": done.write_to,
            "counts": count_findings(findings) if findings is not None else None,
            "findings": [one.to_dict() for one in findings] if findings is not None else None,
            "created": [one.number for one in tasks],
            **(record.to_dict() if record is not None else {}),
        },
    )


def _without_report(board: Board, done: Review) -> Outcome:
    """Nothing to file. A review without a report is not completed, whatever the agent says of it."""
    result, changed = done.result, dict[str, Any]()
    if result.status is Status.COMPLETED:
        again = f"Run `{done.asked.again}` again; `remit show {result.session_id}` shows what it did."
        message = f"{result.metadata.agent_type} says completed, but there is no report: {done.write_to} is missing or empty."
        missing = ErrorInfo(type="validation", message=message, code="FILE_NOT_FOUND", recoverable=True, recommendation=again)
        changed = {
            "status": "failed",
            "summary": message,
            "errors": (missing, *result.errors),
            "stop_reason": str(StopReason.INVALID_RETURN),
        }
    with contextlib.suppress(OSError):
        (board.root / done.write_to).parent.rmdir()  # only where it is empty: it was made for the report
    return Outcome.of_return(
        "review",
        result,
        task_number=done.asked.number,
        task_status=done.task.status.marker if done.task is not None else "",
        artifacts=(),
        warnings=(*done.warnings, *result.warnings),
        data=done.record.to_dict() if done.record is not None else {},
        **changed,
    )


# ---- tasks of findings


def make_tasks(board: Board, state: State, findings: Sequence[Finding], report: str, *, at: str) -> FollowUps:
    """One task per file, of findings that are medium or worse and have no open task; the gravest files first."""
    taken = {one: task.number for task in state.tasks if task.status not in ENDED for one in _fingerprints(task.extra.get(KEY))}
    known: dict[int, int] = {}
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.rank > WORTH_A_TASK:
            continue
        number = taken.get(finding.fingerprint)
        if number is None:
            groups.setdefault(finding.file, []).append(finding)
        else:
            known[number] = known.get(number, 0) + 1
    chosen = sorted(groups.items(), key=lambda item: (min(one.rank for one in item[1]), -len(item[1]), item[0]))
    made: list[Task] = []
    for file, group in chosen[:MAX_TASKS]:
        task = replace(number_task(board, state, _wanted(file, group, report), at=at), extra={KEY: [one.fingerprint for one in group]})
        state = state.with_task(task)
        made.append(task)
    return FollowUps(state=state, tasks=tuple(made), known=known, left_out=max(0, len(chosen) - MAX_TASKS))


def _wanted(file: str, group: Sequence[Finding], report: str) -> Wanted:
    where = file or "the project as a whole"
    lines = []
    for one in group[:MAX_LISTED]:
        line, advice = f", line {one.line}" if one.line else "", f" → {one.suggestion}" if one.suggestion else ""
        lines.append(f"- {one.severity}{line}: {one.message}{advice}")
    lines += [f"- and {len(group) - MAX_LISTED} more"] if len(group) > MAX_LISTED else []
    return Wanted(
        text=f"Settle what the review found in {where} ({report}):\n\n" + "\n".join(lines),
        title=f"Settle {f'{len(group)} findings' if len(group) > 1 else 'a finding'} of the review in {where}",
        priority=Priority.HIGH if group[0].rank < WORTH_A_TASK else Priority.MEDIUM,
        language=GENERAL,
        type="fix",
        source=report,
    )


def _task_section(follow_ups: FollowUps) -> str:
    """The section of the report that names the tasks; empty: there is none."""
    lines = [f"- Task {task.number}: {task.title}" for task in follow_ups.tasks]
    lines += [f"- Task {number} exists already for {count} of the findings." for number, count in sorted(follow_ups.known.items())]
    lines += [f"- {follow_ups.left_out} more files have findings; settle these first."] if follow_ups.left_out else []
    return "\n## Tasks\n\n" + "\n".join(lines) + "\n" if lines else ""


def _fingerprints(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, Sequence) and not isinstance(value, str) else []
