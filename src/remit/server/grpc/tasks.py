"""`TaskService` of `tasks.proto`: parses each call, passes it to `service` and writes the answer.

A task that ran and failed is an answer; errors are raised and reported by `auth_interceptor`. Leaving a call ends no task. A call that
starts a task and waits for it reads nothing from the store. 0 and empty mean "not given" in protobuf."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.proto.v1 import tasks_pb2_grpc as rpc
from remit.core.context import Handle
from remit.core.delegate_requests import parts_of
from remit.core.delegate_results import Chunk, ChunkType, DelegateResult, TaskError, TaskMetadata, TaskState, result_of, result_of_record
from remit.core.delegation import CallerInfo, Delegation
from remit.core.errors import Misused
from remit.core.record import HistoryQuery, Record
from remit.core.result import Artifact
from remit.core.states import Priority, State
from remit.runtime.engine import LiveHandle
from remit.server.grpc.auth_interceptor import Context, current_call, hold
from remit.server.service import LONGEST_SESSION, MOST_ON_PAGE, RECORDED, Call, Service, summary_of
from remit.system.protobuf_values import dict_of, nanoseconds, seconds, struct_of, text_of, value_of

_NUMBERS: Mapping[TaskState, Any] = {state: pb.TaskState.Value(f"TASK_STATE_{state}") for state in TaskState}


def state_number(state: TaskState) -> Any:
    """An enum of protobuf, which is an int."""
    return _NUMBERS[state]


# ---- results


def task_of(result: DelegateResult, known: Record | Delegation | None = None) -> pb.Task:
    """`known`: what is recorded of it beside its result."""
    meta = result.metadata
    task = pb.Task(
        task_id=result.task_id or "",
        state=_NUMBERS[result.task_state],
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
        message.status.state, message.status.message = _NUMBERS[TaskState(chunk.data["state"])], words
        return
    message.progress.message = words
    fraction = chunk.data.get("fraction")
    if isinstance(fraction, int | float):
        message.progress.fraction = fraction


# ---- requests


USUAL_PAGE = 50
_PRIORITIES = frozenset({0, *map(int, Priority)})
_STATES = {state_number(state): recorded for state, recorded in RECORDED.items()}


def target_of(request: pb.ExecuteTaskRequest) -> tuple[str | None, str | None]:
    """Target and operation; the target is None if no agent is named."""
    agent, type_ = request.agent_id, request.type
    if not agent:
        if not type_:
            raise Misused("The request has neither agent_id nor type.", advice="Set type, e.g. to worker.read_file.")
        return None, type_
    target, operation = parts_of(agent)
    if type_ in ("", agent):
        return target, operation
    if operation is not None and type_ != operation:
        raise Misused(f"agent_id names {agent}, and type {type_!r:.80}.", advice="Name the agent in agent_id and its operation in type.")
    return target, type_.removeprefix(f"{target}.")


def arguments_of(request: pb.ExecuteTaskRequest) -> dict[str, Any]:
    """Besides target and operation."""
    priority = request.priority
    if priority not in _PRIORITIES:
        raise Misused(f"Unknown priority {priority}.", advice="1 is low, 2 normal, 3 high, 4 critical.")
    if not request.HasField("config"):
        return {"parameters": {}, "priority": priority}
    config = request.config
    arguments: dict[str, Any] = {"parameters": dict_of(config.parameters), "priority": priority}
    must_not_be_negative(idle_ns=config.idle_ns)
    if config.HasField("budget"):
        arguments["budget"] = dict_of(config.budget)
    given = {
        "timeout": config.timeout_ns / 1e6,
        "key": config.key,
        "accept": list(config.accept),
        "resume": config.resume,
        "idle": config.idle_ns / 1e6,
    }
    return arguments | {name: value for name, value in given.items() if value}


def must_not_be_negative(**given: int) -> None:
    for name, value in given.items():
        if value < 0:
            raise Misused(f"{name} must not be negative.", advice="Leave it out, or send a positive number.")


def query_of(request: pb.ListTasksRequest) -> HistoryQuery:
    must_not_be_negative(page_size=request.page_size)
    return HistoryQuery(
        root_id=request.root_id or None,
        agent=request.agent_id or None,
        states=_wanted(request),
        since=seconds(request.since_ns),
        until=seconds(request.until_ns),
        conversation=request.session_id or None,
        limit=min(request.page_size or USUAL_PAGE, MOST_ON_PAGE),
        before_session=request.page_token or None,
    )


def _wanted(request: pb.ListTasksRequest) -> tuple[State, ...]:
    if unknown := [state for state in request.states if state not in _STATES]:
        raise Misused(f"Unknown task state {unknown[0]}.", advice="1 pending, 2 queued, 3 running, … 8 timeout.")
    return tuple(dict.fromkeys(found for state in request.states for found in _STATES[state]))


ALREADY = "already "
"""Prefix of the state of a node that had ended before it could be cancelled."""


class TaskService(rpc.TaskServiceServicer):
    def __init__(self, service: Service) -> None:
        self._service = service

    # ---- beginning

    async def ExecuteTask(self, request: pb.ExecuteTaskRequest, context: Context) -> pb.ExecuteTaskResponse:
        must_not_be_negative(wait_ns=request.wait_ns)
        wait_seconds = seconds(request.wait_ns) or 0.0
        call = _with_conversation(current_call(), request.session_id)
        if wait_seconds:
            hold()
        handle = await self._service.begin(call, self._arguments(call, request))
        if isinstance(handle, LiveHandle):
            task = await self._running_here(handle, wait_seconds)
        else:
            task = await self._settled_or_elsewhere(call, handle, wait_seconds)
        return pb.ExecuteTaskResponse(task_id=task.task_id, task=task)

    async def RunTask(self, request: pb.ExecuteTaskRequest, context: Context) -> AsyncIterator[pb.TaskChunk]:
        call = _with_conversation(current_call(), request.session_id)
        handle = await self._service.begin(call, self._arguments(call, request))
        async with contextlib.aclosing(self._chunks(call, handle.session_id, 0)) as chunks:
            async for chunk in chunks:
                yield chunk

    def _arguments(self, call: Call, request: pb.ExecuteTaskRequest) -> dict[str, Any]:
        target, operation = target_of(request)
        if target is None:
            target, operation = self._service.choose(call, operation or ""), None
        return {"target": target, "operation": operation, **arguments_of(request)}

    async def _running_here(self, handle: LiveHandle, wait_seconds: float) -> pb.Task:
        """Nothing is read from the store."""
        delegation, returned = handle.delegation, await self._service.wait(handle, wait_seconds)
        if returned is not None:
            return task_of(result_of(returned, delegation.created_at), delegation)
        state = TaskState.QUEUED if handle.is_queued else TaskState.RUNNING
        meta = TaskMetadata(agent_id=delegation.agent, created_at=delegation.created_at)
        known = DelegateResult(success=False, task_id=handle.session_id, task_state=state, metadata=meta)
        return task_of(known, delegation)

    async def _settled_or_elsewhere(self, call: Call, handle: Handle, wait_seconds: float) -> pb.Task:
        """Refused, or found by its key: ended long ago, or in another process."""
        await self._service.wait(handle, wait_seconds)
        record = await self._service.record(call, handle.session_id)
        return task_of(result_of_record(record), record)

    # ---- looking

    async def GetTaskStatus(self, request: pb.GetTaskStatusRequest, context: Context) -> pb.GetTaskStatusResponse:
        record, result = await self._service.looked(current_call(), request.task_id)
        return pb.GetTaskStatusResponse(task=task_of(result, record))

    async def StreamTask(self, request: pb.StreamTaskRequest, context: Context) -> AsyncIterator[pb.TaskChunk]:
        must_not_be_negative(after=request.after)
        async with contextlib.aclosing(self._chunks(current_call(), request.task_id, request.after)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def ListTasks(self, request: pb.ListTasksRequest, context: Context) -> pb.ListTasksResponse:
        query = query_of(request)
        if request.states and not query.states:  # pending tasks are not recorded yet
            return pb.ListTasksResponse()
        page = await self._service.list(current_call(), query)
        tasks = [task_of(summary_of(record), record) for record in page.records]
        return pb.ListTasksResponse(tasks=tasks, next_page_token=page.next_page or "")

    async def ListAgents(self, request: pb.ListAgentsRequest, context: Context) -> pb.ListAgentsResponse:
        agents = [
            pb.AgentInfo(
                name=text_of(info.spec.name),
                description=text_of(info.spec.description),
                parameters_schema=struct_of(info.parameters),
                timeout_ns=nanoseconds(info.timeout_seconds),
                max_timeout_ns=nanoseconds(info.max_timeout_seconds),
            )
            for info in map(self._service.agent_info, self._service.agents(current_call()))
        ]
        return pb.ListAgentsResponse(agents=agents)

    async def Ping(self, request: pb.PingRequest, context: Context) -> pb.PingResponse:
        return pb.PingResponse()

    # ---- ending

    async def CancelTask(self, request: pb.CancelTaskRequest, context: Context) -> pb.CancelTaskResponse:
        call = current_call()
        result, nodes = await self._service.cancel(call, request.task_id, request.reason)
        state = state_number(result.task_state)
        return pb.CancelTaskResponse(
            state=state,
            cancelled=result.task_state is TaskState.CANCELLED and not all(str(node["state"]).startswith(ALREADY) for node in nodes),
            nodes=[
                pb.CancelledNode(task_id=node["session_id"], agent_id=text_of(node["agent"]), state=text_of(str(node["state"])))
                for node in nodes
            ],
            task=task_of(result, await self._service.record(call, request.task_id)),
        )

    # ---- writing

    async def _chunks(self, call: Call, task_id: str, after: int) -> AsyncGenerator[pb.TaskChunk, None]:
        """The last one has the whole task."""
        async with contextlib.aclosing(self._service.stream(call, task_id, after)) as chunks:
            async for chunk in chunks:
                yield message_of_chunk(chunk, None if chunk.result is None else await self._service.record(call, task_id))


def _with_conversation(call: Call, session: str) -> Call:
    if not session:
        return call
    if len(session) > LONGEST_SESSION:
        raise Misused(f"session_id is longer than {LONGEST_SESSION} characters.", advice="It is your own word for the conversation.")
    return replace(call, session=session)
