"""Addresses of a server: parsed, checked and bound before anything else starts; and how programs of the same user find the server.

Nothing listens beyond this machine unless a proxy in front terminates TLS. The Unix socket belongs only to its owner: it is bound in a
private folder and then moved to its place, where it replaces the socket of a dead server, but never that of a live one. A running server
is announced in `.remit/run/serve.json`, with its addresses and no secret; of several servers of one project the newest is found."""

import contextlib
import errno
import json
import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from remit.core.errors import Misused, Unavailable
from remit.core.settings import ServeSettings
from remit.system.files import atomic_write, make_folder
from remit.system.ip_addresses import is_loopback
from remit.system.processes import is_alive, process_start
from remit.system.unix_sockets import ShortPath

UNIX = "unix"
GRPC_SOCKET = "grpc.sock"
BACKLOG = 1024
ANSWER_SECONDS = 1.0
FILE = "serve.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A Unix socket, or a host and a port."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    @property
    def is_local(self) -> bool:
        """Only this machine reaches it."""
        return self.path is not None or is_loopback(self.host)

    def __str__(self) -> str:
        return f"{UNIX}:{self.path}" if self.path is not None else f"{_bracketed(self.host)}:{self.port}"


def place_of(text: str, socket_path: Path | None = None) -> Place:
    """HOST:PORT, or `unix` for the given socket. Raises `Misused`."""
    if socket_path is not None and text == UNIX:
        return Place(path=socket_path)
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        forms = "HOST:PORT, such as 127.0.0.1:7411" + ("" if socket_path is None else ", or unix")
        raise Misused(f"{text!r:.80} is not an address.", advice=f"Write {forms}.")
    return Place(host=host.removeprefix("[").removesuffix("]"), port=int(port))


def must_be_safe(place: Place, settings: ServeSettings) -> None:
    """Raises `Misused` for an address that other machines reach without TLS."""
    if not (place.is_local or settings.behind_proxy):
        raise Misused(
            f"{place} can be reached from other machines, and all traffic, including tokens, would be unencrypted.",
            advice="Listen on 127.0.0.1, or set serve.behind_proxy if a proxy in front terminates TLS.",
        )


def url_of(sock: socket.socket) -> str:
    """The URL, with the bound port."""
    host, port = sock.getsockname()[:2]
    return f"http://{_bracketed(host)}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# ---- binding


def bound(place: Place) -> socket.socket:
    """Listening at a port. Raises `Misused`, `Unavailable`."""
    try:
        family, _, _, _, address = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise Misused(f"There is no address {place.host}: {error}.", advice="Use 127.0.0.1.") from None
    try:
        return socket.create_server(address[:2], family=family, backlog=BACKLOG, dualstack_ipv6=family == socket.AF_INET6)
    except OSError as error:
        raise cannot_listen(place, error.strerror or str(error)) from None


def cannot_listen(place: object, why: str) -> Unavailable:
    advice = "Stop what listens there, or choose another address; port 0 takes any that is free."
    return Unavailable(f"Cannot listen at {place}: {why}.", code="TOOL_UNAVAILABLE", advice=advice)


def bind_unix(path: Path, listen: Callable[[str], object]) -> None:
    """`listen` takes the name to listen at. Raises `Unavailable`."""
    make_folder(path.parent.parent)
    make_folder(path.parent)
    if _is_served(path):
        raise cannot_listen(path, "another server listens there")
    try:
        with tempfile.TemporaryDirectory(prefix=".grpc-", dir=path.parent, ignore_cleanup_errors=True) as private:
            new = Path(private) / "s"
            with ShortPath(new) as short:
                listen(short.name)
            os.chmod(new, 0o600)
            os.rename(new, path)
    except (OSError, RuntimeError) as error:
        raise cannot_listen(path, str(error)) from None


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(ANSWER_SECONDS)
        try:
            with ShortPath(path) as short:
                sock.connect(short.name)
        except OSError as error:  # anything else, including a full queue, is a live server
            return error.errno not in (errno.ECONNREFUSED, errno.ENOENT, errno.ENOTSOCK)
    return True


# ---- announcements


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry:
    pid: int
    pid_started: str | None
    grpc: str | None = None
    """In gRPC notation: `unix:/…/grpc.sock`, `127.0.0.1:50051`; None: not served."""
    http: str | None = None
    """`http://127.0.0.1:7411`."""
    token_file: str | None = None
    """Readable by the owner alone."""


def announce(folder: Path, *, grpc: str | None, http: str | None, token_file: str | None) -> None:
    """In the run folder of a project."""
    own = ServerEntry(pid=os.getpid(), pid_started=process_start(os.getpid()), grpc=grpc, http=http, token_file=token_file)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_write(folder / FILE, json.dumps(asdict(own), indent=1).encode() + b"\n", fsync=False)


def announced(folder: Path) -> ServerEntry | None:
    """The live server of the project with this run folder."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        one = ServerEntry(**json.loads((folder / FILE).read_bytes()))
        # Without its start time any process would match: a clone may contain such a file. The start time includes the boot id, which no
        # clone knows.
        if one.pid_started and is_alive(one.pid, one.pid_started):
            return one
    return None


def withdraw(folder: Path) -> None:
    """Removes the entry of this process."""
    found = announced(folder)
    if found is not None and found.pid == os.getpid():
        (folder / FILE).unlink(missing_ok=True)
