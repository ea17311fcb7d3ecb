"""What goes in to the keeper and what it tells: one message in, lines and files out. Nothing that comes out is believed unchecked.

S                                  the code is about to run
X WORDS                            it is not: a layer of the sandbox could not be set up
E CODE SIGNAL MS KILLED HITS PEAK  it has ended
F SIZE NAME, then the bytes        a file it left (the name in hexadecimal)
. COUNT                            the end: how many other files it left
"""

import asyncio
import contextlib
import marshal
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from types import CodeType
from typing import Any

from remit.core.errors import Unavailable
from remit.system.sandbox import keeper
from remit.system.sandbox.recipes import LIMIT_NAMES
from remit.system.threads import off_loop

LINE_BYTES = 64 << 10
_PART_BYTES = 1 << 18
_LONGEST_NAME = 1000
BOOT = """\
import marshal, os, sys
def take(count):
    parts = []
    while count:
        part = os.read(0, min(count, 1 << 20))
        if not part:
            for folder in sys.argv[1:]:
                os.rmdir(folder)
            os._exit(70)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
code, job = marshal.loads(take(int.from_bytes(take(8), "little")))
keeper = type(sys)("keeper")
exec(code, keeper.__dict__)
keeper.main(job)
"""
"""The start code of the interpreter: the rest comes over its standard input, compiled. Its arguments are folders to remove if that never
comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftFile:
    """A file that the code left in its work folder."""

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitReport:
    exit_code: int | None
    """None if a signal ended it."""
    signal: int | None
    milliseconds: int
    killed_by: str
    """The limit that it was killed for; empty if it ended by itself."""
    hits: tuple[str, ...]
    """Limits that it hit and survived."""
    peak_bytes: int = 0
    """Peak memory, as observed."""
    files: tuple[LeftFile, ...] = ()
    """Returned files."""
    left_there: int = 0
    """Number of files not returned: not requested, too many or too large, unreadable, or with an unusable name."""


@cache
def _compiled() -> CodeType:
    return compile(Path(keeper.__file__).read_bytes(), "<keeper>", "exec", dont_inherit=True, optimize=2)


def message(job: dict[str, Any]) -> bytes:
    body = marshal.dumps((_compiled(), job))
    return len(body).to_bytes(8, "little") + body


async def converse(reports: asyncio.StreamReader, out: Path, most_bytes: int) -> ExitReport:
    """From the start of the code to its last file."""
    line = await _line(reports)
    if line == "S":
        line = await _line(reports)
    elif not line.startswith("X "):
        raise Unavailable("The sandbox could not be started.", code="TOOL_UNAVAILABLE", advice="Ask `remit doctor` what is missing.")
    if line.startswith("X "):
        raise Unavailable(
            f"The sandbox could not be closed, so the code was not run: {line[2:]}.",
            code="TOOL_UNAVAILABLE",
            advice="Ask `remit doctor` what is missing.",
        )
    ended = _ended(line)
    brought, lost = list[LeftFile](), 0
    while (line := await _line(reports)).startswith("F "):
        size, name = _left(line)
        most_bytes -= size
        if most_bytes < 0:
            raise KeeperLost
        if await _bring(reports, size, out / name if is_plain(name) else None):
            brought.append(LeftFile(name=name, size=size))
        else:
            lost += 1
    mark, _, count = line.partition(" ")
    if mark != "." or not count.isdigit():
        raise KeeperLost
    return replace(ended, files=tuple(brought), left_there=int(count) + lost)


async def _line(reports: asyncio.StreamReader) -> str:
    try:
        return (await reports.readuntil(b"\n")).decode("ascii", "replace").rstrip("\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return ""


def _ended(line: str) -> ExitReport:
    try:
        mark, code, signal, took, killed, hits, peak = line.split(" ")
        if mark != "E":
            raise ValueError(mark)
        return ExitReport(
            exit_code=int(code) if int(code) >= 0 else None,
            signal=int(signal) or None,
            milliseconds=int(took),
            killed_by=killed if killed in LIMIT_NAMES else "",
            hits=tuple(hit for hit in hits.split(",") if hit in LIMIT_NAMES),
            peak_bytes=int(peak),
        )
    except ValueError:
        raise KeeperLost from None


class KeeperLost(Exception):
    """The keeper ended before the code did, or its report is malformed."""


def _left(line: str) -> tuple[int, str]:
    """Size and name of a file; the name may be unusable."""
    try:
        _, size, encoded = line.split(" ")
        name = bytes.fromhex(encoded).decode("utf-8", "surrogateescape")
    except ValueError:
        raise KeeperLost from None
    if not size.isdigit():
        raise KeeperLost
    return int(size), name


def is_plain(name: str) -> bool:
    """Whether it names a file below a folder, and nothing else."""
    path = PurePosixPath(name)
    return (
        0 < len(name.encode("utf-8", "surrogatepass")) <= _LONGEST_NAME
        and not path.is_absolute()
        and path.as_posix() == name
        and all(part not in ("", ".", "..") and len(part.encode("utf-8", "surrogatepass")) <= 255 for part in name.split("/"))
        and name.isprintable()
        and "\\" not in name
    )


async def _bring(reports: asyncio.StreamReader, size: int, target: Path | None) -> bool:
    """Whether it is written now. Data that cannot be written (a full disk) is read nevertheless: other files follow."""
    is_kept = target is not None and await off_loop(_append, target, b"")
    while size:
        part = await reports.read(min(size, _PART_BYTES))
        if not part:
            raise KeeperLost
        size -= len(part)
        is_kept = is_kept and target is not None and await off_loop(_append, target, part)
    return is_kept


def _append(target: Path, data: bytes) -> bool:
    """Whether it was written; otherwise nothing of it is left. No data: a new file, in place of one of an interrupted run."""
    try:
        if not data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
        with target.open("ab" if data else "xb") as file:
            file.write(data)
    except OSError:
        with contextlib.suppress(OSError):
            target.unlink()
        return False
    return True
