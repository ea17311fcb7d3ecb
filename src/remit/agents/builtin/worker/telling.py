"""What the worker says: returns with a summary of whole sentences, numbers with their units, paths that do not look like markup."""

import re
from collections.abc import Sequence
from typing import Any

_SUMMARY_CHARACTERS = 390
_PATH_CHARACTERS = 100
_OTHER_ENDS = ("\r", "\v", "\f", "\x1c", "\x1d", "\x1e")
_MARKUP = re.compile(r"\*\*|`|<|\]\(|# ")


def told(
    summary: str, data: Any, *notes: str, status: str = "completed", errors: Sequence[dict[str, Any]] = (), next_steps: str = ""
) -> dict[str, Any]:
    """A return: the summary with as many notes as there is room for."""
    for note in notes:
        if len(summary) + len(note) < _SUMMARY_CHARACTERS:
            summary += f" {note}"
    return {"status": status, "summary": summary, "data": data, "errors": list(errors), "next_steps": next_steps}


def named(path: str) -> str:
    """A path for the beginning of a sentence; where it is long or would read as markup, other words."""
    is_plain = len(path) <= _PATH_CHARACTERS and path.isprintable() and _MARKUP.search(path) is None
    return path if is_plain and path.strip() == path else "The path"


def lines_in(text: str) -> int:
    """As many as `splitlines` makes, which are made only where lines end in another way than the usual one."""
    if not text.isascii() or any(sign in text for sign in _OTHER_ENDS):
        return len(text.splitlines())
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size_of(count: int) -> str:
    if count < 10_000:
        return counted(count, "byte")
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return counted(count, "byte")
