"""Where the owner of a delegation tree is reached: its socket, the token that names it, and whether this process is inside of one."""

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from remit.core.caller_token import CALLER
from remit.core.errors import Misused
from remit.runtime.engine import CURRENT

if TYPE_CHECKING:
    from remit.agents.attach.board import Run


LONGEST_BYTES = 107
BACKLOG = 128
_CREDENTIALS = struct.Struct("3i")


class Peer(NamedTuple):
    """Who connected, as the kernel says. None where it does not say."""

    pid: int | None
    uid: int | None


def address_of(run_folder: Path, owner_id: str) -> Path:
    return run_folder / f"{owner_id}.sock"


def owner_at(path: Path) -> int | None:
    """The process that made an address, as it says itself (see `engine.owners`): nobody else may answer there."""
    pid = path.name.partition("-")[0]
    return int(pid) if pid.isdecimal() else None


def listening(path: Path) -> socket.socket:
    """A socket at `path` for this user alone; one that a dead process left there is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.chmod(path.parent, 0o700)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        with _short(path) as name:
            sock.bind(name)
        os.chmod(path, 0o600)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def connected(path: Path, seconds: float) -> socket.socket:
    """Blocking: where many want in at once it waits its turn, at most so long. Raises `OSError`."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Not `settimeout`: a full backlog would be an error at once instead of a wait.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), 0))
        with _short(path) as name:
            sock.connect(name)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def peer_of(sock: socket.socket) -> Peer:
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return Peer(None, None)
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return Peer(pid, uid)


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    if len(os.fsencode(path)) <= LONGEST_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


LENT: ContextVar["Run | None"] = ContextVar("remit_lent", default=None)
"""What this context carries out for the owner of a tree."""


def token_here() -> str | None:
    lent = LENT.get()
    if lent is not None:
        return lent.token
    running = CURRENT.get()
    if running is not None and (token := running.process_environment().get(CALLER)):
        return token
    return os.environ.get(CALLER) or None


def not_yours(agent: str) -> Misused:
    """A `Remit` in the hands of an agent that did not open it: what it delegated would be a child of nobody, or of another."""
    return Misused(
        f"{agent} cannot delegate by a Remit that was opened outside of it: it would not be {agent}'s child.",
        advice="Open one inside the agent (async with Remit.open(…)), or delegate with ctx.",
    )
