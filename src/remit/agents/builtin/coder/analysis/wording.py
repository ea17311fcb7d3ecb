"""Words of a repository put into ours: names and sentences that may hold anything, made harmless for JSON, markdown and tables."""

import re
from collections.abc import Sequence

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MARKUP = re.compile(r"([\\`*_\[\]<>|~#&!$])")


def printable(text: str) -> str:
    """For data: what is no text (parts of names that are no UTF-8) is replaced."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:  # half of a pair, as JSON can spell it
        return text.encode("utf-8", "replace").decode()


def code(text: str) -> str:
    """A code span that stays one, also in a table."""
    plain = _CONTROL.sub("\ufffd", printable(text)).replace("`", "ˋ").replace("|", "\\|")
    return f"`{plain}`" if plain.strip() else "` `"


def prose(text: str) -> str:
    """A sentence of theirs, without markup of theirs."""
    return _MARKUP.sub(r"\\\1", _CONTROL.sub(" ", printable(text)).strip())


def many(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, right: int = 99) -> str:
    """Columns from `right` on hold numbers."""
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join("---:" if place >= right else "---" for place in range(len(head))) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else "".join(names)
