"""What a client asks for, read and checked: arguments of a tool made into what `Remit` takes. Converts milliseconds, once (S2.1).

Names may come in camelCase or snake_case (S5.2), for our own arguments and for the agent's parameters. Judges only what must be known
to find the agent, and timeouts, because the advice must be in milliseconds too; the rest is judged by the flow, as for every other caller.
"""

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from remit.core.agents import AgentSpec
from remit.core.errors import Misused
from remit.core.ids import is_session_id
from remit.serve.mcp.catalogue import Catalogue

DELEGATION_ARGUMENTS = ("target", "operation", "parameters", "timeout", "priority", "key", "accept", "budget")
LONGEST_ID = 40
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OPTIONS = ("priority", "key", "accept", "budget")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One delegation: what `Remit.start` takes."""

    agent: str
    parameters: dict[str, Any]
    options: dict[str, Any]


def snake(name: str) -> str:
    return _HUMP.sub("_", name).lower()


def arguments_of(given: Mapping[str, Any] | None, *known: str) -> dict[str, Any]:
    """The arguments by their own names. Whatever is not known is refused: a parameter in the wrong place must not vanish silently."""
    named: dict[str, Any] = {}
    for name, value in (given or {}).items():
        own = snake(name)
        if own not in known:
            raise Misused(
                f"There is no argument {name!r:.80}.", advice=f"There are {', '.join(known)}; what an agent takes goes into parameters."
            )
        if own in named:
            raise Misused(f"{own} is given twice.", advice="Write it once.")
        named[own] = value
    return {name: value for name, value in named.items() if value is not None}


def delegation_of(arguments: Mapping[str, Any], catalogue: Catalogue, longest_seconds: Callable[[str], float]) -> Asked:
    """In the order of S5.3: target, operation, their fit, then the parameters. `longest_seconds`: what an agent may be given."""
    spec = catalogue.find(arguments.get("target"), arguments.get("operation"))
    options = {name: arguments[name] for name in _OPTIONS if name in arguments}
    if "timeout" in arguments:
        options["timeout"] = _timeout_seconds(arguments["timeout"], longest_seconds(spec.name))
    return Asked(agent=spec.name, parameters=_parameters(spec, arguments.get("parameters")), options=options)


def _parameters(spec: AgentSpec, given: object) -> dict[str, Any]:
    if isinstance(given, str):  # models now and then write the object as text
        with contextlib.suppress(ValueError, RecursionError):
            given = json.loads(given)
    if given is None or given == "":
        return {}
    if not isinstance(given, Mapping):
        raise Misused(f"parameters must be an object, not {type(given).__name__}.", advice='Pass e.g. {"path": "README.md"}.')
    properties: Mapping[str, Any] = spec.parameters_schema.get("properties", {})
    own = {snake(name): name for name in properties}
    named: dict[str, Any] = {}
    for name, value in given.items():
        name = str(name)
        called = name if name in properties else own.get(snake(name), name)
        if called in named:
            raise Misused(f"Parameters of {spec.name}: {called} is given twice.", advice="Write it once.")
        named[called] = value
    return named


def _timeout_seconds(value: object, longest_seconds: float) -> float:
    given = milliseconds("timeout", value)
    longest = 1000 * longest_seconds
    if given == 0 or given > longest:
        raise Misused(
            f"timeout must be above 0 and at most {longest:.0f} milliseconds here, not {given:.0f}.",
            advice=f"Pass at most {longest:.0f}, or leave it out; the maximum is a setting in remit.toml ([timeouts]).",
        )
    return given / 1000


def milliseconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise Misused(f"{name} must be a number of milliseconds, not {value!r:.60}.", advice="E.g. 30000 for half a minute.")
    return float(value)


def whole_number(name: str, value: object, *, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Misused(f"{name} must be a whole number from {least} to {most}, not {value!r:.60}.")
    return value


def session_of(arguments: Mapping[str, Any]) -> str:
    session_id = arguments.get("session_id")
    if not isinstance(session_id, str) or len(session_id) > LONGEST_ID or not is_session_id(session_id):
        raise Misused(
            f"session_id must be the id of a delegation, not {session_id!r:.80}.",
            advice="It looks like sess_1763200000_abc123 and is in every answer of delegate.",
        )
    return session_id
