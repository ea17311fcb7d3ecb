"""How programs of the same user find the running server of a project: `.remit/run/serve-PID.json`, with its addresses and no secret.

Of several servers of one project the newest counts: when it ends or is killed, the previous one is found."""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from remit.system.files import atomic_write
from remit.system.processes import is_alive, process_start

FILES = "serve-*.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry:
    pid: int
    pid_started: str | None
    grpc: str | None = None
    """In gRPC notation: `unix:/…/grpc.sock`, `127.0.0.1:50051`; None: not served."""
    http: str | None = None
    """`http://127.0.0.1:7411`, or `unix:/…`."""
    token_file: str | None = None
    """Readable by the owner alone."""


def announce(folder: Path, *, grpc: str | None, http: str | None, token_file: str | None) -> ServerEntry:
    """In the run folder of a project. Entries of dead servers are removed."""
    own = ServerEntry(pid=os.getpid(), pid_started=process_start(os.getpid()), grpc=grpc, http=http, token_file=token_file)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    living = {f"serve-{one.pid}.json" for one in _living(folder)}
    for path in folder.glob(FILES):
        if path.name not in living:
            path.unlink(missing_ok=True)
    atomic_write(_own_file(folder), json.dumps(asdict(own), indent=1).encode() + b"\n", fsync=False)
    return own


def announced(folder: Path) -> ServerEntry | None:
    """The newest live server of the project with this run folder."""
    return next(_living(folder), None)


def withdraw(folder: Path) -> None:
    """Removes the entry of this process."""
    with contextlib.suppress(OSError):
        _own_file(folder).unlink()


def _own_file(folder: Path) -> Path:
    return folder / f"serve-{os.getpid()}.json"


def _living(folder: Path) -> Iterator[ServerEntry]:
    for path in sorted(folder.glob(FILES), key=_written_at, reverse=True):
        with contextlib.suppress(OSError, ValueError, TypeError):
            one = ServerEntry(**json.loads(path.read_bytes()))
            # Without its start time any process would match: a clone may contain such a file. The start time includes the boot id, which no
            # clone knows.
            if one.pid_started and is_alive(one.pid, one.pid_started):
                yield one


def _written_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
