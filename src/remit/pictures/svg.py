"""The parts of an SVG that every picture has: text that cannot break out of it, arrows, their heads, the document around. Pure: text out.

Names come from repositories and people: every text is escaped, and what XML cannot hold is replaced.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from html import escape

MARGIN = 28.0
HEAD = 66.0
"""The room above a picture: its title and a line about it."""
CHARACTER = 7.0
"""How wide a letter of 12 pixels is, about."""
FONT = "system-ui,'Segoe UI',Helvetica,Arial,sans-serif"
STYLE = f"text{{font-family:{FONT};fill:#1f2933}}.t{{font-size:18px;font-weight:600}}.s{{font-size:12px;fill:#52606d}}"
_NOT_SHOWN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]")
"""What XML cannot hold, and what turns the writing round: a name must not be able to read as another."""
_PIXELS = dict.fromkeys("iljtfrI.,:;'!|()[]{}/\\- ", 4.6) | dict.fromkeys("mwMW@%", 11.9)
_CAPITAL, _SMALL, _SQUARE = 9.0, 7.5, 15.0


def safe(text: str) -> str:
    """Fit to stand between tags and in quotes."""
    return escape(text if text.isprintable() else _NOT_SHOWN.sub("\ufffd", text), quote=True)  # what is printable fits into XML


def wide(text: str) -> float:
    """About how many pixels it takes in a letter of 12."""
    return CHARACTER * sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def broken(text: str, room: float, most: int) -> list[str]:
    """In lines of letters of 12 pixels that fit into the room, whatever the letters; what is beyond `most` of them is left out visibly."""
    lines: list[str] = []
    line, used = "", 0.0
    for piece in _pieces(" ".join(text.split()), room):
        takes = sum(map(_pixels, piece))
        if line and used + sum(map(_pixels, piece.rstrip())) > room:
            lines.append(line.rstrip())
            line, used = "", 0.0
            if len(lines) == most:
                return [*lines[:-1], _shortened(lines[-1], room)]
        line, used = line + piece, used + takes
    return [*lines, line.rstrip()] if line.strip() else lines or ["…"]


def _pieces(text: str, room: float) -> Iterator[str]:
    """Words with the blank behind them; those that no line holds in parts, never between a letter and what sits upon it."""
    for word in re.findall(r"\S+\s?", text):
        part, used = "", 0.0
        for sign in word:
            takes = _pixels(sign)
            if part and takes and used + takes > room and not sign.isspace():
                yield part
                part, used = "", 0.0
            part, used = part + sign, used + takes
        yield part


def _shortened(line: str, room: float) -> str:
    while line and sum(map(_pixels, f"{line} …")) > room:
        line = line[:-1]
    return f"{line.rstrip()} …"


def _pixels(sign: str) -> float:
    if sign in _PIXELS:
        return _PIXELS[sign]
    if sign.isascii():
        return _CAPITAL if sign.isupper() else _SMALL
    if unicodedata.category(sign) in ("Mn", "Me", "Cf"):
        return 0.0
    return _SQUARE if unicodedata.east_asian_width(sign) in "WF" else _CAPITAL


def curve(points: Sequence[tuple[float, float]]) -> str:
    """The way of an arrow through its points, for `d` of a path."""
    x, y = points[0]
    path = f"M{x:.1f} {y:.1f}"
    for nx, ny in points[1:]:
        reach = (nx - x) / 2 or 40.0
        path += f" C{x + reach:.1f} {y:.1f} {nx - reach:.1f} {ny:.1f} {nx:.1f} {ny:.1f}" if ny != y else f" L{nx:.1f} {ny:.1f}"
        x, y = nx, ny
    return path


def heads(colours: Mapping[str, str]) -> str:
    """Arrow heads to be named as `url(#NAMEh)`, by name and colour."""
    return "".join(
        f'<marker id="{name}h" viewBox="0 0 10 10" refX="9" refY="5" markerUnits="userSpaceOnUse" '
        f'markerWidth="9" markerHeight="9" orient="auto">'
        f'<path d="M0 1L10 5L0 9z" fill="{colour}"/></marker>'
        for name, colour in colours.items()
    )


def document(title: str, said: str, body: str, size: tuple[float, float], *, style: str = "", definitions: str = "") -> str:
    """A whole picture: `body` is moved below the title. `size`: of the body."""
    width, height = size[0] + 2 * MARGIN, size[1] + HEAD + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
        f"<title>{safe(title)}</title><style>{STYLE}{style}</style><defs>{definitions}</defs>"
        f'<rect width="100%" height="100%" fill="#ffffff"/><text class="t" x="{MARGIN:g}" y="32">{safe(title[:90])}</text>'
        f'<text class="s" x="{MARGIN:g}" y="51">{safe(said)}</text><g transform="translate({MARGIN:g} {HEAD:g})">{body}</g></svg>\n'
    )
