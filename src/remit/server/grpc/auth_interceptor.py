"""Authentication and errors of gRPC calls: the interceptor before every service, including those of other packages.

The caller is authenticated by its bearer token or the socket before its message is read. Its metadata become a `Call`, which services get
from `current_call()`. The deadline of a call only limits how long the client waits: leaving ends no delegation.

Errors have the status of the one table, and in the trailers `remit-code`, `remit-advice` (percent-encoded if not ASCII) and
`remit-details-bin` (JSON)."""

import contextlib
import contextvars
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn
from urllib.parse import quote

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from remit.core.delegate_requests import encodable, json_bytes
from remit.core.errors import Misused, RemitError
from remit.core.request_metadata import ADVICE, CODE, DETAILS, TRACEPARENT
from remit.server.authenticator import HEADER, Authenticator, Credentials
from remit.server.service import Call, status_of
from remit.system.protobuf_values import text_of

log = logging.getLogger("remit.grpc")

HEALTH_CHECK = "/grpc.health.v1.Health/Check"
"""Answered without authentication."""
MOST_CHARACTERS = 800
MOST_DETAILS_BYTES = 3000
"""Clients accept 8 KiB of metadata: messages are included twice, and details grow by a third in base64."""
_PRINTABLE = "".join(chr(number) for number in range(0x20, 0x7F) if chr(number) != "%")

Context = grpc.aio.ServicerContext[Any, Any]
_CALL: contextvars.ContextVar[Call] = contextvars.ContextVar("remit_grpc_call")
_HOLD: contextvars.ContextVar[Callable[[], object]] = contextvars.ContextVar("remit_grpc_hold")


def current_call() -> Call:
    """The call that is being answered."""
    return _CALL.get()


def hold() -> None:
    """For a call that waits: it ends when the caller's token is revoked."""
    _HOLD.get()()


class AuthInterceptor(grpc.aio.ServerInterceptor):
    def __init__(self, authenticator: Authenticator, *, trusts_socket: bool = True) -> None:
        """`trusts_socket`: only the owner opens the Unix socket; behind a proxy every client does."""
        self._authenticator = authenticator
        self._trusts_socket = trusts_socket

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(handler_call_details)
        return None if handler is None else self._wrap(handler, is_open=handler_call_details.method == HEALTH_CHECK)

    def _wrap(self, handler: Any, *, is_open: bool) -> Any:
        """Unary requests are handled as streams too: gRPC passes those on before it has read anything."""
        read = handler.request_deserializer
        asks_once = not handler.request_streaming
        if handler.response_streaming:
            many = self._many(handler.unary_stream or handler.stream_stream, asks_once)
            return grpc.stream_stream_rpc_method_handler(many, read, handler.response_serializer)
        one = self._one(handler.unary_unary or handler.stream_unary, is_open)
        return grpc.stream_unary_rpc_method_handler(one, read, handler.response_serializer)

    def _one(self, behaviour: Any, is_open: bool) -> Any:
        async def serve(requests: Any, context: Context) -> Any:
            try:
                with contextlib.ExitStack() as cleanup:
                    if not is_open:
                        call = self._call(context)
                        _CALL.set(call)
                        _HOLD.set(lambda: cleanup.enter_context(self._authenticator.stream(call.principal)))
                    return await behaviour(await _read_one(context), context)
            except Exception as error:  # noqa: BLE001 - clients get an error, never a traceback
                await _report(context, error)

        return serve

    def _many(self, behaviour: Any, asks_once: bool) -> Any:
        generator = behaviour if inspect.isasyncgenfunction(behaviour) else None

        async def serve(requests: Any, context: Context) -> AsyncIterator[Any]:
            try:
                call = self._call(context)
                _CALL.set(call)
                with self._authenticator.stream(call.principal):
                    request = await _read_one(context) if asks_once else requests
                    if generator is None:
                        await behaviour(request, context)
                        return
                    async with contextlib.aclosing(generator(request, context)) as messages:
                        async for message in messages:
                            yield message
            except Exception as error:  # noqa: BLE001 - the same
                await _report(context, error)

        return serve

    def _call(self, context: Context) -> Call:
        """Raises `Refused`, `Misused`."""
        given: dict[str, Any] = {}
        for name, value in context.invocation_metadata() or ():
            if name in given and name == HEADER:  # two servers in a row might each read a different one
                raise Misused(f"{name} is given twice.", code="INVALID_PARAMETERS", advice="Send it once.")
            given.setdefault(name, value)
        peer: str = context.peer()
        is_socket = peer.startswith("unix:")
        authorization = given.get(HEADER)
        shown = Credentials(
            authorization=authorization if isinstance(authorization, str) else None,
            is_socket=is_socket and self._trusts_socket,
            api="grpc",
            peer="" if is_socket else peer.rpartition(":")[0],
        )
        return Call.of(self._authenticator.authenticate(shown), "grpc", given.get(TRACEPARENT))


async def _read_one(context: Context) -> Any:
    request = await context.read()
    if request is grpc.aio.EOF:
        raise DecodeError
    return request


# ---- errors


async def _report(context: Context, error: Exception) -> NoReturn:
    if isinstance(error, DecodeError):
        error = Misused("The request could not be parsed.", advice="Send the message that the method takes, as in tasks.proto.")
    if isinstance(error, RemitError):
        await context.abort(grpc.StatusCode[status_of(error).grpc], _short(error.message), _trailers(error))
    if isinstance(error, grpc.aio.BaseError | grpc.RpcError):  # reported already, or the client has left
        raise error
    log.error("A gRPC request failed because of a bug in remit.", exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, "Internal server error. The server's log has the details.")


def _short(text: str) -> str:
    """Cut to stay below the limit when it is written as metadata, where a letter may take nine bytes."""
    text = text_of(text)[:MOST_CHARACTERS]
    while len(quote(text, safe=_PRINTABLE)) > MOST_CHARACTERS:
        text = text[: len(text) * 3 // 4]
    return text


def _trailers(error: RemitError) -> tuple[tuple[str, str | bytes], ...]:
    found: list[tuple[str, str | bytes]] = [(CODE, quote(error.code, safe=" "))]
    if error.advice:
        found.append((ADVICE, quote(_short(error.advice), safe=_PRINTABLE)))
    details = json_bytes(encodable(dict(getattr(error, "details", {}))))
    if 2 < len(details) <= MOST_DETAILS_BYTES:
        found.append((DETAILS, details))
    return tuple(found)
