"""Results and chunks of the delegate tool as gRPC messages (`remit/agents/proto/v1/tasks.proto`)."""

from collections.abc import Mapping
from typing import Any

from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.proto.values import nanoseconds, struct_of, text_of, value_of
from remit.core.delegate_results import Chunk, ChunkType, DelegateResult, TaskError, TaskState
from remit.core.delegation import CallerInfo, Delegation
from remit.core.record import Record
from remit.core.result import Artifact

_STATES: Mapping[TaskState, Any] = {state: pb.TaskState.Value(f"TASK_STATE_{state}") for state in TaskState}


def state_number(state: TaskState) -> Any:
    """An enum of protobuf, which is an int."""
    return _STATES[state]


# ---- results


def task_of(result: DelegateResult, known: Record | Delegation | None = None) -> pb.Task:
    """`known`: what is recorded of it beside its result."""
    meta = result.metadata
    task = pb.Task(
        task_id=result.task_id or "",
        state=_STATES[result.task_state],
        success=result.success,
        output=text_of(result.output),
        target=text_of(meta.target),
        operation=text_of(meta.operation or ""),
        agent_id=text_of(meta.agent_id),
        created_at_ns=nanoseconds(meta.created_at),
        completed_at_ns=nanoseconds(meta.completed_at),
        duration_ns=round(1e6 * (meta.duration_ms or 0)),
        status=meta.status or "",
        stop_reason=meta.stop_reason or "",
    )
    if known is not None:
        task.MergeFrom(_lineage(known))
    if result.data is not None:
        task.data.CopyFrom(value_of(result.data))
    if result.error is not None:
        task.error.CopyFrom(error_of(result.error))
    if result.artifacts:
        task.artifacts.extend([_artifact(artifact) for artifact in result.artifacts])
    return task


def _lineage(known: Record | Delegation) -> pb.Task:
    line = known.lineage if isinstance(known, Delegation) else known
    caller = known.caller_info or CallerInfo(known.caller, "")
    return pb.Task(
        root_id=line.root_id,
        parent_id=line.parent_id or "",
        depth=line.depth,
        path=[text_of(name) for name in line.path],
        priority=int(known.priority),  # type: ignore[arg-type]
        deadline_ns=nanoseconds(known.deadline_wall if isinstance(known, Delegation) else known.deadline_at),
        principal=text_of(caller.principal),
        session_id=text_of(caller.session or ""),
    )


def error_of(error: TaskError) -> pb.TaskError:
    message = pb.TaskError(code=error.code, message=text_of(error.message), recommendation=text_of(error.recommendation))
    if error.details:
        message.details.CopyFrom(struct_of(error.details))
    return message


def _artifact(artifact: Artifact) -> pb.Artifact:
    known: dict[str, Any] = {"evidence": str(artifact.evidence)}
    if artifact.sha256 is not None:
        known |= {"size": artifact.size, "sha256": artifact.sha256, "mtime": artifact.mtime}
    return pb.Artifact(
        type=text_of(artifact.type), path=text_of(artifact.path), summary=text_of(artifact.summary), metadata=struct_of(known)
    )


# ---- chunks


def message_of_chunk(chunk: Chunk, known: Record | None = None) -> pb.TaskChunk:
    message = pb.TaskChunk(number=chunk.number, task_id=chunk.task_id or "")
    if chunk.result is not None:
        task = task_of(chunk.result, known)
        if chunk.type is ChunkType.COMPLETE:
            message.complete.CopyFrom(task)
        else:
            message.error.task.CopyFrom(task)
            message.error.error.CopyFrom(task.error)
    elif chunk.type is ChunkType.DATA:
        message.output.chunk.CopyFrom(value_of(chunk.data.get("chunk")))
    else:
        _fill_words(message, chunk)
    return message


def _fill_words(message: pb.TaskChunk, chunk: Chunk) -> None:
    words = text_of(str(chunk.data.get("message", "")))
    if chunk.type is ChunkType.STATUS:
        message.status.state, message.status.message = _STATES[TaskState(chunk.data["state"])], words
        return
    message.progress.message = words
    fraction = chunk.data.get("fraction")
    if isinstance(fraction, int | float):
        message.progress.fraction = fraction
