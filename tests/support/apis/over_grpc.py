"""The gRPC API through grpcio's client and the stubs generated from `tasks.proto`."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from remit import tasks_pb2 as pb
from remit import tasks_pb2_grpc as rpc
from support.apis.client import ApiFault, Page, Said, Seen
from support.apis.traits import GRPC
from support.protobuf import dict_of, json_of, struct_of

PRIORITIES = {"low": 1, "normal": 2, "high": 3, "critical": 4}


class GrpcClient:
    traits = GRPC

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        """The caller closes the channel."""
        self._tasks = rpc.TaskServiceStub(channel)  # type: ignore[no-untyped-call]
        self._metadata: tuple[tuple[str, str], ...] = (("authorization", f"Bearer {token}"),) if token else ()

    async def execute(self, arguments: Mapping[str, Any]) -> str:
        given = dict(arguments)
        config = pb.TaskConfig(parameters=struct_of(given.get("parameters") or {}), key=given.get("key") or "")
        if given.get("timeout") is not None:
            config.timeout_ns = int(given["timeout"] * 1e6)
        if given.get("budget") is not None:
            config.budget.CopyFrom(struct_of(given["budget"]))
        request = pb.ExecuteTaskRequest(
            agent_id=given.get("target") or "",
            type=given.get("operation") or "",
            session_id=given.get("session") or "",
            config=config,
            priority=PRIORITIES[given["priority"]] if "priority" in given else 0,  # type: ignore[arg-type]
        )
        answer = await self._told(self._tasks.ExecuteTask(request, metadata=self._metadata))
        return str(answer.task_id)

    async def status(self, task_id: str) -> Seen:
        answer = await self._told(self._tasks.GetTaskStatus(pb.GetTaskStatusRequest(task_id=task_id), metadata=self._metadata))
        return _seen(answer.task)

    async def stream(self, task_id: str, after: int = 0) -> AsyncIterator[Said]:
        call = self._tasks.StreamTask(pb.StreamTaskRequest(task_id=task_id, after=after), metadata=self._metadata)
        try:
            async for chunk in call:
                yield _said(chunk)
        except grpc.aio.AioRpcError as error:
            raise _fault(error) from error
        finally:
            call.cancel()

    async def cancel(self, task_id: str, reason: str = "") -> Seen:
        request = pb.CancelTaskRequest(task_id=task_id, reason=reason)
        return _seen((await self._told(self._tasks.CancelTask(request, metadata=self._metadata))).task)

    async def list(
        self, *, session: str | None = None, shown: str | None = None, agent: str | None = None, size: int = 50, page: str | None = None
    ) -> Page:
        request = pb.ListTasksRequest(session_id=session or "", agent_id=agent or "", page_size=size, page_token=page or "")
        if shown is not None:
            request.states.append(pb.TaskState.Value(f"TASK_STATE_{shown}"))  # type: ignore[arg-type]  # an enum is an int
        answer = await self._told(self._tasks.ListTasks(request, metadata=self._metadata))
        return Page([task.task_id for task in answer.tasks], answer.next_page_token or None)

    async def agents(self) -> Sequence[str]:
        answer = await self._told(self._tasks.ListAgents(pb.ListAgentsRequest(), metadata=self._metadata))
        return [one.name for one in answer.agents]

    async def _told(self, call: Any) -> Any:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise _fault(error) from error


def _seen(task: pb.Task) -> Seen:
    error = task.error if task.HasField("error") else None
    return Seen(
        task_id=task.task_id,
        shown=pb.TaskState.Name(task.state).removeprefix("TASK_STATE_"),
        status=task.status or None,
        stop_reason=task.stop_reason or None,
        data=json_of(task.data) if task.HasField("data") else None,
        summary=task.output,
        code=None if error is None else dict_of(error.details).get("code"),
        artifacts=tuple(artifact.path for artifact in task.artifacts),
    )


def _said(chunk: pb.TaskChunk) -> Said:
    kind = chunk.WhichOneof("chunk")
    if kind in ("complete", "error"):
        return Said(kind="end", number=chunk.number, seen=_seen(chunk.complete if kind == "complete" else chunk.error.task))
    if kind == "output":
        return Said(kind="data", number=chunk.number, value=json_of(chunk.output.chunk))
    return Said(kind=str(kind), number=chunk.number, value=chunk.status.message if kind == "status" else chunk.progress.message)


def _fault(error: grpc.aio.AioRpcError) -> ApiFault:
    code = dict(error.trailing_metadata() or ()).get("remit-code")
    return ApiFault(str(code) if code is not None else None, error.code().name, error.details() or "")
