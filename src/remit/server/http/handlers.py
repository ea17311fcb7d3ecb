"""The operations of the REST API: each reads its request, calls the service and writes the answer. `api.OPERATIONS` lists them."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from typing import Any, TypeVar

from sse_starlette import EventSourceResponse
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from remit.core.deadline import iso
from remit.core.delegate_requests import DelegateError, json_text, parts_of
from remit.core.delegate_results import Chunk, DelegateResult, TaskState
from remit.core.delegation import ROOT_CALLER
from remit.core.errors import Refused, RemitError
from remit.core.record import HistoryQuery, Record
from remit.server.http.http_server import CLOSING
from remit.server.http.models import CancelRequest, EventsQuery, ListQuery, NoQuery, TaskRequest, WaitQuery
from remit.server.http.rest_messages import JSON, body_of, call_of, document_of
from remit.server.service import HOLD, PRINCIPAL, RECORDED, AgentInfo, Service, summary_of
from remit.server.tokens import Permission

T = TypeVar("T")
EVENT_STREAM = "text/event-stream"


# ---- tasks


async def begin_task(service: Service, request: Request, query: WaitQuery) -> Response:
    """Begin a task. It is recorded when this answers and continues if the connection breaks. With `wait` the answer comes when the task has
    ended (201), or after that time (202). With `Accept: text/event-stream` the answer is its event stream (200)."""
    asked = await body_of(request, TaskRequest)
    call = call_of(request, asked.session)
    arguments = asked.model_dump(exclude_none=True, exclude={"session"})
    if asked.target is None:
        arguments["target"], operation = parts_of(service.choose(call, asked.operation or ""))
        if operation is not None:
            arguments["operation"] = operation
    is_stream = _wants_stream(request)
    if is_stream or query.wait:
        request.scope[HOLD]()
    handle = await service.begin(call, arguments)
    place = {"location": f"/v1/tasks/{handle.session_id}"}
    if is_stream:
        return EventStream(request, service.stream(call, handle.session_id), place)
    if query.wait:
        await while_connected(request, service.wait(handle, query.wait))
    document = task_view(*await service.looked(call, handle.session_id))
    return _json(document, 201 if document["metadata"]["completedAt"] is not None else 202, place)


async def list_tasks(service: Service, request: Request, query: ListQuery) -> Response:
    """List tasks, newest first. Each is a summary, without `data` and `artifacts`. Only tasks of the caller, unless it may see all."""
    asked = HistoryQuery(
        states=tuple(state for name in dict.fromkeys(query.state) for state in RECORDED[TaskState(name)]),
        agent=query.agent,
        conversation=query.session,
        root_id=query.root,
        since=None if query.since is None else query.since.timestamp(),
        until=None if query.until is None else query.until.timestamp(),
        limit=query.limit,
        before_session=query.cursor,
    )
    page = await service.list(call_of(request), asked)
    tasks = [task_view(record, summary_of(record)) for record in page.records]
    return _json({"tasks": tasks, "next": page.next_page})


async def get_task(service: Service, request: Request, query: WaitQuery) -> Response:
    """Get a task. With `wait` the answer comes when it has ended, or after that time."""
    call, task_id = call_of(request), request.path_params["taskId"]
    if query.wait:
        request.scope[HOLD]()
        await while_connected(request, service.result(call, task_id, query.wait))
    record, result = await service.looked(call, task_id)
    trace = service.traceback(call, record)
    return _json(task_view(record, result) | ({"traceback": trace} if trace else {}))


async def follow_task(service: Service, request: Request, query: EventsQuery) -> Response:
    """Follow a task as server-sent events: `progress`, `data`, `status`, and at the end `complete` or `error`. `id` is the number of the
    event; continue a stream with `Last-Event-ID` or `after`. Leaving the stream does not end the task."""
    call, task_id, after = call_of(request), request.path_params["taskId"], query.after
    await service.record(call, task_id)  # an unknown task is an error, not a stream
    given = request.headers.get("last-event-id")  # sent by a client that reconnects to the same address: newer than `after`
    if given is not None:
        if not given.isascii() or not given.isdigit() or len(given) > 15:
            raise DelegateError("Last-Event-ID must be the number of an event.", advice="Send the last `id` received.")
        after = int(given)
    return EventStream(request, service.stream(call, task_id, after))


async def cancel_task(service: Service, request: Request, query: NoQuery) -> Response:
    """Cancel a task and everything below it. Answers when it has stopped, with how each task ended. A task that has ended stays as it
    is."""
    asked = await body_of(request, CancelRequest)
    call, task_id = call_of(request), request.path_params["taskId"]
    before = await service.record(call, task_id)
    _, nodes = await service.cancel(call, task_id, asked.reason)
    after = task_view(*await service.looked(call, task_id))
    ended = [{"taskId": node["session_id"], "agentId": node["agent"], "state": str(node["state"])} for node in nodes]
    is_cancelled = not before.state.is_settled and after["taskState"] == "CANCELLED"
    return _json({"cancelled": is_cancelled, "nodes": ended, "task": after})


# ---- agents, metrics, health


async def list_agents(service: Service, request: Request, query: NoQuery) -> Response:
    """List the agents that the caller may use, with their parameters."""
    return _json({"agents": [agent_view(service.agent_info(spec)) for spec in service.agents(call_of(request))]})


def must_see_metrics(request: Request) -> None:
    principal = request.scope[PRINCIPAL]
    if not principal.may(Permission.METRICS):
        raise Refused(f"{principal.name} may not see metrics.", code="FORBIDDEN", advice="`remit token new --may metrics` grants it.")


async def lives(service: Service, request: Request, query: NoQuery) -> Response:
    """Check that the server is alive."""
    return _json({"status": "ok"})


async def is_ready(service: Service, request: Request, query: NoQuery) -> Response:
    """Check that the server accepts work. 503 while it stops."""
    return _json({"status": "stopping"}, 503) if service.is_stopping else _json({"status": "ok"})


# ---- event streams


class EventStream(EventSourceResponse):
    """Server-sent events: the chunks of a task under their numbers. A slow reader slows its own stream only."""

    def __init__(self, request: Request, chunks: AsyncGenerator[Chunk], headers: Mapping[str, str] | None = None) -> None:
        async def end_with_server() -> None:
            await request.scope[CLOSING].wait()
            raise Refused("This server is stopping.", code="STOPPING", advice="Continue from the last id.")

        super().__init__(event_lines(chunks), headers=headers, sep="\n", data_sender_callable=end_with_server)


async def event_lines(chunks: AsyncGenerator[Chunk]) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    try:
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                yield _event(str(chunk.type), chunk.number, chunk.to_dict())
    except RemitError as error:
        yield _event("error", 0, {"type": "error", "taskId": None, "data": {"error": document_of(error)}})


def _event(name: str, number: int, document: Mapping[str, Any]) -> bytes:
    """A stream cannot be continued from an event without a number."""
    numbered = f"id: {number}\n" if number else ""
    return f"event: {name}\n{numbered}data: {json_text(document)}\n\n".encode()


def _wants_stream(request: Request) -> bool:
    accepted = [one.partition(";")[0].strip().lower() for one in request.headers.get("accept", "*/*").split(",")]
    return EVENT_STREAM in accepted and JSON not in accepted


async def while_connected(request: Request, waiting: Awaitable[T]) -> T:
    """Raises `ClientDisconnect` when the client leaves."""
    work, leaving = asyncio.ensure_future(waiting), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        work.cancel()
        leaving.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# ---- views


def task_view(record: Record, result: DelegateResult) -> dict[str, Any]:
    caller_info = record.caller_info
    lineage = {
        "rootId": record.root_id,
        "parentId": record.parent_id,
        "depth": record.depth,
        "path": list(record.path),
        "priority": record.priority.name.lower(),
        "deadline": iso(record.deadline_at),
        "principal": caller_info.principal if caller_info is not None else ROOT_CALLER,
        "session": caller_info.session if caller_info is not None else None,
    }
    return {**result.to_dict(), "lineage": lineage}


def agent_view(info: AgentInfo) -> dict[str, Any]:
    target, operation = parts_of(info.spec.name)
    return {
        "name": info.spec.name,
        "target": target,
        "operation": operation,
        "description": info.spec.description,
        "parameters": info.parameters,
        "timeout": 1000 * info.timeout_seconds,
        "maxTimeout": 1000 * info.max_timeout_seconds,
    }


def _json(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_text(document), status, headers, JSON)
