"""The outcome of a board command, for people and for `--json`, and text helpers of board commands.

Light to import: commands that run no agent use it as well."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.core.context import Handle
    from remit.core.errors import ErrorInfo
    from remit.core.result import Artifact, Return

Waiting: TypeAlias = "Callable[[Remit, Handle], Awaitable[Return]]"
"""How a delegation is awaited: the command line shows its progress and handles Ctrl-C; a program just waits."""


async def wait_for_result(remit: "Remit", handle: "Handle") -> "Return":
    """Wait without showing anything."""
    return await handle.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    command: str
    status: str
    """completed, partial, failed or blocked, as in a return."""
    summary: str
    task_number: int | None = None
    task_status: str = ""
    """The current marker of its task."""
    artifacts: "tuple[Artifact, ...]" = ()
    errors: "tuple[ErrorInfo, ...]" = ()
    next_steps: str = ""
    warnings: tuple[str, ...] = ()
    """Warnings of the return, of the board (TODO.md edits) and of git, one sentence each."""
    commit: str = ""
    """The commit that was made, abbreviated; empty: none."""
    session_id: str = ""
    """Session of the last delegation; empty: nothing was delegated."""
    stop_reason: str = "finished"
    data: dict[str, Any] = field(default_factory=dict)
    """More data for `--json`: resume_from_phase, phase_statuses, created task numbers, …"""

    @classmethod
    def of_return(cls, command: str, result: "Return", **more: Any) -> "Outcome":
        """An agent's return with the additions of the command."""
        same = ("summary", "artifacts", "errors", "next_steps", "warnings", "session_id")
        said = {name: getattr(result, name) for name in same}
        said |= {"status": str(result.status), "stop_reason": str(result.stop_reason)}
        return cls(command=command, **{**said, **more})

    def to_dict(self) -> dict[str, Any]:
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "data"}
        lists = {name: [one.to_dict() for one in own[name]] for name in ("artifacts", "errors")}
        return {**own, **self.data, **own, **lists, "warnings": list(self.warnings)}


def spell_numbers(numbers: Sequence[int]) -> str:
    """As typed: `337, 343-345`."""
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
