"""What a remote says, gathered into one task, in bounded memory; and told to the delegation as it comes."""

from typing import Any

from a2a.types import Artifact, Message, Part, StreamResponse, Task, TaskState, TaskStatus, TaskStatusUpdateEvent

from remit.agents.a2a.bounded import too_large
from remit.flow.context import Context
from remit.proto.extension import EXTENSION
from remit.proto.values import dict_of, json_of

MOST_BYTES = 32 * 1024 * 1024
MOST_ARTIFACTS = 200
STREAM = "stream"
"""Of a remit: the artifact of what was said on the way."""
ENDED = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)
FAILED = ENDED - {TaskState.TASK_STATE_COMPLETED}
ASKS = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})


class Gathered:
    def __init__(self, ctx: Context, *, is_remit: bool) -> None:
        self._ctx = ctx
        self._is_remit = is_remit
        self._bytes = 0
        self._last_words = ""
        self.task: Task | None = None
        self.message: Message | None = None
        """The whole answer, of one that makes no task of it."""
        self.was_lost = False
        """Something may be missing: what was said while nobody listened."""

    @property
    def is_over(self) -> bool:
        return self.message is not None or (self.task is not None and self.task.status.state in ENDED | ASKS)

    def take(self, event: StreamResponse) -> None:
        """Raises `Failed` when it is too much."""
        match event.WhichOneof("payload"):
            case "task":
                self.replace(event.task)
            case "message":
                self.message = event.message
            case "status_update":
                self._task(event.status_update.task_id, event.status_update.context_id)
                self._status(event.status_update)
            case "artifact_update":
                self._task(event.artifact_update.task_id, event.artifact_update.context_id)
                self._artifact(event.artifact_update.artifact, is_more=event.artifact_update.append)

    def replace(self, task: Task) -> None:
        """As it stands over there."""
        self._bytes = 0
        self._count(task.ByteSize())
        if len(task.artifacts) > MOST_ARTIFACTS:
            raise too_large("artifacts", MOST_BYTES)
        is_first, self.task = self.task is None, task
        for artifact in task.artifacts if is_first else ():
            self._told_of(artifact)
        self._tell(task.status, dict_of(task.metadata))

    def _task(self, task_id: str, context_id: str) -> Task:
        if self.task is None:
            self.task = Task(id=task_id, context_id=context_id)
        return self.task

    def _status(self, update: TaskStatusUpdateEvent) -> None:
        assert self.task is not None
        self.task.status.CopyFrom(update.status)
        if update.status.state in ENDED | ASKS:
            self.task.metadata.MergeFrom(update.metadata)
        self._tell(update.status, dict_of(update.metadata))

    def _artifact(self, artifact: Artifact, *, is_more: bool) -> None:
        assert self.task is not None
        self._count(artifact.ByteSize())
        known = next((one for one in self.task.artifacts if one.artifact_id == artifact.artifact_id), None)
        if known is None:
            if len(self.task.artifacts) >= MOST_ARTIFACTS:
                raise too_large("artifacts", MOST_BYTES)
            self.task.artifacts.append(artifact)
        elif is_more:
            known.parts.extend(artifact.parts)
        else:
            known.CopyFrom(artifact)
        self._told_of(artifact)

    def _told_of(self, artifact: Artifact) -> None:
        if not self._is_remit or artifact.artifact_id == STREAM:
            for part in artifact.parts:
                self._emit(part)

    def _emit(self, part: Part) -> None:
        kind = part.WhichOneof("content")
        if kind == "text" and part.text:
            self._ctx.emit(part.text)
        elif kind == "data":
            self._ctx.emit(json_of(part.data))

    def _tell(self, status: TaskStatus, metadata: dict[str, Any]) -> None:
        """What it says on the way; what it says at the end is its answer."""
        if status.state in ENDED | ASKS:
            return
        words = words_of(status.message)
        if words and words != self._last_words:
            self._last_words = words
            about = metadata.get(EXTENSION)
            fraction = about.get("fraction") if isinstance(about, dict) else None
            self._ctx.progress(words, fraction if isinstance(fraction, int | float) and 0 <= fraction <= 1 else None)

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > MOST_BYTES:
            raise too_large("all", MOST_BYTES)


def words_of(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if part.WhichOneof("content") == "text").strip()
