"""The JSON schema of the delegate tool, drawn from the directory (S5.1): a new agent appears by being registered. Names are in camelCase.

Two forms. The strict one says for each target which operations it has, what each takes and how long it may last, by `if` and `then`: what
it accepts, the tool accepts. The plain one names targets and operations only: vendors of models refuse conditions in a tool's schema, and a
model reads a signature better (see `description`).
"""

from collections.abc import Callable, Mapping
from typing import Any

from remit.core.agents import AgentSpec
from remit.core.deadline import TimeLimits
from remit.core.spelling import camel_names
from remit.core.states import Priority
from remit.tool.catalogue import Catalogue, Operations, parts_of, signature

NAMED = 250
"""So many names stand in a schema: with more of them any text is taken there, and judged when it comes."""
LISTED_CHARACTERS = 8_000
"""Of agents in the words of the tool."""
PRIORITIES: tuple[str | int, ...] = (*(priority.name.lower() for priority in Priority), 0, *map(int, Priority))
"""Names, and the numbers they stand for; 0 is normal (S5.6)."""
_PRIORITY = "Who goes first when there is more to do than can be done at once."
Limits = Callable[[str], TimeLimits]
Schema = dict[str, Any]

_LITERAL = frozenset({"default", "const", "enum", "examples"})
"""Where values stand, not schemas."""


def announced(catalogue: Catalogue, limits_for: Limits | None = None) -> Schema:
    """The tool as it is made known: name, words and schema; the strict one where the limits of the agents are given."""
    schema = plain_schema(catalogue) if limits_for is None else strict_schema(catalogue, limits_for)
    return {"name": "delegate", "description": description(catalogue), "inputSchema": schema}


def plain_schema(catalogue: Catalogue) -> Schema:
    return {"type": "object", "properties": properties(catalogue), "required": _required(catalogue)}


def strict_schema(catalogue: Catalogue, limits_for: Limits) -> Schema:
    schema = {**plain_schema(catalogue), "additionalProperties": False}
    schema["properties"]["priority"] = {"enum": list(PRIORITIES), "description": f"{_PRIORITY} 1 is low, 4 critical, 0 normal."}
    targets = catalogue.targets()
    if sum(map(len, targets.values())) > NAMED:
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
    if len(names) > NAMED:
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
    then = {"properties": {"parameters": _hoisted(parameters_schema(spec), spec.name, shared), "timeout": timeout}}
    if operation is not None:
        return _condition({"target": target, "operation": operation}, then)
    alone = _condition({"target": target}, then)
    alone["if"]["not"] = {"required": ["operation"]}
    return alone


def _hoisted(schema: Schema, agent: str, shared: Schema) -> Schema:
    """`schema` as a part of a larger one: what it defines stands at the top of that, under the agent's name."""
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    for name, definition in schema.get("$defs", {}).items():
        shared[f"{agent}.{name}"] = _pointed(definition, agent)
    pointed: Schema = _pointed(inner, agent)
    return pointed


def _pointed(value: Any, agent: str) -> Any:
    if isinstance(value, list):
        return [_pointed(one, agent) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: one if name in _LITERAL and not isinstance(one, dict) else _reference(name, one, agent) for name, one in value.items()}


def _reference(name: str, value: Any, agent: str) -> Any:
    if name == "$ref" and isinstance(value, str) and value.startswith("#/$defs/"):
        return f"#/$defs/{agent}.{value.removeprefix('#/$defs/')}"
    return _pointed(value, agent)
