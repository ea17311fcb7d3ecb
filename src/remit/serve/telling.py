"""Events of a delegation as chunks for whoever follows it through a door: with how it stands (queued, running, paused) where that changes.

The same event gives the same chunk, whenever a stream is taken up: the place of a reader is all that is known of it. Used by `service`.
"""

from remit.core.events import Event, EventKind, Step
from remit.tool.chunks import ANSWERED, WAITING, Chunk, ChunkType, chunk_of
from remit.tool.result import TaskState

_STATES = {
    Step.REGISTER_DELEGATION: (TaskState.QUEUED, "It is on record."),
    Step.ROUTE_TO_AGENT: (TaskState.RUNNING, "It is running."),
}


def chunk_told(event: Event) -> Chunk | None:
    """None for what says nothing to a caller, and for the end: that is made of the record."""
    if event.kind is EventKind.STEP:
        known = _STATES.get(event.body["step"])
        return None if known is None else _standing(event, *known)
    if event.kind is EventKind.NOTICE:
        words = str(event.body.get("message", ""))
        if words.startswith(WAITING):
            return _standing(event, TaskState.PAUSED, words)
        if words.startswith(ANSWERED):
            return _standing(event, TaskState.RUNNING, words)
    return None if event.kind in (EventKind.COMPLETE, EventKind.ERROR) else chunk_of(event)


def _standing(event: Event, state: TaskState, words: str) -> Chunk:
    data = {"state": str(state), "message": words}
    return Chunk(type=ChunkType.STATUS, task_id=event.session_id, data=data, number=event.number)
