"""What is streamed while a delegation runs (S5.7): `progress{message}`, `data{chunk}`, and at the end `complete{result}` or `error{error}`.

The last one carries the same object that a call without streaming gives. Made from the events of the delegation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from remit.core.events import Event, EventKind
from remit.tool.result import DelegateResult

WAITING = "Waiting for a person's approval"
"""How the notice begins by which an approval is asked for."""
ANSWERED = ("Approved: ", "Not approved: ")
"""And the one by which it is over."""


class ChunkType(StrEnum):
    PROGRESS = "progress"
    """`{message, fraction?}`"""
    DATA = "data"
    """`{chunk}`"""
    STATUS = "status"
    """`{state, message}`: it is QUEUED, RUNNING or PAUSED from here on; told to those who follow through a door"""
    COMPLETE = "complete"
    """`{result}`"""
    ERROR = "error"
    """`{error, result}`: the result too, since what was done is in it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    type: ChunkType
    task_id: str | None
    data: Mapping[str, Any]
    result: DelegateResult | None = None
    """With the last one."""
    number: int = 0
    """Of the event it was made of, by which a stream is taken up again; 0: of none."""

    def to_dict(self) -> dict[str, Any]:
        return {"type": str(self.type), "taskId": self.task_id, "data": dict(self.data)}


def begun(task_id: str, agent: str) -> Chunk:
    """The first one: by its task id a caller can cancel it, or ask for it later."""
    return Chunk(type=ChunkType.PROGRESS, task_id=task_id, data={"message": f"{agent} has been started."})


def ended(result: DelegateResult, number: int = 0) -> Chunk:
    document = result.to_dict()
    if result.success:
        return Chunk(type=ChunkType.COMPLETE, task_id=result.task_id, data={"result": document}, result=result, number=number)
    data = {"error": document["error"], "result": document}
    return Chunk(type=ChunkType.ERROR, task_id=result.task_id, data=data, result=result, number=number)


def chunk_of(event: Event) -> Chunk | None:
    """What an event says on the way; None for those that say nothing to a caller."""
    body, kind = event.body, event.kind
    if kind is EventKind.DATA:
        return Chunk(type=ChunkType.DATA, task_id=event.session_id, data={"chunk": body.get("chunk")}, number=event.number)
    data: dict[str, Any] = {"message": _words(kind, body)}
    if kind is EventKind.PROGRESS and body.get("fraction") is not None:
        data["fraction"] = body["fraction"]
    return Chunk(type=ChunkType.PROGRESS, task_id=event.session_id, data=data, number=event.number) if data["message"] else None


def is_paused(events: Iterable[Event]) -> bool:
    """Whether the last thing that remit itself said is that it waits for a person (`flow.approve`)."""
    notices = [str(event.body.get("message", "")) for event in events if event.kind is EventKind.NOTICE]
    return bool(notices) and notices[-1].startswith(WAITING)


def _words(kind: EventKind, body: Mapping[str, Any]) -> str:
    match kind:
        case EventKind.PROGRESS | EventKind.NOTICE:
            return str(body.get("message", ""))
        case EventKind.ARTIFACT:
            return f"Wrote {body.get('path')}."
        case EventKind.CANCEL:
            return f"Cancel {body.get('state', 'requested')}: {body.get('reason') or 'no reason given'}."
    return ""
