"""The operations of the REST API: each reads its request, asks the service, and says what came of it. Decides nothing itself.

`OPERATIONS` is all there is of them; routes and the OpenAPI document are made from it (`operations`, `openapi`).
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from remit.core.errors import Unavailable
from remit.core.record import HistoryQuery
from remit.flow.context import Handle
from remit.flow.settled import SettledHandle
from remit.serve.http.events import MEDIA_TYPE, EventStream
from remit.serve.http.exchange import HOLD
from remit.serve.http.models import CancelRequest, EventsQuery, ListQuery, NoQuery, TaskRequest, WaitQuery
from remit.serve.http.operations import JSON
from remit.serve.http.problems import HttpRefused
from remit.serve.http.reading import body_of, call_of
from remit.serve.http.views import states_shown_as, task_view
from remit.serve.service import Call, Service
from remit.system.threads import off_loop
from remit.tool.catalogue import parts_of
from remit.tool.faults import DelegateError
from remit.tool.speaking import json_text

T = TypeVar("T")
KEY_HEADER = "idempotency-key"
PAGE_BYTES = 4 * 1024 * 1024


async def begin_task(service: Service, request: Request, query: WaitQuery) -> Response:
    """Begin a task. It is on record when this answers and goes on whatever becomes of the connection. With `wait` the answer comes when it
    has ended (201), or after so long (202). Asked with `Accept: text/event-stream` it is streamed at once, as by its events."""
    asked = await body_of(request, TaskRequest)
    call = call_of(request, asked.session)
    arguments = arguments_of(service, call, asked, request.headers.get(KEY_HEADER))
    is_stream = _wants_stream(request)
    if is_stream or query.wait:
        request.scope[HOLD]()  # before anything is begun: it might be one too many
    handle = await service.begin(call, arguments)
    await _must_be_on_record(service, handle)
    place = {"location": f"/v1/tasks/{handle.session_id}"}
    if is_stream:
        return EventStream(request, service.stream(call, handle.session_id), place, status=201)
    if query.wait:
        await _while_here(request, service.wait(handle, query.wait))
    document = await _task(service, call, handle.session_id)
    is_ended = document["metadata"]["completedAt"] is not None
    return _json(document, 201 if is_ended else 202, place)


def arguments_of(service: Service, call: Call, asked: TaskRequest, header_key: str | None) -> dict[str, Any]:
    """Of `Service.begin`."""
    arguments = asked.model_dump(exclude_none=True, exclude={"session"})
    if header_key is not None:
        if not 0 < len(header_key) <= 200 or asked.key not in (None, header_key):
            raise DelegateError("Idempotency-Key must be 1 to 200 characters, and the same as key.", advice="Send one of the two.")
        arguments["key"] = header_key
    if asked.idle is not None:
        arguments["idle"] = asked.idle / 1000
    if asked.target is None:
        target, operation = parts_of(service.choose(call, None, asked.operation or ""))
        arguments["target"] = target
        if operation is not None:
            arguments["operation"] = operation
    return arguments


async def list_tasks(service: Service, request: Request, query: ListQuery) -> Response:
    """List tasks, newest first. Those of the caller, unless it was granted to see all; page by page."""
    asked = HistoryQuery(
        states=states_shown_as(query.state),
        agent=query.agent,
        conversation=query.session,
        root_id=query.root,
        since=None if query.since is None else query.since.timestamp(),
        until=None if query.until is None else query.until.timestamp(),
        limit=query.limit,
        before_session=query.cursor,
    )
    page = await service.list(call_of(request), asked)
    tasks, following = fitting([task_view(record) for record in page.records], page.next_page)
    headers = {}
    if following is not None:
        same = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
        headers["link"] = f'</v1/tasks?{urlencode([*same, ("cursor", following)])}>; rel="next"'
    return _json({"tasks": tasks, "next": following}, 200, headers)


def fitting(tasks: list[dict[str, Any]], following: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """As many as one answer should hold, one at least; results can be large. And where the next page begins."""
    room = PAGE_BYTES
    for number, task in enumerate(tasks):
        room -= len(json_text(task))
        if room < 0 and number:
            return tasks[:number], str(tasks[number - 1]["taskId"])
    return tasks, following


async def get_task(service: Service, request: Request, query: WaitQuery) -> Response:
    """Look at a task. With `wait` the answer comes when it has ended, or after so long. `If-None-Match` with the ETag of the last answer
    gives 304 where nothing has changed."""
    call, task_id = call_of(request), request.path_params["taskId"]
    if query.wait:
        request.scope[HOLD]()  # whoever waits is among those that are open, and is sent away when its token is revoked
        await _while_here(request, service.result(call, task_id, query.wait))
    answer = _json(await _task(service, call, task_id))
    etag = f'"{hashlib.sha256(bytes(answer.body)).hexdigest()[:32]}"'
    answer.headers["etag"] = etag
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    return Response(status_code=304, headers={"etag": etag}) if etag in known or "*" in known else answer


async def follow_task(service: Service, request: Request, query: EventsQuery) -> Response:
    """Follow a task as server-sent events: `progress`, `data`, `status`, and at the end `complete` or `error`. `id` is the number of the
    event; a stream is taken up again by `Last-Event-ID` or `after`. It ends after the last; leaving it does not end the task."""
    call, task_id = call_of(request), request.path_params["taskId"]
    await service.record(call, task_id)  # what is not there is told as such, not as a stream
    return EventStream(request, service.stream(call, task_id, _after(request, query)))


async def cancel_task(service: Service, request: Request, query: NoQuery) -> Response:
    """Cancel a task and everything below it. Answers when it has stopped, with how each one ended. One that has ended stays as it is."""
    asked = await body_of(request, CancelRequest)
    call, task_id = call_of(request), request.path_params["taskId"]
    before = await service.record(call, task_id)
    _, nodes = await service.cancel(call, task_id, asked.reason, force=asked.force)
    after = await _task(service, call, task_id)
    ended = [{"taskId": node["session_id"], "agentId": node["agent"], "state": str(node["state"])} for node in nodes]
    is_ours = not before.state.is_settled and after["taskState"] == "CANCELLED"
    return _json({"cancelled": is_ours, "nodes": ended, "task": after})


# ---- below


async def _must_be_on_record(service: Service, handle: Handle) -> None:
    """A refusal that could not even be written can be told only here: there will be nothing to look at."""
    if isinstance(handle, SettledHandle) and await off_loop(service.remit.store.get, handle.session_id) is None:
        raise Unavailable((await handle.result()).summary, code="STORE_UNAVAILABLE", advice="Nothing was begun; try again later.")


async def _task(service: Service, call: Call, task_id: str) -> dict[str, Any]:
    return task_view(*await service.looked(call, task_id))


def _after(request: Request, query: EventsQuery) -> int:
    """The header is the later word: it is sent by a client that comes again to the address it was given."""
    given = request.headers.get("last-event-id")
    if given is None:
        return query.after
    if not given.isascii() or not given.isdigit() or len(given) > 15:
        raise DelegateError("Last-Event-ID must be the number of an event.", advice="Send the last `id` that was seen.")
    return int(given)


def _wants_stream(request: Request) -> bool:
    accepted = [one.partition(";")[0].strip().lower() for one in request.headers.get("accept", "*/*").split(",")]
    if MEDIA_TYPE in accepted and JSON not in accepted:
        return True
    if not {"*/*", "application/*", JSON, MEDIA_TYPE, "text/*"} & set(accepted):
        raise HttpRefused(f"There is {JSON} and {MEDIA_TYPE}.", code="NOT_ACCEPTABLE", advice=f"Send `Accept: {JSON}`.")
    return False


async def _while_here(request: Request, waiting: Awaitable[T]) -> T:
    """Nothing is waited for on behalf of a client that has left."""
    work, leaving = asyncio.ensure_future(waiting), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        work.cancel()
        leaving.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _json(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_text(document), status, headers, JSON)
