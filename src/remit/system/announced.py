"""Where the server of a project is found: a file that it writes when it is ready and removes when it ends, `.remit/run/serve.json`.

For programs of the same user on the same machine (`remit.client`, `remit doctor`). Holds addresses and the path of the token file, no
secret. What a dead server left is nobody's.
"""

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from remit.system.files import atomic_write
from remit.system.processes import is_alive, process_start

FILE = "serve.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    pid: int
    pid_started: str | None
    grpc: str | None = None
    """As gRPC names it: `unix:/…/grpc.sock`, `127.0.0.1:50051`; None: that door is closed."""
    http: str | None = None
    """`http://127.0.0.1:7411`, or `unix:/…`."""
    token_file: str | None = None
    """Readable by the owner alone."""


def announce(folder: Path, *, grpc: str | None, http: str | None, token_file: str | None) -> Announced:
    """In the run folder of a project."""
    told = Announced(pid=os.getpid(), pid_started=process_start(os.getpid()), grpc=grpc, http=http, token_file=token_file)
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / FILE, json.dumps(asdict(told), indent=1).encode() + b"\n", fsync=False)
    return told


def announced(folder: Path) -> Announced | None:
    """The living server of the project whose run folder this is."""
    try:
        told = Announced(**json.loads((folder / FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    return told if is_alive(told.pid, told.pid_started) else None


def withdraw(folder: Path) -> None:
    """Ours only: another server may have taken our place."""
    told = announced(folder)
    if told is not None and told.pid == os.getpid():
        with contextlib.suppress(OSError):
            (folder / FILE).unlink()
