"""What an agent elsewhere says of itself when it registers, judged: names, schemas, times. What it declares is not trusted."""

from collections.abc import Iterable
from typing import Any

from remit.access.visitor import Doing, Visitor
from remit.agents.function import agent_name
from remit.core.agents import ASSISTANT, COME_WITH_REMIT, ROLES, AgentSpec, Workspace
from remit.core.errors import Misused, Refused
from remit.core.lineage import ROOT_CALLER
from remit.core.policy import Effect
from remit.flow.output_schema import checked_schema
from remit.flow.plain import clean
from remit.proto.times import seconds
from remit.proto.v1 import tasks_pb2 as pb
from remit.proto.values import dict_of
from remit.serve.grpc.remote import Offered
from remit.tool.catalogue import parts_of

KIND = "remote"
MOST_OPERATIONS = 100
MOST_SLOTS = 1000
_DESCRIPTION = 1000
_RESERVED = frozenset({ROOT_CALLER, ASSISTANT, *COME_WITH_REMIT, *ROLES})
_ANYTHING: dict[str, Any] = {"type": "object", "properties": {}}


def source_of(name: str) -> str:
    """Where the directory says it is from: the same for all instances of one name."""
    return f"registered:{name}"


def must_be_allowed(visitor: Visitor, names: Iterable[str]) -> None:
    """Raises `Refused`."""
    if not visitor.may(Doing.SERVE) or visitor.parent is not None:
        raise Refused(
            f"{visitor.principal} may not serve agents.", code="FORBIDDEN", advice="`remit token new NAME --may serve` grants it."
        )
    for name in names:
        if not visitor.grants.may_use(name):
            allowed = ", ".join(visitor.grants.agents or ())
            raise Refused(f"{visitor.principal} may not serve {name}.", code="FORBIDDEN", advice=f"It was granted {allowed}.")


def must_be_free(name: str, known: Iterable[AgentSpec]) -> None:
    """A registered agent takes the place of none of the project, and adds nothing to it. Raises `Refused`."""
    ours = source_of(name)
    taken = next((spec for spec in known if parts_of(spec.name)[0].casefold() == name.casefold() and spec.source != ours), None)
    if taken is not None or name.casefold() in _RESERVED:
        where = f" ({taken.source})" if taken is not None else ""
        raise Refused(f"There is an agent {name} here already{where}.", code="NAME_TAKEN", advice="Register under another name.")


def name_of(message: pb.RegisterRequest) -> str:
    return _one_part(message.name, "name")


def operations_of(message: pb.RegisterRequest, name: str, principal: str) -> dict[str, Offered]:
    """By operation. Raises `Misused`. Takes a moment where there are many schemas: not for the loop."""
    if not message.operations:
        raise Misused("It offers no operations.", advice="Name at least one; one with an empty name is the agent itself.")
    if len(message.operations) > MOST_OPERATIONS:
        raise Misused(f"It offers {len(message.operations)} operations; {MOST_OPERATIONS} are the most.")
    found: dict[str, Offered] = {}
    for operation in message.operations:
        short = _one_part(operation.name, "an operation") if operation.name else ""
        if short in found:
            raise Misused(f"The operation {short!r} is offered twice.", advice="Name each once.")
        described = operation.description or message.description
        found[short] = Offered(
            spec=AgentSpec(
                name=f"{name}.{short}" if short else name,
                description=clean(described)[:_DESCRIPTION],
                timeout_seconds=_seconds(operation),
                workspace=Workspace.NONE,
                parameters_schema=_schema(operation),
                kind=KIND,
                effects=_effects(operation),
                source=source_of(name),
                resumable=operation.is_safe_to_repeat,
            ),
            is_safe_to_repeat=operation.is_safe_to_repeat,
        )
    return found


def slots_of(message: pb.RegisterRequest) -> int:
    if not 0 <= message.slots <= MOST_SLOTS:
        raise Misused(f"slots must be between 1 and {MOST_SLOTS}, not {message.slots}.", advice="0 is 1.")
    return message.slots or 1


def _one_part(name: str, what: str) -> str:
    if "." in name:
        raise Misused(f"{what} {name!r:.80} has a dot in it.", advice="images with the operation resize is found as images.resize.")
    return agent_name(name)


def _seconds(operation: pb.Operation) -> float | None:
    if operation.timeout_ns < 0:
        raise Misused(f"timeout_ns of {operation.name!r:.80} is negative.", advice="Leave it out, or say how long it may take.")
    return seconds(operation.timeout_ns)


def _schema(operation: pb.Operation) -> dict[str, Any]:
    if not operation.HasField("parameters_schema") or not operation.parameters_schema.fields:
        return _ANYTHING
    try:
        schema = checked_schema(dict_of(operation.parameters_schema))
    except Misused as error:
        fault = error.message.replace("output_schema", "parameters_schema")
        raise Misused(f"{operation.name}: {fault}", advice="Write a JSON schema of what the operation takes.") from None
    if schema.get("type", "object") != "object" or not isinstance(schema.get("properties", {}), dict):
        raise Misused(f"{operation.name}: parameters_schema must describe an object.", advice='{"type": "object", "properties": {…}}')
    return {"type": "object", "properties": {}, **schema}


def _effects(operation: pb.Operation) -> tuple[Effect, ...]:
    try:
        return tuple(dict.fromkeys(Effect(effect) for effect in operation.effects))
    except ValueError as error:
        raise Misused(f"effects: {error}.", advice=f"There are {', '.join(Effect)}.") from None
