"""`remit mcp --http` where other machines reach it: the same tools, behind the entrance that the doors of `remit serve` have.

Nothing listens beyond this machine without authentication (issue 7 item 5): whoever comes in shows a token or a certificate, and what goes
over the wire is under TLS, or a proxy ends that; `[serve]` of the settings says which. On loopback `serve.mcp.http` asks nobody.
"""

import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from remit.core.errors import Misused
from remit.serve.doors import entrance_of
from remit.serve.http.app import http_app
from remit.serve.http.server import HttpServer, Tls
from remit.serve.listening import Place, certificates_of, must_be_safe, url_of
from remit.serve.mcp.http import PATH, STOP_SECONDS
from remit.serve.mcp.mounted import mcp_routes
from remit.serve.service import Service
from remit.settings.values import ServeSettings

if TYPE_CHECKING:
    from remit.app import Remit


def is_beyond(listening: socket.socket) -> bool:
    """Whether other machines reach it."""
    return not place_at(listening).is_local


def place_at(listening: socket.socket) -> Place:
    host, port = listening.getsockname()[:2]
    return Place(host=host, port=port)


def address_beyond(listening: socket.socket, settings: ServeSettings, root: Path) -> str:
    """Where it will be found. Raises `Misused` where nothing would protect what goes there."""
    place = place_at(listening)
    must_be_safe(place, settings)
    return f"{url_of(listening, place, is_tls=certificates_of(settings, root) is not None)}{PATH}"


@contextlib.asynccontextmanager
async def served_beyond(
    remit: "Remit", listening: socket.socket, host: str, allowed_hosts: Sequence[str], answer_after_seconds: float
) -> AsyncIterator[None]:
    if getattr(remit, "engine", None) is None:
        raise Misused("An agent cannot serve its project to other machines.", advice="Listen on loopback: --host 127.0.0.1")
    own = remit.settings.serve
    settings = replace(own, allow_hosts=(*own.allow_hosts, *allowed_hosts))
    must_be_safe(place_at(listening), settings)
    files = certificates_of(settings, remit.root)
    tls = None if files is None else Tls(certificate=files.certificate, key=files.key, client_ca=files.client_ca)
    async with contextlib.AsyncExitStack() as stack:
        entrance = entrance_of(remit)
        entrance.open()
        stack.callback(entrance.close)
        routes = await stack.enter_async_context(mcp_routes(Service(remit), answer_after_seconds))
        app = http_app(routes, entrance, settings, hosts=[host, place_at(listening).host], open_paths=())
        server = HttpServer(app, tls=tls)
        await server.start([listening])
        stack.push_async_callback(server.stop, STOP_SECONDS)
        yield
