"""Tasks and their dependencies as an SVG, and as one HTML page with a table.

Tasks are drawn from left to right in the order in which they can be done, coloured by state. Large boards are cut to a readable size, and
the picture states how many tasks it omits. Titles come from people: every text is escaped. The page loads nothing and runs no script."""

import re
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from html import escape

from remit.board.task import Priority, Task
from remit.board.view import TaskState, View
from remit.core.text import shorten

BOXES_AT_MOST = 150
ROWS_AT_MOST = 2_000
TITLE_CHARACTERS = 30
WIDTH, HEIGHT = 220.0, 44.0
_GAP_X, _GAP_Y, _MARGIN, _TOP = 60.0, 14.0, 24.0, 78.0
_PER_ROW = 5
"""Boxes in a row of tasks without any dependency."""
_UNSAFE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]")
"""Characters that XML cannot contain, and those that reverse the text direction."""
COLOURS = {
    TaskState.RUNNING: ("#cfe8fc", "#2680c2"), TaskState.STOPPED: ("#fce2b6", "#c99a2e"), TaskState.READY: ("#ffffff", "#2f8f4e"),
    TaskState.WAITING: ("#ffffff", "#9aa5b1"), TaskState.BLOCKED: ("#fbd5d5", "#ba2525"), TaskState.DONE: ("#d5f2dc", "#9aa5b1"),
}  # fmt: skip
"""Fill and border."""
Place = tuple[float, float]
"""The upper left corner of a box."""


def safe(text: str) -> str:
    """Escape text for an element or a quoted attribute."""
    return escape(_UNSAFE.sub("\ufffd", text), quote=True)


def draw(view: View, title: str) -> str:
    """A complete SVG document."""
    tasks = {task.number: task for task in view.tasks[:BOXES_AT_MOST]}
    edges = {(before, task.number) for task in tasks.values() for before in task.dependencies if before in tasks and before != task.number}
    places = _places(list(tasks), edges)
    arrows = [_arrow(places[before], places[after], before, after) for before, after in sorted(edges)]
    boxes = [_box(view, task, places[task.number]) for task in tasks.values()]
    left = f" · {len(view.tasks) - len(tasks):,} left out of the picture" if len(view.tasks) > len(tasks) else ""
    counts = " · ".join(f"{number:,} {name}" for name, number in view.counts().items() if number)
    width = max([500.0, *(x + WIDTH for x, _ in places.values())]) + 2 * _MARGIN
    height = max([0.0, *(y + HEIGHT for _, y in places.values())]) + _TOP + _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" role="img"><title>{safe(title)}</title>'
        "<style>text{font:11px monospace;fill:#1f2933}.t{font-size:18px}</style>"
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 1L10 5L0 9z" fill="#8795a1"/></marker></defs><rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text class="t" x="{_MARGIN:g}" y="30">{safe(title[:90])}</text>'
        f'<text x="{_MARGIN:g}" y="51">{safe(counts or "no tasks")}{left}</text>'
        f'<g transform="translate({_MARGIN:g} {_TOP:g})">{"".join(arrows)}{"".join(boxes)}</g></svg>\n'
    )


def _places(numbers: Sequence[int], edges: set[tuple[int, int]]) -> dict[int, Place]:
    """Connected tasks in columns by order, the others below them in rows."""
    joined = {number for edge in edges for number in edge}
    sorter = _sorted({number: {before for before, after in edges if after == number} for number in sorted(joined)})
    places: dict[int, Place] = {}
    column = 0
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        sorter.done(*ready)
        places |= {number: (column * (WIDTH + _GAP_X), row * (HEIGHT + _GAP_Y)) for row, number in enumerate(ready)}
        column += 1
    top = max((y + HEIGHT + 3 * _GAP_Y for _, y in places.values()), default=0.0)
    for at, number in enumerate(one for one in numbers if one not in joined):
        places[number] = (at % _PER_ROW * (WIDTH + _GAP_Y), top + at // _PER_ROW * (HEIGHT + _GAP_Y))
    return places


def _sorted(before: dict[int, set[int]]) -> TopologicalSorter[int]:
    """Prepared for iteration; one edge of each cycle is omitted."""
    while True:
        sorter = TopologicalSorter(before)
        try:
            sorter.prepare()
        except CycleError as error:
            first, second, *_ = error.args[1]
            before[second].discard(first)
        else:
            return sorter


def _arrow(start: Place, end: Place, before: int, after: int) -> str:
    is_forward = start[0] < end[0]
    x, y = start[0] + (WIDTH if is_forward else 0.0), start[1] + HEIGHT / 2
    to_x, to_y = end[0] + (0.0 if is_forward else WIDTH), end[1] + HEIGHT / 2
    return (
        f'<path class="arrow" fill="none" stroke="#8795a1" marker-end="url(#head)" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}">'
        f"<title>{after} waits for {before}</title></path>"
    )


def _box(view: View, task: Task, place: Place) -> str:
    (x, y), state = place, view.states[task.number]
    fill, border = COLOURS[state]
    heading = f"{task.number}{' !' if task.priority is Priority.HIGH else ''} · {task.status.marker.lower()} · {state}"
    title = " ".join(task.title.split())
    shown = shorten(title, TITLE_CHARACTERS)
    return (
        f"<g><title>{safe(title[:300])}</title>"
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{WIDTH:g}" height="{HEIGHT:g}" rx="6" fill="{fill}" stroke="{border}"/>'
        f'<text x="{x + 9:.1f}" y="{y + 17:.1f}">{safe(heading)}</text><text x="{x + 9:.1f}" y="{y + 33:.1f}">{safe(shown)}</text></g>'
    )


_STYLE = """
body { font: 14px/1.45 system-ui,sans-serif; color: #1f2933; margin: 20px } figure { margin: 0 0 20px; overflow: auto }
table { border-collapse: collapse } th, td { text-align: left; padding: 5px 10px; vertical-align: top; border-bottom: 1px solid #e4e7eb }
td.w { overflow-wrap: anywhere }
"""


def page(view: View, title: str) -> str:
    rows = "".join(_row(view, task) for task in view.tasks[:ROWS_AT_MOST])
    more = f"<p>{len(view.tasks) - ROWS_AT_MOST:,} more tasks are not listed.</p>" if len(view.tasks) > ROWS_AT_MOST else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{safe(title)}</title><style>{_STYLE}</style></head><body><figure>{draw(view, title)}</figure>"
        f"<table><tr><th>N</th><th>task</th><th>status</th><th>state</th><th>waits for</th><th>next</th></tr>{rows}</table>{more}"
        "</body></html>\n"
    )


def _row(view: View, task: Task) -> str:
    waits = ", ".join(f'<a href="#t{number}">{number}</a>' for number in view.graph.unmet(task)[:40])
    words = (f"{task.priority} priority", task.language, task.effort, task.blocking_reason)
    return (
        f'<tr id="t{task.number}"><td>{task.number}</td><td class="w">{safe(task.title)}<br><small>'
        f"{safe(' · '.join(word for word in words if word))}</small></td><td>{safe(task.status.marker.lower())}</td>"
        f"<td>{view.states[task.number]}</td><td>{waits}</td><td><code>{safe(view.next_command(task))}</code></td></tr>"
    )
