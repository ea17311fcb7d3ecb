"""HTTP to untrusted servers: guarded requests, and bodies bounded in bytes and time.

Guarded requests are for URLs that others name (`worker.web_fetch`): a URL is parsed strictly (`parse_target`), its name is resolved once,
every resolved address is classified (`classify_address`), and the connection is made to exactly those addresses, so that a different second
DNS answer has no effect (DNS rebinding). Certificates are always verified. Nothing is taken from the environment: no proxy, no cookies, no
netrc. Each redirect is checked like the first request.

Bodies are the one implementation for all clients: they take chunks from any HTTP library. A decompression bomb costs the limit and no more,
because it is decompressed in pieces."""

import asyncio
import contextlib
import ipaddress
import re
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit

from remit.core.errors import Misused, Refused
from remit.core.redaction import is_secret_in_query
from remit.system.ip_addresses import METADATA_NAMES, Address, AddressKind, classify_address
from remit.system.packages import need
from remit.system.threads import off_loop

# ---- targets

LONGEST = 8192
_PORTS = {"http": 80, "https": 443}
_UNFIT = re.compile(r"[\x00-\x20\x7f-\x9f\\]")
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*")
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)
_SAFE = "!$&'()*+,;=:@/?%~-._[]"
_SERVICE_PORTS = frozenset({2049, 3659, 4045, 4190, 5060, 5061, 6000, 6379, 6566, 6697, 10080, 11211, *range(6665, 6670)})
"""Beside those below 1024: ports of servers that interpret an HTTP request as commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    scheme: str
    host: str
    """A name in lower case and ASCII, or an address without brackets."""
    port: int
    path: str
    """With the query, as it is sent."""
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None = None
    """Set if the host is an address."""

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """As in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def shown(self) -> str:
        """For people and records: values of parameters with secret names are redacted."""
        return without_secrets(self.url)


def without_secrets(url: str) -> str:
    """`url` without user, password and fragment, and with secret parameters redacted; never raises."""
    try:
        parts = urlsplit(url)
        said = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return "(an address that cannot be read)"
    query = parts.query
    if any(is_secret_in_query(name) for name, _ in said):
        query = urlencode([(name, "REDACTED" if is_secret_in_query(name) else value) for name, value in said])
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query, fragment="").geturl()


def parse_target(url: str) -> Target:
    """Parse a URL strictly. Raises `Misused`, which never repeats a password."""
    url = url.strip()
    if len(url) > LONGEST:
        raise Misused(f"The address is {len(url)} characters long; at most {LONGEST} are read.")
    if _UNFIT.search(url):
        raise Misused("The address contains a space, a backslash or a control character.", advice="Write them as %20, %5C, ….")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Misused("The address cannot be read: its host or port is malformed.", advice="Use http://host:port/path.") from None
    if parts.scheme not in _PORTS:
        raise Misused(f"Only http and https are fetched, not {parts.scheme[:20] or 'an address without a scheme'}.", advice=_WHOLE)
    if "@" in parts.netloc:
        raise Misused(
            "The address carries a user name or password.",
            advice="Leave them out, and give them in the Authorization header instead: they are then not recorded.",
        )
    host, address = _host(parts.netloc)
    port = _PORTS[parts.scheme] if port is None else port
    if port in _SERVICE_PORTS or (port < 1024 and port not in _PORTS.values()):
        raise Misused(f"Port {port} belongs to another protocol than HTTP.", advice="Fetch from a port where a web server answers.")
    path = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    return Target(scheme=parts.scheme, host=host, port=port, path=path, address=address)


_WHOLE = "Give a whole address, e.g. https://example.com/."


def _host(netloc: str) -> tuple[str, ipaddress.IPv4Address | ipaddress.IPv6Address | None]:
    if netloc.startswith("["):
        text, _, rest = netloc[1:].partition("]")
        try:
            six = ipaddress.IPv6Address(text)
        except ValueError:
            raise Misused("The host is not an IPv6 address.", advice="Write [2001:db8::1].") from None
        if rest and not rest.startswith(":"):
            raise Misused("There is text between the host and its port.", advice="Write [2001:db8::1]:8080.")
        if six.scope_id is not None:
            raise Misused("The host names a network interface.", advice="Leave out the part after %.")
        return six.compressed, six
    name = _ascii(netloc.partition(":")[0]).removesuffix(".").lower()
    if not name:
        raise Misused("The address names no host.", advice=_WHOLE)
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        return _parse_ipv4(name)
    if not _NAME.fullmatch(name):
        raise Misused("The host is not a valid domain name.", advice="Use letters, digits and hyphens, with dots between.")
    return name, None


def _parse_ipv4(name: str) -> tuple[str, ipaddress.IPv4Address]:
    """A name that ends in a number is an IPv4 address, accepted only in its plain spelling: others (2130706433, 0x7f.1, 0177.0.0.1) only
    serve to hide one."""
    try:
        four = ipaddress.IPv4Address(name)
    except ValueError:
        raise Misused("The host is an IPv4 address in a non-standard notation.", advice="Write four decimal numbers: 192.0.2.1.") from None
    return str(four), four


def _ascii(name: str) -> str:
    """International names in their DNS form; characters that look like digits or dots are normalised first."""
    if name.isascii():
        return name
    import idna

    try:
        return idna.encode(name, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise Misused("The host is not a valid domain name.", advice="Check its spelling.") from None


def joined(base: Target, location: str) -> str:
    """The target of a redirect or link, relative to `base`."""
    return urljoin(base.url, location)


# ---- one request

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]
"""All addresses of a name and port."""
Headers = Sequence[tuple[str, str]]
CONNECT_SECONDS = 15.0
"""Maximum wait for a silent server."""
MOST_ADDRESSES = 8


class UnreachableError(ConnectionError):
    """The server could not be reached, or does not speak HTTP; a message for the caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: Headers
    """Names in lower case."""
    chunks: AsyncGenerator[bytes, None]
    """As received, still compressed."""

    def header(self, name: str) -> str:
        return ", ".join(self.all(name))

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


async def resolve(host: str, port: int) -> Sequence[Address]:
    """Uses the system's resolver: the hosts file, name servers."""
    try:
        found = await off_loop(_look_up, host, port)
    except (socket.gaierror, UnicodeError) as error:
        raise UnreachableError(f"The name {host} cannot be resolved: {error.args[-1] if error.args else error}.") from None
    return list(dict.fromkeys(ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in found))


def _look_up(host: str, port: int) -> list[Any]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def tls_context(ca_file: Path | None, setting: str = "web.ca_file") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=need("certifi", "web").where())
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=str(ca_file))
        except (OSError, ssl.SSLError) as error:
            raise Misused(f"{setting}: {ca_file.name} cannot be used: {error}.", advice="Name a PEM file of certificates.") from None
    return context


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRequest:
    target: Target
    method: str = "GET"
    headers: Headers = ()
    body: bytes | None = None


@contextlib.asynccontextmanager
async def send_request(request: WebRequest, addresses: Sequence[Address], tls: ssl.SSLContext | None) -> AsyncIterator[Answer]:
    """Send a request to one of the checked `addresses`. The connection ends with this. Raises `UnreachableError`."""
    core = need("httpcore", "web")
    target = request.target
    sent = [("Host", target.authority), *request.headers, ("Connection", "close")]
    if request.body is not None:
        sent.append(("Content-Length", str(len(request.body))))
    asked = core.Request(
        method=request.method,
        url=core.URL(scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.path.encode("ascii")),
        headers=[(name.encode("ascii"), value.encode("utf-8")) for name, value in sent],
        content=request.body,
        extensions={"timeout": {"connect": CONNECT_SECONDS}},
    )
    backend = _backend(core, target, addresses)
    pool = core.AsyncConnectionPool(ssl_context=tls, max_connections=1, max_keepalive_connections=0, network_backend=backend)
    async with pool:
        with _convert_errors(core, target):
            response = await pool.handle_async_request(asked)
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
    with _convert_errors(core, target):
        async for chunk in response.aiter_stream():
            yield chunk


@contextlib.contextmanager
def _convert_errors(core: Any, target: Target) -> Any:
    """Convert the transport's errors. None of them repeats a header or a query."""
    try:
        yield
    except (core.TimeoutException, TimeoutError):
        raise UnreachableError(f"{target.authority} did not answer in time.") from None
    except core.ProtocolError as error:
        # "illegal header line: bytearray(…)" may contain a cookie.
        why = str(error).partition(": bytearray(")[0].rstrip(".")
        raise UnreachableError(f"{target.authority} does not answer as HTTP asks: {why}.") from None
    except (core.NetworkError, OSError) as error:
        raise UnreachableError(f"{target.authority} cannot be reached: {_reason(error)}.") from None


def _reason(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({cause.verify_message})"
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _backend(core: Any, target: Target, addresses: Sequence[Address]) -> Any:
    class PinnedBackend(core.AnyIOBackend):  # type: ignore[misc] # the package is optional, so its class is known only here
        """Connects to the checked addresses only, in order."""

        async def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> Any:
            if (host, port) != (target.host, target.port):
                raise core.ConnectError("a connection was asked for that was not checked")
            failure: Exception = core.ConnectError("it has no address")
            for address in addresses[:MOST_ADDRESSES]:
                try:
                    return await super().connect_tcp(str(address), port, timeout=timeout, **options)
                except (core.ConnectError, core.ConnectTimeout) as error:
                    failure = error
            raise failure

    return PinnedBackend()


# ---- redirects

MOST_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEPT_HEADERS = frozenset({"accept", "accept-language", "accept-encoding", "user-agent", "content-type"})
"""Headers that do not identify the caller. Any other may be a key and stays with its origin."""


class Permit(Protocol):
    """`ctx.permit`."""

    def __call__(self, action: str = "", /, **facts: Any) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Dependencies of requests: the policy, name resolution, trusted certificates."""

    permit: Permit
    tls: Callable[[], ssl.SSLContext]
    resolve: Resolve = resolve


@dataclass(slots=True)
class Trail:
    """The hops so far."""

    hops: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    last: Target | None = None


@contextlib.asynccontextmanager
async def follow_redirects(request: WebRequest, network: Network, trail: Trail) -> AsyncIterator[Answer]:
    """The answer after all redirects. Raises `Refused`, `Misused`, `UnreachableError`."""
    while True:
        trail.last = request.target
        addresses = await check_target(request.target, request.method, network)
        async with contextlib.AsyncExitStack() as stack:
            tls = network.tls() if request.target.scheme == "https" else None
            answer = await stack.enter_async_context(send_request(request, addresses, tls))
            locations = set(filter(None, answer.all("location"))) if answer.status in _REDIRECTS else set()
            if not locations:
                yield answer
                return
        if len(locations) > 1:
            raise UnreachableError(f"{request.target.authority} redirects to {len(locations)} addresses at once.")
        following = _next(request, answer.status, locations.pop(), trail)
        trail.hops.append({"status": answer.status, "from": request.target.shown, "to": following.target.shown})
        if len(trail.hops) > MOST_REDIRECTS:
            raise UnreachableError(f"It was redirected more than {MOST_REDIRECTS} times, at last to {following.target.shown}.")
        request = following


async def check_target(target: Target, method: str, network: Network) -> Sequence[Address]:
    """The addresses of a target, each classified and allowed. Raises `Refused` if one of them is not."""
    if target.address is not None:
        addresses: Sequence[Address] = [target.address]
    else:
        addresses = await network.resolve(target.host, target.port)
    if not addresses:
        raise UnreachableError(f"The name {target.host} has no address.")
    kinds = {classify_address(address) for address in addresses}
    if target.host in METADATA_NAMES:
        kinds = {AddressKind.METADATA}
    for kind in sorted(kinds):
        await _ask_policy(target, method, kind, network)
    return addresses


async def _ask_policy(target: Target, method: str, kind: AddressKind, network: Network) -> None:
    try:
        await network.permit(url=target.shown, scheme=target.scheme, host=target.host, port=target.port, method=method, address=str(kind))
    except Refused as refusal:
        if kind is AddressKind.PUBLIC:
            raise
        raise Refused(
            f"{target.host} leads inside ({_WORDS[kind]}), and the policy does not allow that: {refusal.message}",
            code=refusal.code,
            advice=refusal.advice or f"If it is meant, add a rule to the policy that permits {target.host} for this operation.",
        ) from None


_WORDS = {
    AddressKind.LOOPBACK: "this machine",
    AddressKind.PRIVATE: "a private network",
    AddressKind.LINK_LOCAL: "the local link",
    AddressKind.METADATA: "the metadata service of a cloud",
    AddressKind.RESERVED: "an address that is not of the public internet",
}


def _next(request: WebRequest, status: int, location: str, trail: Trail) -> WebRequest:
    """The request for a redirect."""
    before = request.target
    try:
        # Header bytes are decoded as Latin-1; URLs that are not ASCII are UTF-8.
        written = location.encode("latin-1").decode("utf-8", "replace").strip().replace(" ", "%20")  # as browsers do
        target = parse_target(joined(before, written))
    except (Misused, ValueError) as error:
        why = error.message if isinstance(error, Misused) else "it cannot be read."
        raise Refused(
            f"{before.authority} redirects to {without_secrets(location)[:200]}, which is not followed: {why}",
            code="POLICY_DENIED",
            advice="Ask for the address that is meant itself.",
        ) from None
    method, body, headers = request.method, request.body, list(request.headers)
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        headers = [(name, value) for name, value in headers if not name.lower().startswith("content-")]
    if target.origin != before.origin:
        headers = [(name, value) for name, value in headers if name.lower() in _KEPT_HEADERS]
    if before.scheme == "https" and target.scheme == "http":
        if body is not None:
            raise Refused(
                f"{before.authority} redirects what is sent to an unencrypted address of {target.host}.",
                code="POLICY_DENIED",
                advice="Send it to an https address.",
            )
        trail.notes.append(f"The redirect to {target.host} leaves encryption: what came from there could have been changed on the way.")
    return replace(request, target=target, method=method, body=body, headers=tuple(headers))


# ---- bodies

ACCEPT_ENCODING = "gzip"
_PIECE_BYTES = 1 << 16
_ANY_HEADER = 32 + zlib.MAX_WBITS
"""zlib recognises the header of gzip or of deflate."""
_EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
_LONGEST_END = 4


class BodyError(Exception):
    """The body is unusable: too large, broken, or with an unknown encoding. The message gives the reason, without quoting it."""


class BodyTooLarge(BodyError):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    content: bytes
    wire_bytes: int
    cut: str = ""
    """Why the rest is missing; empty if complete."""
    is_late: bool = False
    """Whether it is missing because of the time limit."""


class Decompressor:
    """gzip, deflate, or no encoding. Raises `BodyError` for any other."""

    def __init__(self, content_encoding: str) -> None:
        names = [name for part in content_encoding.lower().split(",") if (name := part.strip()) not in ("", "identity")]
        if names not in ([], ["gzip"], ["x-gzip"], ["deflate"]):
            raise BodyError(f"it is packed in a way that was not asked for ({', '.join(names)[:60]})")
        self._stream = zlib.decompressobj(_ANY_HEADER) if names else None
        self._is_begun = False

    @property
    def is_complete(self) -> bool:
        return self._stream is None or self._stream.eof or not self._is_begun

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if self._stream is None:
            yield data
            return
        self._is_begun = self._is_begun or data != b""
        while data and not self._stream.eof:
            try:
                piece = self._stream.decompress(data, _PIECE_BYTES)
            except zlib.error as error:
                raise BodyError(f"it is packed in a way that could not be read ({error})") from None
            data = self._stream.unconsumed_tail
            if piece:
                yield piece
            if self._stream.unused_data[:1] == b"\x1f":
                raise BodyError("it is packed in several parts")

    async def unpack(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The bytes decompressed, in small pieces."""
        async for chunk in chunks:
            for piece in self.pieces(chunk):
                yield piece


async def read_body(
    chunks: AsyncGenerator[bytes, None], *, max_bytes: int, seconds: float | None = None, content_encoding: str = ""
) -> Body:
    """What arrives within the limits. A slow, broken or endless server loses only the rest: see `Body.cut`."""
    decompressor = Decompressor(content_encoding)
    content, wire, cut, is_late = bytearray(), 0, "", False
    try:
        async with asyncio.timeout(seconds), contextlib.aclosing(chunks):
            async for chunk in chunks:
                wire += len(chunk)
                for piece in decompressor.pieces(chunk):
                    content += piece
                    if len(content) > max_bytes:
                        break
                if len(content) > max_bytes or wire > max_bytes:
                    cut = f"It is larger than {max_bytes} bytes; the rest was left."
                    break
            else:
                cut = "" if decompressor.is_complete else "The answer broke off: its packed part has no end."
    except TimeoutError:
        cut, is_late = f"The server was too slow; after {seconds:.0f} s the rest was left.", True
    except ConnectionError as error:
        cut = f"The answer broke off: {error}"
    return Body(content=bytes(content[:max_bytes]), wire_bytes=wire, cut=cut, is_late=is_late)


async def limit_chunks(chunks: AsyncIterator[bytes], max_bytes: int, what: str = "one answer") -> AsyncIterator[bytes]:
    """The same chunks. Raises `BodyTooLarge`."""
    seen = 0
    async for chunk in chunks:
        seen += len(chunk)
        if seen > max_bytes:
            raise BodyTooLarge(f"it sent more than {max_bytes // 1024} KiB in {what} without coming to an end")
        yield chunk


async def limit_events(
    chunks: AsyncIterator[bytes], *, max_event_bytes: int, max_stream_bytes: int, max_event_lines: int | None = None
) -> AsyncIterator[bytes]:
    """The chunks of a stream of server-sent events, separated by empty lines. Raises `BodyTooLarge`."""
    event = lines = 0
    tail = b""
    async for chunk in limit_chunks(chunks, max_stream_bytes, "one stream"):
        seen = tail + chunk
        end = max(seen.rfind(mark) for mark in _EVENT_ENDS)
        event = event + len(chunk) if end < 0 else len(seen) - end
        lines = lines + chunk.count(b"\n") + chunk.count(b"\r") if end < 0 else 0
        tail = seen[1 - _LONGEST_END :]
        if event > max_event_bytes or (max_event_lines is not None and lines > max_event_lines):
            raise BodyTooLarge(f"it sent {event // 1024} KiB in {lines} lines of one event without coming to an end")
        yield chunk


# ---- bounded responses: of model servers, MCP servers and A2A agents


PLAIN = {"accept-encoding": "identity"}
"""Requested encoding: small events gain little from compression."""
ERROR_BYTES = 1 << 20
"""Maximum size of an error page, whose first lines are shown."""
EVENT_BYTES = 16 << 20
EVENT_LINES = 4096
"""An event has two or three lines. Clients copy the event at each line: a million of them would block the loop for hours."""
STREAM_BYTES = 256 << 20


def bound_by(stream_class: type, max_event_lines: int | None = EVENT_LINES) -> Callable[[Any], Awaitable[None]]:
    """A hook for responses of the library whose streams are of this class. It limits what can be read from a response."""

    class Bounded(stream_class):  # type: ignore[misc]
        def __init__(self, stream: Any, pieces: AsyncIterator[bytes]) -> None:
            self._stream, self._pieces = stream, pieces

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self._pieces

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        stream = response.stream
        try:
            decompressor = Decompressor(response.headers.pop("content-encoding", ""))
        except BodyError:
            await stream.aclose()
            raise
        pieces = decompressor.unpack(aiter(stream))
        if response.is_error:
            bounded = _beginning(pieces)
        elif "json" in response.headers.get("content-type", ""):
            bounded = limit_chunks(pieces, EVENT_BYTES)
        else:
            bounded = limit_events(pieces, max_event_bytes=EVENT_BYTES, max_event_lines=max_event_lines, max_stream_bytes=STREAM_BYTES)
        response.stream = Bounded(stream, bounded)

    return bound


async def _beginning(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    left = ERROR_BYTES
    async for piece in pieces:
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return
