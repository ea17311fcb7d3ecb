"""HTTP/1.1 on an asyncio stream, by h11: requests in, answers out, whole, in pieces, or broken off on purpose.

Knows no model. Everything is bounded: the head, the body, and how long a client may take to send them. Used by `server`.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import h11

MOST_BODY_BYTES = 64 * 2**20
MOST_HEAD_BYTES = 2**18
READ_SECONDS = 60.0
_CHUNK = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    method: str
    path: str
    """Without the query."""
    headers: Mapping[str, str]
    body: bytes


class Gone(Exception):
    """The client went away, or speaks no HTTP."""


class Connection:
    """One client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD_BYTES)

    async def receive(self) -> HttpRequest:
        """The next request. Raises `Gone` when there is none."""
        head = await self._event()
        if not isinstance(head, h11.Request):
            raise Gone
        body = bytearray()
        async with asyncio.timeout(READ_SECONDS):
            while isinstance(event := await self._event(), h11.Data):
                body += event.data
                if len(body) > MOST_BODY_BYTES:
                    await self.answer(413, {"error": {"message": f"The request is over {MOST_BODY_BYTES} bytes."}})
                    raise Gone
        return HttpRequest(
            method=head.method.decode("ascii"),
            path=head.target.decode("ascii", "replace").partition("?")[0],
            headers={name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers},
            body=bytes(body),
        )

    async def answer(self, status: int, document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        """A whole answer, as JSON."""
        body = json.dumps(document, ensure_ascii=False).encode()
        await self.begin(status, {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})})
        await self.send(body)
        await self.end()

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        await self._write(h11.Response(status_code=status, headers=list(headers.items())))

    async def send(self, data: bytes) -> None:
        await self._write(h11.Data(data=data))

    async def end(self) -> None:
        """After this the next request can be received, if the client keeps the connection."""
        await self._write(h11.EndOfMessage())
        if self._http.our_state is h11.MUST_CLOSE:
            raise Gone
        self._http.start_next_cycle()

    async def send_head_only(self) -> None:
        """An answer without a body, as HEAD is given."""
        await self.begin(200, {"content-length": "0"})
        await self.end()

    def reset(self) -> None:
        """Break the connection off: the client sees it reset, not closed."""
        with suppress(OSError):  # lingering for no time is what makes the kernel send a reset
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def wait_gone(self) -> None:
        """Until the client goes."""
        with suppress(OSError):
            while data := await self._reader.read(_CHUNK):
                self._http.receive_data(data)

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await self._writer.wait_closed()

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise Gone(str(error)) from None
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self._write(h11.InformationalResponse(status_code=100, headers=[]))
            try:
                data = await self._reader.read(_CHUNK)
            except OSError as error:
                raise Gone(str(error)) from None
            self._http.receive_data(data)

    async def _write(self, event: h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage) -> None:
        try:
            data = self._http.send(event)
            if data:
                self._writer.write(data)
                await self._writer.drain()
        except (OSError, h11.LocalProtocolError) as error:
            raise Gone(str(error)) from None


def slices(data: bytes, count: int) -> Iterable[bytes]:
    """The data in at most `count` parts."""
    size = max(1, -(-len(data) // count))
    return (data[start : start + size] for start in range(0, len(data), size))
