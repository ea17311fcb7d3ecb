"""Requests to the delegate tool: the catalogue of agents, the tool's JSON schema, and a call read into a `DelegateRequest`."""

import contextlib
import dataclasses
import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

from pydantic_core import to_json

from remit.core.agents import NOT_APPROVED, AgentSpec, rank, type_words
from remit.core.deadline import TimeLimits
from remit.core.errors import Misused, RemitError
from remit.core.jsonable import check_size, clean_text, to_jsonable
from remit.core.parameters import WrongParameters, camel_names, declared_names, snake
from remit.core.ports import AgentPort
from remit.core.states import Priority, priority_of


class DelegateError(Misused):
    """`code` is INVALID_TARGET, INVALID_OPERATION, INVALID_PARAMETERS or NOT_TRUSTED; `details` names what is allowed, for programs."""

    def __init__(self, message: str, *, code: str | None = None, advice: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, code=code, advice=advice)
        self.details: Mapping[str, Any] = details or {}

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a chunk or an answer: code, message, details, recommendation."""
        return {"code": self.code, "message": self.message, "details": dict(self.details), "recommendation": self.advice}


def json_bytes(document: Any) -> bytes:
    return to_json(document, inf_nan_mode="null", fallback=str)


def json_text(document: Any, *, indent: int | None = None) -> str:
    return to_json(encodable(document), inf_nan_mode="null", fallback=str, indent=indent).decode()


def encodable(value: Any) -> Any:
    """`value` without what no wire carries: half a character, as in the name of a file whose bytes are not text."""
    try:
        json_bytes(value)
    except ValueError:
        return to_jsonable(value)
    return value


Operations = Mapping[str | None, AgentSpec]
"""By operation; None: the agent that is the target itself."""
NAMES_IN_MESSAGE = 30
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
            self._seen, self._shown = now, tuple(map(_encodable_spec, sorted(now, key=rank)))  # where room is short, one's own go first
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
            fault += f" {' and '.join(elsewhere[:NAMES_IN_MESSAGE])} {'has' if len(elsewhere) == 1 else 'have'} one of that name."
            allowed["details"]["targets"] = elsewhere
        return DelegateError(fault, code="INVALID_OPERATION", **allowed)


def parts_of(name: str) -> tuple[str, str | None]:
    """`worker.read_file` as target and operation; an agent without operations is a target alone."""
    target, _, operation = name.partition(".")
    return target, operation or None


def _encodable_spec(spec: AgentSpec) -> AgentSpec:
    """An agent may be described in words that no wire carries."""
    return dataclasses.replace(spec, description=clean_text(spec.description), parameters_schema=encodable(spec.parameters_schema))


def _allowed(what: str, names: Iterable[str], *, meant: str = "", **facts: str) -> dict[str, Any]:
    """Advice in words and, as data, every name there is; the one that was probably meant goes first."""
    known = sorted(names)
    close = difflib.get_close_matches(meant, known, n=1) if meant else []
    words = f"Did you mean {close[0]}? " if close else ""
    if known:
        more = f" and {len(known) - NAMES_IN_MESSAGE} more" if len(known) > NAMES_IN_MESSAGE else ""
        words += f"{what.capitalize()}: {', '.join(known[:NAMES_IN_MESSAGE])}{more}."
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


# ---- What is asked of the delegate tool: its schema, and a call read into a request.


NAMES_IN_SCHEMA = 250
"""So many names stand in a schema: with more of them any text is taken there, and judged when it comes."""
LISTED_CHARACTERS = 8_000
"""Of agents in the words of the tool."""
PRIORITIES: tuple[str | int, ...] = (*(priority.name.lower() for priority in Priority), 0, *map(int, Priority))
"""Names, and the numbers they stand for; 0 is normal."""
_PRIORITY = "Who goes first when there is more to do than can be done at once."
Limits = Callable[[str], TimeLimits]
Schema = dict[str, Any]

_LITERAL = frozenset({"default", "const", "enum", "examples"})
"""Where values stand, not schemas."""


def tool_definition(catalogue: Catalogue, limits_for: Limits | None = None) -> Schema:
    """The tool as it is made known: name, words and schema; the strict one where the limits of the agents are given."""
    schema = plain_schema(catalogue) if limits_for is None else strict_schema(catalogue, limits_for)
    return {"name": "delegate", "description": description(catalogue), "inputSchema": schema}


def plain_schema(catalogue: Catalogue) -> Schema:
    return {"type": "object", "properties": properties(catalogue), "required": _required(catalogue)}


def strict_schema(catalogue: Catalogue, limits_for: Limits) -> Schema:
    schema = {**plain_schema(catalogue), "additionalProperties": False}
    schema["properties"]["priority"] = {"enum": list(PRIORITIES), "description": f"{_PRIORITY} 1 is low, 4 critical, 0 normal."}
    targets = catalogue.targets()
    if sum(map(len, targets.values())) > NAMES_IN_SCHEMA:
        return schema
    shared: Schema = {}
    schema["allOf"] = [
        *(_condition({"target": target}, _of_target(operations)) for target, operations in targets.items()),
        *(_of_agent(spec, limits_for(spec.name), shared) for operations in targets.values() for spec in operations.values()),
    ]
    return {**schema, "$defs": shared} if shared else schema


def properties(catalogue: Catalogue, *, rest: str = "") -> Schema:
    """`rest` says where names stand that are too many for a schema."""
    return {
        "target": one_of("Who is to do it.", sorted(catalogue.targets()), rest=rest),
        "operation": one_of("Which of the target's operations; left out where it has none.", catalogue.operations(), rest=rest),
        "parameters": {"type": "object", "description": "What that operation takes, by name, as listed in this tool's description."},
        "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "Milliseconds until it is stopped and hands back what it has."},
        "priority": {"type": "string", "enum": [name for name in PRIORITIES if isinstance(name, str)], "description": _PRIORITY},
    }


def parameters_schema(spec: AgentSpec) -> Schema:
    """Of one agent, under the names that are emitted here."""
    own = spec.parameters_schema
    emitted = camel_names(own.get("properties", {}))
    schema: Schema = {**own, "type": "object"}
    schema.pop("title", None)
    if emitted:
        schema["properties"] = {emitted[name]: _untitled(inner) for name, inner in own["properties"].items()}
    if "required" in own:
        schema["required"] = [emitted.get(name, name) for name in own["required"]]
    return schema


def _untitled(schema: Any) -> Any:
    """Without the title that pydantic gives: it is the name once more."""
    return {name: value for name, value in schema.items() if name != "title"} if isinstance(schema, dict) else schema


def description(catalogue: Catalogue, *, rest: str = "") -> str:
    """What can be delegated, one agent to a line, as many as have room; `rest` says where the others are."""
    lines: list[str] = []
    room = LISTED_CHARACTERS
    for spec in catalogue.specs:
        does = " ".join(spec.description.split())[:160]
        if spec.languages:
            does += f" (for {', '.join(spec.languages)[:80]})"
        line = f"- {signature(spec)[:400]}" + (f" — {does}" if does else "")
        room -= len(line) + 1
        if room < 0:
            lines.append(f"- and {len(catalogue.specs) - len(lines)} more{rest}")
            break
        lines.append(line)
    if not lines:
        return "This project has no agents yet."
    return "Agents, as target.operation(parameters) or target(parameters):\n" + "\n".join(lines)


def one_of(words: str, names: list[str], *, rest: str = "") -> Schema:
    """One of these, where they are few enough to be named."""
    if len(names) > NAMES_IN_SCHEMA:
        return {"type": "string", "description": words.removesuffix(".") + rest + "."}
    return {"type": "string", "description": words} | ({"enum": names} if names else {})


def _required(catalogue: Catalogue) -> list[str]:
    """An operation is left out where the target is the agent itself."""
    targets = catalogue.targets().values()
    has_plain = not targets or any(None in operations for operations in targets)
    return ["target", "parameters"] if has_plain else ["target", "operation", "parameters"]


def _condition(names: Mapping[str, str], then: Schema) -> Schema:
    given = {name: {"const": value} for name, value in names.items()}
    return {"if": {"properties": given, "required": list(names)}, "then": then}


def _of_target(operations: Operations) -> Schema:
    names = [operation for operation in operations if operation is not None]
    if not names:
        return {"properties": {"operation": False}}
    then: Schema = {"properties": {"operation": {"enum": names}}}
    return then if None in operations else {**then, "required": ["operation"]}


def _of_agent(spec: AgentSpec, limits: TimeLimits, shared: Schema) -> Schema:
    """What it takes, and how long it may last."""
    target, operation = parts_of(spec.name)
    default = min(spec.timeout_seconds or limits.default_seconds, limits.maximum_seconds)
    timeout = {"maximum": 1000 * limits.maximum_seconds, "default": 1000 * default}
    then = {"properties": {"parameters": _with_shared_definitions(parameters_schema(spec), spec.name, shared), "timeout": timeout}}
    if operation is not None:
        return _condition({"target": target, "operation": operation}, then)
    alone = _condition({"target": target}, then)
    alone["if"]["not"] = {"required": ["operation"]}
    return alone


def _with_shared_definitions(schema: Schema, agent: str, shared: Schema) -> Schema:
    """`schema` as a part of a larger one: what it defines stands at the top of that, under the agent's name."""
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    for name, definition in schema.get("$defs", {}).items():
        shared[f"{agent}.{name}"] = _with_references(definition, agent)
    pointed: Schema = _with_references(inner, agent)
    return pointed


def _with_references(value: Any, agent: str) -> Any:
    if isinstance(value, list):
        return [_with_references(one, agent) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: one if name in _LITERAL and not isinstance(one, dict) else _reference(name, one, agent) for name, one in value.items()}


def _reference(name: str, value: Any, agent: str) -> Any:
    if name == "$ref" and isinstance(value, str) and value.startswith("#/$defs/"):
        return f"#/$defs/{agent}.{value.removeprefix('#/$defs/')}"
    return _with_references(value, agent)


ARGUMENTS = ("target", "operation", "parameters", "timeout", "priority")
"""Of the tool."""
WHAT_IS_JSON = "Pass text, numbers, lists and mappings; leave files and objects to paths and names."


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegateRequest:
    """What was asked for, valid: everything `Remit.delegate` takes."""

    spec: AgentSpec
    parameters: dict[str, Any]
    """Under the names the agent declares."""
    timeout_seconds: float | None
    """None: the default of its target."""
    priority: Priority
    also: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments that the API takes beside those of the tool."""

    @property
    def agent(self) -> str:
        return self.spec.name

    @property
    def target(self) -> str:
        return parts_of(self.spec.name)[0]

    @property
    def operation(self) -> str | None:
        return parts_of(self.spec.name)[1]

    def asked(self) -> dict[str, Any]:
        """Keyword arguments of `Remit.delegate` and `Remit.start`."""
        return {"parameters": self.parameters, "timeout": self.timeout_seconds, "priority": self.priority}


class Reader:
    """Reads requests against the agents there are now."""

    def __init__(self, catalogue: Catalogue, find: Callable[[str], AgentPort | None], limits_for: Callable[[str], TimeLimits]) -> None:
        self._catalogue = catalogue
        self._find = find
        self._limits_for = limits_for

    def read(self, given: object, *also: str) -> DelegateRequest:
        """The request, or `DelegateError` with what is allowed. `also`: arguments that an API takes beside those of the tool."""
        arguments, unknown = _known_arguments(given, (*ARGUMENTS, *also))
        spec = self._meant(arguments.get("target"), arguments.get("operation"))
        if spec.kind == NOT_APPROVED:
            message = f"{spec.name} is declared in {spec.source}, which is not approved."
            raise DelegateError(message, code="NOT_TRUSTED", advice="Review and approve: remit trust")
        if unknown:
            known = [*ARGUMENTS, *also]
            raise DelegateError(
                f"There is no argument {unknown[0]!r:.80}.",
                advice=f"There are {', '.join(known)}; what an agent takes goes into parameters.",
                details={"arguments": known, "unknown": unknown},
            )
        parameters = self._parameters(spec, arguments.get("parameters"))
        return DelegateRequest(
            spec=spec,
            parameters=parameters,
            timeout_seconds=self._timeout_seconds(spec, arguments["timeout"]) if "timeout" in arguments else None,
            priority=_priority(arguments.get("priority")),
            also={name: arguments[name] for name in also if name in arguments},
        )

    def _meant(self, target: object, operation: object) -> AgentSpec:
        try:
            return self._catalogue.find(target, operation)
        except DelegateError:
            # Lists of agents may be a moment old; to look for one that is unknown looks at what the project declares now.
            if not isinstance(target, str) or self._find(f"{target}.{operation}" if operation else target) is None:
                raise
            return self._catalogue.find(target, operation)

    def _parameters(self, spec: AgentSpec, given: object) -> dict[str, Any]:
        if isinstance(given, str):  # models now and then write the object as text
            with contextlib.suppress(ValueError, RecursionError):
                given = json.loads(given)
        if given is None or given == "":
            given = {}
        if not isinstance(given, Mapping):
            fault = f"parameters must be an object, not {type(given).__name__}."
            raise _parameters_error(spec, Misused(fault, advice='Pass e.g. {"path": "README.md"}.'))
        port = self._find(spec.name)
        try:
            named: dict[str, Any] = {}
            if given:
                check_size(given)
                own_names = spec.parameters_schema.get("properties", ())
                named = declared_names({str(name): value for name, value in given.items()}, own_names, spec.name)
            if port is not None:
                port.check(dict(named))
        except Misused as error:
            raise _parameters_error(spec, error) from None
        except RemitError as error:
            raise _parameters_error(
                spec, Misused(f"Parameters of {spec.name}: {error.message}.", advice=error.advice or WHAT_IS_JSON)
            ) from None
        except Exception as error:  # noqa: BLE001 - the boundary to the validators of agents' parameters, which are users' code
            raise _parameters_error(spec, Misused(f"The parameters could not be checked: {type(error).__name__}: {error}."[:400])) from None
        return named

    def _timeout_seconds(self, spec: AgentSpec, value: object) -> float:
        limits = self._limits_for(spec.name)
        longest = 1000 * limits.maximum_seconds
        default = 1000 * min(spec.timeout_seconds or limits.default_seconds, limits.maximum_seconds)
        given = milliseconds("timeout", value)
        if given == 0 or given > longest:
            raise DelegateError(
                f"timeout must be above 0 and at most {longest:.0f} milliseconds here, not {given:.0f}.",
                advice=f"Pass at most {longest:.0f}, or leave it out; the maximum is a setting in remit.toml ([timeouts]).",
                details={"timeout": {"default": default, "maximum": longest}},
            )
        return given / 1000


def arguments_of(given: object, *known: str) -> dict[str, Any]:
    """The arguments by their own names. Whatever is not known is refused: a parameter in the wrong place must not vanish silently."""
    named, unknown = _known_arguments(given, known)
    if unknown:
        raise DelegateError(
            f"There is no argument {unknown[0]!r:.80}.",
            advice=f"There are {', '.join(known)}." if known else "It takes none.",
            details={"arguments": list(known), "unknown": unknown},
        )
    return named


def _known_arguments(given: object, known: tuple[str, ...]) -> tuple[dict[str, Any], list[str]]:
    """The arguments by their own names, without those that are null, and the names that are unknown."""
    if given is None:
        return {}, []
    if not isinstance(given, Mapping):
        raise DelegateError(f"The arguments must be an object, not {type(given).__name__}.", details={"arguments": list(known)})
    named: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in given.items():
        own = name if name in known else snake(str(name))
        if own not in known:
            unknown.append(str(name))
        elif own in named:
            raise DelegateError(f"{own} is given twice.", advice="Write it once.")
        else:
            named[own] = value
    return {name: value for name, value in named.items() if value is not None}, unknown


def _parameters_error(spec: AgentSpec, error: Misused) -> DelegateError:
    """With the parameters that the operation takes, as a schema."""
    details: dict[str, Any] = {"agent": spec.name, "parameters": parameters_schema(spec)}
    if isinstance(error, WrongParameters):
        error = error.spelt(camel_names(spec.parameters_schema.get("properties", {})))
        details["faults"] = [{"parameter": where, "fault": fault} for where, fault in error.faults]
    return DelegateError(error.message, code=error.code, advice=error.advice, details=details)


def _priority(value: object) -> Priority:
    try:
        return priority_of(value)
    except Misused as error:
        fault = f"Unknown priority {value!r:.60}."
        raise DelegateError(fault, advice=error.advice, details={"priority": list(PRIORITIES)}) from None


def milliseconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        fault = f"{name} must be a number of milliseconds, not {value!r:.60}."
        raise DelegateError(fault, advice="E.g. 30000 for half a minute.", details={name: {"minimum": 0}})
    return float(value)
