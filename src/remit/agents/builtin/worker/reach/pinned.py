"""One request over a connection to addresses that were checked. The name is looked up once, before the check, and never again:
a name server that answers differently the second time is not asked a second time (DNS rebinding).

The Host header and the server name of TLS stay those of the name. Certificates are always verified. No proxy, no cookies, no netrc,
nothing from the environment: the transport knows what it is given here and no more. Used by `follow`.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.agents.builtin.needing import need
from remit.agents.builtin.worker.reach.addresses import Address
from remit.agents.builtin.worker.reach.target import Target
from remit.core.errors import Misused
from remit.system.threads import off_loop

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]
"""From a name and a port to its addresses, all of them."""
Headers = Sequence[tuple[str, str]]
CONNECT_SECONDS = 15.0
"""Until a server that says nothing is given up, where there is so much time."""
MOST_ADDRESSES = 8


class Unreached(Exception):
    """The server could not be reached, or does not speak HTTP; in words for whoever asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: Headers
    """Names in lower case."""
    chunks: AsyncGenerator[bytes, None]
    """As they come over the wire, packed as they are."""

    def header(self, name: str) -> str:
        return ", ".join(self.all(name))

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


async def resolve(host: str, port: int) -> Sequence[Address]:
    """By the system's own means: the hosts file, name servers."""
    try:
        found = await off_loop(_look_up, host, port)
    except (socket.gaierror, UnicodeError) as error:
        raise Unreached(f"The name {host} cannot be resolved: {error.args[-1] if error.args else error}.") from None
    return list(dict.fromkeys(ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in found))


def _look_up(host: str, port: int) -> list[Any]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def trusted(ca_file: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=need("certifi", "web").where())
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=str(ca_file))
        except (OSError, ssl.SSLError) as error:
            raise Misused(f"web.ca_file: {ca_file.name} cannot be used: {error}.", advice="Name a PEM file of certificates.") from None
    return context


@contextlib.asynccontextmanager
async def exchange(
    target: Target, addresses: Sequence[Address], method: str, headers: Headers, body: bytes | None, tls: ssl.SSLContext | None
) -> AsyncIterator[Answer]:
    """Ask `target` at one of `addresses`, which were checked. The connection ends with this. Raises `Unreached`."""
    core = need("httpcore", "web")
    sent = [("Host", target.authority), *headers, ("Connection", "close")]
    if body is not None:
        sent.append(("Content-Length", str(len(body))))
    request = core.Request(
        method=method,
        url=core.URL(scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.path.encode("ascii")),
        headers=[(name.encode("ascii"), value.encode("utf-8")) for name, value in sent],
        content=body,
        extensions={"timeout": {"connect": CONNECT_SECONDS}},
    )
    backend = _backend(core, target, addresses)
    pool = core.AsyncConnectionPool(ssl_context=tls, max_connections=1, max_keepalive_connections=0, network_backend=backend)
    async with pool:
        with _told(core, target):
            response = await pool.handle_async_request(request)
        try:
            yield Answer(
                status=response.status,
                headers=[(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.headers],
                chunks=_chunks(core, response, target),
            )
        finally:
            with contextlib.suppress(core.NetworkError, core.ProtocolError, RuntimeError):
                await response.aclose()


async def _chunks(core: Any, response: Any, target: Target) -> AsyncGenerator[bytes, None]:
    with _told(core, target):
        async for chunk in response.aiter_stream():
            yield chunk


@contextlib.contextmanager
def _told(core: Any, target: Target) -> Any:
    """The transport's errors in words. None of them repeats a header or a query."""
    try:
        yield
    except (core.TimeoutException, TimeoutError):
        raise Unreached(f"{target.authority} did not answer in time.") from None
    except core.ProtocolError as error:
        # "illegal header line: bytearray(…)": what stood there may be a cookie.
        why = str(error).partition(": bytearray(")[0].rstrip(".")
        raise Unreached(f"{target.authority} does not answer as HTTP asks: {why}.") from None
    except (core.NetworkError, OSError) as error:
        raise Unreached(f"{target.authority} cannot be reached: {_reason(error)}.") from None


def _reason(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({cause.verify_message})"
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _backend(core: Any, target: Target, addresses: Sequence[Address]) -> Any:
    plain = core.AnyIOBackend()

    class Pinned(core.AsyncNetworkBackend):  # type: ignore[misc] # the package is optional, so its class is known only here
        """Connects to the checked addresses, in their order, and to nothing else."""

        async def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> Any:
            if (host, port) != (target.host, target.port):
                raise core.ConnectError("a connection was asked for that was not checked")
            failure: Exception = core.ConnectError("it has no address")
            for address in addresses[:MOST_ADDRESSES]:
                try:
                    return await plain.connect_tcp(str(address), port, timeout=timeout, **options)
                except (core.ConnectError, core.ConnectTimeout) as error:
                    failure = error
            raise failure

        async def connect_unix_socket(self, path: str, timeout: float | None = None, **options: Any) -> Any:
            raise core.ConnectError("a local socket is not the web")

        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(seconds)

    return Pinned()
