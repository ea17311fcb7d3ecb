"""How programs of the same user find the running server of a project: `.remit/run/serve.json`, with its addresses and no secret.

Several servers of one project are listed, newest first: when the newest ends or is killed, the previous one is found. Entries of dead
processes are ignored."""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from remit.core.errors import RemitError
from remit.system.files import atomic_write, file_lock
from remit.system.processes import has_proc, is_alive, process_start

FILE = "serve.json"
LOCK_SECONDS = 2.0


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
    """In the run folder of a project."""
    own = ServerEntry(pid=os.getpid(), pid_started=process_start(os.getpid()), grpc=grpc, http=http, token_file=token_file)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(folder):
        _write(folder, [own, *_others(folder)])
    return own


def announced(folder: Path) -> ServerEntry | None:
    """The newest live server of the project with this run folder."""
    return next(_living(folder), None)


def withdraw(folder: Path) -> None:
    """Removes the entry of this process."""
    with _locked(folder):
        others = _others(folder)
        if others:
            _write(folder, others)
            return
        with contextlib.suppress(OSError):
            (folder / FILE).unlink()


def _living(folder: Path) -> Iterator[ServerEntry]:
    try:
        newest = json.loads((folder / FILE).read_bytes())
        entries = [ServerEntry(**one) for one in (newest, *newest.pop("others", ()))]
    except (OSError, ValueError, TypeError, AttributeError):
        return
    # Without its start time any process would match: a clone may contain such a file. The start time includes the boot id, which no clone
    # knows.
    yield from (one for one in entries if (one.pid_started or not has_proc()) and is_alive(one.pid, one.pid_started))


def _others(folder: Path) -> list[ServerEntry]:
    return [one for one in _living(folder) if one.pid != os.getpid()]


def _write(folder: Path, entries: list[ServerEntry]) -> None:
    document = {**asdict(entries[0]), **({"others": [asdict(one) for one in entries[1:]]} if entries[1:] else {})}
    atomic_write(folder / FILE, json.dumps(document, indent=1).encode() + b"\n", fsync=False)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """If it cannot be locked, a lost entry is the lesser harm."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(RemitError):
            stack.enter_context(file_lock(folder / f"{FILE}.lock", timeout=LOCK_SECONDS))
        yield
