"""The board's files as they stood at one moment, found without a lock: state.json, TODO.md, and what a change that died left to do.

Reads and writes nothing else; knows what belongs together, not what it means. Used by `board.book`.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from remit.board import saved, writeset
from remit.board.files import hash_of, read_or_none
from remit.board.reading import Read, read_state
from remit.board.saved import Version
from remit.board.task import State
from remit.system.files import file_lock

if TYPE_CHECKING:
    from remit.board.todo import Merged

SPECS = "specs"
STATE, TODO = f"{SPECS}/state.json", f"{SPECS}/TODO.md"
OWN = ".remit/board"
LOCK, SET, LEFT, DRAWN, NOTE = (f"{OWN}/{name}" for name in ("lock", "set", "left", "drawn", "note"))
LOCK_SECONDS = 30.0
_LOOKS = 50
_NO_BOARD = Read(state=State(), drawn="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The files at one moment."""

    data: bytes | None = None
    """state.json; None: there is none."""
    read: Read = _NO_BOARD
    versions: tuple[Version, ...] = ()
    """What people have written, the oldest first: what was displaced, then TODO.md."""
    is_drawn: bool = False
    """There is a TODO.md, as drawn last."""
    text: bytes | None = None
    """TODO.md, where it is what was drawn from this state.json."""
    merges: "list[tuple[Version, State, Merged]]" = field(default_factory=list, compare=False, repr=False)
    """What `board.taking` has merged from it already: which version, onto what, and what came of it. It is asked for twice."""
    older: list[tuple[Version, State | None]] = field(default_factory=list, compare=False, repr=False)
    """Versions of which it has judged already whether their person had an older drawing before them, and which."""


class Finder:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._last: tuple[bytes, Read] | None = None
        """The state.json that was read or written last: a command looks more than once."""

    def find(self) -> Found:
        """Waits for nobody: read again when somebody wrote meanwhile."""
        for _ in range(_LOOKS):
            pending, before = writeset.pending(self._root / SET), _signature(self._root / STATE)
            found = self._find(pending)
            after = writeset.pending(self._root / SET)
            if _signature(self._root / STATE) == before and (after.raw if after else None) == (pending.raw if pending else None):
                return found
        with file_lock(self._root / LOCK, timeout=LOCK_SECONDS):
            return self._find(writeset.pending(self._root / SET))

    def remember(self, data: bytes, read: Read) -> None:
        """What was written needs no reading."""
        self._last = (data, read)

    def _find(self, pending: writeset.Pending | None) -> Found:
        waiting = pending.waiting(STATE) if pending else None
        data = waiting[0] if waiting else read_or_none(self._root / STATE)
        if data is None:
            return Found()
        if self._last is None or self._last[0] != data:
            self._last = (data, read_state(data, STATE))
        read = self._last[1]
        not_put = pending.waiting(TODO) if pending else None
        # A drawing that is not in place yet: what stands there is of the one before.
        base = read.drawn if not_put is None else not_put[1] or ""
        path = self._root / TODO
        text = saved.read_at_rest(path, base)
        is_drawn = text is not None and hash_of(text) == base
        versions = () if text is None or is_drawn else (Version(data=text, base=base, path=path),)
        left = tuple(saved.left(self._root / LEFT))
        shown = text if is_drawn and not_put is None and base else None
        return Found(data=data, read=read, versions=(*left, *versions), is_drawn=is_drawn, text=shown)


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
