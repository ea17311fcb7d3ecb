"""An agent's declaration as JSON, and back: what an attached process is told of the owner's agents, and what it tells of its own.

What comes from an attached process is not trusted: it is a declaration or `Misused`.
"""

import dataclasses
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from remit.core.agents import AgentSpec
from remit.core.errors import Misused


def spec_to_wire(spec: AgentSpec) -> dict[str, Any]:
    return {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}


def spec_from_wire(wire: object) -> AgentSpec:
    try:
        return _reader().validate_python(wire)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise Misused(f"The declaration of an agent is faulty: {'.'.join(map(str, fault['loc']))}: {fault['msg']}.") from None


@cache
def _reader() -> TypeAdapter[AgentSpec]:
    """Made when first needed: most who import this never read one."""
    return TypeAdapter(AgentSpec)
