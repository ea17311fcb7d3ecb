"""What a review looks at: the files as the diff leaves them, and which of their lines it put there. Given to every check."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from remit.agents.builtin.coder.review import languages
from remit.agents.builtin.coder.review.applying import Applied, State

if TYPE_CHECKING:
    from remit.agents.builtin.coder.review.guidelines import Guidelines
    from remit.agents.builtin.coder.review.secrets import Masking


@dataclass(frozen=True, slots=True, eq=False)
class ChangedFile:
    applied: Applied

    @property
    def path(self) -> str:
        return self.applied.path

    @property
    def after(self) -> str | None:
        """The whole text afterwards; None where it is gone, or where the diff does not apply to it."""
        return self.applied.after

    @property
    def before(self) -> str | None:
        return self.applied.before

    @property
    def added(self) -> dict[int, str]:
        return self.applied.added

    @property
    def is_new(self) -> bool:
        return self.applied.changes[0].old_path is None

    @property
    def is_gone(self) -> bool:
        return self.applied.changes[-1].new_path is None

    @property
    def removed(self) -> list[str]:
        return [
            line.text.rstrip("\r\n") for change in self.applied.changes for hunk in change.hunks for line in hunk.lines if line.kind == "-"
        ]

    @property
    def language(self) -> str:
        return languages.language(self.path, (self.after or self.added.get(1, ""))[:200])

    @property
    def is_code(self) -> bool:
        return self.language in languages.CODE and not languages.is_generated(self.path)

    def first_changed(self, start: int, end: int) -> int | None:
        """The first line of a range that the diff put there."""
        if start in self.added:
            return start
        if end - start < len(self.added):
            return next((number for number in range(start, end + 1) if number in self.added), None)
        return min((number for number in self.added if start <= number <= end), default=None)


@dataclass(kw_only=True)
class Matter:
    files: list[ChangedFile]
    workspace: Path
    masking: "Masking"
    guidelines: "Guidelines"
    stop_at: float
    """Monotonic: when checks must have ended."""
    is_late: Callable[[], bool]
    in_workspace: bool = True
    """Whether the files stand in the workspace as they are reviewed (not in an older commit)."""
    unchecked: list[str] = field(default_factory=list)
    """What could not be checked, and why: for whoever reads the report."""
    tools: dict[str, str] = field(default_factory=dict)
    """By which tools, in which versions."""

    @cached_property
    def whole(self) -> list[ChangedFile]:
        """Those whose text is known afterwards."""
        return [file for file in self.files if file.after is not None]

    def seconds_left(self) -> float:
        return max(0.0, self.stop_at - time.monotonic())

    @property
    def state(self) -> State:
        states = {file.applied.state for file in self.files}
        if State.FAILS in states:
            return State.FAILS
        states.discard(State.UNCHECKED)
        if not states:
            return State.UNCHECKED
        return State.APPLIED if states == {State.APPLIED} else State.APPLIES
