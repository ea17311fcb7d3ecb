"""Who makes a request of A2A, and what came along with it: from HTTP's scope or gRPC's metadata to a `Call` of the service.

Who it is was found out before (`serve.http.entering`, the interceptors of the gRPC door); here it is only carried.
"""

import time
from typing import TYPE_CHECKING, Any

from a2a.auth.user import User
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.routes.common import ServerCallContextBuilder

from remit.access.visitor import Visitor
from remit.core.errors import Refused
from remit.core.tracing import HEADER as TRACEPARENT
from remit.core.tracing import parse
from remit.proto.extension import NOTHING, Told
from remit.serve.service import Call

if TYPE_CHECKING:
    import grpc.aio
    from starlette.requests import Request

DOOR = "a2a"
VISITOR = "remit.visitor"
"""In the scope of a request of HTTP, and in the state of a call here."""


class Caller(User):
    """A visitor, as the SDK wants to see one."""

    def __init__(self, visitor: Visitor) -> None:
        self._visitor = visitor

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._visitor.principal


class HttpCalls(ServerCallContextBuilder):
    def build(self, request: "Request") -> ServerCallContext:
        headers = {name.lower(): value for name, value in request.headers.items()}
        return _context(request.scope.get(VISITOR), headers, request.headers.getlist(HTTP_EXTENSION_HEADER))


class GrpcCalls:
    """Of the gRPC binding: who calls was found out by the interceptor of the gRPC door."""

    def build(self, context: "grpc.aio.ServicerContext[Any, Any]") -> ServerCallContext:
        given = [(name.lower(), value) for name, value in context.invocation_metadata() or () if isinstance(value, str)]
        extensions = [value for name, value in given if name == HTTP_EXTENSION_HEADER.lower()]
        from remit.serve.grpc.auth_interceptor import entered

        return _context(entered().visitor, dict(given), extensions)


def _context(visitor: Visitor | None, headers: dict[str, str], extensions: list[str]) -> ServerCallContext:
    state = {"headers": headers, VISITOR: visitor}
    requested = get_requested_extensions(extensions)
    if visitor is None:
        return ServerCallContext(state=state, requested_extensions=requested)
    return ServerCallContext(state=state, user=Caller(visitor), requested_extensions=requested)


def call_of(context: ServerCallContext, *, session: str | None = None, told: Told = NOTHING) -> Call:
    """Raises `Refused` where nobody was found out: no door lets such a request in, and neither does this."""
    visitor = context.state.get(VISITOR)
    if not isinstance(visitor, Visitor):
        raise Refused("Nobody is known to make this request.", code="UNAUTHENTICATED", advice="Send a token: Authorization: Bearer ….")
    trace = parse(context.state["headers"].get(TRACEPARENT))
    return Call(
        visitor=visitor,
        door=DOOR,
        session=session,
        traceparent=None if trace is None else str(trace),
        deadline_at=None if told.seconds_left is None else time.time() + told.seconds_left,
        depth=told.depth,
        path=told.path,
    )
