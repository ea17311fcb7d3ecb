"""TODO.md as people save it, at any time and with any editor: read when it is complete, merged against the last drawing.

An editor truncates the file and writes it, or renames another to it. So a recently touched file is read once it is at rest, and a displaced
TODO.md is kept for a while (`left/`): an editor that had it open may still write to it."""

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from remit.board.write_set import hash_of, read_or_none

FROM = "From TODO.md: "
"""Prefix of a notice about a merged edit. Other notices are warnings."""
QUIET_SECONDS = 0.03
"""A file that was not touched for this long is complete."""
LONGEST_WAIT_SECONDS = 1.0
LEFT_SECONDS = 10.0
"""How long a displaced TODO.md is kept for an editor that still writes to it."""


def signature(path: Path) -> tuple[int, int, int] | None:
    """Changes with the file. None: it is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_at_rest(path: Path, drawn: str) -> bytes | None:
    """The file once it is no longer being written; at once if it is `drawn`. None: missing."""
    give_up_at = time.monotonic() + LONGEST_WAIT_SECONDS
    while True:
        before = signature(path) or signature(path.parent)  # a folder that was just touched: the file is being renamed
        data = read_or_none(path)
        if data is not None and hash_of(data) == drawn:
            return data
        age = time.time() - before[1] / 1e9 if before else LONGEST_WAIT_SECONDS
        is_same = before == (signature(path) or signature(path.parent))
        if (is_same and not 0 <= age < QUIET_SECONDS) or time.monotonic() > give_up_at:
            return data
        time.sleep(QUIET_SECONDS / 3)


def displaced_name(drawn: str) -> str:
    return f"{drawn}-{secrets.token_hex(4)}.md"


def sweep_left(folder: Path, todo: Path) -> Iterator[str]:
    """Remove displaced files after a while; one that an editor wrote to since is kept beside TODO.md."""
    for name in os.listdir(folder) if folder.is_dir() else ():
        data = read_or_none(folder / name) or b""
        if data.strip() and hash_of(data) != name.partition("-")[0]:
            kept = todo.with_name(f"{todo.name}.kept-{secrets.token_hex(4)}")
            os.replace(folder / name, kept)
            yield f"TODO.md was saved while it was written: that version is kept as {kept.name}."
        elif time.time() - (folder / name).stat().st_ctime > LEFT_SECONDS:
            os.unlink(folder / name)
