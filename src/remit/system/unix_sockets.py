"""Unix sockets at paths of any length, for this user only, and the peer process."""

import os
import socket
import struct
from pathlib import Path
from typing import NamedTuple

MAX_PATH_BYTES = 107
BACKLOG = 128
_CREDENTIALS = struct.Struct("3i")


class Peer(NamedTuple):
    """The process at the other end, from the kernel. Pid 0: of another pid namespace."""

    pid: int
    uid: int


def listen_at(path: Path) -> socket.socket:
    """A socket at `path` for this user only; one of a dead process is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.chmod(path.parent, 0o700)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        with ShortPath(path) as short:
            sock.bind(short.name)
        os.chmod(path, 0o600)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def connect_to(path: Path, timeout_seconds: float) -> socket.socket:
    """Blocking: waits while the backlog is full. Raises `OSError`."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Not `settimeout`: a full backlog would be an error at once instead of a wait.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(timeout_seconds), 0))
        with ShortPath(path) as short:
            sock.connect(short.name)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def peer_of(sock: socket.socket) -> Peer:
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return Peer(pid, uid)


class ShortPath:
    """A short `name` for the path that fits into a socket address, until it is closed."""

    __slots__ = ("_folder", "name")

    def __init__(self, path: Path) -> None:
        """Raises `OSError` if its folder is needed and does not exist."""
        self._folder: int | None = None
        self.name = str(path)
        if len(os.fsencode(path)) > MAX_PATH_BYTES:
            self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.name = f"/proc/self/fd/{self._folder}/{path.name}"

    def __enter__(self) -> "ShortPath":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None


def grpc_target(name: str) -> str:
    """gRPC parses a percent sign as the start of an escape."""
    return f"unix:{name.replace('%', '%25')}"
