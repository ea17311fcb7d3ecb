"""`review [PATH|N]`: reviews a path or a task, files the report, and creates tasks from findings on request.

Task statuses are not changed. The report is read at its wanted path, else where the return names it; findings come from its data."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from remit.app import Remit
from remit.board.board import Board, Draft
from remit.board.command_lifecycle import delegate_task, new_error, require_route
from remit.board.commits import commit
from remit.board.outcome import Outcome, Waiting, wait_for_result
from remit.board.task import ENDED, Priority, Task, TaskArtifact
from remit.board.task_commands import NewTask, number_task
from remit.board.task_landing import remove_copy
from remit.board.task_prompts import review_words
from remit.board.verdicts import Document, find_document, next_path
from remit.core.deadline import allowed_timeout
from remit.core.errors import Misused
from remit.core.result import Artifact, Return, Status
from remit.core.routing import GENERAL
from remit.core.settings import Settings
from remit.core.text import one_line, plural
from remit.runtime.workspaces import UNMERGED
from remit.system.artifact_files import checked_artifacts
from remit.system.beneath import path_inside, resolve_inside
from remit.system.files import atomic_write
from remit.system.threads import off_loop

FOLDER = "specs/reviews"
MAX_TASKS = 20
MAX_LISTED = 30
WORTH_A_TASK = 2
"""The rank of medium: findings of this rank or worse become tasks."""
KEY = "review_of"
"""Key of a task's entry in state.json: the file whose findings it settles."""
_PROSE_ALONE = (
    "No tasks were made: the reviewer gave its findings as prose alone. It should put them into data.findings, each with severity, file, "
    "line, message and suggestion."
)
SEVERITIES = ("critical", "high", "medium", "low", "info")
MAX_FINDINGS = 1000
_PLACE = re.compile(r"^(?P<file>.+?):(?P<line>\d+)(?:[:-]\d+)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    severity: str
    message: str
    file: str = ""
    line: int | None = None
    suggestion: str = ""
    rule: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file and self.line else self.file

    @property
    def rank(self) -> int:
        """0 is the worst."""
        return SEVERITIES.index(self.severity)

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRequest:
    """The subject of a review."""

    path: str = ""
    """From the root; empty: everything."""
    number: int | None = None
    """The task; then there is no path."""
    focus: str = ""
    make_tasks: bool = False
    timeout: float | None = None

    @property
    def what(self) -> str:
        return f"task {self.number}" if self.number is not None else self.path or "the project"


async def review(remit: Remit, board: Board, asked: ReviewRequest, *, waiting: Waiting = wait_for_result) -> Outcome:
    """Raises `Misused` if the path or task does not exist."""
    board = board.with_settings(remit.settings)
    task, warnings = await off_loop(check, board, remit.settings, asked)
    require_route(remit.settings, remit.directory.find, "review", task)
    with _reserved_path(board, task) as write_to:
        parameters = await off_loop(_parameters, board, asked, task, write_to)
        extra = {"write_to": write_to, UNMERGED: True}
        extra |= {} if task is not None else {"language": GENERAL, "title": f"Review {asked.what}"}
        result = await delegate_task(remit, "review", task, parameters, extra=extra, timeout=asked.timeout, waiting=waiting)
        reports = [one for one in result.artifacts if one.type == "report"]
        found = await off_loop(find_document, board.root, result, "report", reports, write_to)
        if found is not None:
            return await off_loop(_file, board, asked, result, found, write_to, warnings)
        warnings = (*warnings, *result.warnings)
        if result.status is not Status.COMPLETED:
            return Outcome.of_return("review", result, task_number=asked.number, artifacts=(), warnings=warnings)
        message = f"{result.metadata.agent_type} reports completed, but there is no report: {write_to} is missing or empty."
        error = new_error("validation", "FILE_NOT_FOUND", message, f"`remit show {result.session_id}` shows what it did. Run it again.")
        failed: dict[str, Any] = {"status": "failed", "summary": message, "errors": (error, *result.errors), "artifacts": ()}
        return Outcome.of_return("review", result, task_number=asked.number, stop_reason="invalid_return", warnings=warnings, **failed)


def check(board: Board, settings: Settings, asked: ReviewRequest) -> tuple[Task | None, tuple[str, ...]]:
    """The task, if one is requested, and warnings. Raises `Misused`. Blocking; changes nothing."""
    allowed_timeout(asked.timeout, settings.limits_for("review"))
    if asked.number is None:
        inside = path_inside(board.root, asked.path)
        if inside is None:
            raise Misused(f"{asked.path} is outside the project.", advice="Name a folder or file inside it.")
        if not (board.root / inside).exists():
            raise Misused(f"There is no {asked.path} in the project.", advice="Name a folder, a file or a task's number.")
        return None, ()
    seen = board.look()
    return seen.state.task(asked.number), seen.notices


@contextlib.contextmanager
def _reserved_path(board: Board, task: Task | None) -> Iterator[str]:
    """A path for the report that no other review uses meanwhile: an empty file."""
    while True:
        path = _next_path(board, task)
        place = resolve_inside(board.root, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError, FileNotFoundError):  # another review took the name, or removed the empty folder
            place.touch(exist_ok=False)
            break
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            if not place.stat().st_size:
                place.unlink()
                place.parent.rmdir()  # only if it is empty


def _next_path(board: Board, task: Task | None) -> str:
    return next_path(board.root, task, f"{task.folder}/reports" if task is not None else FOLDER, "review")


def _parameters(board: Board, asked: ReviewRequest, task: Task | None, write_to: str) -> dict[str, Any]:
    more = {"path": asked.path, "number": asked.number, "focus": asked.focus}
    words = review_words(board.root, asked.what, task, write_to, focus=asked.focus)
    return {"task": words, "write_to": write_to, **{name: value for name, value in more.items() if value not in ("", None)}}


# ---- filing


def _file(board: Board, asked: ReviewRequest, result: Return, found: Document, write_to: str, warnings: Sequence[str]) -> Outcome:
    """File the report and its consequences as one change, and commit it."""
    findings, session_id = findings_of(result.data), result.session_id
    text = found.data.decode("utf-8", "replace").rstrip("\n") + "\n"
    count = "" if findings is None else f" ({plural(len(findings), 'finding')})"
    subject = f"task {asked.number}: review" if asked.number is not None else f"review: {asked.what}{count}"
    makes_tasks = asked.make_tasks and any(one.rank <= WORTH_A_TASK for one in findings or ())
    notes = [_PROSE_ALONE] if asked.make_tasks and findings is None else []
    tasks, task = list[Task](), None
    if makes_tasks or board.look().exists:
        with board.change(make=makes_tasks) as draft:
            if makes_tasks:
                tasks, notes = make_tasks(board, draft, findings or (), write_to)
                listed = [*(f"- Task {one.number}: {one.title}" for one in tasks), *(f"- {words}" for words in notes)]
                text += "\n## Tasks\n\n" + "\n".join(listed) + "\n"
            task = draft.state.find(asked.number) if asked.number is not None else None
            if task is not None:
                counts = {} if findings is None else {"findings": count_findings(findings)}
                link = TaskArtifact(type="review", path=write_to, summary=summarize(findings or ()) if counts else "", extra=counts)
                draft.state = draft.state.with_task(replace(task, artifacts=(*task.artifacts, link), last_updated=draft.at))
            draft.state = draft.state.noting(draft.at, f"Review of {asked.what}: {write_to}", session_id=session_id)
            draft.write(write_to, text)
            board.commit_for(draft, subject, session_id=session_id, command="review", task_number=asked.number)
        notes, commit_hash = [*draft.warnings, *notes], draft.commit_hash
    else:
        atomic_write(resolve_inside(board.root, write_to), text.encode())
        made = commit(board.root, [write_to], subject, session_id=session_id, wanted=board.commits)
        notes, commit_hash = [*filter(None, (made.warning,)), *notes], made.short
    remove_copy(board.root, session_id, found.came_from)
    words = [result.summary.strip()]
    words += [summarize(findings)] if findings is not None and "findings" not in words[0].lower() else []
    words += [f"Tasks made: {', '.join(str(one.number) for one in tasks)}."] if tasks else []
    is_worth = not asked.make_tasks and any(one.rank <= WORTH_A_TASK for one in findings or ())
    return Outcome.of_return(
        "review",
        result,
        summary=" ".join(words),
        task_number=asked.number,
        task_status=task.status.marker if task is not None else "",
        artifacts=checked_artifacts(board.root, (Artifact(type="report", path=write_to),)),
        next_steps=f"remit research {tasks[0].number}" if tasks else "--tasks makes tasks of the findings." if is_worth else "",
        warnings=tuple(dict.fromkeys((*warnings, *result.warnings, *notes))),
        commit=commit_hash,
        data={
            "report": write_to,
            "counts": count_findings(findings) if findings is not None else None,
            "findings": [one.to_dict() for one in findings] if findings is not None else None,
            "created": [one.number for one in tasks],
        },
    )


# ---- tasks of findings


def make_tasks(board: Board, draft: Draft, findings: Sequence[Finding], report: str) -> tuple[list[Task], list[str]]:
    """One task per file with findings of medium or worse, most severe first; and why others have none: another review made one."""
    taken = {task.extra.get(KEY): task.number for task in draft.state.tasks if task.status not in ENDED}
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.rank <= WORTH_A_TASK:
            groups.setdefault(finding.file, []).append(finding)
    notes = [f"Task {taken[file]} for {file or 'the project'} is open already." for file in groups if file in taken]
    chosen = [item for item in groups.items() if item[0] not in taken]
    chosen.sort(key=lambda item: (min(one.rank for one in item[1]), -len(item[1]), item[0]))
    made: list[Task] = []
    for file, group in chosen[:MAX_TASKS]:
        task = number_task(board, draft.state, _new_task(file, group, report), at=draft.at)
        made.append(replace(task, extra={KEY: file}))
        draft.state = draft.state.with_task(made[-1])
    if len(chosen) > MAX_TASKS:
        notes.append(f"{len(chosen) - MAX_TASKS} more files have findings: settle these tasks first, then review again.")
    return made, notes


def _new_task(file: str, group: Sequence[Finding], report: str) -> NewTask:
    where = file or "the project as a whole"
    lines = []
    for one in group[:MAX_LISTED]:
        line, advice = f", line {one.line}" if one.line else "", f" → {one.suggestion}" if one.suggestion else ""
        lines.append(f"- {one.severity}{line}: {one.message}{advice}")
    lines += [f"- and {len(group) - MAX_LISTED} more"] if len(group) > MAX_LISTED else []
    return NewTask(
        text=f"Settle what the review found in {where} ({report}):\n\n" + "\n".join(lines),
        title=f"Settle {f'{len(group)} findings' if len(group) > 1 else 'a finding'} of the review in {where}",
        priority=Priority.HIGH if group[0].rank < WORTH_A_TASK else Priority.MEDIUM,
        language=GENERAL,
        type="fix",
        source=report,
    )


# ---- findings of a return


def findings_of(data: Any) -> list[Finding] | None:
    """Worst first. None: the return has no findings as data, which differs from an empty list."""
    listed = data.get("findings") if isinstance(data, Mapping) else None
    if not isinstance(listed, Sequence) or isinstance(listed, str | bytes):
        return None
    found = [finding for one in listed[:MAX_FINDINGS] if (finding := _finding(one)) is not None]
    return sorted(found, key=lambda finding: (finding.rank, finding.file, finding.line or 0))


def count_findings(findings: Iterable[Finding]) -> dict[str, int]:
    counts = Counter(finding.severity for finding in findings)
    return {severity: counts[severity] for severity in SEVERITIES if counts[severity]}


def summarize(findings: Sequence[Finding]) -> str:
    """The number of findings and the worst of them, in one or two sentences."""
    if not findings:
        return "No findings."
    numbers = ", ".join(f"{number} {severity}" for severity, number in count_findings(findings).items())
    worst = findings[0]
    words = " ".join(part for part in (worst.place, one_line(worst.message, 160)) if part)
    return f"Findings: {numbers}. Worst: {words.rstrip('.')}."


def _finding(one: Any) -> Finding | None:
    """None without a message. An unknown severity counts as medium; `file` may include the line, as `a.py:12`."""
    if not isinstance(one, Mapping):
        return None

    def text(key: str, limit: int) -> str:
        return one_line(str(one.get(key) or ""), limit)

    message = text("message", 600)
    if not message:
        return None
    severity, file, line = text("severity", 20).lower(), text("file", 400).removeprefix("./"), one.get("line")
    number = int(line) if isinstance(line, int | float) or (isinstance(line, str) and line.strip().isdigit()) else 0
    if both := _PLACE.match(file):
        file, number = both["file"], number or int(both["line"])
    return Finding(
        severity=severity if severity in SEVERITIES else "medium",
        message=message,
        file=file,
        line=number if 0 < number < 10_000_000 else None,
        suggestion=text("suggestion", 400),
        rule=text("rule", 80),
    )
