"""What a journal of a write set may say. One that we wrote ourselves is right; but it is a file of the project, and projects come from
others: by cloning one nobody must have any of their files written over.

Knows no task and no TODO.md. Used by `board.writeset`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remit.board.files import target_of
from remit.core.errors import Misused, Unavailable

_STEP = ("path", "staged", "new", "displaced_to", "kept_as")


def check_path(path: str) -> None:
    parts = Path(path).parts
    if not parts or Path(path).is_absolute() or ".." in parts:
        raise Misused(f"{path!r} is not inside of the project.", advice="Paths of a change are relative to the project's root.")


def is_whole(entry: dict[str, Any]) -> bool:
    """Everything is there that will be looked at, and is what it should be. Raises `KeyError` or `TypeError` otherwise too."""
    return (
        all(all(isinstance(step[name], str) for name in _STEP) and isinstance(step["expected"], str | None) for step in entry["pieces"])
        and all(len(move) == 2 and _are_texts(move) for move in entry["moves"])
        and all(len(one) == 3 and _are_texts(one) for one in entry["consumed"])
    )


def check_journal(journal: Path, root: Path, entry: dict[str, Any]) -> None:
    """Raises `Unavailable` when it would have something written outside of the project. Where a link leads out, as people do with their
    TODO.md, it counts only on the disk that it was written on: a copy of it, however it came here, is another file."""
    try:
        for step in entry["pieces"]:
            _check_name(step["staged"])
            _check_name(step["kept_as"])
        paths = list(_paths_of(entry))
        for path in paths:
            check_path(path)
        inside = target_of(root, ".")
        leads_out = next((path for path in paths if not target_of(root, path).is_relative_to(inside)), None)
    except (Misused, ValueError) as error:  # ValueError: no path at all, by its characters
        raise _refused(journal, f"{error}") from None
    if leads_out is not None and entry.get("inode") != journal.stat().st_ino:
        raise _refused(journal, f"{leads_out!r} leads out of the project, and the journal was not written here.")


def _paths_of(entry: dict[str, Any]) -> Iterator[str]:
    for step in entry["pieces"]:
        yield step["path"]
        if step["displaced_to"]:
            yield step["displaced_to"]
    for move in entry["moves"]:
        yield from move
    for path, place, _ in entry["consumed"]:
        yield from (path, place)


def _check_name(name: str) -> None:
    if name != Path(name).name or "\0" in name:
        raise Misused(f"{name!r} is no name of a file.")


def _are_texts(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _refused(journal: Path, why: str) -> Unavailable:
    return Unavailable(
        f"{journal} names an interrupted change of the board that is not finished: {why}",
        code="STATUS_SYNC_FAILED",
        advice=f"If it is yours, compare the files in {journal.parent} with specs/; then move that folder away.",
    )
