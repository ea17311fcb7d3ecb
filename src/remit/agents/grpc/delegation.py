"""One delegation executed by a remote agent over gRPC: the request, its stream, and the resulting return.

Its files are on the remote: the return lists them under `remote`, not as artifacts."""

import functools
import json
import time
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from remit.agents.grpc.task_service import Pairs, RemoteTask, TaskOrder, TaskService
from remit.agents.proto.metadata import DEADLINE, DEPTH, PATH, TRACEPARENT
from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.proto.values import nanoseconds, struct_of
from remit.agents.remote import error_entry, errors_of, seconds_for_remote
from remit.core.context import Context
from remit.core.delegate_requests import parts_of
from remit.core.delegate_results import Chunk, ChunkType, DelegateResult, TaskState
from remit.core.errors import OutOfTime, Unavailable
from remit.core.ids import traceparent_of
from remit.core.text import shorten_with_count

if TYPE_CHECKING:
    from remit.agents.grpc.grpc_agent import GrpcAgent


REACH_SECONDS = 5.0
_MOST_ARTIFACTS = 200
_STATUSES = ("completed", "partial", "failed", "blocked")


def begin(agent: "GrpcAgent", service: TaskService, ctx: Context, arguments: Mapping[str, Any], *, key: str) -> RemoteTask:
    left = ctx.remaining
    request = _request(agent, ctx, arguments, key)
    more = functools.partial(_position, agent, ctx)
    return RemoteTask(service, TaskOrder(request=request, until=time.monotonic() + left, reach_seconds=min(REACH_SECONDS, left), more=more))


async def follow(task: RemoteTask, agent: "GrpcAgent", ctx: Context) -> Any:
    """The return document. Raises `Unavailable`, `OutOfTime`, and faults of the request."""
    async with aclosing(task.chunks()) as chunks:
        async for chunk in chunks:
            if chunk.result is not None:
                return _return_of(agent.spec.name, chunk.result)
            _report(ctx, chunk)
    raise AssertionError("a stream of chunks ends with a result or raises")


def _request(agent: "GrpcAgent", ctx: Context, arguments: Mapping[str, Any], key: str) -> pb.ExecuteTaskRequest:
    target, operation = parts_of(agent.remote)
    longest = agent.longest_seconds
    return pb.ExecuteTaskRequest(
        agent_id=target,
        type=operation or "",
        session_id=ctx.root_id,
        priority=int(ctx.backend.delegation.priority),  # type: ignore[arg-type]
        config=pb.TaskConfig(
            parameters=struct_of(arguments),
            # Above the remote's maximum it would be refused. If that is unknown, the deadline in the metadata limits it.
            timeout_ns=nanoseconds(min(seconds_for_remote(ctx), longest)) if longest is not None else 0,
            key=key,
        ),
    )


def _position(agent: "GrpcAgent", ctx: Context) -> Pairs:
    """The caller's position. Honoured for principals with `relay`."""
    pairs = [(DEPTH, str(ctx.depth)), (PATH, json.dumps(list(ctx.path))), (TRACEPARENT, traceparent_of(ctx.backend.delegation))]
    if agent.longest_seconds is None:  # clocks of two machines differ; a number of seconds does not
        pairs.append((DEADLINE, str(nanoseconds(ctx.deadline))))
    return pairs


def _report(ctx: Context, chunk: Chunk) -> None:
    if chunk.type is ChunkType.DATA:
        ctx.emit(chunk.data.get("chunk"))
    elif chunk.type is ChunkType.STATUS and chunk.data.get("state") != TaskState.PAUSED:
        return  # that it is queued and running there, as here
    elif chunk.number:
        fraction = chunk.data.get("fraction")
        ctx.progress(str(chunk.data.get("message", "")), fraction if isinstance(fraction, int | float) else None)


def _return_of(name: str, result: DelegateResult) -> dict[str, Any]:
    error = result.error
    if error is not None and error.code == "AGENT_UNAVAILABLE":
        raise Unavailable(f"{name}: {error.message}", advice=error.recommendation)
    status = result.metadata.status if result.metadata.status in _STATUSES else None
    if result.success:
        status = "completed"
    elif status in (None, "completed"):
        status = "partial" if result.task_state is TaskState.TIMEOUT else "failed"
    answer: dict[str, Any] = {
        "status": status,
        "summary": shorten_with_count(result.output) or f"{name} has ended.",
        "artifacts": [],
        "errors": [] if status == "completed" else _errors(result),
        "data": result.data,
        "remote": {
            "task_id": result.task_id,
            "state": str(result.task_state),
            "agent": result.metadata.agent_id,
            "artifacts": [artifact.to_dict() for artifact in result.artifacts[:_MOST_ARTIFACTS]],
        },
    }
    if status == "partial" and result.metadata.stop_reason == "deadline":
        raise OutOfTime(answer["summary"], answer=answer)  # its timeout was ours, slightly reduced
    return answer


def _errors(result: DelegateResult) -> list[dict[str, Any]]:
    error = result.error
    if error is None:
        return [error_entry(result.output or "It failed without a reason.")]
    own = {name: value for name, value in error.details.items() if name not in ("message", "recommendation")}
    return errors_of(error.details.get("errors")) or [
        error_entry(error.message or "It failed.", **own, recommendation=error.recommendation)
    ]
