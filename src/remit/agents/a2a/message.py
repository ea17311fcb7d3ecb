"""The message to a remote: the task in words, or its parameters as data; and, for a remit, where the delegation stands."""

from collections.abc import Mapping
from typing import Any

from a2a.types import Message, Part, Role, Task

from remit.agents.a2a.gathered import ASKS
from remit.agents.a2a.reaching import Line
from remit.agents.definition import Definition
from remit.flow.context import Context
from remit.proto.extension import EXTENSION, Told
from remit.proto.values import struct_of, text_of, value_of

MODES = ("text/plain", "application/json")
_MARGIN_SECONDS, _MARGIN = 1.0, 0.05
"""The other side ends so much earlier than we do, so that what it has by then still comes back."""


def message_of(
    line: Line, definition: Definition, ctx: Context, arguments: Mapping[str, Any], before: Task | None, *, turn: int
) -> Message:
    """`before`: the task that it goes on with, or after; one that asked something is answered, one that has ended shares its context."""
    metadata: dict[str, Any] = {}
    skill = definition.remote or (definition.name if line.is_remit else None)
    if skill is not None:
        metadata["skill"] = skill
    if line.is_remit:
        left = max(0.1, ctx.remaining - min(_MARGIN_SECONDS, _MARGIN * ctx.remaining))
        metadata[EXTENSION] = Told(depth=ctx.depth, path=ctx.path, seconds_left=left).to_dict()
    return Message(
        # The same for the same try of the same delegation, whoever sends it: a remit then does not run it twice.
        message_id=f"{ctx.session_id}-{turn}",
        context_id=before.context_id if before is not None else "",
        task_id=before.id if before is not None and before.status.state in ASKS else "",
        role=Role.ROLE_USER,
        parts=_parts(arguments, is_remit=line.is_remit),
        metadata=struct_of(metadata),
        extensions=[EXTENSION] if line.is_remit else [],
    )


def _parts(arguments: Mapping[str, Any], *, is_remit: bool) -> list[Part]:
    task = arguments.get("task")
    if is_remit:
        return [Part(data=value_of({"parameters": dict(arguments)}), media_type="application/json")]
    parts = [Part(text=text_of(task), media_type="text/plain")] if isinstance(task, str) and task else []
    more = {name: value for name, value in arguments.items() if name != "task" or not parts}
    if more or not parts:
        parts.append(Part(data=value_of(more), media_type="application/json"))
    return parts
