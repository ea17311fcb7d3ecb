"""The board's two files written anew by what has changed in them: of thousands of tasks a command changes one, and leaves the rest alone.

Only ever a saving of time: what comes of it is, byte for byte, what drawing and writing the whole would give. So it is done only where both
files are known to be just that: `note` says so of each pair that is written, by which program, and whatever differs from it (a file edited
by hand, another remit, a change that touches more than tasks in their places) is written as a whole. Used by `board.book`.
"""

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic_core import __version__ as json_version

from remit.board import entries, files, reading, statuses, task, todo_drawing, todo_lines
from remit.board.entries import DRAWN, state_to_data, task_to_entry
from remit.board.files import hash_of
from remit.board.finding import Found
from remit.board.reading import json_bytes, to_bytes
from remit.board.task import State, Task
from remit.board.todo_drawing import block
from remit.core.errors import Unavailable

AT_MOST = 20
"""Tasks that are looked for one by one in the old text; more are drawn with the whole."""
_MADE_BY = (entries, files, reading, statuses, task, todo_drawing, todo_lines)
"""What the two files look like is these modules' to say."""
_NO_TASKS = b'\n  "active_projects": [],\n'
_FIRST = b'\n  "active_projects": [\n    {\n'
_OPEN, _CLOSE = b"\n    {\n", b"\n    }"
_NEXT = _CLOSE + b"," + _OPEN
_BEGINS = _OPEN + b'      "project_number": %d,\n'
_LAST = b"\n    }\n  ],\n"
"""Around and between the tasks in state.json. No text holds them: in JSON a line ends only between values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amended:
    """A board that differs from one that is written out in some tasks alone."""

    found: Found
    text: bytes
    """TODO.md, of the board that was found."""
    new: State
    places: Sequence[int]
    """Where another task stands now, of the same number."""
    added: Sequence[Task]
    """New ones, behind all others."""

    def todo(self) -> bytes | None:
        """None: it must be drawn as a whole."""
        old, text = self.found.read.state.tasks, self.text
        for place in self.places:
            before, after = old[place], self.new.tasks[place]
            if before.priority is not after.priority:
                return None
            changed = _exchanged(text, before, block(after))
            if changed is None:
                return None
            text = changed
        for place in range(len(old), len(self.new.tasks)):
            one = self.new.tasks[place]
            above = next((task for task in reversed(self.new.tasks[:place]) if task.priority is one.priority), None)
            changed = None if above is None or self.new.texts else _exchanged(text, above, f"{block(above)}\n\n{block(one)}")
            if changed is None:
                return None
            text = changed
        return text

    def state(self, drawn: str) -> bytes | None:
        """None: it must be written as a whole."""
        data = self.found.data or b""
        old = memoryview(data)
        first = data.find(_FIRST)
        last = data.find(_LAST, first)
        changed = _written([*(self.new.tasks[place] for place in self.places), *self.added])
        before, between, after = json_bytes({**state_to_data(replace(self.new, tasks=())), DRAWN: drawn}).partition(_NO_TASKS)
        if not 0 <= first < last or not between:
            return None
        pieces: list[bytes | memoryview] = [before]
        done = first
        for place, one in zip(self.places, changed, strict=False):
            start = data.find(_BEGINS % self.new.tasks[place].number, done, last)
            if start < 0:
                return None
            pieces += (old[done : start + len(_OPEN)], one)
            done = data.find(_CLOSE, start)
        pieces.append(old[done:last])
        for one in changed[len(self.places) :]:
            pieces += (_NEXT, one)
        return b"".join((*pieces, _LAST, after))


def amended(note: Path, found: Found, new: State) -> Amended | None:
    """None: both files must be written as a whole."""
    old = found.read.state
    if len(new.tasks) < len(old.tasks) or new.texts != old.texts or not is_written_out(note, found):
        return None
    places = [place for place, (one, other) in enumerate(zip(old.tasks, new.tasks, strict=False)) if one is not other]
    added = new.tasks[len(old.tasks) :]
    is_small = len(places) + len(added) <= AT_MOST
    is_in_place = all(old.tasks[place].number == new.tasks[place].number for place in places)
    assert found.text is not None  # it is written out
    return Amended(found=found, text=found.text, new=new, places=places, added=added) if is_small and is_in_place else None


def is_written_out(note: Path, found: Found) -> bool:
    """Whether both files are just what this program makes of the board in them."""
    if found.text is None or found.versions or not found.read.state.tasks:
        return False
    try:
        said = files.read_or_none(note)
    except Unavailable:  # whatever stands there is no note
        return False
    return said == _line(found.read.drawn, hash_of(found.data))


def remember(note: Path, drawn: str, state: bytes) -> None:
    """That this program has made this TODO.md and this state.json of one board. True whether or not they are put in place."""
    with contextlib.suppress(OSError):  # no room: then the next change writes the whole
        note.unlink(missing_ok=True)  # never written through: it may be a link or a pipe that came with the project
        with open(note, "xb") as opened:
            opened.write(_line(drawn, hash_of(state)))


def _line(drawn: str, state: str) -> bytes:
    return f"{drawn} {state} {_PROGRAM}\n".encode()


def _program() -> str:
    """Another one for every change of what makes the files."""
    try:
        made_by = [os.stat(path or "") for path in (__file__, *(module.__file__ for module in _MADE_BY))]
    except OSError:  # out of an archive: nobody knows
        return f"unknown {os.urandom(8).hex()}"
    told = [json_version, sys.version, *(f"{one.st_size}.{one.st_mtime_ns}" for one in made_by)]
    return hash_of(" ".join(told).encode())


_PROGRAM = _program()
"""As it is loaded: a process may outlive an update of its files, and still draws as before."""


def _exchanged(text: bytes, before: Task, after: str) -> bytes | None:
    """None: somewhere else stands what looks just like it."""
    old = b"\n\n" + to_bytes(block(before))
    return text.replace(old, b"\n\n" + to_bytes(after)) if text.count(old) == 1 else None


def _written(tasks: Sequence[Task]) -> list[bytes]:
    """Each as it stands between the others."""
    if not tasks:
        return []
    data = json_bytes({"active_projects": [task_to_entry(task) for task in tasks], "completed_projects": []})
    return data[data.index(_FIRST) + len(_FIRST) : data.index(_LAST)].split(_NEXT)
