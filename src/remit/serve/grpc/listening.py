"""Where the gRPC door listens: its Unix socket, for its owner alone, and its certificates. Knows gRPC's ports and files, no service.

gRPC binds sockets itself and asks nobody about their permissions. So a socket is bound in a folder that only we can enter, made ours
alone, and moved to its place, which is one step: nobody ever finds it open to others, and one that a dead server left is replaced.
"""

import contextlib
import errno
import fcntl
import os
import socket
import ssl
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from remit.core.errors import Misused, RemitError, Unavailable
from remit.serve.listening import Certificates
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


def bind_unix(path: Path, add_port: Callable[[str], int]) -> UnixSocket:
    """`add_port`: the server's `add_insecure_port`. Raises `Unavailable` where another server listens, `Misused` for what is no socket."""
    folder = path.parent
    if folder.name == "run":  # the project's own, made when it is first needed
        make_folder(folder)
    with _told(path), _one_at_a_time(folder):
        _must_be_free(path)
        with tempfile.TemporaryDirectory(prefix=".grpc-", dir=folder, ignore_cleanup_errors=True) as private:
            bound = Path(private) / _BOUND
            with UnixPath(bound) as short:
                add_port(f"unix:{short.name}")
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
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except RemitError:
        raise
    except (OSError, RuntimeError) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        advice = "Choose another path, in a folder that is yours: [serve] grpc."
        raise Unavailable(f"{path} cannot be listened on: {words}.", code="TOOL_UNAVAILABLE", advice=advice) from None


def _must_be_free(path: Path) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Misused(f"{path} is there and is no socket.", advice="Choose another path: [serve] grpc.")
    if _answers(path):
        raise Unavailable(
            f"Another server listens at {path}.", code="TOOL_UNAVAILABLE", advice="Stop it, or choose another path: [serve] grpc."
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


# ---- TLS


class Renewing:
    """The server's certificate as its files are now: one that is renewed holds from the next connection on, without a restart."""

    def __init__(self, files: Certificates) -> None:
        self._files = files
        self._stamp = self._now()
        self._loaded = self._load()

    def credentials(self) -> grpc.ServerCredentials:
        """With a `client_ca` every caller must show a certificate that it signed."""
        asks = self._files.client_ca is not None
        return grpc.dynamic_ssl_server_credentials(self._loaded, self._renewed, require_client_authentication=asks)  # type: ignore[arg-type]

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Asked at each connection, on a thread of gRPC's. Half-written files are no reason to turn callers away."""
        stamp = self._now()
        if stamp == self._stamp:
            return None
        try:
            self._loaded = self._load()
        except Misused:
            return None
        self._stamp = stamp
        return self._loaded

    def _now(self) -> tuple[int, ...]:
        found: list[int] = []
        for path in (self._files.certificate, self._files.key, self._files.client_ca):
            with contextlib.suppress(OSError):
                if path is not None:
                    known = path.stat()
                    found += [known.st_ino, known.st_mtime_ns, known.st_size]
        return tuple(found)

    def _load(self) -> grpc.ServerCertificateConfiguration:
        files = self._files
        try:
            checked = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            checked.load_cert_chain(files.certificate, files.key, password=lambda: b"")  # never asked at a terminal
            if files.client_ca is not None:
                checked.load_verify_locations(files.client_ca)
            authority = None if files.client_ca is None else files.client_ca.read_bytes()
            pair = (files.key.read_bytes(), files.certificate.read_bytes())
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise Misused(
                f"The certificate {files.certificate} or its key cannot be used: {error}.",
                advice="Both are PEM files, the key without a password: serve.tls_certificate, serve.tls_key, serve.client_ca.",
            ) from None
        return grpc.ssl_server_certificate_configuration([pair], authority)
