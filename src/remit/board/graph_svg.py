"""Directed graphs as SVG. grandalf (`pip install 'remit[pictures]'`) computes positions; this module writes markup.

Labels come from repositories and from people: every text is escaped, and characters that XML cannot contain are replaced.
"""

import importlib
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from types import ModuleType
from typing import Any, NamedTuple

from remit.core.errors import Unavailable

FONT = "ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"
"""Monospace, so that the width of a text is known without measuring it."""
CELL = 6.65
"""Width in pixels of one terminal cell at a font size of 11 pixels."""
BOX_WIDTH = 204.0
COLUMNS = int((BOX_WIDTH - 18) / CELL)
"""Cells in one line of a box."""
_GAP_X, _GAP_Y, _MARGIN, _TOP = 64.0, 18.0, 28.0, 66.0
_LINE = 15.0
_ROUNDS = 4
_ARROWS = {"plain": ("#8795a1", 1.2, ""), "cycle": ("#d64545", 2.0, ""), "part": ("#b8c4ce", 1.2, "4 3")}
_UNSAFE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]")
"""Characters that XML cannot contain, and those that reverse the direction of writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    key: str
    label: Sequence[str]
    """Lines of at most `COLUMNS` cells: see `wrap`."""
    heading: str = ""
    tooltip: str = ""
    fill: str = "#ffffff"
    stroke: str = "#7b8794"
    stroke_width: float = 1.0
    is_dashed: bool = False
    link: str = ""

    @property
    def height(self) -> float:
        return 13.0 + _LINE * (len(self.label) + bool(self.heading))


class Arrow(NamedTuple):
    start: str
    end: str
    kind: str = "plain"
    """`plain`, `cycle` or `part`."""
    tooltip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    title: str
    subtitle: str
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    legend: Sequence[tuple[str, str, str]] = ()
    """Fill, border and meaning of each colour."""
    notes: Sequence[str] = ()


class _View:
    """Size and position of one vertex, as grandalf expects them. Its layers run from top to bottom, ours from left to right."""

    def __init__(self, box: Box) -> None:
        self.w, self.h = box.height, BOX_WIDTH
        self.xy = (0.0, 0.0)


class _Path:
    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []

    def setpath(self, points: list[tuple[float, float]]) -> None:
        self.points = points


def safe(text: str) -> str:
    """Escape text for an element or a quoted attribute."""
    return escape(_UNSAFE.sub("\ufffd", text), quote=True)


def wrap(text: str, columns: int = COLUMNS, most: int = 2) -> list[str]:
    """Break text into lines of at most `columns` cells. Text beyond `most` lines is replaced by an ellipsis."""
    from rich.cells import cell_len, set_cell_size
    from rich.console import Console
    from rich.text import Text

    plain = " ".join(_UNSAFE.sub("\ufffd", text).split())
    lines = [line.plain.rstrip() for line in Text(plain).wrap(Console(width=columns), columns)]
    if len(lines) > most:
        kept = lines[most - 1]
        lines[most - 1 :] = [(kept if cell_len(kept) < columns - 1 else set_cell_size(kept, columns - 2).rstrip()) + " …"]
    return [line for line in lines if line] or ["…"]


def draw_svg(picture: Picture) -> str:
    """A whole SVG document: connected boxes from left to right, then the boxes without an arrow in rows, then the legend."""
    paths = {(arrow.start, arrow.end): _Path() for arrow in picture.arrows if arrow.start != arrow.end}
    joined = {key for pair in paths for key in pair}
    views = {box.key: _View(box) for box in picture.boxes}
    width, height = _place_connected({key: views[key] for key in views if key in joined}, paths)
    width, height = _place_rows([views[box.key] for box in picture.boxes if box.key not in joined], width, height)
    parts = [_arrow(arrow, paths[arrow.start, arrow.end].points, views) for arrow in picture.arrows if arrow.start != arrow.end]
    parts += [_box(box, views[box.key]) for box in picture.boxes]
    legend, right, bottom = _legend(picture, height)
    width = max(width, right, len(picture.subtitle) * CELL, 460.0) + 2 * _MARGIN
    height = bottom + _TOP + _MARGIN
    heads = "".join(
        f'<marker id="{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="9" '
        f'orient="auto"><path d="M0 1L10 5L0 9z" fill="{colour}"/></marker>'
        for kind, (colour, _, _) in _ARROWS.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="img"><title>{safe(picture.title)}</title>'
        f"<style>text{{font:11px {FONT};fill:#1f2933}}.t{{font-size:18px;font-weight:600}}.s{{fill:#52606d}}</style><defs>{heads}</defs>"
        f'<rect width="100%" height="100%" fill="#ffffff"/><text class="t" x="{_MARGIN:g}" y="32">{safe(picture.title[:90])}</text>'
        f'<text class="s" x="{_MARGIN:g}" y="51">{safe(picture.subtitle)}</text>'
        f'<g transform="translate({_MARGIN:g} {_TOP:g})">{"".join(parts)}{legend}</g></svg>\n'
    )


def _layouts() -> tuple[ModuleType, ModuleType]:
    try:
        return importlib.import_module("grandalf.graphs"), importlib.import_module("grandalf.layouts")
    except ImportError:
        message = "Pictures need the package grandalf, which is not installed."
        raise Unavailable(message, code="TOOL_UNAVAILABLE", advice="pip install 'remit[pictures]'") from None


def _place_connected(views: dict[str, _View], paths: dict[tuple[str, str], _Path]) -> tuple[float, float]:
    """Give every view and path its position, one connected component below the other; returns width and height."""
    graphs, layouts = _layouts()
    vertices = {key: graphs.Vertex(key) for key in views}
    for key, view in views.items():
        vertices[key].view = view
    edges = []
    for (start, end), path in paths.items():
        edge: Any = graphs.Edge(vertices[start], vertices[end])
        edge.view = path
        edges.append(edge)
    width = top = 0.0
    for component in graphs.Graph(list(vertices.values()), edges).C:
        layout = layouts.SugiyamaLayout(component)
        layout.xspace, layout.yspace, layout.dw = _GAP_Y, _GAP_X, 0.0  # `dw`: the room of an arrow that passes a layer
        layout.init_all()
        layout.draw(_ROUNDS)
        inside: list[_View] = [vertex.view for vertex in component.sV]
        routes: list[_Path] = [edge.view for edge in component.sE]
        corners = [(y, x) for view in inside for x, y in [view.xy]] + [(y, x) for route in routes for x, y in route.points]
        left, upper = min(x for x, _ in corners) - BOX_WIDTH / 2, min(y - view.w / 2 for view in inside for y in [view.xy[0]])
        upper = min(upper, min(y for _, y in corners))
        for view in inside:
            view.xy = (view.xy[1] - left, view.xy[0] - upper + top)
        _separate(inside)
        for route in routes:
            route.points = [(y - left, x - upper + top) for x, y in route.points]
        width = max(width, *(view.xy[0] + BOX_WIDTH / 2 for view in inside))
        top = max(*(view.xy[1] + view.w / 2 for view in inside), *(y for route in routes for _, y in route.points)) + 2 * _GAP_Y
    return width, max(0.0, top - 2 * _GAP_Y)


def _separate(views: Sequence[_View]) -> None:
    """Move boxes of one layer apart: grandalf sometimes puts two in the same place."""
    for _, layer in itertools.groupby(sorted(views, key=lambda view: (round(view.xy[0]), view.xy[1])), key=lambda view: round(view.xy[0])):
        top = -math.inf
        for view in layer:
            view.xy = (view.xy[0], max(view.xy[1], top + view.w / 2))
            top = view.xy[1] + view.w / 2 + _GAP_Y / 2


def _place_rows(views: Sequence[_View], width: float, height: float) -> tuple[float, float]:
    columns = max(5, int((width + _GAP_Y) // (BOX_WIDTH + _GAP_Y)))
    top = height + (52.0 if height and views else 0.0)
    for first in range(0, len(views), columns):
        row = views[first : first + columns]
        tallest = max(view.w for view in row)
        for column, view in enumerate(row):
            view.xy = (column * (BOX_WIDTH + _GAP_Y) + BOX_WIDTH / 2, top + view.w / 2)
        width, top = max(width, row[-1].xy[0] + BOX_WIDTH / 2), top + tallest + _GAP_Y
    return width, top - (_GAP_Y if views else 0.0)


def _arrow(arrow: Arrow, points: list[tuple[float, float]], views: dict[str, _View]) -> str:
    """A smooth line through the points, from the side of one box to the side of the other."""
    (x, y), (last_x, last_y) = views[arrow.start].xy, views[arrow.end].xy
    half = BOX_WIDTH / 2 if x <= last_x else -BOX_WIDTH / 2
    x += half
    drawn = f"M{x:.1f} {y:.1f}"
    via = [point for px, py in points[1:-1] for point in ((px - half, py), (px + half, py))]  # straight past the boxes of that layer
    for next_x, next_y in [*via, (last_x - half, last_y)]:
        reach = (next_x - x) / 2
        drawn += f" C{x + reach:.1f} {y:.1f} {next_x - reach:.1f} {next_y:.1f} {next_x:.1f} {next_y:.1f}"
        x, y = next_x, next_y
    colour, thick, dashes = _ARROWS[arrow.kind]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<path class="{arrow.kind}" fill="none" stroke="{colour}" stroke-width="{thick:g}"{dashed} marker-end="url(#{arrow.kind})" '
        f'd="{drawn}"><title>{safe(arrow.tooltip)}</title></path>'
    )


def _box(box: Box, view: _View) -> str:
    x, y = view.xy[0] - BOX_WIDTH / 2, view.xy[1] - view.w / 2
    dashes = ' stroke-dasharray="5 3"' if box.is_dashed else ""
    lines = [("s", box.heading)] if box.heading else []
    lines += [("n", line) for line in box.label]
    texts = "".join(
        f'<text class="{kind}" x="{x + 9:.1f}" y="{y + 17 + _LINE * number:.1f}">{safe(line)}</text>'
        for number, (kind, line) in enumerate(lines)
    )
    drawn = (
        f'<g><title>{safe(box.tooltip or box.key)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{BOX_WIDTH:g}" height="{view.w:.1f}" rx="6" '
        f'fill="{box.fill}" stroke="{box.stroke}" stroke-width="{box.stroke_width:g}"{dashes}/>{texts}</g>'
    )
    return f'<a href="{safe(box.link)}">{drawn}</a>' if box.link else drawn


def _legend(picture: Picture, height: float) -> tuple[str, float, float]:
    """The markup, and how far to the right and down it reaches."""
    x, y, right, parts = 0.0, height + 44.0, 0.0, []
    for fill, border, meaning in picture.legend:
        if x + len(meaning) * CELL > 900.0:
            x, y = 0.0, y + 20.0
        parts.append(f'<rect x="{x:.1f}" y="{y - 10:.1f}" width="16" height="12" rx="3" fill="{fill}" stroke="{border}"/>')
        parts.append(f'<text class="s" x="{x + 22:.1f}" y="{y:.1f}">{safe(meaning)}</text>')
        x += 44.0 + len(meaning) * CELL
        right = max(right, x)
    for note in picture.notes:
        y += 21.0
        parts.append(f'<text class="s" x="0" y="{y:.1f}">{safe(note)}</text>')
    return "".join(parts), max([right, *(len(note) * CELL for note in picture.notes)]), y + 8.0
