"""A request: what a caller asks for, before anything has looked at it. Made from keyword arguments at every API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from remit.core.budget import Limits
from remit.core.delegation import TaskContext
from remit.core.errors import Misused


@dataclass(slots=True)
class Request:
    agent: str
    """A name in the directory, or `/command` to be routed."""
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
    """The session of an earlier delegation to the same agent, to go on from its checkpoint and its finished children."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it: for another process."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("task", "budget"):
            if isinstance(plain[name], TaskContext | Limits):
                plain[name] = plain[name].to_dict()
        return plain


_OPTIONS = frozenset(f.name for f in fields(Request)) - {"agent", "parameters"}


def call(agent: str, /, **asked: Any) -> Request:
    """`call("digest", path="README.md", timeout=30)`: options by their names, everything else a parameter of the agent.

    A parameter that has the name of an option is passed as `parameters={"timeout": …}`. A task in words is a parameter: what an agent
    that is asked in words is asked; a task of the project is a mapping.
    """
    if not isinstance(agent, str) or not agent:
        raise Misused(f"An agent is named by a string, not {agent!r}.", code="INVALID_TARGET", advice="See `remit agents`.")
    if not asked:
        return Request(agent, {})
    explicit = asked.pop("parameters", None) or {}
    if not isinstance(explicit, Mapping):
        raise Misused(f"parameters must be a mapping, not {type(explicit).__name__}.", advice='Pass parameters={"name": value}.')
    options = {name: asked.pop(name) for name in _OPTIONS & asked.keys() if name != "task" or not isinstance(asked["task"], str)}
    return Request(agent=agent, parameters={**asked, **explicit}, **options)
