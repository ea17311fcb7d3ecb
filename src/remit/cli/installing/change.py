"""A change of one configuration file: what it will hold, shown before it is made; the backup; and the way back.

Nothing is written while planning. The backup is the file as it was, byte by byte, beside it; an older one is never overwritten.
"""

import contextlib
import difflib
import os
import re
import stat
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from remit.cli.installing.documents import Broken
from remit.cli.installing.tools import Tool
from remit.core.errors import Misused, Unavailable
from remit.system.files import atomic_write

BACKUP = ".remit-backup"
FOLDERS = (".codex", ".opencode")
"""Made for a file of ours, and removed with it when they are empty."""


class Does(StrEnum):
    NOTHING = "nothing"
    MAKE = "make"
    """A file that was not there."""
    ADD = "add"
    CHANGE = "change"
    """An entry of that name was there and said something else."""
    REMOVE = "remove"
    """Only the entry: the rest was changed since, and stays."""
    RESTORE = "restore"
    """The file as it was before."""
    DELETE = "delete"
    """A file that was made here, and holds nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    tool: Tool
    file: Path
    does: Does
    before: bytes | None
    """None: there is no such file."""
    after: bytes | None
    backup: Path | None = None
    """Where the file as it is will be kept; or, undoing, what it is restored from."""
    notes: tuple[str, ...] = field(default=())

    def diff(self, root: Path) -> str:
        name = self.file.relative_to(root).as_posix()
        old, new = ((side or b"").decode(errors="replace").splitlines() for side in (self.before, self.after))
        names = (name if self.before is not None else "/dev/null", name if self.after is not None else "/dev/null")
        return "\n".join(difflib.unified_diff(old, new, *names, lineterm=""))

    def make(self) -> None:
        """Write it, if the file is still as it was when the change was planned."""
        if _bytes_of(self.file) != self.before:
            raise Unavailable(f"{self.file} was changed meanwhile; nothing was written.", advice="Look at it and try again.")
        try:
            if self.does in (Does.ADD, Does.CHANGE):
                assert self.backup is not None
                _write_new(self.backup, self.before or b"", like=self.file)
            if self.after is None:
                Path(os.path.realpath(self.file)).unlink()  # what was made is what a link leads to; the link was there before
                _remove_if_empty(self.file.parent)
                return
            self.file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(f"Cannot change {self.file}: {error.strerror or error}.", advice="Nothing was changed in it.") from None
        try:
            atomic_write(self.file, self.after)
        except Unavailable:
            if self.does in (Does.ADD, Does.CHANGE) and self.backup is not None:
                self.backup.unlink(missing_ok=True)
            raise
        if self.does is Does.RESTORE and self.backup is not None:
            self.backup.unlink(missing_ok=True)


def installing(tool: Tool, root: Path, command: tuple[str, ...]) -> Change:
    """What is to be done so that the tool of this project knows remit. Raises `Misused` when the file is broken."""
    file = _file(tool, root)
    entry, before = tool.entry(command), _bytes_of(file)
    if before is None:
        after = tool.format.fresh(tool.path, entry).encode()
        return Change(tool=tool, file=file, does=Does.MAKE, before=None, after=after, notes=_notes(command))
    text = _text_of(file, before)
    try:
        known = tool.format.entry(text, tool.path)
        if known == entry:
            return Change(tool=tool, file=file, does=Does.NOTHING, before=before, after=before)
        after = _put(tool, text, entry).encode()
    except Broken as error:
        raise _broken(file, error) from None
    notes = _notes(command)
    if known is not None:
        notes = (f"There is an entry {'.'.join(tool.path)} already, and it says something else: it would be replaced.", *notes)
    does = Does.ADD if known is None else Does.CHANGE
    return Change(tool=tool, file=file, does=does, before=before, after=after, backup=_next_backup(file), notes=notes)


def undoing(tool: Tool, root: Path) -> Change:
    """What is to be done so that the file is as it was; changes that others made since are kept."""
    file = _file(tool, root)
    before = _bytes_of(file)
    nothing = Change(tool=tool, file=file, does=Does.NOTHING, before=before, after=before)
    if before is None:
        return nothing
    backup = _newest_backup(file)
    original = _bytes_of(backup) if backup is not None else None
    text = _text_of(file, before)
    try:
        entry = tool.format.entry(text, tool.path)
        if entry is None:
            return nothing
        if backup is not None and original is not None and _is_ours_alone(tool, original, text, entry):
            return Change(tool=tool, file=file, does=Does.RESTORE, before=before, after=original, backup=backup)
        after = _taken_out(tool, text, original)
    except Broken as error:
        raise _broken(file, error) from None
    if tool.format.is_empty(after) and (original is None or _is_made_here(tool, text, entry)):
        return Change(tool=tool, file=file, does=Does.DELETE, before=before, after=None)
    notes = (f"The file was changed since: only the entry goes. As it was before it stands in {backup.name}.",) if backup else ()
    return Change(tool=tool, file=file, does=Does.REMOVE, before=before, after=after.encode(), backup=backup, notes=notes)


def _is_made_here(tool: Tool, text: str, entry: Any) -> bool:
    """Whether it is a file of ours from its first to its last character, whatever backup of an earlier one stands beside it."""
    return isinstance(entry, dict) and tool.format.fresh(tool.path, entry) == text


def _is_ours_alone(tool: Tool, original: bytes, text: str, entry: Any) -> bool:
    """Whether the file is the original with the entry put in, and nothing else was done to it."""
    try:
        return isinstance(entry, dict) and _put(tool, original.decode(), entry) == text
    except (Broken, UnicodeDecodeError):
        return False


def _taken_out(tool: Tool, text: str, original: bytes | None) -> str:
    """Without our entry; where there was another one of that name before, with that one again."""
    try:
        earlier = tool.format.entry(original.decode(), tool.path) if original else None
    except (Broken, UnicodeDecodeError):
        earlier = None
    if isinstance(earlier, dict):
        return tool.format.put(text, tool.path, earlier)
    return tool.format.take_out(text, tool.path)


def _put(tool: Tool, text: str, entry: dict[str, Any]) -> str:
    return tool.format.put(text, tool.path, entry) if text.strip("\ufeff \t\r\n") else tool.format.fresh(tool.path, entry)


def _notes(command: tuple[str, ...]) -> tuple[str, ...]:
    if command == ("remit",):
        return ()
    return (f"remit is not on PATH, so {command[0]} is written: that holds on this machine only.",)


def _file(tool: Tool, root: Path) -> Path:
    file = tool.file_in(root)
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(root)):
        raise Misused(f"{file} is a link that leads out of the project.", advice="Change the file it leads to by hand.")
    return file


def _bytes_of(file: Path) -> bytes | None:
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # a pipe would keep us waiting
            raise Misused(f"{file} is not a file.", advice="Put a file in its place and try again; nothing was changed.")
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"Cannot read {file}: {error.strerror or error}.", advice="Nothing was changed.") from None


def _text_of(file: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _broken(file, f"line {data[: error.start].count(10) + 1}: it is not UTF-8 text") from None


def _broken(file: Path, fault: object) -> Misused:
    return Misused(f"{file}: {fault}.", advice="Put it right and try again; nothing was changed.")


def _backups(file: Path) -> dict[int, Path]:
    """By number: the first has none in its name."""
    pattern = re.compile(re.escape(f"{file.name}{BACKUP}") + r"(?:-(\d{1,6}))?")
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(file.parent):
            if match := pattern.fullmatch(name):
                found[int(match[1] or 1)] = file.with_name(name)
    return found


def _newest_backup(file: Path) -> Path | None:
    found = _backups(file)
    return found[max(found)] if found else None


def _next_backup(file: Path) -> Path:
    number = max(_backups(file), default=0) + 1
    return file.with_name(f"{file.name}{BACKUP}" + (f"-{number}" if number > 1 else ""))


def _write_new(path: Path, data: bytes, *, like: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, stat.S_IMODE(like.stat().st_mode))
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(descriptor)


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # something else is in it, and that is fine
        if folder.name in FOLDERS:
            folder.rmdir()
