"""How values are put into words and marks for a person: times, sizes, states, other people's text. No layout (see `tree`, `tables`)."""

import re
import textwrap
import time

from remit.core.states import State

MARKS: dict[State, tuple[str, str]] = {
    State.QUEUED: ("○", "dim"),
    State.RUNNING: ("●", "cyan"),
    State.COMPLETED: ("✓", "green"),
    State.PARTIAL: ("◐", "yellow"),
    State.TIMEOUT: ("◔", "yellow"),
    State.FAILED: ("✗", "red"),
    State.BLOCKED: ("■", "magenta"),
    State.CANCELLED: ("⊘", "magenta"),
    State.REFUSED: ("⊘", "red"),
}
"""A mark and a style for each state: the same wherever a state is shown."""


_RESUME = re.compile(r"\bresume=(sess_\w+|SESSION)")


def at_the_prompt(advice: str) -> str:
    """Advice that is worded for a program, as it is followed at the command line."""
    return _RESUME.sub(r"--resume \1", advice)


def one_line(text: object, limit: int = 100) -> str:
    """An agent's words on one line, harmless for a terminal: no control characters, shortened visibly."""
    words = " ".join(str(text)[: 20 * limit].split())
    shown = "".join(c if c.isprintable() else "�" for c in words)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def advice_lines(advice: str) -> list[str]:
    """Advice on one line; but where it holds lines to copy (indented, as in a document) each stays one, and empty ones stay."""
    said = at_the_prompt(advice)
    lines = said.splitlines()[:60]
    if not any(line.startswith("    ") for line in lines):
        return [one_line(said, 500)]
    return [" " * (len(line) - len(line.lstrip())) + one_line(line, 500) for line in lines]


def printable(text: str) -> str:
    """Several lines of somebody else's text, without control characters."""
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)


def wrapped(text: str, columns: int) -> str:
    """Lines that are too long broken between words, the rest of them indented like their beginning."""
    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        parts = textwrap.wrap(line, max(20, columns), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        lines += parts if len(line) > columns else [line]
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """`0.42 s`, `12.3 s`, `4 m 05 s`, `2 h 03 m`, `3 d 4 h`"""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds) // 60
    if minutes < 60:
        return f"{minutes} m {int(seconds) % 60:02} s"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02} m"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def money(amount: float) -> str:
    """`12.50`, `0.0312`, `0.0006`: to the cent, and a small amount to where it begins to be something."""
    if amount >= 1 or amount <= 0:
        return f"{amount:.2f}"
    text = f"{amount:.4f}" if amount >= 0.00005 else f"{float(f'{amount:.1g}'):.15f}"
    whole, _, cents = text.rstrip("0").partition(".")
    return f"{whole}.{cents:0<2}"


def spent(tokens: int, cost: float) -> str:
    """`1,234 tokens, 0.0006`; empty when it is nothing."""
    return ", ".join([*([count(tokens, "token")] if tokens else []), *([money(cost)] if cost else [])])


def moment(wall_seconds: float) -> str:
    """In local time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall_seconds))


def when(wall_seconds: float, now: float) -> str:
    """As short as it can be told from now: the time of today, the day of this year, or the date."""
    then, today = time.localtime(wall_seconds), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M:%S", then)
    return time.strftime("%m-%d %H:%M" if then[0] == today[0] else "%Y-%m-%d", then)


def short(session_id: str) -> str:
    """The end of a session id: enough to name it at a prompt."""
    return session_id.rpartition("_")[2]


def count(number: int, noun: str) -> str:
    """`1 file`, `3 files`, `2 processes`"""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}{'es' if noun.endswith('s') else 's'}"
