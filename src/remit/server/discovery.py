"""Where the server of a project is found: a file that it writes when it is ready and leaves when it ends, `.remit/run/serve.json`.

For programs of the same user on the same machine (`remit.client`, `remit delegate`, `remit doctor`). Holds addresses and the path of the
token file, no secret. Several servers of one project stand in it, the newest first: when that ends, or is killed, the one before is found
again. What a dead server left is nobody's.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from remit.core.errors import RemitError
from remit.system.files import atomic_write, file_lock
from remit.system.processes import is_alive, process_start

FILE = "serve.json"
LOCK_SECONDS = 2.0


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
    with _alone(folder):
        _write(folder, [told, *_others(folder)])
    return told


def announced(folder: Path) -> Announced | None:
    """The living server of the project whose run folder this is; of several the newest."""
    return next(_living(folder), None)


def withdraw(folder: Path) -> None:
    """Ours only: another server may have taken our place, or stood there before."""
    with _alone(folder):
        others = _others(folder)
        if others:
            _write(folder, others)
            return
        with contextlib.suppress(OSError):
            (folder / FILE).unlink()


def _living(folder: Path) -> Iterator[Announced]:
    try:
        newest = json.loads((folder / FILE).read_bytes())
        told = [Announced(**one) for one in (newest, *newest.pop("others", ()))]
    except (OSError, ValueError, TypeError, AttributeError):
        return
    yield from (one for one in told if is_alive(one.pid, one.pid_started))


def _others(folder: Path) -> list[Announced]:
    return [one for one in _living(folder) if one.pid != os.getpid()]


def _write(folder: Path, told: list[Announced]) -> None:
    document = {**asdict(told[0]), **({"others": [asdict(one) for one in told[1:]]} if told[1:] else {})}
    atomic_write(folder / FILE, json.dumps(document, indent=1).encode() + b"\n", fsync=False)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two that come and go at once must not forget each other; where it cannot be locked, that is the lesser harm."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(RemitError):
            held.enter_context(file_lock(folder / f"{FILE}.lock", timeout=LOCK_SECONDS))
        yield
