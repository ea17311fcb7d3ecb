"""What an operation of the REST API is: one value, from which its route and its part of the OpenAPI document are both made.

So neither can say what the other does not. The description is the handler's docstring. Which operations there are: `tasks`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from remit.core.errors import RemitError
from remit.serve.http.exchange import REQUEST_ID
from remit.serve.http.models import NoQuery
from remit.serve.http.problems import answer_of
from remit.serve.http.reading import query_of
from remit.serve.service import Service

Handler = Callable[[Service, Request, Any], Awaitable[Response]]
"""Of the service, the request, and its query as its model has it."""
JSON = "application/json"
COMMON = (400, 401, 403, 408, 413, 414, 421, 429, 500, 503)
"""By which any of them may be refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Of a request or an answer."""

    name: str
    words: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    words: str
    media: Mapping[str, type[BaseModel]] = field(default_factory=dict)
    """What is sent, by media type; of a stream, each event. Empty: nothing."""
    headers: Sequence[Header] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    """Operations that can follow, each with where in the answer its task id stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    method: str
    path: str
    name: str
    handler: Handler
    answers: Mapping[int, Answer]
    refused: Sequence[int] = ()
    """Beside the common ones."""
    query: type[BaseModel] = NoQuery
    body: type[BaseModel] | None = None
    headers: Sequence[Header] = ()
    is_open: bool = False
    """Answered to anybody."""

    @property
    def words(self) -> str:
        return " ".join((self.handler.__doc__ or "").split())


def routes_of(operations: Sequence[Operation], service: Service) -> list[BaseRoute]:
    """One for each path, so that a wrong method is told all that are right."""
    paths: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = operation
    return [_route(path, methods, service) for path, methods in paths.items()]


def _route(path: str, methods: Mapping[str, Operation], service: Service) -> BaseRoute:
    async def endpoint(request: Request) -> Response:
        operation = methods["GET" if request.method == "HEAD" else request.method]
        try:
            return await operation.handler(service, request, query_of(request, operation.query))
        except RemitError as error:
            status, headers, body = answer_of(error, request.scope.get(REQUEST_ID, ""))
            return Response(body, status, headers)

    route = Route(path, endpoint, methods=list(methods), include_in_schema=False)
    streams = methods["GET"].answers.values() if "GET" in methods else ()
    if route.methods is not None and any("text/event-stream" in answer.media for answer in streams):
        route.methods.discard("HEAD")  # it would wait for a stream that nobody sees
    return route
