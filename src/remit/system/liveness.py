"""Liveness: which processes of a project are alive, and which of their delegations look stuck.

Every process that runs delegations is an owner: it is registered in the store and has a named pipe through which other processes wake it.
"""

import contextlib
import errno
import os
import secrets
import socket
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path

from remit.core.deadline import Clock
from remit.core.ports import Store
from remit.core.record import Owner, Record
from remit.core.states import State
from remit.system.processes import ProcessIdentity, boot_id, is_alive, pid_space

QUIET_SECONDS = 60.0
QUIET_SHARE = 0.5
"""Share of its timeout: silence for longer than this, or than `QUIET_SECONDS`, looks stuck."""
LATE_SECONDS = 2.0
"""After this long past its deadline everything has been stopped, unless its process is gone."""


def this_owner(clock: Clock) -> Owner:
    return Owner(owner_id=f"{os.getpid()}-{secrets.token_hex(4)}", **asdict(ProcessIdentity()), opened_at=clock.wall())


def is_dead(owner: Owner, run_folder: Path) -> bool:
    """Whether its delegations can no longer be running. In doubt it is alive: running work is never taken over."""
    if closed_path(run_folder, owner.owner_id).exists():
        return True
    is_this_boot = owner.pid_started.startswith(f"{boot_id()}:")
    if not is_this_boot and owner.host != socket.gethostname():
        return False  # of another machine that shares the record
    if owner.pid_space == pid_space():
        return not is_alive(owner.pid, owner.pid_started)
    return owner.host == socket.gethostname() and not has_reader(pipe_path(run_folder, owner.owner_id))


def living_owners(store: Store, run_folder: Path) -> set[str]:
    return {owner.owner_id for owner in store.owners() if not is_dead(owner, run_folder)}


def closed_path(run_folder: Path, owner_id: str) -> Path:
    """Created by an owner that closed without leaving the store, because it could not write everything: its process may live on."""
    return run_folder / f"{owner_id}.closed"


# ---- wake-up pipes


def pipe_path(run_folder: Path, owner_id: str) -> Path:
    return run_folder / f"{owner_id}.bell"


def has_reader(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        return error.errno not in (errno.ENXIO, errno.ENOENT)
    return True


def wake(run_folder: Path, owner_id: str) -> bool:
    """Make the owner check for requests now; False if it is not there."""
    try:
        pipe = os.open(pipe_path(run_folder, owner_id), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        os.write(pipe, b"!")
    os.close(pipe)
    return True


def remove_dead_pipes(run_folder: Path) -> None:
    """Remove pipes of dead processes, and the sockets beside them."""
    if not run_folder.is_dir():
        return
    for path in run_folder.glob("*.bell"):
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(path.stat().st_mode) and not has_reader(path):
                path.unlink(missing_ok=True)
                path.with_suffix(".sock").unlink(missing_ok=True)


# ---- delegations that look stuck


class Stuck(StrEnum):
    """Why a delegation looks stuck."""

    GONE = "gone"
    """Its process is gone."""
    LATE = "late"
    """Past its deadline, and not ended."""
    QUIET = "quiet"
    """Silent for long."""


def is_gone(record: Record, living: Collection[str]) -> bool:
    return not record.state.is_settled and record.queue is None and record.owner not in living


def stuck(record: Record, now: float, heard_at: float, living: Collection[str]) -> Stuck | None:
    """Why it looks stuck, or None."""
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
    """Time of the last sign of each; a child's sign counts for its callers, since a caller that waits for a busy child is not stuck."""
    known = list(records)
    heard = {record.session_id: signs.get(record.session_id, record.created_at) for record in known}
    for record in sorted(known, key=lambda r: -r.depth):
        if record.parent_id in heard:
            heard[record.parent_id] = max(heard[record.parent_id], heard[record.session_id])
    return heard


def left_to_queues(live: Iterable[Record]) -> set[str]:
    """Among live delegations, callers before children: those given to a task queue, and their children. The queue gives them out again when
    their process dies."""
    return {record.session_id for record in _descend(live, lambda record: record.queue is not None)}


def below(records: Iterable[Record], session_id: str) -> list[Record]:
    """A delegation and everything below it, from its whole tree (callers before children)."""
    return list(_descend(records, lambda record: record.session_id == session_id))


def _descend(records: Iterable[Record], is_start: Callable[[Record], bool]) -> Iterator[Record]:
    """Records that are a start, or below one; callers come before children."""
    inside: set[str] = set()
    for record in records:
        if is_start(record) or record.parent_id in inside:
            inside.add(record.session_id)
            yield record
