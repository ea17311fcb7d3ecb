"""Results and chunks of the delegate tool as gRPC messages (`remit/agents/proto/v1/tasks.proto`), both ways. Independent of connections.

The gRPC API writes them and its clients and remotes read them, so both sides share the same objects. Needs `remit[grpc]`: imported only if
gRPC is used."""

from collections.abc import Mapping
from typing import Any

from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.proto.values import dict_of, json_of, nanoseconds, seconds, struct_of, text_of, value_of
from remit.core.delegate_results import Chunk, ChunkType, DelegateResult, TaskError, TaskMetadata, TaskState, final_chunk
from remit.core.delegation import CallerInfo, Delegation
from remit.core.record import Record
from remit.core.result import Artifact, Evidence

_STATES: Mapping[TaskState, Any] = {state: pb.TaskState.Value(f"TASK_STATE_{state}") for state in TaskState}
_STATES_BACK: Mapping[int, TaskState] = {number: state for state, number in _STATES.items()}


def state_number(state: TaskState) -> Any:
    """An enum of protobuf, which is an int."""
    return _STATES[state]


def state_of_number(number: int) -> TaskState:
    """An unknown number from a newer server counts as not ended."""
    return _STATES_BACK.get(number, TaskState.RUNNING)


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


def result_of_task(task: pb.Task) -> DelegateResult:
    has_ended = task.completed_at_ns != 0
    return DelegateResult(
        success=task.success,
        task_id=task.task_id or None,
        task_state=state_of_number(task.state),
        data=json_of(task.data) if task.HasField("data") else None,
        output=task.output,
        artifacts=tuple(_artifact_of(artifact) for artifact in task.artifacts),
        error=error_of_message(task.error) if task.HasField("error") else None,
        metadata=TaskMetadata(
            agent_id=task.agent_id,
            created_at=seconds(task.created_at_ns) or 0.0,
            completed_at=seconds(task.completed_at_ns),
            duration_ms=task.duration_ns / 1e6 if has_ended else None,
            status=task.status or None,
            stop_reason=task.stop_reason or None,
        ),
    )


def error_of(error: TaskError) -> pb.TaskError:
    message = pb.TaskError(code=error.code, message=text_of(error.message), recommendation=text_of(error.recommendation))
    if error.details:
        message.details.CopyFrom(struct_of(error.details))
    return message


def error_of_message(message: pb.TaskError) -> TaskError:
    details: dict[str, Any] = dict_of(message.details) if message.HasField("details") else {}
    return TaskError(code=message.code, message=message.message, recommendation=message.recommendation, details=details)


def _artifact(artifact: Artifact) -> pb.Artifact:
    known: dict[str, Any] = {"evidence": str(artifact.evidence)}
    if artifact.sha256 is not None:
        known |= {"size": artifact.size, "sha256": artifact.sha256, "mtime": artifact.mtime}
    return pb.Artifact(
        type=text_of(artifact.type), path=text_of(artifact.path), summary=text_of(artifact.summary), metadata=struct_of(known)
    )


def _artifact_of(message: pb.Artifact) -> Artifact:
    known = dict_of(message.metadata)
    evidence = known.get("evidence")
    return Artifact(
        type=message.type,
        path=message.path,
        summary=message.summary,
        evidence=Evidence(evidence) if evidence in tuple(Evidence) else Evidence.CLAIMED,
        size=known.get("size"),
        sha256=known.get("sha256"),
        mtime=known.get("mtime"),
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


def chunk_of_message(message: pb.TaskChunk) -> Chunk | None:
    """None: an unknown kind."""
    kind, number, task_id = message.WhichOneof("chunk"), message.number, message.task_id or None
    if kind == "complete" or (kind == "error" and message.error.HasField("task")):
        return final_chunk(result_of_task(message.complete if kind == "complete" else message.error.task), number)
    if kind == "error":
        error = {"error": error_of_message(message.error.error).to_dict()}
        return Chunk(type=ChunkType.ERROR, task_id=task_id, data=error, number=number)
    if kind == "output":
        return Chunk(type=ChunkType.DATA, task_id=task_id, data={"chunk": json_of(message.output.chunk)}, number=number)
    if kind == "progress":
        data: dict[str, Any] = {"message": message.progress.message}
        if message.progress.HasField("fraction"):
            data["fraction"] = message.progress.fraction
        return Chunk(type=ChunkType.PROGRESS, task_id=task_id, data=data, number=number)
    if kind == "status":
        told = {"state": str(state_of_number(message.status.state)), "message": message.status.message}
        return Chunk(type=ChunkType.STATUS, task_id=task_id, data=told, number=number)
    return None
