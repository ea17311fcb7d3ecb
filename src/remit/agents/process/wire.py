"""Delegations, requests, events and errors as JSON between a worker and the Remit process. Requests of a worker are not trusted."""

import traceback
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from remit.core.budget import Limits
from remit.core.deadline import Deadline
from remit.core.delegation import Delegation, Lineage, TaskContext
from remit.core.errors import Failed, InvalidReturn, Misused, Refused, RemitError, Stopped, Unavailable
from remit.core.events import Event, EventKind
from remit.core.request import Request
from remit.core.states import Priority
from remit.models.messages import Answer, EndReason, Reply
from remit.runtime.context import Repair

# ---- errors

_TRACEBACK_CHARACTERS = 20_000
_MESSAGE_CHARACTERS = 20_000
_BRANCHES: dict[str, type[RemitError]] = {kind.__name__: kind for kind in (Refused, Failed, Stopped, Unavailable, Misused, RemitError)}


class AgentRaised(Failed):
    """The agent's function raised, in its own process."""

    def __init__(self, message: str, *, type_name: str, traceback_text: str, code: str | None = None, advice: str = "") -> None:
        super().__init__(message, code=code, advice=advice)
        self.type_name = type_name
        self.traceback_text = traceback_text


def error_to_wire(error: BaseException, *, with_traceback: bool = False) -> dict[str, Any]:
    wire: dict[str, Any] = {"type": type(error).__name__, "message": _text(error)[:_MESSAGE_CHARACTERS]}
    if isinstance(error, RemitError):
        wire |= {"message": error.message, "code": error.code, "advice": error.advice, "branch": _branch(error)}
    if isinstance(error, InvalidReturn):
        wire["faults"] = list(error.faults)
    if with_traceback:
        wire["traceback"] = "".join(traceback.format_exception(error))[-_TRACEBACK_CHARACTERS:]
    return wire


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - `__str__` of an agent's exception is the agent's code and may raise anything
        return "(its message could not be read)"


def _branch(error: RemitError) -> str:
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _BRANCHES), "Failed")


def error_from_wire(wire: object) -> RemitError:
    """What `error_to_wire` made; anything else the other side may have sent is still an error, never an exception here."""
    fields: Mapping[str, Any] = wire if isinstance(wire, Mapping) else {}
    message = str(fields.get("message") or "")
    advice = str(fields.get("advice") or "")
    trace = str(fields.get("traceback") or "")
    code = fields.get("code")
    if isinstance(fields.get("faults"), list):
        return _noted(InvalidReturn([str(fault) for fault in fields["faults"]], advice=advice), trace)
    branch = _BRANCHES.get(str(fields.get("branch")))
    if branch is not None:
        return _noted(branch(message, code=str(code) if code else None, advice=advice), trace)
    type_name = str(fields.get("type") or "Exception")
    return AgentRaised(f"{type_name}: {message}" if message else type_name, type_name=type_name, traceback_text=trace)


def _noted(error: RemitError, trace: str) -> RemitError:
    if trace:
        error.add_note(f"In the agent's process:\n{trace}")
    return error


# ---- delegations, requests and events

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


def asked_to_wire(asked: Answer) -> dict[str, Any]:
    """Of what a model said, as much as a worker needs: the words, and how they ended."""
    return {
        "text": asked.reply.text,
        "model": asked.reply.model,
        "ended": str(asked.ended),
        "input_tokens": asked.input_tokens,
        "output_tokens": asked.output_tokens,
        "cost": asked.cost,
    }


def asked_from_wire(wire: Mapping[str, Any]) -> Answer:
    known = dict(wire)
    return Answer(reply=Reply(text=known.pop("text"), model=known.pop("model")), ended=EndReason(known.pop("ended")), **known)
