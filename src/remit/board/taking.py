"""What people saved in TODO.md taken over into the board: each version against the drawing its person began from, and once (S6.1).

Which version, against what, onto what; how it is read is `board.todo`'s. Nothing is written here. Used by `board.book`.
"""

import contextlib
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from remit.board import saved, todo
from remit.board.finding import TODO, Found
from remit.board.reading import read_state
from remit.board.saved import Version
from remit.board.task import State
from remit.core.errors import Refused, Unavailable

FROM = "From TODO.md: "
"""How a notice begins that tells what was taken over. One that tells what was not is a warning."""


_NUMBER = re.compile(r"^###\s+0*(\d{1,15})[.)]", re.MULTILINE)
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """How versions are taken over now."""

    drawn: Path
    """Where the boards are remembered that were drawn last."""
    at: str
    taken_numbers: Collection[int]
    """Of the archive."""

    def taken_over(self, found: Found, state: State, before: frozenset[int]) -> tuple[State, tuple[str, ...]]:
        """`state` with the edits of all versions, and what is to be said of them. `before`: the numbers the board had at first; a task that
        is new since and stands in two versions is one task. Raises `Refused` when TODO.md cannot be taken over as it is."""
        notices: tuple[str, ...] = ()
        for version in found.versions:
            if not version.data.strip():
                notices += (f"{TODO} was empty; it is drawn again from state.json.",)
                continue
            merged = self._merged(found, version, state)
            if merged is None:
                notices += (f"A {TODO} that was saved meanwhile could not be taken over: it is kept beside as TODO.md.kept-….",)
                continue
            twice = _twice(state, merged.state, before)
            state = merged.state.without(twice) if twice else merged.state
            is_new = tuple(f"Task {number} is new" for number in twice)
            taken = (line for line in merged.taken if not (is_new and line.startswith(is_new)))
            notices += (*(f"{FROM}{line}" for line in taken), *(f"TODO.md: {line}" for line in merged.kept))
            notices += self._about_older(found, version)
        return state, notices

    def goes_on_from(self, found: Found, version: Version, merged: State) -> State | None:
        """What this person sees: should they save again, or only now write the rest, it is this that they changed. Without what others did
        since, and with the numbers that their new tasks have got. None: it was not taken over."""
        base, text = self._began_from(found, version), todo.text_of(version.data)
        if base is None or not text.strip():
            return base
        edited = self._merged(found, version, base)
        if edited is None:
            return None
        before = numbers_of(found.read.state)
        new = [task for task in merged.tasks if task.number not in before and task.title in text]
        known = edited.state.without(numbers_of(edited.state) - numbers_of(base))
        return replace(known, next_number=merged.next_number).with_tasks(new)

    def _merged(self, found: Found, version: Version, onto: State) -> "todo.Merged | None":
        """None: a displaced version of which nobody knows what it began from, or with the marks of an unfinished merge. A person can mend
        TODO.md and is told to; this one they do not see."""
        known = next((one for one in found.merges if one[0] is version and one[1] is onto), None)
        if known is not None:
            return known[2]
        base = self._began_from(found, version)
        if base is None:
            return None
        try:
            merged = todo.merge(base, todo.text_of(version.data), at=self.at, onto=onto, taken_numbers=self.taken_numbers)
            found.merges.append((version, onto, merged))
            return merged
        except Refused:
            if version.is_displaced:
                return None
            raise

    def _began_from(self, found: Found, version: Version) -> State | None:
        """The board that the person saw."""
        base = self._drawn_last(found, version)
        return base if base is None or version.is_displaced else self._older(found, version, base) or base

    def _older(self, found: Found, version: Version, base: State) -> State | None:
        """An old buffer that was saved lacks the tasks that have come since, and knows nothing of what else has. Taken for edits of the
        last drawing, it would undo what it does not know; it is held against the drawing of before them, if that explains it better."""
        for judged, older in found.older:
            if judged is version:
                return older
        text = todo.text_of(version.data)
        numbers = frozenset(map(int, _NUMBER.findall(text)))
        older = self._better(base, text, numbers) if numbers_of(base) - numbers else None
        found.older.append((version, older))
        return older

    def _better(self, base: State, text: str, numbers: frozenset[int]) -> State | None:
        """The remembered board from which the fewest edits lead to the text, the newer of two; None: none of them explains it better."""
        best: State | None = None
        with contextlib.suppress(Refused):
            merged = todo.merge(base, text, at=self.at)
            faults, fewest = len(merged.kept), len(merged.kept) + len(merged.taken)
            for data in saved.drawings(self.drawn):
                with contextlib.suppress(Unavailable):
                    older = read_state(data, TODO).state
                    merged = todo.merge(older, text, at=self.at)
                    edits = len(merged.kept) + len(merged.taken)
                    is_better = len(merged.kept) < faults and edits < fewest and not numbers_of(older) - numbers
                    if is_better and not _makes_again(older, merged.state, base):
                        best, fewest = older, edits
        return best

    def _about_older(self, found: Found, version: Version) -> tuple[str, ...]:
        older = next((older for judged, older in found.older if judged is version), None)
        if older is None:
            return ()
        came = sorted(numbers_of(found.read.state) - numbers_of(older))
        shown = ", ".join(map(str, came[:_NAMED])) + (f" and {len(came) - _NAMED} more" if len(came) > _NAMED else "")
        tasks = "Task" if len(came) == 1 else "Tasks"
        return (f"TODO.md: it was written from an older drawing, without {tasks} {shown}: what has come since is drawn again.",)

    def _drawn_last(self, found: Found, version: Version) -> State | None:
        """Not the board on disk when that was changed since it was drawn, by us or by hand."""
        shown = saved.drawing(self.drawn, version.base)
        if shown is not None and shown != found.data:
            with contextlib.suppress(Unavailable):  # half written when the power went
                return read_state(shown, version.base).state
        return None if version.is_displaced and version.base != found.read.drawn else found.read.state


def _makes_again(older: State, merged: State, base: State) -> bool:
    """Whether a new task of it is one that we have by now."""
    new = {task.title for task in merged.tasks if older.find(task.number) is None}
    return any(task.title in new for task in base.tasks if older.find(task.number) is None)


def numbers_of(state: State) -> frozenset[int]:
    return frozenset([task.number for task in state.tasks])


def _twice(state: State, merged: State, before: frozenset[int]) -> tuple[int, ...]:
    """New tasks of one version that another has brought already: who saves twice while we write has saved the first ones again."""
    if len(merged.tasks) == len(state.tasks):
        return ()
    known = {(task.title, task.description) for task in state.tasks if task.number not in before}
    return tuple(task.number for task in merged.tasks if state.find(task.number) is None and (task.title, task.description) in known)
