"""Addresses a server listens at: parsed, checked and bound before anything else starts, so that mistakes are reported at once.

Nothing listens beyond this machine without TLS, unless a proxy in front ends TLS. A Unix socket belongs to its owner alone: it is bound in
a private folder and then moved to its place. It replaces the socket of a dead server, but never that of a living one, nor any other file.
"""

import contextlib
import errno
import fcntl
import ipaddress
import os
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.core.errors import Misused, RemitError, Unavailable
from remit.settings.values import ServeSettings
from remit.system.own_folder import make_folder
from remit.system.unix_path import UnixPath

LOCK_SECONDS = 2.0
_BOUND = "s"
_ANSWER_SECONDS = 1.0


class UnixSocket:
    """One that is bound; removed at the end if it is still ours."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode = _inode(path)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            if _inode(self.path) == self._inode:
                self.path.unlink()


def bind_unix(path: Path, listen: Callable[[str], object], door: str) -> UnixSocket:
    """`listen`: takes the name to listen at. Raises `Unavailable` where another server listens, `Misused` for what is no socket."""
    folder = path.parent
    if folder.name == "run" and folder.parent.name == ".remit":  # the project's own, made when it is first needed
        make_folder(folder.parent)
        make_folder(folder)
    with _told(path, door), _one_at_a_time(folder):
        _must_be_free(path, door)
        with tempfile.TemporaryDirectory(prefix=f".{door}-", dir=folder, ignore_cleanup_errors=True) as private:
            bound = Path(private) / _BOUND
            with UnixPath(bound) as short:
                listen(short.name)
            os.chmod(bound, 0o600)
            os.rename(bound, path)
        return UnixSocket(path)


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Two servers that start at once must not both find the place free. Whoever holds a folder of others for ever keeps nobody out."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + LOCK_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.01)
        yield
    finally:
        os.close(held)


@contextlib.contextmanager
def _told(path: Path, door: str) -> Iterator[None]:
    try:
        yield
    except RemitError:
        raise
    except (OSError, RuntimeError) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        advice = f"Choose another path, in a folder that is yours: [serve] {door}."
        raise Unavailable(f"{path} cannot be listened on: {words}.", code="TOOL_UNAVAILABLE", advice=advice) from None


def _must_be_free(path: Path, door: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Misused(f"{path} is there and is no socket.", advice=f"Choose another path: [serve] {door}.")
    if _answers(path):
        raise Unavailable(
            f"Another server listens at {path}.", code="TOOL_UNAVAILABLE", advice=f"Stop it, or choose another path: [serve] {door}."
        )


def _answers(path: Path) -> bool:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(_ANSWER_SECONDS)
        with UnixPath(path) as short:
            sock.connect(short.name)
    except OSError as error:
        return error.errno not in (errno.ECONNREFUSED, errno.ENOENT)  # a full queue is somebody's
    finally:
        sock.close()
    return True


def _inode(path: Path) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


UNIX = "unix"
BACKLOG = 1024
GRPC_SOCKET = "grpc.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A Unix socket, or a host and a port."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        if self.path is not None:
            return True
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"{UNIX}:{self.path}" if self.path is not None else f"{_bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """The contents of the files that the settings name."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


def place_of(text: str, usual: Path, root: Path) -> Place:
    """`unix` is the usual socket, `unix:PATH` another one; everything else is HOST:PORT. Raises `Misused`."""
    if text == UNIX:
        return Place(path=usual)
    if text.startswith(f"{UNIX}:"):
        return Place(path=root / Path(text.removeprefix(f"{UNIX}:")).expanduser())
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise Misused(f"{text!r:.80} is no address to listen at.", advice="Write unix, unix:PATH or HOST:PORT, such as 127.0.0.1:7411.")
    return Place(host=host.removeprefix("[").removesuffix("]"), port=int(port))


def must_be_safe(place: Place, settings: ServeSettings) -> None:
    """Raises `Misused` for a place beyond this machine that nothing protects."""
    if place.is_local or settings.tls_certificate is not None or settings.behind_proxy:
        return
    raise Misused(
        f"{place} can be reached from other machines, and what goes there, tokens too, would be readable on the way.",
        advice="Give a certificate (serve.tls_certificate and serve.tls_key), or say that a proxy in front ends TLS (serve.behind_proxy).",
    )


def certificates_of(settings: ServeSettings, root: Path) -> Certificates | None:
    """Raises `Misused` for what is half said or cannot be read."""
    certificate, key, client_ca = settings.tls_certificate, settings.tls_key, settings.client_ca
    if certificate is None and key is None:
        if client_ca is not None:
            raise Misused("serve.client_ca needs a certificate of the server's own.", advice="Set serve.tls_certificate and serve.tls_key.")
        return None
    if certificate is None or key is None:
        raise Misused("A certificate needs its key, and a key its certificate.", advice="Set serve.tls_certificate and serve.tls_key.")
    found = Certificates(
        certificate=_file(root, certificate, "serve.tls_certificate"),
        key=_file(root, key, "serve.tls_key"),
        client_ca=None if client_ca is None else _file(root, client_ca, "serve.client_ca"),
    )
    if found.key.stat().st_mode & 0o077:
        raise Misused(f"{found.key} can be read by others.", advice=f"chmod 600 {found.key}")
    return found


@contextlib.contextmanager
def bound(place: Place) -> Iterator[socket.socket]:
    """Listening, or an error that says what to do. A Unix socket is its owner's alone, and goes with the server."""
    if place.path is None:
        with _bound_port(place) as sock:
            yield sock
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        ours = bind_unix(place.path, lambda name: _listen(sock, name), "http")
        try:
            yield sock
        finally:
            ours.remove()


def _listen(sock: socket.socket, address: Any) -> None:
    sock.bind(address)
    sock.listen(BACKLOG)
    sock.setblocking(False)


def _bound_port(place: Place) -> socket.socket:
    try:
        family, kind, number, _, address = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, number)
    except (OSError, OverflowError, UnicodeError) as error:
        raise Misused(f"There is no address {place.host}: {error}.", advice="Use 127.0.0.1.") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _listen(sock, address)
    except OSError as error:
        sock.close()
        advice = "Choose another port; 0 takes any that is free."
        raise Unavailable(f"{place} cannot be listened on: {error.strerror}.", code="TOOL_UNAVAILABLE", advice=advice) from None
    return sock


def url_of(sock: socket.socket, place: Place, *, is_tls: bool) -> str:
    """A port is known from the socket alone, where any would do."""
    if place.path is not None:
        return str(place)
    name = sock.getsockname()
    return f"http{'s' if is_tls else ''}://{_bracketed(name[0])}:{name[1]}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _file(root: Path, named: str, setting: str) -> Path:
    path = root / Path(named).expanduser()
    if not path.is_file() or not os.access(path, os.R_OK):
        raise Misused(f"{setting}: {path} cannot be read.", advice="Name a PEM file, by a path below the project or a whole one.")
    return path
