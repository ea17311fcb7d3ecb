"""What an agent is told of a task of the board: number, title, description, the user's focus, what is there already, where its work is
wanted and what to return (S6.11).

Words and the structured parameters beside them. Reads the files it quotes; decides nothing. Used by whatever hands a task to an agent.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.board.task import State, Task
from remit.flow.artifacts import read_bounded

QUOTED_CHARACTERS = 60_000
"""Of plan and reports together: an agent in a sandbox may not be able to read the files. What does not fit is named by its path."""
PLAN_FORMAT = """\
The plan is Markdown with at least one phase, each in exactly this form (numbers from 1, one heading each):

### Phase 1: Name of the phase [NOT STARTED]
- **Goal**: what is true afterwards
- **Tasks**:
  - [ ] one step
  - [ ] the next step
- **Timing**: about 1 hour
- **Accept**: `command that exits 0 when the phase is done`

The Accept line may be missing or repeated; leave it out where no command can tell. Each phase is carried out on its own, committed on its
own and must leave the project working."""
_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""A file that an agent wrote may hold anything; no command line can carry a NUL, and a prompt is no place for control characters."""
_REVISED = (
    " It replaces the plan quoted below and is version {version} of it: leave phases that are completed as they are, with their numbers "
    "and markers, and say at the top what changed and why."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What one run is asked for."""

    command: str
    task: Task
    focus: str = ""
    """The user's own words: the focus of a study, the reason of a revision."""
    write_to: str = ""
    """Where its report or plan is wanted, relative to the root."""
    reports: tuple[str, ...] = ()
    """Earlier reports, the oldest first."""
    plan: str = ""
    """The plan there is."""
    version: int = 0
    """Of the plan that is to be written."""
    depends: tuple[str, ...] = ()
    """The tasks it depends on, a line each."""
    begun_at: float = 0.0
    """Wall clock. A file that is older is not its work."""


def parameters_of(brief: Brief, root: Path) -> dict[str, Any]:
    """`task`: the words; beside them the same as data, for agents that are programs."""
    more: dict[str, Any] = {"focus": brief.focus, "plan": brief.plan, "reports": list(brief.reports)}
    if brief.version:
        more["version"] = brief.version
    kept = {name: value for name, value in more.items() if value}
    return {"task": words_of(brief, root), "number": brief.task.number, "write_to": brief.write_to, **kept}


def words_of(brief: Brief, root: Path) -> str:
    return "\n\n".join((*about_task(brief.task, brief.focus, brief.command, brief.depends), _wanted(brief), *quoted(brief, root)))


def about_task(task: Task, focus: str, command: str, depends: Sequence[str] = ()) -> list[str]:
    """The task's own block (S4.1), with what the user added."""
    heads = {"research": "Research", "plan": "Plan", "revise": "Revise the plan of", "implement": "Implement"}
    parts = [f"{heads.get(command, command.capitalize())} task {task.number}: {task.title}"]
    if task.description and task.description.strip() != task.title.strip():
        parts.append(f"Description: {task.description.strip()}")
    if focus.strip():
        name = "Reason for the revision" if command == "revise" else "Asked for in particular"
        parts.append(f"{name}: {focus.strip()}")
    facts = (("Priority", str(task.priority)), ("Language", task.language or ""), ("Effort", task.effort), ("Type", task.type))
    lines = [f"- {name}: {value}" for name, value in facts if value]
    lines += [f"- Must pass in the end: `{command}`" for command in task.accept]
    lines += [f"- Depends on {line}" for line in depends]
    lines += [f"- {line.strip().removeprefix('- ')}" for line in task.lines if line.strip()]
    return [*parts, "\n".join(lines)]


def depended_on(state: State, task: Task) -> tuple[str, ...]:
    """A line for each task it depends on."""
    lines = []
    for number in task.dependencies:
        other = state.find(number)
        lines.append(f"task {number}: {other.title} [{other.status.marker}]" if other is not None else f"task {number} (not on the board)")
    return tuple(lines)


def _wanted(brief: Brief) -> str:
    kind = "report" if brief.command == "research" else "plan"
    ways = (
        f"Write the {kind} to `{brief.write_to}`, relative to the project's root; nothing else in specs/ is yours to change: status, links "
        f"and commits are made afterwards from what you return. Where you cannot write there, write it into your folder for intermediate "
        f'files and name that path, or put the whole text into data as {{"{kind}": "…"}}. '
        f'Return status completed with the artifact {{"type": "{kind}", "path": "{brief.write_to}"}}'
    )
    if kind == "report":
        return (
            "Find out what must be known to do this task well: how the project does it now, with paths and names; what is possible, with "
            f"its costs; what you recommend, and what remains open. Change no code.\n\n{ways}, and findings_count in metadata."
        )
    changed = _REVISED.format(version=brief.version) if brief.command == "revise" else ""
    ways += ", and phase_count and estimated_hours in metadata."
    return f"Divide the work into phases.{changed} Change no code.\n\n{PLAN_FORMAT}\n\n{ways}"


def quoted(brief: Brief, root: Path, limit: int = QUOTED_CHARACTERS) -> list[str]:
    """The plan and the reports, the newest first, as far as they fit; each is named."""
    left = limit
    parts = []
    names = [("The plan as it stands", brief.plan)] if brief.plan else []
    for title, path in [*names, *(("Report", path) for path in reversed(brief.reports))]:
        text = text_of(root, path, left)
        if text is None:
            parts.append(f"{title}: `{path}` (cannot be read)")
            continue
        cut = text[:left]
        left -= len(cut)
        more = f"\n… (cut here: the rest is in `{path}`)" if len(cut) < len(text) else ""
        parts.append(f"{title}, `{path}`:\n\n<<<\n{cut.strip()}{more}\n>>>" if cut else f"{title}: `{path}`")
    return parts


def text_of(root: Path, path: str, limit: int) -> str | None:
    """The text of a file of the project, at most a little more than `limit` characters; None: there is none, or it leads out of it."""
    place = root / path
    if not place.resolve().is_relative_to(root.resolve()):
        return None
    held = read_bounded(place, 4 * max(limit, 1))
    return None if held is None else _NO_TEXT.sub("\ufffd", held.decode("utf-8", "replace"))
