"""What a board command came to, for the person and for `--json`, and the words that board commands share.

Light to import: commands that run no agent use it as well.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.core.context import Handle
    from remit.core.errors import ErrorInfo
    from remit.core.result import Artifact, Return

Waiting: TypeAlias = "Callable[[Remit, Handle], Awaitable[Return]]"
"""How a delegation is waited for: the command line shows its progress and handles Ctrl-C; a program just waits."""


async def wait_for_result(remit: "Remit", handle: "Handle") -> "Return":
    """Wait and show nothing."""
    return await handle.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    command: str
    status: str
    """completed, partial, failed or blocked: as a return has it."""
    summary: str
    task_number: int | None = None
    task_status: str = ""
    """The marker its task has now."""
    artifacts: "tuple[Artifact, ...]" = ()
    errors: "tuple[ErrorInfo, ...]" = ()
    next_steps: str = ""
    warnings: tuple[str, ...] = ()
    """Of the return, of the board (TODO.md edits), of git: each a sentence."""
    commit: str = ""
    """The commit that was made, abbreviated; empty: none."""
    session_id: str = ""
    """Of the last delegation; empty: nothing was delegated."""
    stop_reason: str = "finished"
    data: dict[str, Any] = field(default_factory=dict)
    """More for `--json`: resume_from_phase, phase_statuses, created task numbers, …; never instead of the fields above."""

    @classmethod
    def of_return(cls, command: str, result: "Return", **more: Any) -> "Outcome":
        """What an agent returned, with what the command adds or changes."""
        fields = {
            "status": str(result.status),
            "summary": result.summary,
            "artifacts": tuple(result.artifacts),
            "errors": tuple(result.errors),
            "next_steps": result.next_steps,
            "warnings": result.warnings,
            "session_id": result.session_id,
            "stop_reason": str(result.stop_reason),
        }
        return cls(command=command, **{**fields, **more})

    def to_dict(self) -> dict[str, Any]:
        fields = {
            "command": self.command,
            "status": self.status,
            "summary": self.summary,
            "task_number": self.task_number,
            "task_status": self.task_status,
            "artifacts": [artifact.to_dict() for artifact in self.artifacts],
            "errors": [error.to_dict() for error in self.errors],
            "next_steps": self.next_steps,
            "warnings": list(self.warnings),
            "commit": self.commit,
            "session_id": self.session_id,
            "stop_reason": self.stop_reason,
        }
        return {**fields, **{name: value for name, value in self.data.items() if name not in fields}}


def spell_numbers(numbers: Sequence[int]) -> str:
    """As they are typed: `337, 343-345`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts)


def name_tasks(numbers: Sequence[int]) -> str:
    """`Task 3`, `Tasks 3, 5-7`"""
    return f"Task{'s' if len(numbers) > 1 else ''} {spell_numbers(numbers)}"


def count_words(count: int, one: str) -> str:
    """`1 group`, `2 groups`"""
    return f"{count:,} {one}{'s' * (count != 1)}"
