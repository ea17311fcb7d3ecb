"""The agents that a caller may delegate to: by target and operation, in words and in the words of a model; and refusals of the tool."""

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_
from typing import Any

from pydantic_core import to_json

from remit.core.agents import AgentSpec, rank, type_words
from remit.core.errors import Misused
from remit.core.jsonable import clean, plain
from remit.core.spelling import camel_names, snake


class DelegateError(Misused):
    """`code` is INVALID_TARGET, INVALID_OPERATION or INVALID_PARAMETERS; `details` names what is allowed, for programs."""

    def __init__(self, message: str, *, code: str | None = None, advice: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, code=code, advice=advice)
        self.details: Mapping[str, Any] = details or {}

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a chunk or an answer: code, message, details, recommendation."""
        return {"code": self.code, "message": self.message, "details": dict(self.details), "recommendation": self.advice}


def json_bytes(document: Any) -> bytes:
    return to_json(document, inf_nan_mode="null", fallback=str)


def json_text(document: Any, *, indent: int | None = None) -> str:
    return to_json(speakable(document), inf_nan_mode="null", fallback=str, indent=indent).decode()


def speakable(value: Any) -> Any:
    """`value` without what no wire carries: half a character, as in the name of a file whose bytes are not text."""
    try:
        json_bytes(value)
    except ValueError:
        return plain(value)
    return value


Operations = Mapping[str | None, AgentSpec]
"""By operation; None: the agent that is the target itself."""
NAMED = 30
"""So many names stand in one message; the details have them all."""


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
        if self._seen is None or len(now) != len(self._seen) or not all(map(is_, now, self._seen)):
            self._seen, self._shown = now, tuple(map(_speakable, sorted(now, key=rank)))  # where room is short, one's own go first
            self._targets = {}
            for spec in self._shown:
                target, operation = parts_of(spec.name)
                self._targets.setdefault(target, {})[operation] = spec
        return self._targets

    def operations(self, target: str | None = None) -> list[str]:
        """Of one target, or of all of them."""
        targets = self.targets()
        asked = targets.values() if target is None else (targets[target],)
        return sorted({operation for operations in asked for operation in operations if operation is not None})

    def find(self, target: object, operation: object) -> AgentSpec:
        """The agent that is meant: first the target is judged, then the operation, then whether they fit."""
        targets = self.targets()
        if not isinstance(target, str) or not target:
            raise DelegateError("target must name an agent.", code="INVALID_TARGET", **_allowed("targets", targets))
        if target not in targets:
            return self._by_whole_name(target, operation)
        if operation is not None and not isinstance(operation, str):
            fault = f"operation must be a name, not {operation!r:.60}."
            raise DelegateError(fault, code="INVALID_OPERATION", **_allowed("operations", self.operations(target), target=target))
        operations = targets[target]
        found = operations.get(operation or None) or (operations.get(snake(operation)) if operation else None)
        if found is None:
            raise self._wrong_operation(target, operation)
        return found

    def _by_whole_name(self, target: str, operation: object) -> AgentSpec:
        """`worker.read_file` as the target is understood too: that is how agents are listed and how the command line names them."""
        first, rest = parts_of(target)
        operations = self.targets().get(first)
        if operations is not None and rest is not None and operation in (None, "", rest):
            return self.find(first, rest)
        raise DelegateError(
            f"There is no target {target!r:.80}.", code="INVALID_TARGET", **_allowed("targets", self.targets(), meant=target)
        )

    def _wrong_operation(self, target: str, operation: str | None) -> DelegateError:
        names = self.operations(target)
        elsewhere = [other for other, operations in self.targets().items() if operation and operation in operations]
        if not names:
            fault, allowed = f"{target} has no operations.", _allowed("operations", names, target=target)
            allowed["advice"] = "Leave operation out."
        elif not operation:
            fault, allowed = f"{target} needs an operation.", _allowed("operations", names, target=target)
        else:
            fault, allowed = f"{target} has no operation {operation!r:.80}.", _allowed("operations", names, meant=operation, target=target)
        if elsewhere:
            fault += f" {' and '.join(elsewhere[:NAMED])} {'has' if len(elsewhere) == 1 else 'have'} one of that name."
            allowed["details"]["targets"] = elsewhere
        return DelegateError(fault, code="INVALID_OPERATION", **allowed)


def parts_of(name: str) -> tuple[str, str | None]:
    """`worker.read_file` as target and operation; an agent without operations is a target alone."""
    target, _, operation = name.partition(".")
    return target, operation or None


def _speakable(spec: AgentSpec) -> AgentSpec:
    """An agent may be described in words that no wire carries."""
    return dataclasses.replace(spec, description=clean(spec.description), parameters_schema=speakable(spec.parameters_schema))


def _allowed(what: str, names: Iterable[str], *, meant: str = "", **facts: str) -> dict[str, Any]:
    """Advice in words and, as data, every name there is; the one that was probably meant goes first."""
    known = sorted(names)
    close = difflib.get_close_matches(meant, known, n=1) if meant else []
    words = f"Did you mean {close[0]}? " if close else ""
    if known:
        more = f" and {len(known) - NAMED} more" if len(known) > NAMED else ""
        words += f"{what.capitalize()}: {', '.join(known[:NAMED])}{more}."
    else:
        words += "There are no agents here: put one into .remit/agents." if what == "targets" else "It has none."
    return {"advice": words, "details": {**facts, what: known, **({"didYouMean": close[0]} if close else {})}}


def signature(spec: AgentSpec) -> str:
    """`worker.list_files(path: string, maxDepth?: integer)`: in the spelling that is emitted here."""
    required = set(spec.parameters_schema.get("required", ()))
    properties: Mapping[str, Mapping[str, Any]] = spec.parameters_schema.get("properties", {})
    emitted = camel_names(properties)
    words = [f"{emitted[name]}{'' if name in required else '?'}: {type_words(schema)}" for name, schema in properties.items()]
    return f"{spec.name}({', '.join(words)})"
