"""Requests to the delegate tool: the catalogue of agents, the tool's JSON schema, and parsing of a call into a `DelegateRequest`."""

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
from remit.core.composition import composition_from, name_of, requests_in
from remit.core.deadline import TimeLimits
from remit.core.errors import Misused, RemitError
from remit.core.ids import is_session_id
from remit.core.jsonable import check_size, clean_text, to_jsonable
from remit.core.parameters import WrongParameters, camel_names, declared_names, snake
from remit.core.ports import AgentPort
from remit.core.request import COMPOSE
from remit.core.states import Priority, priority_of
from remit.core.text import list_some


class DelegateError(Misused):
    """`code` is INVALID_TARGET, INVALID_OPERATION, INVALID_PARAMETERS or NOT_TRUSTED; `details` lists the allowed values for programs."""

    def __init__(self, message: str, *, code: str | None = None, advice: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, code=code, advice=advice)
        self.details: Mapping[str, Any] = details or {}

    def to_dict(self) -> dict[str, Any]:
        """The form in a chunk or an answer: code, message, details, recommendation."""
        return {"code": self.code, "message": self.message, "details": dict(self.details), "recommendation": self.advice}


def json_bytes(document: Any) -> bytes:
    return to_json(document, inf_nan_mode="null", fallback=str)


def json_text(document: Any, *, indent: int | None = None) -> str:
    return to_json(encodable(document), inf_nan_mode="null", fallback=str, indent=indent).decode()


def encodable(value: Any) -> Any:
    """`value` without lone surrogates, which JSON cannot carry, e.g. in a file name that is not valid text."""
    try:
        json_bytes(value)
    except ValueError:
        return to_jsonable(value)
    return value


Operations = Mapping[str | None, AgentSpec]
"""Agents by operation; None: the agent that is the target itself."""
NAMES_IN_MESSAGE = 30
"""Maximum names in one message; the details list all."""


class Catalogue:
    def __init__(self, specs: Callable[[], Sequence[AgentSpec]]) -> None:
        self._specs = specs
        self._seen: tuple[AgentSpec, ...] = ()
        self._shown: tuple[AgentSpec, ...] = ()
        self._targets: dict[str, dict[str | None, AgentSpec]] = {}

    @property
    def specs(self) -> tuple[AgentSpec, ...]:
        self.targets()
        return self._shown

    def targets(self) -> Mapping[str, Operations]:
        now = tuple(self._specs())
        if len(now) != len(self._seen) or not all(map(is_, now, self._seen)):
            # when space is short, the project's own agents come first
            self._seen, self._shown = now, tuple(map(_encodable_spec, sorted(now, key=rank)))
            self._targets = {}
            for spec in self._shown:
                target, operation = parts_of(spec.name)
                self._targets.setdefault(target, {})[operation] = spec
        return self._targets

    def operations(self, target: str | None = None) -> list[str]:
        """The operations of one target, or of all."""
        targets = self.targets()
        asked = targets.values() if target is None else (targets[target],)
        return sorted({operation for operations in asked for operation in operations if operation is not None})

    def find(self, target: object, operation: object) -> AgentSpec:
        """Find the agent: check the target, then the operation, then whether they match. Accepts `worker.read_file` as the target: agents
        are listed this way."""
        targets = self.targets()
        if isinstance(target, str) and target not in targets and operation in (None, "", parts_of(target)[1]):
            target, operation = parts_of(target)
        if not isinstance(target, str) or target not in targets:
            message = f"There is no target {target!r:.80}." if target else "target must name an agent."
            raise DelegateError(message, code="INVALID_TARGET", **_allowed("targets", targets, meant=str(target or "")))
        operations, named = targets[target], operation or None
        found = operations.get(named) or operations.get(snake(named)) if isinstance(named, str) else operations.get(None)
        if found is None and (alone := operations.get(None)) is not None and alone.kind == NOT_APPROVED:
            return alone  # its operations are known only after approval
        if found is None or not isinstance(named, str | None):
            fault = f"has no operation {named!r:.80}" if named else "needs an operation"
            allowed = _allowed("operations", self.operations(target), meant=str(named or ""), target=target)
            raise DelegateError(f"{target} {fault}.", code="INVALID_OPERATION", **allowed)
        return found


def parts_of(name: str) -> tuple[str, str | None]:
    """Split `worker.read_file` into target and operation; an agent without operations is only a target."""
    target, _, operation = name.partition(".")
    return target, operation or None


def _encodable_spec(spec: AgentSpec) -> AgentSpec:
    """The spec with a description that can be encoded."""
    return dataclasses.replace(spec, description=clean_text(spec.description), parameters_schema=encodable(spec.parameters_schema))


def _allowed(what: str, names: Iterable[str], *, meant: str = "", **facts: str) -> dict[str, Any]:
    """Advice as text and every allowed name as data; the closest match comes first."""
    known = sorted(names)
    close = difflib.get_close_matches(meant, known, n=1)
    words = f"Did you mean {close[0]}? " if close else ""
    words += f"{what.capitalize()}: {list_some(known, NAMES_IN_MESSAGE) or 'none'}."
    return {"advice": words, "details": {**facts, what: known, **({"didYouMean": close[0]} if close else {})}}


def signature(spec: AgentSpec) -> str:
    """`worker.list_files(path: string, maxDepth?: integer)`, with the names in camelCase."""
    required = set(spec.parameters_schema.get("required", ()))
    properties: Mapping[str, Mapping[str, Any]] = spec.parameters_schema.get("properties", {})
    emitted = camel_names(properties)
    words = [f"{emitted[name]}{'' if name in required else '?'}: {type_words(schema)}" for name, schema in properties.items()]
    return f"{spec.name}({', '.join(words)})"


# ---- the schema of the delegate tool, and parsing of a call


NAMES_IN_SCHEMA = 250
"""Maximum names in a schema. With more, any text is accepted and checked on the call."""
LISTED_CHARACTERS = 8_000
"""Maximum length of the agent list in the tool description."""
PRIORITIES: tuple[str | int, ...] = (*(priority.name.lower() for priority in Priority), 0, *map(int, Priority))
"""Names and their numbers; 0 is normal."""
_RESUME = (
    "The id of an ended delegation to the same agent, to continue it: in its session and workspace, without doing finished parts again. "
    "A result that can be continued names the call (continueWith)."
)
Schema = dict[str, Any]


def tool_definition(catalogue: Catalogue) -> Schema:
    """The tool's name, description and schema. The schema has no conditions, which vendors of models do not support."""
    targets = catalogue.targets().values()
    has_plain = not targets or any(None in operations for operations in targets)
    required = ["target", "parameters"] if has_plain else ["target", "operation", "parameters"]
    schema = {"type": "object", "properties": properties(catalogue), "required": required}
    return {"name": "delegate", "description": description(catalogue), "inputSchema": schema}


def properties(catalogue: Catalogue, *, rest: str = "") -> Schema:
    """The properties of the schema. `rest` refers to names that do not fit."""
    return {
        "target": one_of("The agent or group of operations to call.", sorted(catalogue.targets()), rest=rest),
        "operation": one_of("The operation of the target; omit it if the target has none.", catalogue.operations(), rest=rest),
        "parameters": {"type": "object", "description": "Parameters of the operation by name, as listed in this tool's description."},
        "timeout": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "Milliseconds until it is stopped and returns its result so far.",
        },
        "priority": one_of("Order in the queue when all slots are busy.", [priority.name.lower() for priority in Priority]),
        "resume": {"type": "string", "description": _RESUME},
        "idle": {"type": "number", "exclusiveMinimum": 0, "description": "Milliseconds without a sign of life until it is stopped."},
    }


def parameters_schema(spec: AgentSpec) -> Schema:
    """The parameter schema of one agent, with the names in camelCase."""
    own = spec.parameters_schema
    emitted = camel_names(own.get("properties", {}))
    schema: Schema = {**_untitled(own), "type": "object"}
    if emitted:
        schema["properties"] = {emitted[name]: _untitled(inner) for name, inner in own["properties"].items()}
    if "required" in own:
        schema["required"] = [emitted.get(name, name) for name in own["required"]]
    return schema


def _untitled(schema: Any) -> Any:
    """The schema without pydantic's titles, which only repeat the names."""
    return {name: value for name, value in schema.items() if name != "title"} if isinstance(schema, dict) else schema


def description(catalogue: Catalogue, *, rest: str = "") -> str:
    """The agents, one per line, as many as fit; `rest` refers to the others."""
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
    """An enum of names if they are few enough."""
    if len(names) > NAMES_IN_SCHEMA:
        return {"type": "string", "description": words.removesuffix(".") + rest + "."}
    return {"type": "string", "description": words} | ({"enum": names} if names else {})


ARGUMENTS = ("target", "operation", "parameters", "timeout", "priority", "resume", "idle")
"""Arguments of the tool."""
STEP_OPTIONS = ("timeout", "idle", "priority")
"""Options of a step in a composition, beside its parameters."""
WHAT_IS_JSON = "Pass text, numbers, lists and mappings; leave files and objects to paths and names."


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegateRequest:
    """A valid request: all arguments for `Remit.delegate`."""

    spec: AgentSpec
    parameters: dict[str, Any]
    """Parameters under the names that the agent declares."""
    timeout_seconds: float | None
    """None: the default of its target."""
    priority: Priority
    resume: str | None = None
    """The session of an earlier delegation to the same agent."""
    idle_seconds: float | None = None
    also: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments that an API accepts beside those of the tool."""

    @property
    def agent(self) -> str:
        return self.spec.name

    @property
    def target(self) -> str:
        return parts_of(self.spec.name)[0]

    @property
    def operation(self) -> str | None:
        return parts_of(self.spec.name)[1]

    @property
    def agents(self) -> tuple[str, ...]:
        """All agents it names: its own, and those of the steps of a composition."""
        composed = (request.agent for _, request in requests_in(composition_from(self.parameters))) if self.agent == COMPOSE else ()
        return tuple(dict.fromkeys((self.agent, *composed)))

    def asked(self) -> dict[str, Any]:
        """Keyword arguments of `Remit.delegate` and `Remit.start`."""
        asked = {"parameters": self.parameters, "timeout": self.timeout_seconds, "priority": self.priority}
        return asked | {name: value for name, value in (("resume", self.resume), ("idle", self.idle_seconds)) if value is not None}


class Reader:
    """Parses requests against the current agents."""

    def __init__(self, catalogue: Catalogue, find: Callable[[str], AgentPort | None], limits_for: Callable[[str], TimeLimits]) -> None:
        self._catalogue = catalogue
        self._find = find
        self._limits_for = limits_for

    def read(self, given: object, *also: str) -> DelegateRequest:
        """Parse a request. Raises `DelegateError` with the allowed values. `also`: arguments that an API accepts
        beside those of the tool."""
        arguments, unknown = _known_arguments(given, (*ARGUMENTS, *also))
        spec = self._resolve(arguments.get("target"), arguments.get("operation"))
        if spec.kind == NOT_APPROVED:
            message = f"{spec.name} is declared in {spec.source}, which is not approved."
            raise DelegateError(message, code="NOT_TRUSTED", advice="Review and approve: remit trust")
        if unknown:
            raise _unknown_argument(unknown, (*ARGUMENTS, *also), "; parameters of the agent go into `parameters`")
        parameters = self._parameters(spec, arguments.get("parameters"))
        return DelegateRequest(
            spec=spec,
            parameters=parameters,
            timeout_seconds=self._timeout_seconds(spec, arguments["timeout"]) if "timeout" in arguments else None,
            priority=_priority(arguments.get("priority")),
            resume=_session_id(arguments["resume"]) if "resume" in arguments else None,
            idle_seconds=milliseconds("idle", arguments["idle"], is_positive=True) / 1000 if "idle" in arguments else None,
            also={name: arguments[name] for name in also if name in arguments},
        )

    def _resolve(self, target: object, operation: object) -> AgentSpec:
        try:
            return self._catalogue.find(target, operation)
        except DelegateError:
            # Agent lists may be slightly stale; looking up an unknown agent reloads the project's declarations.
            if not isinstance(target, str) or self._find(f"{target}.{operation}" if operation else target) is None:
                raise
            return self._catalogue.find(target, operation)

    def _parameters(self, spec: AgentSpec, given: object) -> dict[str, Any]:
        if isinstance(given, str) and given:  # models sometimes write the object as text
            with contextlib.suppress(ValueError, RecursionError):
                given = json.loads(given)
        given = {} if given is None or given == "" else given
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
            if spec.name == COMPOSE:
                self._check_steps(named)
            if port is not None:
                port.check(dict(named))
        except Misused as error:
            raise _parameters_error(spec, error) from None
        except Exception as error:  # noqa: BLE001 - parameter validators of agents are user code
            words = error.message if isinstance(error, RemitError) else f"they could not be checked: {type(error).__name__}: {error}"[:300]
            raise _parameters_error(spec, Misused(f"Parameters of {spec.name}: {words}.", advice=WHAT_IS_JSON)) from None
        return named

    def _check_steps(self, composition: Mapping[str, Any]) -> None:
        """Steps of a composition may use only agents that the tool offers, and no further options."""
        root = composition_from(composition)
        for step, request in requests_in(root):
            try:
                self._resolve(request.agent, None)
            except DelegateError as error:
                raise DelegateError(f"{name_of(step, root)}: {error.message}", code=error.code, advice=error.advice) from None
            if further := [name for name in request.options() if name not in STEP_OPTIONS]:
                advice = f"A step takes parameters, {', '.join(STEP_OPTIONS)}."
                raise Misused(f"{name_of(step, root)}: {further[0]} cannot be given here.", advice=advice)

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
    """The arguments by their declared names. Unknown arguments raise: a misplaced parameter must not be dropped silently."""
    named, unknown = _known_arguments(given, known)
    if unknown:
        raise _unknown_argument(unknown, known)
    return named


def _unknown_argument(unknown: list[str], known: tuple[str, ...], also: str = "") -> DelegateError:
    advice = f"Use {', '.join(known)}{also}." if known else "It takes none."
    return DelegateError(f"Unknown argument {unknown[0]!r:.80}.", advice=advice, details={"arguments": list(known), "unknown": unknown})


def _known_arguments(given: object, known: tuple[str, ...]) -> tuple[dict[str, Any], list[str]]:
    """The arguments by their declared names without nulls, and the unknown names."""
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
    """The error with the parameter schema of the operation."""
    details: dict[str, Any] = {"agent": spec.name, "parameters": parameters_schema(spec)}
    if isinstance(error, WrongParameters):
        error = error.spelt(camel_names(spec.parameters_schema.get("properties", {})))
        details["faults"] = [{"parameter": where, "fault": fault} for where, fault in error.faults]
    return DelegateError(error.message, code=error.code, advice=error.advice, details=details)


def _priority(value: object) -> Priority:
    try:
        return priority_of(value)
    except Misused as error:
        raise DelegateError(error.message, advice=error.advice, details={"priority": list(PRIORITIES)}) from None


def _session_id(value: object) -> str:
    if not isinstance(value, str) or not is_session_id(value):
        advice = "It looks like sess_1763200000_abc123 and is the taskId of a result."
        raise DelegateError(f"resume must be the id of a delegation, not {value!r:.80}.", advice=advice)
    return value


def milliseconds(name: str, value: object, *, is_positive: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12 or (is_positive and not value):
        fault = f"{name} must be a number of milliseconds{' above 0' if is_positive else ''}, not {value!r:.60}."
        raise DelegateError(fault, advice="E.g. 30000 for half a minute.", details={name: {"minimum": 0}})
    return float(value)
