"""One request and its answer within limits: the size of the body, the time it takes, the headers of every answer.

Sits between the server and the application, and needs nothing of it: a body over a limit is answered here, and the application sees a
client that has left. Made by `auth_middleware`."""

import asyncio
import contextlib
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from remit.core.errors import Refused, RemitError
from remit.server.access.limits import Open
from remit.server.http.problems import HttpRefused, answer_of
from remit.server.http.server import HttpLimits

log = logging.getLogger("remit.server.http")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

REQUEST_ID = "remit.request_id"
HOLD = "remit.hold"
"""Key of the scope: `Exchange.hold`, for handlers that start something before they answer with a stream."""
_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_GONE: dict[str, Any] = {"type": "http.disconnect"}
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Of every answer, unless the application sets them."""
_HSTS = (b"strict-transport-security", b"max-age=31536000")


class Bodies:
    """Bytes of the bodies of all requests in progress: many small ones together must not fill the memory."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0

    def take(self, size: int) -> None:
        if self.held_bytes + size > self.most_bytes:
            raise Refused("The server receives too much at the moment.", code="QUEUE_FULL", advice="Try again in a moment.")
        self.held_bytes += size


class Exchange:
    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: HttpLimits, bodies: Bodies) -> None:
        self._scope = scope
        self._from_client = receive
        self._to_client = send
        self._limits = limits
        self._bodies = bodies
        self.headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            self.headers.setdefault(name, []).append(value)
        given = self.one(b"x-request-id")
        self.request_id = given.decode() if given and _GIVEN_ID.fullmatch(given) else secrets.token_hex(8)
        self.most_bytes = 0
        """Of the body; nothing is read before the caller is known."""
        self.place: Callable[[], Open] | None = None
        """Among the caller's open streams."""
        self.places = contextlib.ExitStack()
        """Left in the task of the request: gives back its place and what its body takes."""
        self._task = asyncio.current_task()
        self._has_place = False
        self._read_bytes = 0
        self._body_end_at: float | None = None
        self._is_read = b"transfer-encoding" not in self.headers and self.length == 0
        """The whole body has arrived."""
        self.is_answered = False
        self.is_over = False
        """Answered by us, or the client has left: the application's messages are dropped."""

    @property
    def length(self) -> int:
        """Of the body, as announced; 0 if there is none, or it comes in chunks."""
        announced = self.one(b"content-length")
        return int(announced) if announced and announced.isdigit() else 0

    def one(self, name: bytes) -> bytes | None:
        """The value of a header that is present exactly once."""
        values = self.headers.get(name, ())
        return values[0] if len(values) == 1 else None

    # ---- from the client

    async def receive(self) -> Message:
        """Answers a body that is too large or too late itself."""
        if self.is_over:
            return _GONE
        if self._is_read:
            return self._noted(await self._from_client())
        if self._body_end_at is None:
            self._body_end_at = asyncio.get_running_loop().time() + self._limits.body_seconds
        try:
            async with asyncio.timeout_at(self._body_end_at):
                message = self._noted(await self._from_client())
            size = len(message.get("body", b""))
            if self._read_bytes + size > self.most_bytes:
                raise too_large(self.most_bytes)
            self._bodies.take(size)
        except TimeoutError:
            words = f"The body did not arrive within {self._limits.body_seconds:g} s."
            await self.refuse(HttpRefused(words, code="REQUEST_TIMEOUT", advice="Send it in one go."))
            return _GONE
        except Refused as error:
            await self.refuse(error)
            return _GONE
        if size and not self._read_bytes:
            self.places.callback(self._give_back)
        self._read_bytes += size
        return message

    def _give_back(self) -> None:
        self._bodies.held_bytes -= self._read_bytes

    def _noted(self, message: Message) -> Message:
        if message["type"] == "http.disconnect":
            self.is_over = True
        elif not message.get("more_body", False):
            self._is_read = True
        return message

    # ---- to the client

    async def send(self, message: Message) -> None:
        if self.is_over:
            return
        if message["type"] == "http.response.start":
            message = {**message, "headers": self._headers(message)}
            try:
                if any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in message["headers"]):
                    self.hold()
            except Refused as error:
                await self.refuse(error)
                raise  # ends the application's stream
            self.is_answered = True
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            await self._send_last(message)
            return
        await self._to_client(message)

    async def refuse(self, error: RemitError) -> None:
        """Answers with the error; an answer in progress is ended instead."""
        if self.is_over:
            return
        body = b""
        if not self.is_answered:
            self.is_answered = True
            status, headers, body = answer_of(error, self.request_id)
            raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
            start: Message = {"type": "http.response.start", "status": status, "headers": raw}
            await self._to_client({**start, "headers": self._headers(start)})
        await self._send_last({"type": "http.response.body", "body": body})
        self.is_over = True

    async def _send_last(self, message: Message) -> None:
        """Reads the rest of the request for a moment: closing the connection over it could destroy the answer."""
        if not self._is_read:
            await self._to_client({**message, "more_body": True})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.linger_seconds):
                    await self._drop_rest()
            message = {"type": "http.response.body", "body": b""}
        await self._to_client(message)

    async def _drop_rest(self) -> None:
        if b"expect" in self.headers and self._body_end_at is None:
            return  # the client waits for 100 Continue, and sends nothing
        left = self._limits.linger_bytes
        while left > 0 and not self._is_read:
            message = await self._from_client()
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                return
            left -= len(message.get("body", b""))

    def _headers(self, message: Message) -> list[tuple[bytes, bytes]]:
        given = [(name.lower(), value) for name, value in message.get("headers", ()) if name.lower() != b"server"]
        names = {name for name, _ in given}
        usual = HEADERS if self._scope.get("scheme") != "https" else (*HEADERS, _HSTS)
        given += [(name, value) for name, value in usual if name not in names]
        given.append((b"x-request-id", self.request_id.encode()))
        if not self._is_read and b"connection" not in names:
            given.append((b"connection", b"close"))
        return given

    def hold(self) -> None:
        """Takes a place among the caller's open streams. Raises `RateLimited`; the request ends when the caller's token is revoked."""
        if self.place is None or self._has_place:
            return
        place = self.places.enter_context(self.place())
        place.task = self._task  # applications send from other tasks
        self._has_place = True


def too_large(most_bytes: int) -> Refused:
    advice = "Pass large inputs as files, by their paths."
    return Refused(f"The request is larger than {most_bytes} bytes.", code="TOO_LARGE", advice=advice)
