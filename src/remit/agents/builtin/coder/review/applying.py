"""Whether a diff applies, decided in memory as `git apply` decides it: every line of context must be there, perhaps further up or down.

Gives the files as they are afterwards, and which of their lines the diff put there. Where it does not apply: which hunk, at which line, and
what stands there instead. Writes nothing. Reading files is left to whoever calls (`tree`, or git).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from remit.agents.builtin.coder.review.names import leads_out
from remit.agents.builtin.coder.review.patch import Change, Hunk
from remit.agents.builtin.coder.review.rows import Row, Steps, context_length, explain, locate, replace_rows, rows_of

FAULTS_LIMIT = 20
"""Of one file: whoever reads the twentieth makes the diff anew."""


class State(StrEnum):
    APPLIES = "applies"
    APPLIED = "already applied"
    FAILS = "does not apply"
    UNCHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Held:
    """What stands under a name: text, nothing (None), or something that cannot be read."""

    text: str | None = None
    fault: str = ""
    is_withheld: bool = False
    """We may not look: that says nothing about the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    line: int | None
    """Of the file."""
    message: str
    at: int = 0
    """Of the diff."""
    leads_out: bool = False


@dataclass(slots=True, kw_only=True)
class Applied:
    """What became of one file."""

    path: str
    state: State
    changes: list[Change]
    before: str | None = None
    after: str | None = None
    """None: it is gone, or it is not known."""
    added: dict[int, str] = field(default_factory=dict)
    """The lines the diff put there, by number, without their ends."""
    faults: list[Fault] = field(default_factory=list)
    note: str = ""
    """Why it was not checked."""
    is_withheld: bool = False
    """It was not, since the file may not be read."""


Read = Callable[[str], Held]


def apply(changes: list[Change], read: Read, *, steps: int = 30_000_000) -> list[Applied]:
    """One result for each file, in the order of the diff."""
    budget = Steps(steps)
    return [applied for chain in _chains(changes) for applied in _judge(chain, read, budget)]


def _chains(changes: list[Change]) -> list[list[Change]]:
    """Those that speak of the same file, together: a series of commits may change it more than once, or rename it."""
    chains: list[list[Change]] = []
    of_name: dict[str, list[Change]] = {}
    for change in changes:
        names = [name for name in (change.old_path, change.new_path) if name is not None]
        known = [of_name[name] for name in names if name in of_name]
        chain = known[0] if known else []
        if not known:
            chains.append(chain)
        for other in known[1:]:
            if other is not chain:
                chain += other
                chains.remove(other)
                of_name.update({name: chain for name, held in of_name.items() if held is other})
        chain.append(change)
        of_name.update(dict.fromkeys(names, chain))
    return [sorted(chain, key=lambda change: change.at) for chain in chains]


def _judge(chain: list[Change], read: Read, steps: Steps) -> list[Applied]:
    for change in chain:
        why = next((why for name in (change.old_path, change.new_path) if name is not None and (why := leads_out(name))), "")
        if why:
            return [_alone(change, State.FAILS, faults=[Fault(line=None, message=f"{why}.", at=change.at, leads_out=True)])]
    odd = next((change for change in chain if change.is_binary or change.is_link or change.is_submodule), None)
    if odd is not None:
        kind = "binary" if odd.is_binary else "a symbolic link" if odd.is_link else "a submodule"
        return [_alone(change, State.UNCHECKED, note=f"it is {kind}") for change in chain]
    forward = _Forward(read, steps)
    results = [forward.take(change) for change in chain]
    if forward.withheld:
        return [_alone(change, State.UNCHECKED, note=forward.withheld, is_withheld=True) for change in chain]
    if any(result.faults for result in results):
        backward = _Backward(read, steps)
        undone = [backward.take(change) for change in reversed(chain)]
        if not any(result.faults for result in undone):
            return _together(chain, backward, State.APPLIED)
        return _merged(results)
    return _together(chain, forward, State.APPLIES)


def _alone(change: Change, state: State, *, faults: list[Fault] | None = None, **said: Any) -> Applied:
    return Applied(path=change.path, state=state, changes=[change], added=lines_of_diff(change), faults=faults or [], **said)


def _merged(results: list[Applied]) -> list[Applied]:
    """A chain that fails, as one result for each name."""
    by_path: dict[str, Applied] = {}
    for result in results:
        known = by_path.setdefault(result.path, result)
        if known is not result:
            known.faults += result.faults
            known.changes += result.changes
            known.added |= result.added
    for result in by_path.values():
        result.state = State.FAILS if result.faults else State.APPLIES
    return list(by_path.values())


def _together(chain: list[Change], view: "_View", state: State) -> list[Applied]:
    results: dict[str, Applied] = {}
    for change in chain:
        result = results.setdefault(change.path, Applied(path=change.path, state=state, changes=[]))
        result.changes.append(change)
        result.before = view.before.get(change.old_path or change.path, result.before)
    for path, result in results.items():
        rows = view.final(path)
        if rows is not None:
            result.after = "".join(row.text for row in rows)
            result.added = {number: row.text.rstrip("\r\n") for number, row in enumerate(rows, 1) if row.changed}
    return list(results.values())


def lines_of_diff(change: Change) -> dict[int, str]:
    """The added lines, numbered as the diff counts them: for files that cannot be put together."""
    found = {}
    for hunk in change.hunks:
        number = hunk.new_start
        for line in hunk.lines:
            if line.kind == "+":
                found[number] = line.text.rstrip("\r\n")
            number += line.kind != "-"
    return found


class _View:
    """The files as they stand while changes are taken one after another."""

    def __init__(self, read: Read, steps: Steps) -> None:
        self._read = read
        self._steps = steps
        self._rows: dict[str, list[Row] | None] = {}
        self.before: dict[str, str | None] = {}
        self.withheld = ""

    def final(self, path: str) -> list[Row] | None:
        return self._rows.get(path)

    def _standing(self, path: str) -> tuple[list[Row] | None, str]:
        if path not in self._rows:
            held = self._read(path)
            if held.is_withheld:
                self.withheld = held.fault
            if held.fault:
                return None, held.fault
            self.before[path] = held.text
            self._rows[path] = None if held.text is None else rows_of(held.text)
        rows = self._rows[path]
        return rows, "" if rows is not None else "there is no such file"

    def _hunk(self, rows: list[Row], hunk: Hunk, mine: str, other: str, *, bare: bool) -> int | None:
        """Where it stands, its lines replaced there; None where it does not."""
        wanted = hunk.side(mine)
        start = hunk.old_start if mine == "-" else hunk.new_start
        other_start = hunk.new_start if mine == "-" else hunk.old_start
        if bare:  # where the other side has no line, its number is that of the line before
            expected, at_start, at_end = other_start - bool(hunk.side(other)), start == 0, False
        else:
            expected, at_start, at_end = other_start - 1, start <= 1, context_length(reversed(hunk.lines)) == 0
        position = locate(rows, wanted, max(0, expected), at_start, at_end, self._steps)
        if position is not None:
            replace_rows(rows, position, hunk, mine, other)
        return position


def _is_bare(change: Change) -> bool:
    """Made without context (`-U0`): its hunks stand where their numbers say. A hunk that is the whole file has no context either."""
    return all(line.kind != " " for hunk in change.hunks for line in hunk.lines) and (
        len(change.hunks) > 1 or any(hunk.old_start > 1 or hunk.new_start > 1 for hunk in change.hunks)
    )


class _Forward(_View):
    def take(self, change: Change) -> Applied:
        result = Applied(path=change.path, state=State.APPLIES, changes=[change], added=lines_of_diff(change))
        rows, why = self._source(change)
        if rows is None:
            named = f" ({change.old_path})" if change.old_path not in (None, change.path) else ""
            result.faults.append(Fault(line=None, message=f"{why}{named}.", at=change.at))
            return result
        bare = _is_bare(change)
        for number, hunk in enumerate(change.hunks, 1):
            which = f"hunk {number} of {len(change.hunks)} (line {hunk.at} of the diff)"
            if len(result.faults) >= FAULTS_LIMIT:
                break
            if hunk.fault:
                result.faults.append(Fault(line=hunk.new_start or None, message=f"{which} is malformed: {hunk.fault}.", at=hunk.at))
            elif self._hunk(rows, hunk, "-", "+", bare=bare) is None:
                line, words = explain(rows, hunk)
                result.faults.append(Fault(line=line, message=f"{which} does not match: {words}.", at=hunk.at))
        if change.new_path is None and rows and not result.faults:
            result.faults.append(Fault(line=1, message="it is to be removed, but the diff leaves part of it.", at=change.at))
        self._keep(change, rows)
        return result

    def _source(self, change: Change) -> tuple[list[Row] | None, str]:
        if change.old_path is None or (change.moved and change.new_path != change.old_path):
            there, why = self._standing(change.path)
            if there is not None:
                return None, "the diff makes it, but it is there already"
            if why != "there is no such file":
                return None, why
        if change.old_path is None:
            return [], ""
        rows, why = self._standing(change.old_path)
        if rows is None and why == "there is no such file" and _may_make(change):
            return [], ""
        return (None if rows is None else [Row(row.text, row.changed) for row in rows]), why

    def _keep(self, change: Change, rows: list[Row]) -> None:
        if change.old_path is not None and change.moved != "copied":
            self._rows[change.old_path] = None
        if change.new_path is not None:
            self._rows[change.new_path] = rows


def _may_make(change: Change) -> bool:
    """A plain diff need not say that a file is new: that there is nothing before tells it."""
    return not change.is_git and len(change.hunks) == 1 and not change.hunks[0].side("-")


class _Backward(_View):
    """The same the other way round: are the files as they would be afterwards?"""

    def __init__(self, read: Read, steps: Steps) -> None:
        super().__init__(read, steps)
        self._as_found: dict[str, list[Row] | None] = {}

    def final(self, path: str) -> list[Row] | None:
        return self._as_found.get(path)

    def take(self, change: Change) -> Applied:
        result = Applied(path=change.path, state=State.APPLIED, changes=[change])
        rows, why = self._standing(change.path)
        if change.path not in self._as_found:
            self._as_found[change.path] = None if rows is None else list(rows)
        if change.new_path is None:
            if why != "there is no such file":
                result.faults.append(Fault(line=None, message="it is still there."))
            else:
                self._rows[change.path] = rows_of("".join(text for hunk in change.hunks for text in hunk.side("-")))
            return result
        if rows is None:
            result.faults.append(Fault(line=None, message=why))
            return result
        if not change.hunks and not change.moved:
            return result  # a mode, or an empty file: there is nothing to compare
        rows, bare = list(rows), _is_bare(change)
        for hunk in reversed(change.hunks):
            if hunk.fault or self._hunk(rows, hunk, "+", "-", bare=bare) is None:
                result.faults.append(Fault(line=None, message="a hunk is not there."))
                break
        if change.old_path is None and rows:
            result.faults.append(Fault(line=None, message="it holds more than the diff gives it."))
        self._undo(change, rows)
        return result

    def _undo(self, change: Change, rows: list[Row]) -> None:
        self._rows[change.path] = None if change.old_path is None or change.moved == "renamed" else rows
        if change.old_path is not None:
            self._rows[change.old_path] = rows
        if change.old_path is not None:
            self.before[change.old_path] = "".join(row.text for row in rows)
        else:
            self.before[change.path] = None
