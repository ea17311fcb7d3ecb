"""Streamable HTTP as the way in: one address, `/mcp`, on loopback. The protocol over it is the SDK's.

Whoever can reach the port can have work done here: so it is for loopback alone (see `beyond` for the rest), and a page in somebody's
browser is kept out by checks of Host and Origin (DNS rebinding).
"""

import contextlib
import ipaddress
import logging
import socket
from collections.abc import Iterator, Sequence

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from remit.core.errors import Misused, Unavailable
from remit.serve.mcp.server import ToolServer

PATH = "/mcp"
STOP_SECONDS = 2
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class _Uvicorn(uvicorn.Server):
    """Signals are its caller's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bound(host: str, port: int) -> socket.socket:
    """Taken before anything is opened: a port that is not free is told at once."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, number)
    except (OSError, OverflowError, UnicodeError) as error:
        raise Misused(f"There is no address {host}: {error}.", advice="Use --host 127.0.0.1.") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise Unavailable(
            f"{host}:{port} cannot be listened on: {error.strerror}.",
            code="TOOL_UNAVAILABLE",
            advice="Choose another --port; 0 takes any that is free.",
        ) from None
    return listening


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"


def security(host: str, allowed_hosts: Sequence[str]) -> TransportSecuritySettings:
    """Which Host and Origin are let in: loopback's names, the address that is bound, and those that were named."""
    names = list(dict.fromkeys([*_LOOPBACK, _named(host), *allowed_hosts]))
    hosts = [form for name in names for form in (name, f"{name}:*")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[f"{scheme}://{form}" for form in hosts for scheme in ("http", "https")],
    )


def _named(host: str) -> str:
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).version == 6:
            return f"[{host}]"
    return host


def check_names(names: Sequence[str]) -> None:
    for name in names:
        if not name or set(name) & set("/@ "):
            raise Misused(f"--allow-host takes the name of a machine, not {name!r:.80}.", advice="E.g. --allow-host build.example.org")


def stop(web: uvicorn.Server) -> None:
    """What is cut off from here on is cut off on purpose: nobody needs a traceback of it."""
    for name in ("uvicorn.error", "mcp"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    web.should_exit = True


def http_server(server: ToolServer, security: TransportSecuritySettings) -> uvicorn.Server:
    """Serves with `serve(sockets=[…])`; told to stop by `should_exit`."""
    logging.getLogger("mcp").setLevel(logging.WARNING)
    app = server.streamable_http_app(streamable_http_path=PATH, transport_security=security)
    config = uvicorn.Config(
        app, log_level="warning", log_config=None, access_log=False, timeout_graceful_shutdown=STOP_SECONDS, server_header=False
    )
    return _Uvicorn(config)
