"""How programs of the same user find the running server of a project: `.remit/run/serve.json`, with its addresses and no secret.

Of several servers of one project the newest is found."""

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from remit.system.files import atomic_write
from remit.system.processes import is_alive, process_start

FILE = "serve.json"


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
