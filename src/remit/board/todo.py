"""TODO.md: drawn from the board (S6.2), and what a person has changed in it read back. Pure: text in, text out."""

from collections.abc import Iterator
from dataclasses import dataclass

from remit.board.task import Priority, State, Task

HEAD = "# TODO\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    state: State
    """With what the person did taken over."""
    taken: tuple[str, ...] = ()
    """What was taken over, a line each, for the person to read."""
    kept: tuple[str, ...] = ()
    """What could not be, and why and where it is kept, a line each."""


def draw(state: State) -> str:
    """The text of TODO.md: the same for the same board."""
    return "".join(_parts(state))


def merge(state: State, text: str, *, at: str) -> Merged:
    """The board with a person's edits: `text` is TODO.md as they left it, `draw(state)` what they began from."""
    return Merged(state=state)


def _parts(state: State) -> Iterator[str]:
    yield HEAD
    for priority in Priority:
        yield f"\n## {priority.capitalize()} Priority\n"
        for task in state.tasks:
            if task.priority is priority:
                yield "\n" + block(task)


def block(task: Task) -> str:
    """One task as TODO.md has it, its `---` included."""
    lines = [f"### {task.number}. {task.title}", f"- **Status**: [{task.status.marker}]", f"- **Priority**: {task.priority.capitalize()}"]
    lines += [f"- **Language**: {task.language}"] if task.language else []
    return "\n".join([*lines, "", f"**Description**: {task.description}", "", "---", ""])
