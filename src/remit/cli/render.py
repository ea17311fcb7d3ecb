"""Output for people: streams (stdout, stderr, JSON), values as text, coloured lines that fit a terminal, tables.

rich is imported only to draw a table or a live view."""

import io
import math
import os
import re
import sys
import textwrap
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from remit.cli.exits import Exit, exit_of_error
from remit.core.errors import RemitError
from remit.core.states import State
from remit.core.text import shorten

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPE_COLUMNS = 10_000
"""Width of tables written to a pipe: nothing is cut."""
CELL_CHARACTERS = 2_000
"""Longer cells are cut even there: agent output is unbounded."""
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36"}
_JOINERS = "\u200c\u200d"
"""Joiners inside words of some scripts and inside emoji."""
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_PLAIN = re.compile(r"[\x20-\x7e\n]*")
_CONTROLS = re.compile(r"[\x7f-\x9f]")
"""Control characters that JSON does not escape and a terminal obeys."""
_RESUME = re.compile(r"\bresume=(sess_\w+|SESSION)")
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
"""The mark and style of each state, used everywhere."""


# ---- streams


def report(error: RemitError, *, as_json: bool) -> Exit:
    """Print an error with its advice and return the exit code."""
    if as_json:
        say_json({"error": {"code": error.code, "message": error.message, "advice": error.advice}})
    else:
        stop = "" if error.message.endswith((".", "!", "?", ":")) or not error.advice else "."
        say_aside(f"Error: {error.message}{stop}" + (f" {error.advice}" if error.advice else ""))
    return exit_of_error(error)


class _Stdout:
    """With `--json`, stdout carries only the document.

    Other output of this process (agents, their C code, their child processes) goes to stderr until the end: an abandoned thread may print
    at any time."""

    def __init__(self) -> None:
        self._kept: int | None = None

    def claim(self) -> int:
        """The descriptor that carries the document."""
        if self._kept is not None:
            return self._kept
        try:
            number, other = sys.stdout.fileno(), sys.stderr.fileno()
        except (AttributeError, OSError, ValueError):  # not a file: nothing else can write to it either
            return -1
        sys.stdout.flush()
        self._kept = os.dup(number)
        os.dup2(other, number)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # like stderr: a printed line is not lost if the process dies
        return self._kept

    def write(self, text: str) -> None:
        if self._kept is None:
            print(text, flush=True)
            return
        data = memoryview(f"{text}\n".encode(errors="replace"))
        while data:
            data = data[os.write(self._kept, data) :]


_stdout = _Stdout()


def claim_stdout() -> int:
    """Reserve stdout for one JSON document or a protocol and return its descriptor. All other output goes to stderr from now on."""
    return _stdout.claim()


def say_json(document: Any) -> None:
    """Print the one JSON document of a command."""
    _stdout.write(_CONTROLS.sub(lambda sign: f"\\u{ord(sign[0]):04x}", json_text(document, indent=2)))


def say_json_line(line: str) -> None:
    """Print a piece of a document that is written incrementally."""
    _stdout.write(line)


def json_text(document: Any, *, indent: int | None = None) -> str:
    from pydantic_core import to_json

    return to_json(document, indent=indent, inf_nan_mode="null", fallback=str).decode()


def say(text: str = "") -> None:
    """Print a line of the answer without control characters: wrapped on a terminal, unwrapped in a pipe."""
    print(fitting(harmless(text)), flush=True)


def say_aside(text: str) -> None:
    """Print a note to stderr."""
    print(fitting(harmless(text), sys.stderr), file=sys.stderr, flush=True)


def put(words: str, label: str = "", *, style: str = "", label_style: str = "") -> None:
    """Print text after a label. On a terminal it is wrapped with an indent; in a pipe it stays one line."""
    label = harmless(label)
    first, *more = fitting(harmless(words), less=len(label)).split("\n")
    print(painted(label, label_style) + painted(first, style).rstrip(), flush=not more)
    for line in more:
        print(" " * len(label) + painted(line, style), flush=True)


def fitting(text: str, stream: Any = None, *, less: int = 0) -> str:
    """The text wrapped to the terminal width (stdout by default) minus `less` columns."""
    stream = stream if stream is not None else sys.stdout
    if stream is None or not stream.isatty():
        return text
    return wrapped(text, columns(stream) - less)


def columns(stream: Any = None) -> int:
    """The width of a stream (stdout by default): of the terminal, or unlimited in a pipe."""
    if named := os.environ.get("COLUMNS", ""):
        return int(named) if named.isdecimal() else 80
    stream = stream if stream is not None else sys.stdout
    try:
        return (os.get_terminal_size(stream.fileno()).columns or 80) if stream.isatty() else PIPE_COLUMNS
    except (OSError, ValueError):  # a terminal without a size
        return 80


def painted(text: str, style: str) -> str:
    """The text in colour on a terminal that supports colours; unchanged elsewhere."""
    if not style or not text or not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{';'.join(_CODES[part] for part in style.split())}m{text}\x1b[0m"


def console() -> "Console":
    """rich's console for the answer."""
    return _console(sys.stdout)


def error_console() -> "Console":
    """rich's console for progress and notes."""
    return _console(sys.stderr)


@cache
def _harmless_console() -> "type[Console]":
    from rich.console import Console
    from rich.segment import Segment

    class HarmlessConsole(Console):
        """Removes control characters from all text; only rich emits control sequences."""

        def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
            for one in super().render(renderable, options):
                yield one if one.control else Segment(harmless(one.text), one.style)

    return HarmlessConsole


def _console(stream: Any) -> "Console":
    # No markup and no highlighting: most text comes from agents.
    return _harmless_console()(
        file=stream, markup=False, highlight=False, emoji=False, width=columns(stream) if not stream.isatty() else None
    )


def say_table(rows: Sequence[Mapping[str, Any]], *, shrinking: Sequence[str] = (), folding: str = "", has_header: bool = True) -> None:
    """Print rows with the same fields as a table without borders, so that lines can be copied and searched; columns without a value are
    left out. On a narrow terminal `shrinking` columns are cut and the `folding` one is wrapped; the others stay whole."""
    console().print(table(rows, shrinking=shrinking, folding=folding, has_header=has_header))


def table(rows: Sequence[Mapping[str, Any]], *, shrinking: Sequence[str] = (), folding: str = "", has_header: bool = True) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD if has_header else None, header_style="bold", pad_edge=False, show_edge=False, show_header=has_header)
    names = [name for name in rows[0] if any(row[name] not in ("", None) for row in rows)]
    for name in names:
        made.add_column(name, overflow="fold" if name == folding else "ellipsis", no_wrap=name not in (*shrinking, folding))
    for row in rows:
        cells = [row[name] if isinstance(row[name], Text) else Text(one_line(row[name] or "", CELL_CHARACTERS)) for name in names]
        for name, cell in zip(names, cells, strict=True):
            if name in shrinking:
                cell.no_wrap, cell.overflow = True, "ellipsis"
        made.add_row(*cells)
    return made


# ---- text


def at_the_prompt(advice: str) -> str:
    """Rewrite advice for programs into advice for the command line."""
    return _RESUME.sub(r"--resume \1", advice)


def one_line(text: object, limit: int = 100) -> str:
    """Text on one line without control characters, cut with an ellipsis."""
    words = " ".join(str(text)[: 20 * limit].split())
    shown = "".join(c if c.isprintable() else "�" for c in words)
    return shorten(shown, limit)


def advice_lines(advice: str) -> list[str]:
    """Advice on one line. If it contains lines to copy (indented), each stays a line, and empty lines stay."""
    said = at_the_prompt(advice)
    lines = said.splitlines()[:60]
    if not any(line.startswith("    ") for line in lines):
        return [one_line(said, 500)]
    return [" " * (len(line) - len(line.lstrip())) + one_line(line, 500) for line in lines]


def harmless(text: str) -> str:
    """Text without terminal control (escape sequences, bells) and without characters that hide or reverse text."""
    return text if _PLAIN.fullmatch(text) else "".join(map(_sign, text))


def _sign(sign: str) -> str:
    if sign in "\n\t" or sign in _JOINERS:
        return sign
    kind = unicodedata.category(sign)
    if kind == "Zs":
        return " " if sign != "\u3000" else sign
    if sign == "\r" or (kind == "Cf" and sign not in _BIDI):
        return ""
    return "�" if kind[0] == "C" or kind in ("Zl", "Zp") else sign


def wrapped(text: str, columns: int) -> str:
    """Break long lines between words, keeping their indent."""
    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        parts = textwrap.wrap(line, max(20, columns), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        lines += parts if len(line) > columns else [line]
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """`0.42 s`, `12 s`, `4 m 05 s`, `2 h 03 m`, `3 d 4 h`"""
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.{2 if seconds < 1 else 1 if seconds < 10 else 0}f} s"
    for large, small, of, last in (("m", "s", 60, 3600), ("h", "m", 3600, 172_800)):
        if seconds < last:
            return f"{int(seconds // of)} {large} {int(seconds % of * 60 // of):02} {small}"
    return f"{int(seconds // 86_400)} d {int(seconds % 86_400 // 3600)} h"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def money(amount: float) -> str:
    """`12.50`, `0.0312`, `0.00006`: to the cent; small amounts to their first significant digits."""
    if amount >= 1 or amount <= 0:
        return f"{amount:.2f}"
    whole, _, cents = f"{amount:.{max(4, -math.floor(math.log10(amount)))}f}".rstrip("0").partition(".")
    return f"{whole}.{cents:0<2}"


def spent(tokens: int, cost: float) -> str:
    """`1,234 tokens, 0.0006`; empty if both are zero."""
    return ", ".join([*([count(tokens, "token")] if tokens else []), *([money(cost)] if cost else [])])


def moment(wall_seconds: float) -> str:
    """In local time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall_seconds))


def when(wall_seconds: float, now: float) -> str:
    """The time if today, the day if this year, else the date."""
    then, today = time.localtime(wall_seconds), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M:%S", then)
    return time.strftime("%m-%d %H:%M" if then[0] == today[0] else "%Y-%m-%d", then)


def short(session_id: str) -> str:
    """The end of a session id, which identifies it at a prompt."""
    return session_id.rpartition("_")[2]


def count(number: int, noun: str) -> str:
    """`1 file`, `3 files`, `2 processes`"""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}{'es' if noun.endswith('s') else 's'}"
