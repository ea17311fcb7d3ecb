"""Where a task service listens, what is shown there, and the channel to it. Nothing is sent here.

`unix:/path` and loopback are spoken to in the clear; any other host by TLS, so that no token ever crosses a network for others to read.
"""

import ipaddress
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio

from remit.agents.proto.metadata import AUTHORIZATION
from remit.core.errors import Misused, Unavailable
from remit.system.files import LONGEST_BYTES, UnixPath, as_target

MOST_BYTES = 64 * 1024 * 1024
"""Of one message from there."""
_PLAIN, _TLS = "plain:", "tls:"
_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", MOST_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),  # a channel that is closed shares nothing with the next one
    ("grpc.enable_retries", 0),  # what may be sent again is decided here, by its key
    ("grpc.enable_http_proxy", 0),
)


class Where(NamedTuple):
    target: str
    """As gRPC takes it."""
    is_tls: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How a service is reached."""

    address: str
    """`unix:/path`, `host:port`, `tls:host:port`, or `plain:host:port` for a host whose network is trusted."""
    token: Callable[[], str | None] = field(default=lambda: None, repr=False)
    """What is shown; asked for at each call, since it may be renewed."""
    ca_file: str | Path | None = None
    certificate_file: str | Path | None = None
    """Of ours, for mutual TLS."""
    key_file: str | Path | None = None

    def where(self) -> Where:
        """Raises `Misused` for what is no address."""
        address = self.address.strip()
        if address.startswith("unix:"):
            path = address.removeprefix("unix:")
            path = path[2:] if path.startswith("///") else path
            if not path or "\0" in path:
                raise _no_address(self.address)
            return Where(f"unix:{path}", self.ca_file is not None)
        is_tls, is_plain = address.startswith(_TLS), address.startswith(_PLAIN)
        bare = address.removeprefix(_TLS).removeprefix(_PLAIN)
        host, colon, port = bare.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536 or "/" in bare or " " in bare:
            raise _no_address(self.address)
        if is_plain and self.ca_file is not None:
            raise Misused(f"{self.address}: a ca_file is for TLS, and plain: says that there is none.", advice="Leave one of them out.")
        return Where(bare, is_tls or self.ca_file is not None or not (is_plain or is_loopback(host)))

    def metadata(self) -> list[tuple[str, str]]:
        token = self.token()
        if not token:
            return []
        if not token.isascii() or not token.isprintable() or " " in token:
            raise Misused("The token is none: it holds characters that no token has.", advice="Copy it again, without line breaks.")
        return [(AUTHORIZATION, f"Bearer {token}")]

    def open(self) -> grpc.aio.Channel:
        """A channel; connected when it is first used. Raises `Misused`, or `Unavailable` where a file cannot be read."""
        target, is_tls = self.where()
        if not is_tls:
            if self.address.startswith(_PLAIN) and self.token() and not is_loopback(target.rpartition(":")[0]):
                raise Misused(
                    f"No token is sent to {self.address} in the clear.", advice=f"Write {_TLS}{target}, with TLS on the other side."
                )
            return _opened(target)
        own = (_read(self.key_file), _read(self.certificate_file))
        if (own[0] is None) != (own[1] is None):
            raise Misused("A certificate and its key are given together.", advice="Name both files.")
        credentials = grpc.ssl_channel_credentials(_read(self.ca_file), *own)
        return grpc.aio.secure_channel(target, credentials, options=_OPTIONS)


def _opened(target: str) -> grpc.aio.Channel:
    """A socket's path may be longer than the kernel takes: it is then reached by another name, for as long as there is the channel."""
    path = target.removeprefix("unix:")
    if path == target or len(os.fsencode(path)) <= LONGEST_BYTES:
        return grpc.aio.insecure_channel(target if path == target else as_target(path), options=_OPTIONS)
    try:
        reached = UnixPath(Path(path))
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be reached: {error.strerror or error}.", advice="Is it running? `remit serve` starts one."
        ) from None
    channel = grpc.aio.insecure_channel(as_target(reached.name), options=_OPTIONS)
    weakref.finalize(channel, reached.close)
    return channel


def is_loopback(host: str) -> bool:
    name = host.strip("[]")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def token_from(variable: str | None) -> Callable[[], str | None]:
    """Of the environment as it is when it is needed; it never stands in a file, and is struck out of whatever is kept."""
    return lambda: (os.environ.get(variable) or "").strip() or None if variable else None


def _read(path: str | Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        fault = f"{path} cannot be read: {error.strerror or error}."
        raise Unavailable(fault, code="TOOL_UNAVAILABLE", advice="It must be a file in PEM form.") from None


def _no_address(given: str) -> Misused:
    return Misused(f"{given!r:.200} is no address of a task service.", advice="Write unix:/path/of/the/socket or host:port.")
