"""How a client delegates to its target: times, streaming, and which agent. Values; milliseconds, as everywhere at this border (S2.1).

Names are accepted in camelCase too (S5.2). The defaults are those of S2.2, which stand in the settings.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from remit.core.deadline import TimeLimits
from remit.core.errors import Misused
from remit.core.spelling import camel, snake
from remit.settings.values import DEFAULT_TIMEOUTS

LONGEST_MS = 10**12


def _limits(target: str) -> tuple[float, float]:
    limits = DEFAULT_TIMEOUTS[target]
    return 1000 * limits.default_seconds, 1000 * limits.maximum_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationConfig:
    """Of any target. Raises `Misused` for what cannot be."""

    target: ClassVar[str]

    default_timeout: float
    """Of a task that names none."""
    max_timeout: float
    """A longer one is refused before anything is sent."""
    enable_streaming: bool = True
    """Without, the state is asked for each `poll_interval`; the result is the same."""
    poll_interval: float = 500
    connect_timeout: float = 5000
    """So long a server that cannot be reached is tried before the answer is AGENT_UNAVAILABLE."""
    grace: float = 5000
    """So long after the timeout the end is waited for; then the answer is TASK_TIMEOUT, whatever the server does."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type in (float, "float") and (
                isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LONGEST_MS
            ):
                raise Misused(f"{field.name} must be a positive number of milliseconds, not {value!r:.60}.")
            if field.type in (str, "str") and not isinstance(value, str):
                raise Misused(f"{field.name} must be text, not {value!r:.60}.")
        if not isinstance(self.enable_streaming, bool):
            raise Misused(f"enable_streaming must be true or false, not {self.enable_streaming!r:.60}.")
        if self.default_timeout > self.max_timeout:
            raise Misused(
                f"default_timeout ({self.default_timeout:g} ms) is above max_timeout ({self.max_timeout:g} ms).",
                advice="Lower the one or raise the other.",
            )

    @property
    def agent_id(self) -> str:
        """Which agent is asked: its target, unless one was named."""
        return getattr(self, f"{self.target}_agent_id", "") or self.target

    @property
    def limits(self) -> TimeLimits:
        return TimeLimits(default_seconds=self.default_timeout / 1000, maximum_seconds=self.max_timeout / 1000)

    def changed(self, changes: Mapping[str, Any]) -> Self:
        known = {field.name for field in dataclasses.fields(self)}
        named = {snake(str(name)): value for name, value in changes.items()}
        if unknown := [name for name in named if name not in known]:
            raise Misused(f"There is no {unknown[0]!r:.60} to configure.", advice=f"There are {', '.join(sorted(known))}.")
        return dataclasses.replace(self, **named)

    def to_dict(self) -> dict[str, Any]:
        return {camel(field.name): getattr(self, field.name) for field in dataclasses.fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig(DelegationConfig):
    target: ClassVar[str] = "worker"

    default_timeout: float = _limits("worker")[0]
    max_timeout: float = _limits("worker")[1]
    worker_agent_id: str = ""
    """A registered agent by its id; empty: the target itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResearcherConfig(DelegationConfig):
    target: ClassVar[str] = "researcher"

    default_timeout: float = _limits("researcher")[0]
    max_timeout: float = _limits("researcher")[1]
    researcher_agent_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoderConfig(DelegationConfig):
    target: ClassVar[str] = "coder"

    default_timeout: float = _limits("coder")[0]
    max_timeout: float = _limits("coder")[1]
    coder_agent_id: str = ""
