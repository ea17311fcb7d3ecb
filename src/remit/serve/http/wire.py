"""One connection: uvicorn's HTTP/1.1, made strict in what it reads and impatient with whoever dawdles.

What two servers could read in two ways is refused here, before anything is made of it (request smuggling): lines that end in a bare LF,
folded header lines, control characters, extensions of chunks. A header must be there in time, a client must take what it is sent, and of
connections that say nothing the oldest give way. Who a request is from is told by the connection too: a Unix socket, a certificate.
Used by `server`; what is asked is not its business.
"""

import asyncio
import os
import re
import socket
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from remit.serve.http.limits import HttpLimits
from remit.serve.http.problems import problem_bytes

PEER = "remit.peer"
"""Where `scope["state"]` tells it."""
_BARE = re.compile(rb"(?<!\r)\n|\r[^\n]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FOLDED = re.compile(rb"\n[ \t]")
_CHUNK_LINE_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who is at the other end, as the connection itself tells."""

    is_local_socket: bool = False
    uid: int | None = None
    """Of the process at the other end of a Unix socket, as the kernel knows it."""
    certificate: Mapping[str, Any] | None = None
    """As `ssl.SSLSocket.getpeercert()` gives it, checked against the settings' `client_ca`; None: none was shown."""
    der: bytes | None = None


class StrictBuffer(ReceiveBuffer):
    """h11's buffer, where it is handed the lines of a header, a trailer or a chunk."""

    def __init__(self, limits: HttpLimits) -> None:
        super().__init__()
        self._limits = limits

    def maybe_extract_lines(self) -> list[bytearray] | None:
        end = 0 if self._data[:2] == b"\r\n" else self._data.find(b"\r\n\r\n", max(0, self._multiple_lines_search - 1))
        block = self._data[: end if end >= 0 else self._limits.header_bytes + 1]
        if len(block) > self._limits.header_bytes or block.count(b"\n") > self._limits.header_fields:
            raise h11.LocalProtocolError("The header is too large", error_status_hint=431)
        if _BARE.search(block) or _FOLDED.search(block):
            raise h11.LocalProtocolError("A bare line end, a folded line or a control character in the header")
        return super().maybe_extract_lines()

    def maybe_extract_next_line(self) -> bytearray | None:
        line = super().maybe_extract_next_line()
        if (len(self._data) if line is None else len(line)) > _CHUNK_LINE_BYTES or (line is not None and not line[:-2].isalnum()):
            raise h11.LocalProtocolError("A chunk begins with its size and nothing else")
        return line


class HalfOpen:
    """The connections of a server that owe it a header, oldest first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[Connection, None] = {}

    def add(self, connection: "Connection") -> None:
        self._waiting[connection] = None
        if len(self._waiting) > self._most:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.cut()

    def discard(self, connection: "Connection") -> None:
        self._waiting.pop(connection, None)

    def __len__(self) -> int:
        return len(self._waiting)


class Resting:
    """The connections on which nothing is asked just now, the one that rests longest first: where there are too many, it gives way."""

    def __init__(self) -> None:
        self._resting: dict[Connection, None] = {}

    def add(self, connection: "Connection") -> None:
        self._resting[connection] = None

    def discard(self, connection: "Connection") -> None:
        self._resting.pop(connection, None)

    def makes_room(self) -> bool:
        """Anybody may come, ask whether we live, and stay: that must keep nobody out."""
        oldest = next(iter(self._resting), None)
        if oldest is None:
            return False
        del self._resting[oldest]
        oldest.cut()
        return True


class Connection(H11Protocol):
    def __init__(
        self, config: Config, state: ServerState, app_state: dict[str, Any], limits: HttpLimits, half_open: HalfOpen, resting: Resting
    ) -> None:
        super().__init__(config, state, app_state)
        self._limits = limits
        self._half_open = half_open
        self._resting = resting
        self._header_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._left_to_ignore: int | None = None
        """Set when it has been refused: what still comes is thrown away."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.conn._receive_buffer = StrictBuffer(self._limits)
        send_at_once(transport.get_extra_info("socket"))
        self.app_state = {**self.app_state, PEER: peer_of(transport)}
        if len(self.connections) > self._limits.connections and not self._resting.makes_room():
            self._refuse(503, "TOO_MANY_CONNECTIONS", "There are too many connections.")
        else:
            self._expect_header()

    def connection_lost(self, exc: Exception | None) -> None:
        self._resting.discard(self)
        self._header_is_there()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._resting.discard(self)
        if self._left_to_ignore is None:
            super().data_received(data)
            return
        self._left_to_ignore -= len(data)
        if self._left_to_ignore < 0:
            self.transport.abort()

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._header_is_there()
        elif self.conn._receive_buffer:
            self._expect_header()

    # ---- whoever dawdles

    def _expect_header(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(self._limits.header_seconds, self._header_is_late)
            self._half_open.add(self)

    def _header_is_there(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
            self._half_open.discard(self)

    def _header_is_late(self) -> None:
        if self.conn._receive_buffer:
            self._refuse(408, "REQUEST_TIMEOUT", f"The header was not there within {self._limits.header_seconds:g} s.")
        else:
            self.cut()

    def cut(self) -> None:
        self._header_is_there()
        self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(self._limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY:
            self.transport.close()  # answered before all was read: nobody knows where the next request would begin
        elif self.conn.our_state is h11.IDLE and self.conn.their_state is h11.IDLE and not self.conn._receive_buffer:
            self._resting.add(self)
        if self.transport.is_closing():
            self.loop.call_later(self._limits.stall_seconds, self.transport.abort)  # what was written may never be taken

    def timeout_keep_alive_handler(self) -> None:
        self.transport.close()
        self.loop.call_later(self._limits.stall_seconds, self.transport.abort)

    def shutdown(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        else:
            self.transport.close()

    # ---- whoever is refused before it is known what is asked

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn where h11 could not read what came."""
        error = sys.exception()
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        words = str(error or msg).partition(":")[0]  # behind it is what was sent, which nobody needs to be told
        self._refuse(status, "MALFORMED_REQUEST" if status != 431 else "TOO_LARGE", f"{words.rstrip('.')}.")

    def _refuse(self, status: int, code: str, words: str) -> None:
        self._header_is_there()
        self._unset_keepalive_if_required()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.abort()
                return
        self.transport.write(problem_bytes(status, code, words))
        self._left_to_ignore = self._limits.linger_bytes
        if self.transport.can_write_eof():
            self.transport.write_eof()  # closed with something unread, the refusal itself might not arrive
            self.loop.call_later(self._limits.linger_seconds, self.transport.abort)
        else:
            self.transport.close()
            self.loop.call_later(self._limits.stall_seconds, self.transport.abort)

    def _unsupported_upgrade_warning(self) -> None:
        """Not worth a line of the log each: the request is answered as any other."""


def peer_of(transport: asyncio.Transport) -> Peer:
    connected: socket.socket | None = transport.get_extra_info("socket")
    if connected is not None and connected.family == socket.AF_UNIX:
        return Peer(is_local_socket=True, uid=_uid_of(connected))
    secured = transport.get_extra_info("ssl_object")
    if secured is None:
        return Peer()
    return Peer(certificate=secured.getpeercert() or None, der=secured.getpeercert(binary_form=True))


def send_at_once(connected: socket.socket | None) -> None:
    """Answers are several small writes: held back for an acknowledgement, each request would take 40 ms. asyncio sees to it only where
    the listening socket was made with its protocol named."""
    if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _uid_of(connected: socket.socket) -> int | None:
    form = struct.Struct("3i")
    try:
        return int(form.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size))[1])
    except OSError:
        return None


def is_ours(peer: Peer) -> bool:
    """Whether whoever came by the Unix socket is who runs this server, or root."""
    return peer.is_local_socket and peer.uid in (os.geteuid(), 0)
