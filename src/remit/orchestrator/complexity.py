"""How complex a task is, by a stated rule, and what context that calls for (S4.1). Pure but for looking at the context folder.

The step DetermineComplexity itself is the flow's; here its answer is found for a task of the board, with the reason, and what is loaded
is written down so that `remit show` can say it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.board.task import State, Task
from remit.flow.context_files import LEVELS, context_files, level_of
from remit.flow.route import GENERAL

MANY_DEPENDENCIES = 4
MANY_SUBTASKS = 4
MANY_PHASES = 5
"""From so many on a task is complex."""
CONTEXT_FOLDER = ".remit/context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    complexity: str
    """simple, moderate or complex."""
    reason: str


def judged(task: Task, state: State | None = None, phases: int = 0) -> Judged:
    """What the task says of itself; else by its dependencies, its subtasks and the phases of its plan."""
    if task.complexity in LEVELS:
        return Judged(complexity=task.complexity, reason="the task says so")
    unknown = f"; the task's own {task.complexity!r} is none of {', '.join(LEVELS)}" if task.complexity else ""
    subtasks = sum(one.parent == task.number for one in state.tasks) if state is not None else 0
    counts = (
        (len(task.dependencies), MANY_DEPENDENCIES, "dependency", "dependencies"),
        (subtasks, MANY_SUBTASKS, "subtask", "subtasks"),
        (phases, MANY_PHASES, "phase", "phases"),
    )
    for number, many, _, words in counts:
        if number >= many:
            return Judged(complexity="complex", reason=f"{number} {words}{unknown}")
    found = [f"{number} {one if number == 1 else words}" for number, _, one, words in counts if number > (1 if one == "phase" else 0)]
    if found:
        return Judged(complexity="moderate", reason=f"{', '.join(found)}{unknown}")
    return Judged(complexity="simple", reason=f"one task, no dependencies, no plan of several phases{unknown}")


def context_loaded(root: Path, found: Judged, language: str | None) -> dict[str, Any]:
    """What the agent is given of the project's context files: level and why, files, size, what was left out. Recorded with its task."""
    level = level_of(found.complexity)
    loaded = context_files(root / CONTEXT_FOLDER, level, language or GENERAL)
    return {
        "level": level,
        "reason": f"{found.complexity}: {found.reason}",
        "files": list(loaded.paths),
        "bytes": len(loaded.text.encode()),
        "left_out": list(loaded.warnings),
    }


def context_words(context: Mapping[str, Any]) -> str:
    """As a person reads it, in one line."""
    files = context.get("files") or ()
    shown = f"{', '.join(files)} ({context.get('bytes', 0):,} bytes)" if files else "no context files"
    left_out = "".join(f" {words}" for words in context.get("left_out") or ())
    return f"level {context.get('level')} ({context.get('reason')}): {shown}.{left_out}"
