"""A loopback web server that sends exactly the bytes of a test and records requests."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from grpc_harness import Authority

Say = Callable[[socket.socket, "Request"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def answer(content: bytes | str = b"", *, status: str = "200 OK", type_: str = "text/plain", headers: dict[str, str] | None = None) -> Say:
    data = content.encode() if isinstance(content, str) else content
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(data)}"]
    lines += [f"Content-Type: {type_}"] if type_ else []
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return raw("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data)


def redirect(to: str, status: str = "302 Found") -> Say:
    return answer(status=status, headers={"Location": to})


def raw(data: bytes) -> Say:
    return lambda connection, _requests: connection.sendall(data)


@dataclass(slots=True)
class WebServer:
    port: int
    routes: dict[str, Say]
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    def serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(20)
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            requests = _receive(connection)
            if requests is not None:
                self.requests.append(requests)
                self.routes.get(requests.path.partition("?")[0], answer("nothing here", status="404 Not Found"))(connection, requests)
            connection.close()


def _receive(connection: socket.socket) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    return Request(method=method, path=path, headers=headers, body=body)


@contextlib.contextmanager
def web_server(routes: dict[str, Say], tls: ssl.SSLContext | None = None) -> Iterator[WebServer]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = WebServer(port=listener.getsockname()[1], routes=routes, tls=tls)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=server.serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server
    finally:
        server.stopping.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def certificate(folder: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """The file to trust, and a server with a certificate for `name`."""
    authority = Authority(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(name))
    return authority.certificate, context
