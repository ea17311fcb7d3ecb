"""The REST API put together: its operations in one table, the routes made of it, and the application that carries HTTP doors.

app = http_app(routes(service), entrance, settings.serve, hosts=["127.0.0.1"])
await HttpServer(app).start([listening])
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from remit.access.entrance import Entrance
from remit.serve.http import models as m
from remit.serve.http.entering import OPEN_PATHS, Entering
from remit.serve.http.events import MEDIA_TYPE as EVENTS
from remit.serve.http.exchange import REQUEST_ID
from remit.serve.http.limits import HttpLimits
from remit.serve.http.openapi import document_of
from remit.serve.http.operations import JSON, Answer, Header, Operation, routes_of
from remit.serve.http.problems import HttpRefused, answer_of
from remit.serve.http.standing import get_agent, get_metrics, is_ready, list_agents, lives
from remit.serve.http.tasks import begin_task, cancel_task, follow_task, get_task, list_tasks
from remit.serve.service import Service
from remit.settings.values import ServeSettings
from remit.tool.speaking import json_bytes

SPECIFICATION = "/openapi.json"
_LOCATION = Header(name="Location", words="Where the task is.")
_ETAG = Header(name="ETag", words="Of the task as it stands.")
_TRACE = Header(name="traceparent", words="W3C Trace Context: the span that the task's tree hangs below.")
_KEY = Header(name="Idempotency-Key", words="The same as `key`.", schema={"type": "string", "minLength": 1, "maxLength": 200})
_KNOWN = Header(name="If-None-Match", words="The ETag of an earlier answer.")
_LAST = Header(name="Last-Event-ID", words="The same as `after`.", schema={"type": "string", "pattern": "^[0-9]{1,15}$"})
_LINKS = dict.fromkeys(("getTask", "followTask", "cancelTask"), "$response.body#/taskId")

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST", path="/v1/tasks", name="beginTask", handler=begin_task, query=m.WaitQuery, body=m.TaskRequest,
        headers=(_KEY, _TRACE), refused=(404, 406, 409, 415, 504),
        answers={
            201: Answer(words="It has ended; or events.", media={JSON: m.Task, EVENTS: m.TaskEvent}, headers=(_LOCATION,), links=_LINKS),
            202: Answer(words="It goes on.", media={JSON: m.Task}, headers=(_LOCATION,), links=_LINKS),
        },
    ),
    Operation(
        method="GET", path="/v1/tasks", name="listTasks", handler=list_tasks, query=m.ListQuery,
        answers={200: Answer(words="A page.", media={JSON: m.TaskPage}, headers=(Header(name="Link", words="`rel=next`: RFC 8288."),))},
    ),
    Operation(
        method="GET", path="/v1/tasks/{taskId}", name="getTask", handler=get_task, query=m.WaitQuery, headers=(_KNOWN,), refused=(404,),
        answers={
            200: Answer(words="The task.", media={JSON: m.Task}, headers=(_ETAG,)),
            304: Answer(words="It is as it was.", headers=(_ETAG,)),
        },
    ),
    Operation(
        method="GET", path="/v1/tasks/{taskId}/events", name="followTask", handler=follow_task, query=m.EventsQuery, headers=(_LAST,),
        refused=(404,), answers={200: Answer(words="Its events.", media={EVENTS: m.TaskEvent})},
    ),
    Operation(
        method="POST", path="/v1/tasks/{taskId}/cancel", name="cancelTask", handler=cancel_task, body=m.CancelRequest,
        refused=(404, 415), answers={200: Answer(words="It has stopped.", media={JSON: m.Cancelled})},
    ),
    Operation(
        method="GET", path="/v1/agents", name="listAgents", handler=list_agents,
        answers={200: Answer(words="The agents.", media={JSON: m.AgentList})},
    ),
    Operation(
        method="GET", path="/v1/agents/{name}", name="getAgent", handler=get_agent, refused=(404,),
        answers={200: Answer(words="The agent.", media={JSON: m.AgentView})},
    ),
    Operation(
        method="GET", path="/v1/metrics", name="getMetrics", handler=get_metrics, query=m.MetricsQuery,
        answers={200: Answer(words="The metrics.", media={JSON: m.MetricsView})},
    ),
    Operation(
        method="GET", path="/healthz", name="lives", handler=lives, is_open=True,
        answers={200: Answer(words="It lives.", media={JSON: m.Health})},
    ),
    Operation(
        method="GET", path="/readyz", name="isReady", handler=is_ready, is_open=True,
        answers={200: Answer(words="It takes work.", media={JSON: m.Health}), 503: Answer(words="It stops.", media={JSON: m.Health})},
    ),
)  # fmt: skip


def routes(service: Service) -> list[BaseRoute]:
    """The REST API and its description."""
    described = json_bytes(document_of(OPERATIONS))

    async def specification(request: Request) -> Response:
        return Response(described, media_type=JSON)

    return [*routes_of(OPERATIONS, service), Route(SPECIFICATION, specification)]


def health_routes(service: Service) -> list[BaseRoute]:
    """Whether it lives and takes work: where the rest of the API is not wanted."""
    return routes_of([operation for operation in OPERATIONS if operation.is_open], service)


def http_app(
    routes: Sequence[BaseRoute],
    entrance: Entrance,
    settings: ServeSettings,
    *,
    hosts: Iterable[str] = (),
    open_paths: Iterable[str] = OPEN_PATHS,
    limits: HttpLimits | None = None,
    lifespan: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None,
) -> Entering:
    """Routes of whichever doors, behind the one entrance. `hosts`: names and addresses it listens at."""
    app = Starlette(routes=list(routes), exception_handlers={HTTPException: _not_so}, lifespan=lifespan)
    app.router.redirect_slashes = False
    return Entering(app, entrance, settings, hosts=hosts, open_paths=open_paths, limits=limits)


async def _not_so(request: Request, error: Exception) -> Response:
    """What no route takes."""
    assert isinstance(error, HTTPException)
    codes = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}
    words = {404: "There is nothing at that address.", 405: "That method is not taken there."}
    status = error.status_code
    refusal = HttpRefused(
        words.get(status, str(error.detail)),
        code=codes.get(status, "MALFORMED_REQUEST"),
        status=status,
        advice=f"`remit serve` names the doors that are open; {SPECIFICATION} says what there is behind the HTTP one.",
        headers=error.headers or {},
    )
    status, headers, body = answer_of(refusal, request.scope.get(REQUEST_ID, ""))
    return Response(body, status, headers)
