"""Task numbers as people type them: `12`, `337, 343-345`, with the messages of S6.10. Pure; every command of the board reads them here."""

import re

from remit.core.errors import Misused

NUMBERS_AT_MOST = 10_000
"""A longer range is a slip of the fingers; nobody waits until it is written out."""
_DIGITS = 100
"""A number with more is no number that anybody means; Python itself reads some thousands."""
_NUMBER = re.compile(rf"#?([0-9]{{1,{_DIGITS}}})")
_RANGE = re.compile(rf"#?([0-9]{{1,{_DIGITS}}})\s*(?:-|–|\.\.)\s*#?([0-9]{{1,{_DIGITS}}})")


def number_of(text: str | None, usage: str) -> int:
    """One task's number. `usage` is the command with its arguments: `remit research N [focus]`. Raises `Misused`."""
    if text is None or not text.strip():
        raise Misused(f"Task number required. Usage: {usage}")
    return _integer(text.strip())


def numbers_of(text: str | None, usage: str = "") -> list[int]:
    """Numbers and ranges, separated by commas or spaces: each once, in the order in which they are named. Raises `Misused`."""
    found: dict[int, None] = {}
    for part in _parts(text or ""):
        spelled = _RANGE.fullmatch(part)
        numbers = _written_out(int(spelled[1]), int(spelled[2])) if spelled else (_integer(part),)
        found |= dict.fromkeys(numbers)
        if len(found) > NUMBERS_AT_MOST:
            raise Misused(f"{text!r} names more than {NUMBERS_AT_MOST:,} tasks.", advice="Name fewer.")
    if not found:
        raise Misused("Task number required." + (f" Usage: {usage}" if usage else ""))
    return list(found)


def is_range(text: str) -> bool:
    """Whether more than one task is named, so that they are worked on in turn."""
    return len(numbers_of(text)) > 1


def _parts(text: str) -> list[str]:
    joined = re.sub(r"\s*(-|–|\.\.)\s*", r"\1", text)
    return [part for part in re.split(r"[,;\s]+", joined) if part]


def _written_out(first: int, last: int) -> range:
    if last < first or first < 1:
        raise Misused(f"Invalid range {first}-{last}", advice="A range leads from the smaller number to the larger one, like 343-345.")
    if last - first >= NUMBERS_AT_MOST:
        raise Misused(f"Invalid range {first}-{last}", advice=f"It holds more than {NUMBERS_AT_MOST:,} tasks.")
    return range(first, last + 1)


def _integer(part: str) -> int:
    spelled = _NUMBER.fullmatch(part)
    if spelled is None or int(spelled[1]) < 1:
        raise Misused(f"Task number must be an integer. Got: {part[:80]}", advice="Task numbers are 1, 2, 3, …")
    return int(spelled[1])
