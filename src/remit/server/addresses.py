"""Addresses of a server: parsed, checked and bound before anything else starts, so that mistakes are reported at once.

Nothing listens beyond this machine without TLS, unless a proxy terminates TLS. A Unix socket belongs only to its owner: it is bound in a
private folder and then moved to its place. It replaces the socket of a dead server, but never that of a live one, nor any other file."""

import contextlib
import errno
import os
import socket
import ssl
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from remit.core.errors import Misused, RemitError, Unavailable
from remit.core.settings import ServeSettings
from remit.system.files import make_folder
from remit.system.ip_addresses import is_loopback
from remit.system.unix_sockets import ShortPath

UNIX = "unix"
GRPC_SOCKET = "grpc.sock"
BACKLOG = 1024
ANSWER_SECONDS = 1.0


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


def place_of(text: str, usual: Path | None, root: Path) -> Place:
    """HOST:PORT; with a `usual` socket also `unix` and `unix:PATH`. Raises `Misused`."""
    if usual is not None and text == UNIX:
        return Place(path=usual)
    if usual is not None and text.startswith(f"{UNIX}:"):
        return Place(path=root / Path(text.removeprefix(f"{UNIX}:")).expanduser())
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535 or host == UNIX:
        forms = "HOST:PORT, such as 127.0.0.1:7411" + ("" if usual is None else ", unix or unix:PATH")
        raise Misused(f"{text!r:.80} is not an address.", advice=f"Write {forms}.")
    return Place(host=host.removeprefix("[").removesuffix("]"), port=int(port))


def must_be_safe(place: Place, settings: ServeSettings) -> None:
    """Raises `Misused` for an address that other machines reach without TLS."""
    if not (place.is_local or settings.tls_certificate is not None or settings.behind_proxy):
        advice = "Set serve.tls_certificate and serve.tls_key, or serve.behind_proxy if a proxy in front terminates TLS."
        raise Misused(
            f"{place} can be reached from other machines, and all traffic, including tokens, would be unencrypted.", advice=advice
        )


def url_of(sock: socket.socket, *, is_tls: bool) -> str:
    """The URL, with the bound port."""
    host, port = sock.getsockname()[:2]
    return f"http{'s' if is_tls else ''}://{_bracketed(host)}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# ---- certificates


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """PEM files."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """For HTTPS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_alpn_protocols(["http/1.1"])
        self.load(context)
        return context

    def load(self, context: ssl.SSLContext) -> None:
        """Raises `Misused`."""

        def no_password() -> str:
            raise ValueError("the key has a password")  # OpenSSL would ask for it at the terminal

        try:
            context.load_cert_chain(self.certificate, self.key, password=no_password)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise Misused(
                f"TLS cannot use {self.certificate}, {self.key}: {error}.",
                advice="Check [serve] tls_certificate and tls_key: PEM files, the key without a password.",
            ) from None


def certificates_of(settings: ServeSettings, root: Path) -> Certificates | None:
    """Raises `Misused` if one is missing or unreadable."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise Misused("TLS needs a certificate and its key.", advice="Set serve.tls_certificate and serve.tls_key.")
    found = Certificates(certificate=root / Path(certificate).expanduser(), key=root / Path(key).expanduser())
    found.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    if found.key.stat().st_mode & 0o077:
        raise Misused(f"{found.key} can be read by others.", advice=f"chmod 600 {found.key}")
    return found


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
        raise _unavailable(place, error.strerror or str(error), "Choose another port; 0 takes any that is free.") from None


def _unavailable(where: object, why: str, advice: str) -> Unavailable:
    return Unavailable(f"Cannot listen at {where}: {why}.", code="TOOL_UNAVAILABLE", advice=advice)


class UnixSocket:
    """A bound socket, removed at the end if it still belongs to this server."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode = _inode(path)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            if _inode(self.path) == self._inode:
                self.path.unlink()


def _inode(path: Path) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def bind_unix(path: Path, listen: Callable[[str], object]) -> UnixSocket:
    """`listen` takes the name to listen at. Raises `Unavailable`, or `Misused` for another kind of file."""
    folder = path.parent
    if folder.name == "run" and folder.parent.name == ".remit":
        make_folder(folder.parent)
        make_folder(folder)
    try:
        _must_be_free(path)
        with tempfile.TemporaryDirectory(prefix=".grpc-", dir=folder, ignore_cleanup_errors=True) as private:
            new = Path(private) / "s"
            with ShortPath(new) as short:
                listen(short.name)
            os.chmod(new, 0o600)
            os.rename(new, path)
        return UnixSocket(path)
    except RemitError:
        raise
    except (OSError, RuntimeError) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _unavailable(path, words, "Choose another path, in a folder of yours: [serve] grpc.") from None


def _must_be_free(path: Path) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Misused(f"{path} exists and is not a socket.", advice="Choose another path: [serve] grpc.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(ANSWER_SECONDS)
        try:
            with ShortPath(path) as short:
                sock.connect(short.name)
        except OSError as error:
            if error.errno in (errno.ECONNREFUSED, errno.ENOENT):  # anything else, including a full queue, is a live server
                return
    advice = "Stop it, or choose another path: [serve] grpc."
    raise Unavailable(f"Another server listens at {path}.", code="TOOL_UNAVAILABLE", advice=advice)
