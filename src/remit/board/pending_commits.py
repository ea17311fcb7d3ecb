"""Pending commits: files that a change of the board has written and git does not have yet, so that a crash in between loses no commit.

A pending commit is noted in the same write set as the files it names, and made when the change is (`pay`). Then the note is gone, whatever
the outcome, which is reported once; only a commit that must wait (a merge under way) stays noted. The next command makes the commits of
processes that died, before it changes anything (`pay_left`). Blocking. Git runs only when there is something to commit.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from remit.board import write_set
from remit.board.board import OWN, SET, STATE
from remit.board.user_edits import TODO
from remit.board.write_set import read_or_none
from remit.core.errors import RemitError
from remit.system.files import atomic_write
from remit.system.processes import is_alive, pid_space, process_start

if TYPE_CHECKING:
    from remit.board.board import Board
    from remit.board.commits import Committed

FOLDER = f"{OWN}/uncommitted"
GIVEN_UP_SECONDS = 600.0
"""An older one is made by the next command, even if its process lives or cannot be checked: a commit ends within two minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    subject: str
    paths: tuple[str, ...]
    """Besides the board's own files."""
    deleted: tuple[str, ...] = ()
    session_id: str = ""
    since: float
    """Wall clock. 0: the next command may make it."""
    pid: int
    pid_started: str
    pid_space: str
    host: str
    name: str

    @property
    def note(self) -> str:
        """Where it is noted, relative to the root."""
        return f"{FOLDER}/{self.name}.json"

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def is_left(self, now: float) -> bool:
        """No living process is about to make it."""
        if not 0.0 <= now - self.since <= GIVEN_UP_SECONDS:
            return True
        is_here = self.host == os.uname().nodename and self.pid_space == pid_space()
        return is_here and not is_alive(self.pid, self.pid_started or None)


def owed(board: "Board", subject: str, paths: Iterable[str], *, deleted: Iterable[str] = (), session_id: str = "") -> Debt:
    """Of this process. Write `debt.to_bytes()` to `debt.note` in the same change."""
    return Debt(
        subject=subject,
        paths=tuple(dict.fromkeys(paths)),
        deleted=tuple(deleted),
        session_id=session_id or board.session_id,
        since=board.clock.wall(),
        pid=os.getpid(),
        pid_started=process_start(os.getpid()) or "",
        pid_space=pid_space(),
        host=os.uname().nodename,
        name=secrets.token_hex(6),
    )


def pay(board: "Board", debt: Debt | None) -> "Committed":
    """Make the commit; None: there is none to make."""
    from remit.board.commits import Committed, commit  # only here: a command that commits nothing does not load it

    if debt is None:
        return Committed(nothing=True)
    own = [path for path in (STATE, TODO) if (board.root / path).exists()]
    made = commit(board.root, (*debt.paths, *own), debt.subject, session_id=debt.session_id, deleted=debt.deleted)
    note = board.root / debt.note
    if made.later and note.exists():
        with contextlib.suppress(RemitError):  # it counts as left when this process has ended, if not at once
            atomic_write(note, replace(debt, since=0.0).to_bytes())
        return replace(made, warning=f"{made.warning} The next command of the board tries again.")
    with contextlib.suppress(OSError):
        note.unlink()
    return made


def pay_left(board: "Board") -> tuple[str, ...]:
    """Make the commits that ended processes left, after finishing an interrupted change; a line for each."""
    said: list[str] = []
    if write_set.pending(board.root / SET):
        with board.change() as draft:
            pass
        said += draft.notices
    return (*said, *_paid(board))


def _paid(board: "Board") -> Iterator[str]:
    now = board.clock.wall()
    for debt in sorted(_all(board), key=lambda debt: debt.since):
        if not debt.is_left(now):
            continue
        made = pay(board, debt)
        if made.hash:
            yield f"Committed what an earlier command had written before it ended: {debt.subject} ({made.short})."
        if made.warning:
            yield f"{debt.subject}: {made.warning}"
        if made.later:  # the others would meet the same: one of them waits and tells, not each
            return


def _all(board: "Board") -> Iterator[Debt]:
    folder = board.root / FOLDER
    try:
        names = os.listdir(folder)
    except OSError:  # there never was one, or nobody may look: the files are there either way
        return
    for name in names:
        debt = _read(folder / name)
        if debt is not None and debt.note == f"{FOLDER}/{name}":
            yield debt


def _read(place: Path) -> Debt | None:
    """None: it is not there, or says nothing that could be committed."""
    try:
        said = json.loads(read_or_none(place) or b"null")
        debt = Debt(**{one.name: said[one.name] for one in fields(Debt)})
        return replace(debt, paths=tuple(map(str, debt.paths)), deleted=tuple(map(str, debt.deleted)))
    except (OSError, ValueError, KeyError, TypeError):
        return None
