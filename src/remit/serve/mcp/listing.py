"""Which agents there are, as a document: what each does, takes and may be given. As many as one answer holds, the rest on further pages.

Used by the tool `list_agents`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from remit.core.agents import AgentSpec
from remit.serve.mcp.shortening import LARGEST_BYTES, json_text
from remit.settings.values import Settings
from remit.tool.catalogue import Catalogue
from remit.tool.schema import parameters_schema

ROOM_BYTES = LARGEST_BYTES - 4_000
"""For agents; what is left is for problems with agent files."""


def agents_document(
    catalogue: Catalogue,
    settings: Settings,
    target: str | None,
    offset: int,
    problems: Sequence[str] = (),
) -> dict[str, Any]:
    """The agents, or those of one target, from number `offset` on; `next_offset` is absent with the last page."""
    found = [
        (name, operation, spec)
        for name, operations in catalogue.targets().items()
        for operation, spec in operations.items()
        if (target is None or target.partition(".")[0] == name)
    ]
    documents = list(_fitting(_document(*one, settings) for one in found[offset:]))
    document: dict[str, Any] = {"agents": documents, "problems": list(problems)}
    following = offset + len(documents)
    if following < len(found):
        document["next_offset"] = following
        document["message"] = f"{len(found)} agents in all; the next: list_agents with offset {following}."
    return document


def _fitting(documents: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """As many as there is room for; one in any case, which is shortened like every answer."""
    room = ROOM_BYTES
    for number, one in enumerate(documents):
        room -= len(json_text(one).encode()) + 1
        if room < 0 and number:
            return
        yield one


def _document(target: str, operation: str | None, spec: AgentSpec, settings: Settings) -> dict[str, Any]:
    limits = settings.limits_for(spec.name)
    return {
        "target": target,
        "operation": operation,
        "description": spec.description,
        "parameters": parameters_schema(spec),
        "timeout_ms": 1000 * min(spec.timeout_seconds or limits.default_seconds, limits.maximum_seconds),
        "longest_ms": 1000 * limits.maximum_seconds,
        "kind": spec.kind,
        "workspace": str(spec.workspace),
        "requires_artifacts": spec.requires_artifacts,
    }
