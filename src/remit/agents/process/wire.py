"""What a worker must know of its delegation, as JSON, and back. Also requests, which come from the worker and are not trusted.

Monotonic moments cross as they are: on Linux all processes of a machine read the same monotonic clock.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from remit.core.budget import Limits
from remit.core.deadline import Deadline
from remit.core.delegation import Delegation, TaskContext
from remit.core.errors import Misused
from remit.core.events import Event, EventKind
from remit.core.lineage import Lineage
from remit.core.states import Priority
from remit.flow.context import Repair
from remit.flow.request import Request
from remit.models.messages import Asked, Ended, Reply

_TASK_FIELDS = frozenset(f.name for f in fields(TaskContext)) - {"extra"}
_REQUEST_FIELDS = frozenset(f.name for f in fields(Request))


def delegation_to_wire(delegation: Delegation) -> dict[str, Any]:
    lineage, deadline = delegation.lineage, delegation.deadline
    return {
        "lineage": {
            "session_id": lineage.session_id,
            "root_id": lineage.root_id,
            "parent_id": lineage.parent_id,
            "depth": lineage.depth,
            "path": lineage.path,
        },
        "deadline": {"hard_at": deadline.hard_at, "soft_at": deadline.soft_at, "timeout_seconds": deadline.timeout_seconds},
        "agent": delegation.agent,
        "parameters": delegation.parameters,
        "caller": delegation.caller,
        "priority": int(delegation.priority),
        "created_at": delegation.created_at,
        "idle_seconds": delegation.idle_seconds,
        "key": delegation.key,
        "accept": delegation.accept,
        "limits": delegation.limits.to_dict() if delegation.limits else None,
        "command": delegation.command,
        "task": delegation.task.to_dict() if delegation.task else None,
        "resumes": delegation.resumes,
    }


def delegation_from_wire(wire: Mapping[str, Any]) -> Delegation:
    known = dict(wire)
    lineage = known.pop("lineage")
    limits, task = known.pop("limits"), known.pop("task")
    return Delegation(
        lineage=Lineage(**{**lineage, "path": tuple(lineage["path"])}),
        deadline=Deadline(**known.pop("deadline")),
        priority=Priority(known.pop("priority")),
        accept=tuple(known.pop("accept")),
        limits=Limits(**limits) if limits else None,
        task=task_from_wire(task) if task else None,
        **known,
    )


def task_from_wire(wire: Mapping[str, Any]) -> TaskContext:
    known = {name: wire[name] for name in _TASK_FIELDS & wire.keys()}
    return TaskContext(**known, extra={name: value for name, value in wire.items() if name not in _TASK_FIELDS})


def repair_to_wire(repair: Repair | None) -> dict[str, Any] | None:
    return None if repair is None else {"faults": repair.faults, "original": repair.original}


def repair_from_wire(wire: Mapping[str, Any] | None) -> Repair | None:
    return None if wire is None else Repair(faults=tuple(wire["faults"]), original=wire["original"])


def event_to_wire(event: Event) -> dict[str, Any]:
    return {
        "session_id": event.session_id,
        "number": event.number,
        "at": event.at,
        "kind": event.kind,
        "body": event.body,
    }


def event_from_wire(wire: Mapping[str, Any]) -> Event:
    return Event(**{**wire, "kind": EventKind(wire["kind"])})


def request_from_wire(wire: object) -> Request:
    """A request of a worker: whatever it sent, this is a request or `Misused`."""
    if not isinstance(wire, Mapping) or not isinstance(wire.get("agent"), str) or not isinstance(wire.get("parameters"), Mapping):
        raise Misused("A request needs an agent and its parameters.", advice='Use ctx.delegate("agent", name=value).')
    unknown = wire.keys() - _REQUEST_FIELDS
    if unknown:
        raise Misused(f"A request has no field {', '.join(sorted(map(str, unknown)))}.")
    return Request(**wire)


def asked_to_wire(asked: Asked) -> dict[str, Any]:
    """Of what a model said, as much as a worker needs: the words, and how they ended."""
    return {
        "text": asked.reply.text,
        "model": asked.reply.model,
        "ended": str(asked.ended),
        "input_tokens": asked.input_tokens,
        "output_tokens": asked.output_tokens,
        "cost": asked.cost,
    }


def asked_from_wire(wire: Mapping[str, Any]) -> Asked:
    known = dict(wire)
    return Asked(reply=Reply(text=known.pop("text"), model=known.pop("model")), ended=Ended(known.pop("ended")), **known)
