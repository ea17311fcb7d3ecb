"""One request and its answer, held to limits on both ways: how large a body may be, how long it may take, what every answer carries.

Stands between the server and whatever application answers, and needs nothing of it: a body that breaks a limit is answered here, and the
application sees a client that has left. Made by `entering`, which also says who may come in.
"""

import asyncio
import contextlib
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from remit.access.limits import Open
from remit.core.errors import Refused, RemitError
from remit.serve.http.problems import HttpRefused, answer_of
from remit.serve.http.server import HttpLimits

log = logging.getLogger("remit.serve.http")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

REQUEST_ID = "remit.request_id"
HOLD = "remit.hold"
"""Where the scope has `Exchange.hold`, for a handler that begins something before it answers with a stream."""
_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_GONE: dict[str, Any] = {"type": "http.disconnect"}
CARRIED: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""By every answer, unless the application says otherwise."""
_HSTS = (b"strict-transport-security", b"max-age=31536000")


class Bodies:
    """What the bodies of all requests in hand take together: many that each are small enough must not fill the memory."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0

    def take(self, size: int) -> None:
        if self.held_bytes + size > self.most_bytes:
            fault = "More is being sent to this server at this moment than it takes."
            raise Refused(fault, code="QUEUE_FULL", advice="Try again in a moment.")
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
        """Of a body; nothing is read before it is known who asks."""
        self.place: Callable[[], Open] | None = None
        """Among the caller's open streams."""
        self.places = contextlib.ExitStack()
        """To be left in the task of the request, and what its body takes."""
        self._task = asyncio.current_task()
        self._has_place = False
        self._read_bytes = 0
        self._body_end_at: float | None = None
        self._is_read = b"transfer-encoding" not in self.headers and self.length == 0
        """All of the body is here."""
        self.is_answered = False
        self.is_over = False
        """Answered by us, or left by the client: whatever the application still says goes nowhere."""

    @property
    def length(self) -> int:
        """Of the body, as announced; 0: there is none, or it comes in chunks."""
        announced = self.one(b"content-length")
        return int(announced) if announced and announced.isdigit() else 0

    def one(self, name: bytes) -> bytes | None:
        """The value of a header that is there exactly once."""
        values = self.headers.get(name, ())
        return values[0] if len(values) == 1 else None

    # ---- from the client

    async def receive(self) -> Message:
        if self.is_over:
            return _GONE
        if self._is_read:
            return self._noted(await self._from_client())
        if self._body_end_at is None:
            self._body_end_at = asyncio.get_running_loop().time() + self._limits.body_seconds
        try:
            async with asyncio.timeout_at(self._body_end_at):
                message = self._noted(await self._from_client())
        except TimeoutError:
            fault = f"The body was not there within {self._limits.body_seconds:g} s."
            return await self._ended(HttpRefused(fault, code="REQUEST_TIMEOUT", advice="Send it in one go."))
        size = len(message.get("body", b""))
        if self._read_bytes + size > self.most_bytes:
            return await self._ended(too_large(self.most_bytes))
        try:
            self._bodies.take(size)
        except Refused as error:
            return await self._ended(error)
        if size and not self._read_bytes:
            self.places.callback(self._given_back)
        self._read_bytes += size
        return message

    def _given_back(self) -> None:
        self._bodies.held_bytes -= self._read_bytes

    def _noted(self, message: Message) -> Message:
        if message["type"] == "http.disconnect":
            self.is_over = True
        elif not message.get("more_body", False):
            self._is_read = True
        return message

    async def _ended(self, error: RemitError) -> Message:
        await self.refuse(error)
        return _GONE

    # ---- to the client

    async def send(self, message: Message) -> None:
        if self.is_over:
            return
        if message["type"] == "http.response.start":
            message = {**message, "headers": self._headers_of(message)}
            try:
                if _is_stream(message):
                    self.hold()
            except Refused as error:
                await self.refuse(error)
                raise  # so that nothing goes on streaming for nobody; whatever the application makes of it, it is answered
            self.is_answered = True
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            await self._last(message)
            return
        await self._to_client(message)

    async def refuse(self, error: RemitError) -> None:
        """The answer; one that was begun is ended instead, as it can be: what it was is said to the next request."""
        if self.is_over:
            return
        if self.is_answered:
            self.is_over = True
            await self._last({"type": "http.response.body", "body": b""})
            return
        self.is_answered = True
        status, headers, body = answer_of(error, self.request_id)
        raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        start: Message = {"type": "http.response.start", "status": status, "headers": raw}
        await self._to_client({**start, "headers": self._headers_of(start)})
        await self._last({"type": "http.response.body", "body": body})
        self.is_over = True

    async def _last(self, message: Message) -> None:
        """The rest of a request that is answered already is read for a moment: a connection closed over it might lose the answer."""
        if not self._is_read:
            await self._to_client({**message, "more_body": True})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.linger_seconds):
                    await self._thrown_away()
            message = {"type": "http.response.body", "body": b""}
        await self._to_client(message)

    async def _thrown_away(self) -> None:
        if b"expect" in self.headers and self._body_end_at is None:
            return  # it waits to be told to go on, and is not
        left = self._limits.linger_bytes
        while left > 0 and not self._is_read:
            message = await self._from_client()
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                return
            left -= len(message.get("body", b""))

    def _headers_of(self, message: Message) -> list[tuple[bytes, bytes]]:
        given = [(name.lower(), value) for name, value in message.get("headers", ()) if name.lower() != b"server"]
        names = {name for name, _ in given}
        carried = CARRIED if self._scope.get("scheme") != "https" else (*CARRIED, _HSTS)
        given += [(name, value) for name, value in carried if name not in names]
        given.append((b"x-request-id", self.request_id.encode()))
        if not self._is_read and b"connection" not in names:
            given.append((b"connection", b"close"))
        return given

    # ---- streams

    def hold(self) -> None:
        """Take a place among the streams that the caller has open. Raises `RateLimited`; whoever is sent away meanwhile is cut off."""
        if self.place is None or self._has_place:
            return
        place = self.places.enter_context(self.place())
        place.task = self._task  # applications send from tasks of their own making; it is the request that ends
        self._has_place = True


def _is_stream(message: Message) -> bool:
    """Of events, whichever door it is of."""
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in message["headers"])


def too_large(most_bytes: int) -> Refused:
    advice = "Pass large things as files, by their paths."
    return Refused(f"The request is larger than {most_bytes} bytes.", code="TOO_LARGE", advice=advice)
