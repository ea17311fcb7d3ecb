"""Where the server of a project listens, and what to show there: for programs of the same user on the same machine."""

import os
from pathlib import Path
from typing import NamedTuple

from remit.access.local import local_token
from remit.core.errors import Unavailable
from remit.system.announced import announced


class Found(NamedTuple):
    address: str
    """`unix:/path` or `host:port`."""
    token: str | None
    """What its owner shows there. None: nothing need be shown, since whoever can open the socket owns the project."""


def discover(root: str | Path = ".") -> Found:
    """The running server of the project at `root`, or above it. Raises `Unavailable` where there is none that takes gRPC."""
    here = Path(root).resolve()
    for folder in (here, *here.parents):
        told = announced(folder / ".remit" / "run") if _is_ours(folder / ".remit" / "run") else None
        if told is not None and told.grpc is not None:
            is_socket = told.grpc.startswith("unix:")
            return Found(told.grpc, None if is_socket else local_token(folder / ".remit"))
    raise Unavailable(f"No server of a project at or above {here} takes gRPC.", advice="Start one there: remit serve")


def _is_ours(folder: Path) -> bool:
    """Anybody may put such a folder above ours, in /tmp for one: what we ask would go to them."""
    try:
        found = folder.stat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & 0o022
