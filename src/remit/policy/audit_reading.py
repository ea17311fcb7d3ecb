"""The audit log, read and checked: whether each line is as it was written, and whether any is missing (S5.10).

The chain shows what was changed, inserted or removed within it. That its end was cut off, or that all of it was written anew, shows only
against a hash that was kept elsewhere (`head`), or against the history. Reads files; writes nothing. Used by `cli.audit`, `cli.policy`.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit.policy.audit import FILE, FIRST, earlier_files, hash_of, read_line

_HASH_FIELD = b',"hash":"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


@dataclass(slots=True, kw_only=True)
class Checked:
    """What a look at the whole log found."""

    findings: list[Finding] = field(default_factory=list)
    lines: int = 0
    torn: int = 0
    """Lines that a crash cut off, each noted in the line after it."""
    head: str = ""
    """The hash of the last line: whoever keeps it elsewhere can tell later whether the log still leads there."""
    first_at: str = ""
    sessions: set[str] = field(default_factory=set)
    """Delegations that the log has a line about."""
    disabled_owners: set[str] = field(default_factory=set)
    """Processes that ran with the policy disabled: they log nothing."""


def files_of(folder: Path) -> list[Path]:
    """In the order they were written."""
    last = folder / FILE
    return [*earlier_files(folder), *([last] if last.exists() else [])]


def entries(folder: Path) -> Iterator[dict[str, Any]]:
    """What the lines say, oldest first; those that cannot be read are left out."""
    for path in files_of(folder):
        with path.open("rb") as lines:
            for line in lines:
                entry = read_line(line)
                if entry is not None:
                    yield entry


def check_log(folder: Path, head: str | None = None) -> Checked:
    """The whole log, line by line. `head`: a hash that must be in it."""
    checked = Checked()
    walk = _Walk(checked)
    is_head_found = False
    for path in files_of(folder):
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                checked.lines += 1
                walk.step(path.name, number, line)
                is_head_found = is_head_found or (head is not None and checked.head == head)
    walk.end()
    if head is not None and not is_head_found:
        last = files_of(folder)[-1].name if checked.lines else FILE
        what = f"no line has the hash {head}: the log was cut off before it, or written anew"
        checked.findings.append(Finding(file=last, line=checked.lines, what=what))
    return checked


class _Walk:
    """Along the chain: what the next line must be."""

    def __init__(self, checked: Checked) -> None:
        self._checked = checked
        self._number = 0
        self._head = FIRST.decode()
        self._torn: tuple[str, int, bytes] | None = None
        """A line that cannot be read: excused when the next one says that a crash tore it."""

    def step(self, file: str, line: int, text: bytes) -> None:
        entry = read_line(text)
        if entry is None:
            self.end()
            self._torn = (file, line, text.rstrip(b"\n"))
            return
        self._excuse(entry)
        faults = list(self._faults(entry, text.rstrip(b"\n")))
        self._checked.findings += [Finding(file=file, line=line, what=what) for what in faults]
        self._number, self._head = entry["number"], entry["hash"]
        self._note(entry)

    def end(self) -> None:
        """What cannot be read and is excused by nobody."""
        if self._torn is not None:
            file, line, _ = self._torn
            self._checked.findings.append(Finding(file=file, line=line, what="this line cannot be read: it was changed or cut off"))
            self._torn = None

    def _excuse(self, entry: dict[str, Any]) -> None:
        is_told = self._torn is not None and entry.get("event") == "recovered"
        if is_told and self._torn is not None and entry.get("torn_sha256") == hashlib.sha256(self._torn[2]).hexdigest():
            self._checked.torn += 1
            self._torn = None
        self.end()

    def _faults(self, entry: dict[str, Any], text: bytes) -> Iterator[str]:
        body, found, rest = text.rpartition(_HASH_FIELD)
        expected = self._number + 1
        if not found or rest != b'%b"}' % hash_of(body):  # and nothing after it, which would gainsay what was hashed
            yield f"line number {entry['number']} was changed: its hash does not fit what it says"
        if entry["number"] > expected:
            if expected == 1:
                yield f"the log begins with line number {entry['number']}: {entry['number'] - 1} before it were removed"
            else:
                yield f"line numbers {expected} to {entry['number'] - 1} are missing: they were removed"
        elif entry["number"] < expected:
            yield f"line number {entry['number']} stands where {expected} is due: it was inserted, or moved"
        elif entry.get("prev") != self._head:
            yield f"line number {entry['number']} does not follow the one before it: one of the two was replaced"

    def _note(self, entry: dict[str, Any]) -> None:
        checked = self._checked
        checked.head = entry["hash"]
        checked.first_at = checked.first_at or str(entry.get("at", ""))
        sessions = entry.get("sessions")
        if isinstance(sessions, list):
            checked.sessions.update(str(one) for one in sessions)
        if entry.get("event") == "disabled":
            checked.disabled_owners.add(str(entry.get("owner", "")))
