"""Rows of a file, and a hunk among them: where it stands, putting it in, and why it does not fit. Used by `applying`."""

from dataclasses import dataclass

from remit.agents.builtin.coder.review.patch import Hunk, Line


@dataclass(slots=True)
class Row:
    text: str
    changed: bool = False
    taken: bool = False
    """A hunk has been here: another must not match it again."""


class Steps:
    """How many lines may be compared in all: a hostile diff must not keep us for hours."""

    def __init__(self, left: int) -> None:
        self.left = left


def rows_of(text: str) -> list[Row]:
    return [Row(line) for line in _lines(text)]


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def context_length(lines: "reversed[Line]") -> int:
    count = 0
    for line in lines:
        if line.kind != " ":
            break
        count += 1
    return count


def locate(rows: list[Row], wanted: list[str], expected: int, at_start: bool, at_end: bool, steps: Steps) -> int | None:
    """As git does: at the start or the end where the hunk must stand there, else outwards from where it is expected."""
    last = len(rows) - len(wanted)
    if last < 0:
        return None
    if at_start or at_end:
        place = 0 if at_start else last
        fits = (not at_end or place == last) and _matches(rows, wanted, place, steps)
        return place if fits else None
    expected = min(expected, last)
    for distance in range(len(rows) + 1):
        for place in (expected + distance, expected - distance):
            if 0 <= place <= last and _matches(rows, wanted, place, steps):
                return place
        if steps.left <= 0:
            return None
    return None


def _matches(rows: list[Row], wanted: list[str], place: int, steps: Steps) -> bool:
    for offset, text in enumerate(wanted):
        steps.left -= 1
        row = rows[place + offset]
        if row.taken or row.text != text:
            return False
    return True


def replace_rows(rows: list[Row], place: int, hunk: Hunk, mine: str, other: str) -> None:
    """The lines of one side by those of the other. Rows that stay are the same objects: they mark what the diff put there."""
    standing = iter(rows[place : place + len(hunk.side(mine))])
    new: list[Row] = []
    for line in hunk.lines:
        if line.kind == other:
            new.append(Row(line.text, changed=other == "+", taken=True))
            continue
        row = next(standing)
        row.taken = True
        if line.kind == " ":
            new.append(row)
        elif mine == "+":
            row.changed = True
    rows[place : place + len(hunk.side(mine))] = new


def explain(rows: list[Row], hunk: Hunk) -> tuple[int | None, str]:
    """The line of the file where it goes wrong, and what stands there in place of what the diff expects."""
    wanted = hunk.side("-")
    if not wanted:
        return (len(rows) or None), "it adds to an empty file, and this one is not empty"
    if not rows:
        return None, "the file is empty"
    standing = [row.text for row in rows]
    places = [max(0, hunk.old_start - 1), max(0, hunk.new_start - 1)]
    longest = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    places += [index - longest for index, text in enumerate(standing) if text.strip() == wanted[longest].strip()][:50]
    place = max(places, key=lambda where: _fit(standing, wanted, where))
    for offset, text in enumerate(wanted):
        number = place + offset
        if number >= len(standing):
            return len(standing), f"the file ends at line {len(standing)}, the diff expects {_shown(text)} after it"
        if number >= 0 and standing[number] != text:
            return (
                number + 1,
                f"line {number + 1} is {_shown(standing[number])}, the diff expects {_shown(text)}{_how(standing[number], text)}",
            )
    if hunk.lines and hunk.lines[-1].kind != " " and place + len(wanted) < len(standing):
        return place + len(wanted), "it has no context after its last change, so it must stand at the end of the file, and it does not"
    return place + 1, "its lines are there, but another hunk has changed them, or it must stand at the start of the file and does not"


def _fit(standing: list[str], wanted: list[str], place: int) -> int:
    return sum(0 <= place + i < len(standing) and standing[place + i].strip() == text.strip() for i, text in enumerate(wanted))


def _how(stands: str, expected: str) -> str:
    if stands.rstrip("\r\n") == expected.rstrip("\r\n"):
        return " (only the line end differs: CRLF and LF, or none)"
    return " (only white space differs)" if stands.split() == expected.split() else ""


def _shown(text: str) -> str:
    text = text.strip()
    return "empty" if not text else f"`{text[:77]}…`" if len(text) > 78 else f"`{text}`"
