"""What a review has found, as values; and whether what the board says of a task is true.

Findings are in `data.findings` of the return. The record of a task is compared with its files, its plan, its commits and its acceptance
commands; nothing is changed by looking. Used by `review`.
"""

import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.board.board import Board
from remit.board.commits import find_repository, literal, task_commits
from remit.board.plans import Plan, read_plan
from remit.board.statuses import IN_PROGRESS, Status
from remit.board.task import Task
from remit.core.errors import RemitError
from remit.flow.artifacts import Seen, inspect_artifact
from remit.flow.verify import acceptance_environment, run_acceptance
from remit.orchestrator.prompts import read_text
from remit.system.threads import off_loop

SEVERITIES = ("critical", "high", "medium", "low", "info")
MAX_FINDINGS = 1000
PLAN_CHARACTERS = 2_000_000
GIT_SECONDS = 30.0
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

    @property
    def fingerprint(self) -> str:
        """The same for the same matter found again, also where lines have moved or numbers in the message changed."""
        words = re.sub(r"\d+", "#", " ".join(self.message.lower().split()))
        return hashlib.sha256("\0".join((self.file, self.rule, words)).encode(errors="replace")).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        fields = {
            "severity": self.severity, "file": self.file, "line": self.line, "message": self.message, "suggestion": self.suggestion,
            "rule": self.rule,
        }  # fmt: skip
        return {name: value for name, value in fields.items() if value not in (None, "")}


def findings_of(data: Any) -> list[Finding] | None:
    """The worst first. None: the return has none as data, which is not the same as having found none."""
    listed = data.get("findings") if isinstance(data, Mapping) else None
    if not isinstance(listed, Sequence) or isinstance(listed, str | bytes):
        return None
    found = [finding for one in listed[:MAX_FINDINGS] if (finding := _finding(one)) is not None]
    return sorted(found, key=lambda finding: (finding.rank, finding.file, finding.line or 0))


def count_findings(findings: Iterable[Finding]) -> dict[str, int]:
    counts = Counter(finding.severity for finding in findings)
    return {severity: counts[severity] for severity in SEVERITIES if counts[severity]}


def summarize(findings: Sequence[Finding]) -> str:
    """How many, and the worst of them, in a sentence or two."""
    if not findings:
        return "No findings."
    numbers = ", ".join(f"{number} {severity}" for severity, number in count_findings(findings).items())
    worst = findings[0]
    words = " ".join(part for part in (worst.place, _short(worst.message, 160)) if part)
    return f"Findings: {numbers}. Worst: {words.rstrip('.')}."


def _finding(one: Any) -> Finding | None:
    """None without a message. A severity that is not in the list counts as medium."""
    if not isinstance(one, Mapping):
        return None
    said = str(one.get("severity") or one.get("level") or "").strip().lower()
    severity = said if said in SEVERITIES else "medium"
    file, line = _place(one)
    title, why = (_short(str(one.get(name) or ""), 600) for name in ("title", "why"))
    message = _short(str(one.get("message") or one.get("description") or ""), 600) or ": ".join(part for part in (title, why) if part)
    if not message:
        return None
    suggestion = str(one.get("suggestion") or one.get("what_to_do") or one.get("recommendation") or one.get("fix") or "")
    rule = _short(str(one.get("rule") or one.get("code") or ""), 80)
    return Finding(severity=severity, message=message, file=file, line=line, suggestion=_short(suggestion, 400), rule=rule)


def _place(one: Mapping[str, Any]) -> tuple[str, int | None]:
    file = _short(str(one.get("file") or one.get("path") or one.get("location") or ""), 400).removeprefix("./")
    given = one.get("line") or one.get("line_number")
    line = int(given) if isinstance(given, int | float) or (isinstance(given, str) and given.strip().isdigit()) else None
    both = _PLACE.match(file)
    if both is not None:
        file, line = both["file"], line or int(both["line"])
    return file, line if line and 0 < line < 10_000_000 else None


def _short(text: str, most: int) -> str:
    flat = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return flat if len(flat) <= most else f"{flat[: most - 1].rpartition(' ')[0] or flat[: most - 1]}…"


# ---- a task's record


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Where the record and the facts part."""

    what: str
    follow_up: str = ""
    """What would close it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCheck:
    gaps: tuple[Gap, ...] = ()
    checked: tuple[str, ...] = ()
    """What was found to be as it should, a line each."""

    def to_dict(self) -> dict[str, Any]:
        return {"gaps": [{"what": gap.what, "follow_up": gap.follow_up} for gap in self.gaps], "record": list(self.checked)}

    def section(self) -> str:
        """For the report."""
        lines = ["", "## The task's record", ""]
        lines += [f"- **Gap**: {gap.what}{f' → {gap.follow_up}' if gap.follow_up else ''}" for gap in self.gaps]
        lines += [f"- {one}" for one in self.checked]
        return "\n".join([*lines, ""])


async def check_record(board: Board, task: Task, *, besides: str = "", seconds: float, accept_env: Sequence[str] = ()) -> RecordCheck:
    """`seconds`: for the acceptance commands together. `besides`: a path that is being written now, and no part of the record yet."""
    found = await off_loop(lambda: list(_looked(board, task, besides)))
    commands = tuple(dict.fromkeys([*task.accept, *await off_loop(_accept_of_plan, board.root, task)]))
    if commands:
        acceptance = await run_acceptance(commands, cwd=board.root, seconds_left=seconds, env=acceptance_environment(accept_env))
        for check in acceptance.checks:
            ended = check.trouble or f"exited {check.exit_code}"
            follow = f"Make it exit 0, then run `remit review {task.number}` again."
            found.append(f"`{check.command}` exits 0." if check.is_met else Gap(what=f"`{check.command}` {ended}.", follow_up=follow))
    gaps = tuple(one for one in found if isinstance(one, Gap))
    return RecordCheck(gaps=gaps, checked=tuple(one for one in found if isinstance(one, str)))


def _looked(board: Board, task: Task, besides: str) -> Iterator[Gap | str]:
    yield from _artifacts(board.root, task)
    yield from _plan(board.root, task)
    yield from _commits(board.root, task, besides)
    if task.status in IN_PROGRESS:
        command = {Status.RESEARCHING: "research", Status.PLANNING: "plan", Status.REVISING: "revise"}.get(task.status, "implement")
        words = f"It is still marked [{task.status.marker}]."
        yield Gap(what=words, follow_up=f"If nobody works on it, `remit {command} {task.number}` goes on with it.")


def _artifacts(root: Path, task: Task) -> Iterator[Gap | str]:
    paths = dict.fromkeys([*(one.path for one in task.artifacts), *([task.plan_path] if task.plan_path else [])])
    missing = [path for path in paths if not _is_there(root, path)]
    for path in missing:
        yield Gap(what=f"`{path}` is linked, but missing or empty.", follow_up="Bring it back from git, or have it made again.")
    if paths and not missing:
        yield f"All {len(paths)} linked files are there." if len(paths) > 1 else "Its linked file is there."
    if task.status is Status.COMPLETED and not paths:
        yield Gap(what="It is completed, but no file of it is linked.", follow_up="Say in TODO.md what was done.")


def _is_there(root: Path, path: str) -> bool:
    seen = inspect_artifact(root, path)
    return isinstance(seen, Seen) and seen.size > 0


def _plan(root: Path, task: Task) -> Iterator[Gap | str]:
    plan = _plan_of(root, task)
    if plan is None:
        return
    unfinished = [f"{phase.number} [{phase.status}]" for phase in plan.open_phases]
    if task.status is Status.COMPLETED and unfinished:
        follow = "Carry them out, or mark in the plan what was done or given up."
        yield Gap(what=f"It is completed, but phases of its plan are not: {', '.join(unfinished)}.", follow_up=follow)
    elif task.status is not Status.COMPLETED and plan.phases and not unfinished:
        yield Gap(what=f"All phases of its plan are done, but it is [{task.status.marker}].", follow_up=f"`remit implement {task.number}`")
    elif plan.phases:
        yield f"Of the {len(plan.phases)} phases of its plan, {len(plan.phases) - len(unfinished)} are done."
    for fault in plan.faults[:5]:
        yield Gap(what=f"Its plan: {fault}", follow_up=f"Correct {task.plan_path}.")


def _plan_of(root: Path, task: Task) -> Plan | None:
    text = read_text(root, task.plan_path, PLAN_CHARACTERS) if task.plan_path else None
    return read_plan(text) if text else None


def _accept_of_plan(root: Path, task: Task) -> list[str]:
    """Of the phases that are said to be done: the others cannot pass yet."""
    plan = _plan_of(root, task)
    return [*plan.accept, *(one for phase in plan.phases if not phase.is_open for one in phase.accept)] if plan is not None else []


def _commits(root: Path, task: Task, besides: str) -> Iterator[Gap | str]:
    try:
        repository = find_repository(root, time.monotonic() + GIT_SECONDS)
        if repository is None:
            return
        found = task_commits(repository.git, task.number)
        said = repository.git.run(
            "status", "--porcelain", "-z", "-uall", "--no-renames", "--", literal(f"{repository.prefix}{task.folder}")
        )
        uncommitted = [one for one in os.fsdecode(said).split("\0") if one and one[3:] != f"{repository.prefix}{besides}"]
    except RemitError as error:
        yield Gap(what=f"Its commits could not be looked at: {error.message}", follow_up="`git status` says more.")
        return
    if found:
        yield f"Git has {len(found)} commit{'s' * (len(found) > 1)} of it, the last {found[0][0][:9]}."
    elif task.status is Status.COMPLETED:
        yield Gap(
            what=f"It is completed, but no commit has a subject that begins with `task {task.number}:`.", follow_up="Commit its files."
        )
    if uncommitted:
        yield Gap(what=f"Files in {task.folder} are not committed.", follow_up=f"git add {task.folder} && git commit")
