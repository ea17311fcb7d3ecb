"""A request to the delegate tool, read and judged before anything runs, in the order of S5.3: target, operation, their fit, the operation's
parameters, then the rest with its defaults. Milliseconds become seconds here, once (S2.1).

Names come in camelCase or snake_case (S5.2). Transport-neutral: every door that speaks this tool reads requests here. Whatever needs the
state of the tree (depth, cycle, budget) is judged by the flow, as for every other caller.
"""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.core.agents import AgentSpec
from remit.core.deadline import TimeLimits
from remit.core.errors import Misused, RemitError
from remit.core.parameters import WrongParameters
from remit.core.ports import AgentPort
from remit.core.spelling import camel_names, own_spelling, snake
from remit.core.states import Priority, priority_of
from remit.flow.plain import weigh
from remit.tool.catalogue import Catalogue, parts_of
from remit.tool.faults import DelegateError
from remit.tool.schema import PRIORITIES, parameters_schema

ARGUMENTS = ("target", "operation", "parameters", "timeout", "priority")
"""Of the tool (S5.1)."""
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
    """Further arguments that the door takes beside those of the tool."""

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
        """The request, or `DelegateError` with what is allowed. `also`: arguments that a door takes beside those of the tool."""
        arguments, unknown = _named(given, (*ARGUMENTS, *also))
        spec = self._meant(arguments.get("target"), arguments.get("operation"))
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
            raise _wrong(spec, Misused(fault, advice='Pass e.g. {"path": "README.md"}.'))
        port = self._find(spec.name)
        try:
            named: dict[str, Any] = {}
            if given:
                weigh(given)
                own_names = spec.parameters_schema.get("properties", ())
                named = own_spelling({str(name): value for name, value in given.items()}, own_names, spec.name)
            if port is not None:
                port.check(dict(named))
        except Misused as error:
            raise _wrong(spec, error) from None
        except RemitError as error:
            raise _wrong(spec, Misused(f"Parameters of {spec.name}: {error.message}.", advice=error.advice or WHAT_IS_JSON)) from None
        except Exception as error:  # noqa: BLE001 - the boundary to the validators of agents' parameters, which are users' code
            raise _wrong(spec, Misused(f"The parameters could not be checked: {type(error).__name__}: {error}."[:400])) from None
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
    named, unknown = _named(given, known)
    if unknown:
        raise DelegateError(
            f"There is no argument {unknown[0]!r:.80}.",
            advice=f"There are {', '.join(known)}." if known else "It takes none.",
            details={"arguments": list(known), "unknown": unknown},
        )
    return named


def _named(given: object, known: tuple[str, ...]) -> tuple[dict[str, Any], list[str]]:
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


def _wrong(spec: AgentSpec, error: Misused) -> DelegateError:
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
