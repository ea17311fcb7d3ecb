"""How the processes of a project reach each other: who is alive, waking another process, delegations that another process runs.

Every process of a project is an owner: it is known in the store, and has a named pipe by which the others wake it. What an owner
left behind when it died is `recovery`'s."""

import asyncio
import contextlib
import errno
import os
import secrets
import socket
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from remit.core.deadline import Clock
from remit.core.errors import Unavailable
from remit.core.ports import Store
from remit.core.record import Owner, Record
from remit.core.result import StopReason
from remit.core.states import State
from remit.runtime.reply import Stop
from remit.system.processes import is_alive, pid_space, process_start

if TYPE_CHECKING:
    from remit.engines.embedded.embedded import EmbeddedEngine


def this_owner(clock: Clock) -> Owner:
    pid = os.getpid()
    return Owner(
        owner_id=f"{pid}-{secrets.token_hex(4)}",
        pid=pid,
        pid_started=process_start(pid) or "",
        pid_space=pid_space(),
        host=socket.gethostname(),
        opened_at=clock.wall(),
    )


_closed: set[str] = set()
"""Owners of this process that closed and still stand in the store, because they could not write everything."""


def note_closed(owner_id: str) -> None:
    """This one runs nothing any more, although its process lives."""
    _closed.add(owner_id)


def is_dead(owner: Owner, run_folder: Path) -> bool:
    """Whether nobody can be running its delegations any more. In doubt it lives: nobody takes over what a living one runs."""
    if owner.owner_id in _closed:
        return True
    if owner.pid_space == pid_space():
        return not is_alive(owner.pid, owner.pid_started)
    return owner.host == socket.gethostname() and not _has_reader(bell_path(run_folder, owner.owner_id))


def bell_path(run_folder: Path, owner_id: str) -> Path:
    return run_folder / f"{owner_id}.bell"


def _has_reader(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        return error.errno not in (errno.ENXIO, errno.ENOENT)
    return True


def ring(run_folder: Path, owner_id: str) -> bool:
    """Make the owner look for requests now; whether somebody was there to hear it."""
    try:
        bell = os.open(bell_path(run_folder, owner_id), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        os.write(bell, b"!")
    os.close(bell)
    return True


class Bell:
    """Our own bell: calls `answer` on the loop whenever it is rung."""

    def __init__(self, run_folder: Path, owner_id: str, answer: Callable[[], None]) -> None:
        self._path = bell_path(run_folder, owner_id)
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        run_folder.mkdir(parents=True, exist_ok=True)
        made = self._path.with_suffix(".new")  # until it has a reader it looks like a dead one's, which others sweep away
        os.mkfifo(made, 0o600)
        # Open for both, so that the pipe never reports its end when a ringer goes away.
        self._file = os.open(made, os.O_RDWR | os.O_NONBLOCK)
        made.rename(self._path)
        self._loop.add_reader(self._file, self._rung)

    def _rung(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._file, 4096)
        self._answer()

    def close(self) -> None:
        self._loop.remove_reader(self._file)
        os.close(self._file)
        self._path.unlink(missing_ok=True)


def sweep_bells(run_folder: Path) -> None:
    """Remove bells that dead processes left, and the sockets beside them."""
    if not run_folder.is_dir():
        return
    for path in run_folder.glob("*.bell"):
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(path.stat().st_mode) and not _has_reader(path):
                path.unlink(missing_ok=True)
                path.with_suffix(".sock").unlink(missing_ok=True)


FOLDER = "registered"


def awaited(folder: Path) -> frozenset[str]:
    """The names of their operations, by the folder that they are kept in. Blocking."""
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


RING_SECONDS = 0.01


class Doorbell:
    def __init__(self, engine: "EmbeddedEngine") -> None:
        self._engine = engine
        self._is_answering = self._is_rung = False
        self._bell = Bell(engine.run_folder, engine.owner.owner_id, self._answer)

    def close(self) -> None:
        self._bell.close()

    async def carry_out_cancels(self) -> None:
        engine = self._engine
        with contextlib.suppress(Unavailable):  # asked again at the next ring, or by the sweep
            for request in await engine.journal.call(lambda store: store.take_cancels(engine.owner.owner_id)):
                if request.session_id in engine.pending:
                    stop = Stop(reason=StopReason.CANCELLED, source=request.source, detail=request.reason)
                    engine.pending[request.session_id] = stop
                else:
                    engine.spawn(engine.cancel(request.session_id, request.reason, request.source))

    def _answer(self) -> None:
        self._is_rung = True
        if not self._is_answering:
            self._is_answering = True
            self._engine.spawn(self._answer_while_rung())

    async def _answer_while_rung(self) -> None:
        while self._is_rung:
            self._is_rung = False
            await self.carry_out_cancels()
            await asyncio.sleep(RING_SECONDS)
        self._is_answering = False


QUIET_SECONDS = 60.0
QUIET_SHARE = 0.5
"""Of its timeout: nothing heard for longer than this, or than `QUIET_SECONDS`, looks stuck."""
LATE_SECONDS = 2.0
"""So long after its deadline everything has been stopped, unless whoever runs it is gone."""


class Stuck(StrEnum):
    """Why it looks stuck."""

    GONE = "gone"
    """Its process is: nobody runs it any more."""
    LATE = "late"
    """Past its deadline, and not ended."""
    QUIET = "quiet"
    """Nothing was heard of it for long."""


def living_owners(store: Store, run_folder: Path) -> set[str]:
    """Those who may still be running something."""
    return {owner.owner_id for owner in store.owners() if not is_dead(owner, run_folder)}


def is_gone(record: Record, living: Collection[str]) -> bool:
    return not record.state.is_settled and record.owner not in living


def stuck(record: Record, now: float, heard_at: float, living: Collection[str]) -> Stuck | None:
    """Why it looks stuck; None when it does not."""
    if record.state.is_settled:
        return None
    if is_gone(record, living):
        return Stuck.GONE
    if now > record.deadline_at + LATE_SECONDS:
        return Stuck.LATE
    quiet = now - heard_at
    if record.state is State.RUNNING and (quiet > QUIET_SECONDS or quiet > QUIET_SHARE * record.timeout_seconds):
        return Stuck.QUIET
    return None


def signs_with_children(records: Iterable[Record], signs: Mapping[str, float]) -> dict[str, float]:
    """When each was last heard of, a sign of a child counting for its callers: who waits for a busy child is not stuck."""
    known = list(records)
    heard = {record.session_id: signs.get(record.session_id, record.created_at) for record in known}
    for record in sorted(known, key=lambda r: -r.depth):
        if record.parent_id in heard:
            heard[record.parent_id] = max(heard[record.parent_id], heard[record.session_id])
    return heard


def below(records: Iterable[Record], session_id: str) -> list[Record]:
    """A delegation and everything under it, out of its whole tree (callers come before their children)."""
    inside = {session_id}
    found = []
    for record in records:
        if record.session_id in inside or record.parent_id in inside:
            inside.add(record.session_id)
            found.append(record)
    return found
