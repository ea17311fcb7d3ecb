"""Prompts about a board task: for research, plan, revise and review; `phases` has those for implement.

Each request is text and the same as data, for agents that are programs. The text puts stable parts first (instruction, form of the result,
quoted files) and the task with its limits last. Reports, plans and descriptions are untrusted: they are fenced and labelled as data. Reads
the quoted files; decides nothing."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.board.commits import GIT_SECONDS, find_repository, task_commits
from remit.board.plans import Plan, read_plan
from remit.board.task import State, Task
from remit.core.errors import RemitError
from remit.core.text import fence_untrusted
from remit.system.artifact_files import read_inside

QUOTED_CHARACTERS = 60_000
"""For plan and reports together: an agent in a sandbox may not be able to read the files. The rest is named by path."""
PLAN_CHARACTERS = 2_000_000
MAX_COMMITS = 50
PLAN_FORMAT = """\
The plan is Markdown with at least one phase, each in exactly this form (numbers from 1, one heading each):

### Phase 1: Name of the phase [NOT STARTED]
- **Goal**: what is true afterwards
- **Tasks**:
  - [ ] one step
  - [ ] the next step
- **Files**: `path/it/changes.py`, `path/it/makes.py` (new)
- **Timing**: about 1 hour
- **Accept**: `command that exits 0 when the phase is done`

Files names paths from the project's root; each exists, or has (new) behind it. Accept is one command of sh in backticks whose program is
installed or in the project, never a sentence; the line may be repeated, or left out where no command can tell. A program checks all this
before the plan is filed. Each phase is carried out on its own, committed on its own and must leave the project working."""
_HEADINGS = {"research": "Research", "plan": "Plan", "revise": "Revise the plan of", "implement": "Implement"}
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""A file written by an agent may contain anything; a command line cannot contain NUL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """The request of one run of research, plan or revise."""

    command: str
    task: Task
    focus: str = ""
    """The user's own words: the focus of a study, the reason of a revision."""
    write_to: str = ""
    """Wanted path of the report or plan, relative to the root."""
    reports: tuple[str, ...] = ()
    """Earlier reports, oldest first."""
    plan: str = ""
    """The existing plan."""
    version: int = 0
    """Version of the plan to write."""
    depends: tuple[str, ...] = ()
    """The tasks it depends on, a line each."""
    begun_at: float = 0.0
    """Wall clock. An older file is not its work."""
    is_checked: bool = False
    """Its plan is an agent's work, not a template: files and commands are checked."""
    refused: bytes = b""
    """The faulty plan that was returned: the same text again is refused."""
    request: str = ""
    """Replaces the usual request of the command."""
    more: tuple[tuple[str, Any], ...] = ()
    """More parameters for the agent."""


def brief_parameters(brief: Brief, root: Path) -> dict[str, Any]:
    more: dict[str, Any] = {"focus": brief.focus, "plan": brief.plan, "reports": list(brief.reports), "version": brief.version}
    given = {name: value for name, value in (*more.items(), *brief.more) if value}
    words = [brief.request or _document_request(brief), *quote_files(brief.plan, brief.reports, root)]
    words += [*task_block(brief.task, brief.focus, brief.command, brief.depends), _document_limits(brief)]
    return {"task": "\n\n".join(words), "number": brief.task.number, "write_to": brief.write_to, **given}


def _document_request(brief: Brief) -> str:
    if brief.command == "research":
        return (
            "Find out what must be known to do the task below well: how the project does it now, with paths and names; what is possible, "
            "with its costs; what you recommend, and what remains open. Change no code."
        )
    if brief.command == "plan":
        return f"Divide the work on the task below into phases. Change no code.\n\n{PLAN_FORMAT}"
    return (
        f"Write version {brief.version} of the plan quoted below. Leave phases that are completed as they are, with their numbers and "
        f"markers, and say at the top what changed and why. Change no code.\n\n{PLAN_FORMAT}"
    )


def faulty_plan_request(brief: Brief, faults: Sequence[str]) -> str:
    listed = "\n".join(f"- {fault}" for fault in faults)
    text = _CONTROL.sub("\ufffd", brief.refused.decode("utf-8", "replace"))[:QUOTED_CHARACTERS]
    return (
        f"The plan you wrote was not accepted. A program found these faults:\n\n{listed}\n\nCorrect just these and return the whole plan "
        f"again, in the same way; a second faulty plan fails. Change no code.\n\n{PLAN_FORMAT}\n\nThe plan with the faults:\n\n"
        f"{fence_untrusted(text)}"
    )


def _document_limits(brief: Brief) -> str:
    kind = "report" if brief.command == "research" else "plan"
    metadata = "findings_count" if kind == "report" else "phase_count and estimated_hours"
    return (
        f"Write the {kind} to `{brief.write_to}`, relative to the project's root; nothing else in specs/ is yours to change: status, links "
        f"and commits are made afterwards from what you return. Where you cannot write there, write it into your folder for intermediate "
        f'files and name that path; if you can write no file, put the whole text into data as {{"{kind}": "…"}} and list no artifact. '
        f'Return status completed with the artifact {{"type": "{kind}", "path": "{brief.write_to}"}}, and {metadata} in metadata.'
    )


def task_block(task: Task, focus: str, command: str, depends: Sequence[str] = ()) -> list[str]:
    """The task's own block, with the user's additions."""
    parts = [f"{_HEADINGS.get(command, command.capitalize())} task {task.number}: {task.title}"]
    if task.description and task.description.strip() != task.title.strip():
        parts.append(f"Description:\n\n{fence_untrusted(task.description)}")
    facts = (("Priority", str(task.priority)), ("Language", task.language or ""), ("Effort", task.effort), ("Type", task.type))
    lines = [f"- {name}: {value}" for name, value in facts if value]
    lines += [f"- Must pass in the end: `{one}`" for one in task.accept]
    lines += [f"- Depends on {line}" for line in depends]
    lines += [f"- {line.strip().removeprefix('- ')}" for line in task.lines if line.strip()]
    parts.append("\n".join(lines))
    if focus.strip():
        name = "Reason for the revision" if command == "revise" else "Asked for in particular"
        parts.append(f"{name}: {focus.strip()}")
    return parts


def depends_on(state: State, task: Task) -> tuple[str, ...]:
    """A line for each task it depends on."""
    lines = []
    for number in task.dependencies:
        other = state.find(number)
        lines.append(f"task {number}: {other.title} [{other.status.marker}]" if other is not None else f"task {number} (not on the board)")
    return tuple(lines)


def quote_files(plan: str, reports: Sequence[str], root: Path) -> list[str]:
    """The plan and the reports, newest first, as far as they fit; each is named."""
    left = QUOTED_CHARACTERS
    parts = []
    names = [("The present plan", plan)] if plan else []
    for title, path in [*names, *(("Report", path) for path in reversed(reports))]:
        text = read_text(root, path, left)
        if text is None:
            parts.append(f"{title}: `{path}` (cannot be read)")
            continue
        cut = text[:left]
        left -= len(cut)
        more = f"\n… (cut here: the rest is in `{path}`)" if len(cut) < len(text) else ""
        parts.append(f"{title}, `{path}`:\n\n{fence_untrusted(cut + more)}" if cut else f"{title}: `{path}`")
    return parts


def read_text(root: Path, path: str, limit: int) -> str | None:
    """The text of a project file, at most a little more than `limit` characters; None if missing, outside or private.

    A model reads it, and the link to it may come from a clone."""
    data = read_inside(root, path, 4 * max(limit, 1))
    return None if data is None else _CONTROL.sub("\ufffd", data.decode("utf-8", "replace"))


def plan_at(root: Path, path: str) -> Plan:
    """The plan of that path; without phases if it cannot be read."""
    return read_plan((read_text(root, path, PLAN_CHARACTERS) if path else None) or "")


# ---- review


def review_words(root: Path, what: str, task: Task | None, write_to: str, *, focus: str) -> str:
    parts = [
        "Review the code named below. Change no code. The report has the verdict first, then the findings with severity, file and line, "
        "then what was not looked at."
    ]
    if task is None:
        parts += [f"Review {what}.", "Look above all at what changed last."]
        parts += [f"Asked for in particular: {focus.strip()}"] if focus.strip() else []
    else:
        plan = task.plan_path if task.plan_path and (root / task.plan_path).is_file() else ""
        reports = tuple(path for path in task.reports if (root / path).is_file())
        parts += [*quote_files(plan, reports, root), *task_block(task, focus, "review")]
        commits = "\n".join(f"- {one}" for one in _commits(root, task.number))
        none = "No commit of this task was found: judge by its plan and the files it speaks of."
        parts.append(f"These commits belong to it; `git show` shows them:\n\n{commits}" if commits else none)
    parts.append(
        f"Write the report to `{write_to}`, relative to the project's root; nothing else in specs/ is yours to change. Where you cannot "
        "write there, write it into your folder for intermediate files and name that path. "
        f'Return status completed with the artifact {{"type": "report", "path": "{write_to}"}}, and in data the findings: '
        '{"findings": [{"severity": "critical|high|medium|low|info", "file": "src/a.py", "line": 12, "message": "…", "suggestion": "…"}]}. '
        "An empty list says that nothing was found."
    )
    return "\n\n".join(parts)


def _commits(root: Path, number: int) -> list[str]:
    try:
        repository = find_repository(root, time.monotonic() + GIT_SECONDS)
        found = task_commits(repository.git, number) if repository is not None else []
    except RemitError:
        return []  # the review works without them
    return [f"{commit[:9]} {subject}" for commit, subject in found[:MAX_COMMITS]]
