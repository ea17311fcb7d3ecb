"""Tasks made of the findings of a review (`review --tasks`): one for each file, pointing back to the report, never two for one finding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from remit.board.board import Board
from remit.board.statuses import ENDED
from remit.board.task import Priority, State, Task
from remit.orchestrator.findings import Finding
from remit.orchestrator.tasks import Wanted, numbered

TASKS_AT_MOST = 20
WORTH_A_TASK = 2
"""The rank of medium: what is graver, or as grave, becomes a task."""
KEY = "review_findings"
"""Of a task's entry in state.json: the fingerprints of what it is to settle."""
_LANGUAGES = {".py": "python", ".lean": "lean", ".md": "markdown"}
_LISTED = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    state: State
    tasks: tuple[Task, ...] = ()
    known: Mapping[int, int] = field(default_factory=dict)
    """How many of the findings an open task has already, by its number."""
    left_out: int = 0
    """Files beyond the most that are made at once."""


def make_tasks(
    board: Board, state: State, findings: Sequence[Finding], report: tuple[str, str], *, languages: Sequence[str], at: str
) -> Made:
    """`report`: its path, and what it says. Only of what is `medium` or worse; the gravest files first."""
    open_ones = {
        print_: task.number for task in state.tasks if task.status not in ENDED for print_ in _prints(task.extra.get(KEY))
    }  # fmt: skip
    known: dict[int, int] = {}
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.rank > WORTH_A_TASK:
            continue
        has = open_ones.get(finding.fingerprint)
        if has is None:
            groups.setdefault(finding.file, []).append(finding)
        else:
            known[has] = known.get(has, 0) + 1
    chosen = sorted(groups.items(), key=lambda item: (min(one.rank for one in item[1]), -len(item[1]), item[0]))
    made: list[Task] = []
    for file, group in chosen[:TASKS_AT_MOST]:
        wanted = _wanted(file, group, *report, languages)
        task = replace(numbered(board, state, wanted, at=at), extra={KEY: [one.fingerprint for one in group]})
        state = state.with_task(task)
        made.append(task)
    return Made(state=state, tasks=tuple(made), known=known, left_out=max(0, len(chosen) - TASKS_AT_MOST))


def listed(made: Made) -> str:
    """The section of the report that names them; empty: there is nothing to name."""
    lines = [f"- Task {task.number}: {task.title}" for task in made.tasks]
    lines += [f"- Task {number} was there already for {count} of the findings." for number, count in sorted(made.known.items())]
    lines += [f"- {made.left_out} more files have findings; settle these first."] if made.left_out else []
    return "\n## Tasks\n\n" + "\n".join(lines) + "\n" if lines else ""


def _wanted(file: str, group: Sequence[Finding], report: str, text: str, languages: Sequence[str]) -> Wanted:
    many = f"{len(group)} findings" if len(group) > 1 else "a finding"
    where = file or "the project as a whole"
    line = line_in(text, group[0])
    lines = [f"- {one.severity}{f', line {one.line}' if one.line else ''}: {one.message}{_advice(one)}" for one in group[:_LISTED]]
    lines += [f"- and {len(group) - _LISTED} more"] if len(group) > _LISTED else []
    language = _LANGUAGES.get(file[file.rfind(".") :] if "." in file else "", "general")
    source = f"{report}:{line}" if line else report
    return Wanted(
        text=f"Settle what the review found in {where} ({source}):\n\n" + "\n".join(lines),
        title=f"Settle {many} of the review in {where}",
        priority=Priority.HIGH if group[0].rank < WORTH_A_TASK else Priority.MEDIUM,
        language=language if language in languages else "general",
        type="fix",
        source=source,
    )


def line_in(text: str, finding: Finding) -> int:
    """Where the report speaks of it; 0: nowhere that can be told."""
    lines = text.splitlines()
    for wanted in (finding.place, finding.message[:60], finding.file):
        found = next((number for number, line in enumerate(lines, 1) if wanted and wanted in line), 0)
        if found:
            return found
    return 0


def _advice(finding: Finding) -> str:
    return f" → {finding.suggestion}" if finding.suggestion else ""


def _prints(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, Sequence) and not isinstance(value, str) else []
