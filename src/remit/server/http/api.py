"""The REST API: one table of operations, from which the routes and the OpenAPI document are made; and the application of all HTTP APIs."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from remit.core.delegate_requests import json_bytes
from remit.core.errors import RemitError
from remit.core.settings import ServeSettings
from remit.server.authenticator import Authenticator
from remit.server.http import handlers, rest_messages
from remit.server.http import models as m
from remit.server.http.middleware import OPEN_PATHS, AuthMiddleware
from remit.server.http.rest_messages import JSON, query_of
from remit.server.service import Service

SPECIFICATION = "/openapi.json"
Handler = Callable[[Service, Request, Any], Awaitable[Response]]
"""Takes the service, the request, and its query as the model has it."""
Headers = Mapping[str, Mapping[str, Any]]
"""By name, the OpenAPI header or parameter object."""
TEXT = {"type": "string"}


class Answer(NamedTuple):
    description: str
    model: type[BaseModel] | None
    """None: an event stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    method: str
    path: str
    name: str
    handler: Handler
    """Its docstring is the description."""
    answers: Mapping[int, Answer]
    query: type[BaseModel] = m.NoQuery
    body: type[BaseModel] | None = None
    headers: Headers = field(default_factory=dict)
    is_open: bool = False
    """Needs no authentication."""

    @property
    def description(self) -> str:
        return " ".join((self.handler.__doc__ or "").split())

    @property
    def is_stream(self) -> bool:
        return any(answer.model is None for answer in self.answers.values())


_BEGIN = {"traceparent": {"description": "W3C Trace Context: the parent span of the task.", "schema": TEXT}}
_LAST = {"Last-Event-ID": {"description": "The same as `after`.", "schema": {**TEXT, "pattern": "^[0-9]{1,15}$"}}}
_EVENTS = Answer("Its events: each has `type`, `taskId` and `data` as JSON.", None)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST", path="/v1/tasks", name="beginTask", handler=handlers.begin_task, query=m.WaitQuery, body=m.TaskRequest,
        headers=_BEGIN,
        answers={
            200: _EVENTS,
            201: Answer("The task has ended; `Location` is its address.", m.Task),
            202: Answer("The task continues; `Location` is its address.", m.Task),
        },
    ),
    Operation(
        method="GET", path="/v1/tasks", name="listTasks", handler=handlers.list_tasks, query=m.ListQuery,
        answers={200: Answer("A page.", m.TaskPage)},
    ),
    Operation(
        method="GET", path="/v1/tasks/{taskId}", name="getTask", handler=handlers.get_task, query=m.WaitQuery,
        answers={200: Answer("The task.", m.Task)},
    ),
    Operation(
        method="GET", path="/v1/tasks/{taskId}/events", name="followTask", handler=handlers.follow_task, query=m.EventsQuery, headers=_LAST,
        answers={200: _EVENTS},
    ),
    Operation(
        method="POST", path="/v1/tasks/{taskId}/cancel", name="cancelTask", handler=handlers.cancel_task, body=m.CancelRequest,
        answers={200: Answer("The task has stopped.", m.Cancelled)},
    ),
    Operation(
        method="GET", path="/v1/agents", name="listAgents", handler=handlers.list_agents,
        answers={200: Answer("The agents.", m.AgentList)},
    ),
    Operation(
        method="GET", path="/healthz", name="lives", handler=handlers.lives, is_open=True,
        answers={200: Answer("It is alive.", m.Health)},
    ),
    Operation(
        method="GET", path="/readyz", name="isReady", handler=handlers.is_ready, is_open=True,
        answers={200: Answer("It accepts work.", m.Health), 503: Answer("It stops.", m.Health)},
    ),
)  # fmt: skip


# ---- the application


def routes(service: Service) -> list[BaseRoute]:
    """The REST API and its OpenAPI document."""
    described = json_bytes(openapi())

    async def specification(request: Request) -> Response:
        return Response(described, media_type=JSON)

    return [*_routes(OPERATIONS, service), Route(SPECIFICATION, specification)]


def health_routes(service: Service) -> list[BaseRoute]:
    """For a server without the REST API."""
    return _routes([operation for operation in OPERATIONS if operation.is_open], service)


def metrics_routes(page: Callable[[], tuple[bytes, str]]) -> list[BaseRoute]:
    """`/metrics` for Prometheus. `page`: its text and content type."""

    async def metrics(request: Request) -> Response:
        handlers.must_see_metrics(request)
        body, content_type = page()
        return Response(body, headers={"content-type": content_type, "cache-control": "no-store"})

    return [Route("/metrics", metrics, methods=["GET"], include_in_schema=False)]


def http_app(
    routes: Sequence[BaseRoute],
    authenticator: Authenticator,
    settings: ServeSettings,
    *,
    hosts: Iterable[str] = (),
    open_paths: Iterable[str] = OPEN_PATHS,
) -> AuthMiddleware:
    """Routes of any HTTP APIs behind authentication. `hosts`: names and addresses it listens at."""
    app = Starlette(routes=list(routes), exception_handlers={HTTPException: _not_found, RemitError: _refusal})
    app.router.redirect_slashes = False
    return AuthMiddleware(app, authenticator, settings, hosts=hosts, open_paths=open_paths)


def _routes(operations: Sequence[Operation], service: Service) -> list[BaseRoute]:
    """One for each path, so that a wrong method is answered with all allowed ones."""
    paths: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = operation
    return [_route(path, methods, service) for path, methods in paths.items()]


def _route(path: str, methods: Mapping[str, Operation], service: Service) -> BaseRoute:
    async def endpoint(request: Request) -> Response:
        operation = methods["GET" if request.method == "HEAD" else request.method]
        return await operation.handler(service, request, query_of(request, operation.query))

    route = Route(path, endpoint, methods=list(methods), include_in_schema=False)
    if route.methods is not None and "GET" in methods and methods["GET"].is_stream:
        route.methods.discard("HEAD")  # it would wait for the whole stream
    return route


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = {404: ("NOT_FOUND", "There is nothing at that address."), 405: ("METHOD_NOT_ALLOWED", "That method is not allowed there.")}
    code, words = known.get(error.status_code, ("MALFORMED_REQUEST", str(error.detail)))
    advice = f"`remit serve` prints the addresses of its APIs; {SPECIFICATION} describes the REST API."
    headers = error.headers or {}
    return await _refusal(request, rest_messages.HttpRefused(words, code=code, status=error.status_code, advice=advice, headers=headers))


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, RemitError)
    status, headers, body = rest_messages.answer_of(error)
    return Response(body, status, headers)


# ---- OpenAPI


def openapi() -> dict[str, Any]:
    """The OpenAPI 3.1 document of the operations."""
    used: set[type[BaseModel]] = {m.Problem, *(operation.query for operation in OPERATIONS)}
    used |= {operation.body for operation in OPERATIONS if operation.body is not None}
    used |= {answer.model for operation in OPERATIONS for answer in operation.answers.values() if answer.model is not None}
    models = sorted(used, key=lambda model: model.__name__)
    _, document = models_json_schema([(model, "validation") for model in models], ref_template="#/components/schemas/{model}")
    schemas = {name: _without_defaults(schema) for name, schema in document["$defs"].items()}
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        query = document["$defs"][operation.query.__name__].get("properties", {})
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, query)
    schemes = {"token": {"type": "http", "scheme": "bearer", "description": "`remit token new` makes one."}}
    words = "Hand work to any agent and always get an answer back."
    queries = {operation.query.__name__ for operation in OPERATIONS}
    return {
        "openapi": "3.1.0",
        "info": {"title": "remit", "version": version("remit"), "description": words},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in schemas.items() if name not in queries},
            "securitySchemes": schemes,
        },
        "security": [{name: []} for name in schemes],
    }


def _without_defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Client generators assume that a property with a default is always present."""
    properties = {name: {key: one[key] for key in one if key != "default"} for name, one in schema.get("properties", {}).items()}
    return {**schema, "properties": properties} if properties else dict(schema)


def _described(operation: Operation, query: Mapping[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {
        str(status): {"description": answer.description, **_content(handlers.EVENT_STREAM if answer.model is None else JSON, answer.model)}
        for status, answer in operation.answers.items()
    }
    responses["default"] = {"description": "The request was refused.", **_content(rest_messages.MEDIA_TYPE, m.Problem)}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.description.partition(". ")[0].rstrip("."),
        "description": operation.description,
        "parameters": _parameters(operation, query),
        "responses": responses,
    }
    if operation.body is not None:
        is_required = bool(operation.body.model_json_schema().get("anyOf"))
        described["requestBody"] = {"required": is_required, **_content(JSON, operation.body)}
    return {**described, "security": []} if operation.is_open else described


def _parameters(operation: Operation, query: Mapping[str, Any]) -> list[dict[str, Any]]:
    word = {**TEXT, "minLength": 1, "maxLength": 200}
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": word} for name in re.findall(r"\{(\w+)\}", operation.path)
    ]
    for name, schema in query.items():
        choices = [one for one in schema.get("anyOf", (schema,)) if one.get("type") != "null"]  # a query has no null
        plain = {key: value for key, value in {**schema, **choices[0]}.items() if key not in ("title", "anyOf", "description")}
        if plain.get("default", "") is None:
            del plain["default"]
        found.append({"name": name, "in": "query", "description": schema.get("description", ""), "schema": plain})
    return [*found, *({"name": name, "in": "header", **described} for name, described in operation.headers.items())]


def _content(media: str, model: type[BaseModel] | None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"} if model is None else {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"content": {media: {"schema": schema}}}
