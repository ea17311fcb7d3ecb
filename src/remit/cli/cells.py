"""Text measured and cut in terminal cells, and coloured where that is wanted: for drawing without a library that takes long to load."""

import os
import shutil
import sys
import unicodedata

NARROWEST, WIDEST = 40, 200
PIPE_COLUMNS = 120
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36"}


def width(text: str) -> int:
    """How many cells it takes: two for wide characters, none for those that sit upon others."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def cut(text: str, cells: int) -> str:
    """On one line, harmless for a terminal, and no wider than this; what is cut off shows."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text[: 8 * max(cells, 8)]).split())
    if width(line) <= cells:
        return line
    kept = ""
    for sign in line:
        if width(kept + sign) > cells - 1:
            break
        kept += sign
    return kept.rstrip() + "…" if cells > 0 else ""


def padded(text: str, cells: int) -> str:
    return text + " " * max(0, cells - width(text))


def painted(text: str, style: str) -> str:
    """For a terminal; elsewhere, and where nobody wants colours, as it is."""
    if not style or not is_coloured():
        return text
    return f"\x1b[{';'.join(_CODES[part] for part in style.split())}m{text}\x1b[0m"


def is_coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns() -> int:
    """Of the terminal, within reason; wide enough where a program reads."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        return PIPE_COLUMNS
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((80, 24)).columns))
