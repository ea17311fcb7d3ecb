"""The agents as this border names them: a target and, for agents named `target.operation`, an operation (S5.1).

Read anew from the directory whenever that has changed. Used by `tools` to describe them and by `asking` to find the one that is meant.
"""

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from remit.core.agents import AgentSpec, type_words
from remit.core.errors import Misused
from remit.flow.plain import clean
from remit.serve.mcp.shortening import speakable

Operations = Mapping[str | None, AgentSpec]
"""By operation; None: the agent that is the target itself."""
NAMED = 30
"""So many names stand in one message."""


class Catalogue:
    def __init__(self, specs: Callable[[], Sequence[AgentSpec]]) -> None:
        self._specs = specs
        self._seen: tuple[AgentSpec, ...] | None = None
        self._shown: tuple[AgentSpec, ...] = ()
        self._targets: dict[str, dict[str | None, AgentSpec]] = {}

    @property
    def specs(self) -> tuple[AgentSpec, ...]:
        self.targets()
        return self._shown

    def targets(self) -> Mapping[str, Operations]:
        now = tuple(self._specs())
        if self._seen is None or len(now) != len(self._seen) or any(a is not b for a, b in zip(now, self._seen, strict=True)):
            self._seen, self._shown = now, tuple(map(_speakable, now))
            self._targets = {}
            for spec in self._shown:
                target, _, operation = spec.name.partition(".")
                self._targets.setdefault(target, {})[operation or None] = spec
        return self._targets

    def operations(self) -> list[str]:
        return sorted({operation for operations in self.targets().values() for operation in operations if operation is not None})

    def find(self, target: object, operation: object) -> AgentSpec:
        """The agent that is meant: first the target is judged, then the operation, then whether they fit (S5.3)."""
        targets = self.targets()
        if not isinstance(target, str) or not target:
            raise Misused("target must name an agent.", code="INVALID_TARGET", advice=_allowed("Targets", targets))
        if operation is not None and not isinstance(operation, str):
            raise Misused(
                f"operation must be a name, not {operation!r:.60}.",
                code="INVALID_OPERATION",
                advice=_allowed("Operations", self.operations()),
            )
        if target not in targets:
            return self._by_whole_name(target, operation)
        operations = targets[target]
        found = operations.get(operation or None)
        if found is None:
            raise _wrong_operation(target, operation, operations)
        return found

    def _by_whole_name(self, target: str, operation: str | None) -> AgentSpec:
        """`worker.read_file` as the target is understood too: that is how `list_agents` and the command line name it."""
        first, _, rest = target.partition(".")
        operations = self.targets().get(first, {})
        if rest in operations and operation in (None, "", rest):
            return operations[rest]
        close = difflib.get_close_matches(target, self.targets(), n=1)
        meant = f"Did you mean {close[0]}? " if close else ""
        raise Misused(f"There is no target {target!r:.80}.", code="INVALID_TARGET", advice=meant + _allowed("Targets", self.targets()))


def _speakable(spec: AgentSpec) -> AgentSpec:
    """An agent may be described in words that no wire carries."""
    return dataclasses.replace(spec, description=clean(spec.description), parameters_schema=speakable(spec.parameters_schema))


def _wrong_operation(target: str, operation: str | None, operations: Operations) -> Misused:
    names = [name for name in operations if name is not None]
    if not names:
        fault, advice = f"{target} has no operations.", "Leave operation out."
    elif not operation:
        fault, advice = f"{target} needs an operation.", _allowed("Operations", names)
    else:
        fault, advice = f"{target} has no operation {operation!r:.80}.", _allowed("Operations", names)
    return Misused(fault, code="INVALID_OPERATION", advice=advice)


def _allowed(what: str, names: Iterable[str]) -> str:
    known = sorted(names)
    if not known:
        return "This project has no agents: put one into .remit/agents."
    more = f" and {len(known) - NAMED} more: see list_agents" if len(known) > NAMED else ""
    return f"{what}: {', '.join(known[:NAMED])}{more}."


def signature(spec: AgentSpec) -> str:
    """`worker.read_file(path: string, offset?: integer)`"""
    required = set(spec.parameters_schema.get("required", ()))
    properties: Mapping[str, Mapping[str, Any]] = spec.parameters_schema.get("properties", {})
    words = [f"{name}{'' if name in required else '?'}: {type_words(schema)}" for name, schema in properties.items()]
    return f"{spec.name}({', '.join(words)})"
