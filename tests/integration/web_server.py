"""A loopback web server that sends exactly the bytes of a test and records requests."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

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
    """A self-signed certificate for `name`: the file to trust, and the pair of the server."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    created = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number(), now - timedelta(1), now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / f"{name}.crt", folder / f"{name}.both"
    public.write_bytes(created.public_bytes(serialization.Encoding.PEM))
    plain = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    private.write_bytes(plain + public.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(private)
    return public, context
