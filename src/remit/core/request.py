"""A request of a caller, before validation. Built from keyword arguments by every API."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from remit.core.budget import Limits
from remit.core.delegation import TaskContext
from remit.core.errors import Misused

if TYPE_CHECKING:
    from remit.core.ports import AgentPort


@dataclass(slots=True)
class Request:
    """The request of a caller."""

    agent: str
    """A name in the directory, or a `/command` to route."""
    parameters: Mapping[str, Any]
    timeout: float | None = None
    """Seconds."""
    priority: object = None
    key: str | None = None
    accept: Sequence[str] = ()
    task: TaskContext | Mapping[str, Any] | None = None
    budget: Limits | Mapping[str, Any] | None = None
    idle: float | None = None
    """Seconds without a sign of life after which it is stopped."""
    resume: str | None = None
    """Session of an earlier delegation to the same agent, to continue from its checkpoint and finished children."""
    cache: object = None
    """`off`, `refresh`, or how long a result may be reused (`1h`, or seconds); None: the agent's declaration."""
    spread: bool = False
    """Give it to any worker of its task queue, even if this process could run it. For engines with workers."""
    checked: "tuple[AgentPort, Any] | None" = field(default=None, compare=False, repr=False)
    """Of a step of a composition, whose parameters were received with it: the agent that checked them, and what it made of them."""

    def to_dict(self) -> dict[str, Any]:
        """JSON for another process."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.compare}
        for name in ("task", "budget"):
            if isinstance(plain[name], TaskContext | Limits):
                plain[name] = plain[name].to_dict()
        return plain

    def options(self) -> list[str]:
        """Names of the given options."""
        given = _GIVEN(self)
        return [] if given == _USUAL else [name for name, value, usual in zip(_NAMES, given, _USUAL, strict=True) if value != usual]


OPTIONS = frozenset(f.name for f in fields(Request)) - {"agent", "parameters", "checked"}
_NAMES, _USUAL = zip(*((f.name, f.default) for f in fields(Request) if f.name in OPTIONS), strict=True)
_GIVEN = attrgetter(*_NAMES)
COMPOSE = "compose.run"
"""The agent that runs compositions."""


class Composition(ABC):
    """Several calls declared as one (`core.composition`)."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Its JSON form: the parameters of `compose.run`."""


def call(agent: str | Composition, /, **asked: Any) -> Request:
    """`call("digest", path="README.md", timeout=30)`: options by name; everything else is a parameter of the agent.

    A composition, `call(sequence(…), timeout=1800)`, calls the agent that runs it and takes only options. Pass a parameter that has the
    name of an option as `parameters={"timeout": …}`. A `task` in words is a parameter of the agent; a task of the project is a mapping."""
    if agent.__class__ is not str and isinstance(agent, Composition):
        if unknown := sorted(asked.keys() - OPTIONS):
            raise Misused(f"A composition takes options, not {unknown[0]!r}.", advice="Give parameters to its calls.")
        return Request(COMPOSE, agent.to_dict(), **asked)
    if not isinstance(agent, str) or not agent:
        raise Misused(f"An agent is named by a string, not {agent!r}.", code="INVALID_TARGET", advice="See `remit agents`.")
    if not asked:
        return Request(agent, {})
    explicit = asked.pop("parameters", None) or {}
    if not isinstance(explicit, Mapping):
        raise Misused(f"parameters must be a mapping, not {type(explicit).__name__}.", advice='Pass parameters={"name": value}.')
    options = {name: asked.pop(name) for name in OPTIONS & asked.keys() if name != "task" or not isinstance(asked["task"], str)}
    return Request(agent=agent, parameters={**asked, **explicit}, **options)
