"""Tasks and their dependencies as an SVG, and as one HTML page with a table.

Tasks are drawn from left to right in the order in which they can be done, coloured by state; those without dependencies are below them.
Titles come from people: every text is escaped. The page loads nothing and runs no script."""

import re
from collections import Counter
from html import escape

from remit.board.task import Task
from remit.board.view import TaskState, View
from remit.core.text import shorten

BOXES_AT_MOST = 150
ROWS_AT_MOST = 2_000
TITLE_CHARACTERS = 30
WIDTH, HEIGHT = 220, 44
_STEP_X, _STEP_Y, _TOP, _PER_ROW = 280, 58, 78, 5
_UNSAFE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]")
"""Characters that XML cannot contain, and those that reverse the text direction."""
COLOURS = {
    TaskState.RUNNING: ("#cfe8fc", "#2680c2"), TaskState.STOPPED: ("#fce2b6", "#c99a2e"), TaskState.READY: ("#ffffff", "#2f8f4e"),
    TaskState.WAITING: ("#ffffff", "#9aa5b1"), TaskState.BLOCKED: ("#fbd5d5", "#ba2525"), TaskState.DONE: ("#d5f2dc", "#9aa5b1"),
}  # fmt: skip
"""Fill and border."""
_STYLE = """
body { font: 14px/1.45 system-ui,sans-serif; margin: 20px } figure { margin: 0 0 20px; overflow: auto }
table { border-collapse: collapse } th, td { text-align: left; padding: 5px 10px; vertical-align: top; border-bottom: 1px solid #e4e7eb }
td { overflow-wrap: anywhere }
"""


def safe(text: str) -> str:
    """Escape text for an element or a quoted attribute."""
    return escape(_UNSAFE.sub("\ufffd", text), quote=True)


def draw(view: View, title: str) -> str:
    """A complete SVG document."""
    tasks = {task.number: task for task in view.tasks[:BOXES_AT_MOST]}
    edges = sorted({(before, number) for number, task in tasks.items() for before in task.dependencies if before in tasks})
    places = _places(list(tasks), edges)
    arrows = [_arrow(places[before], places[after], f"{after} waits for {before}") for before, after in edges]
    boxes = [_box(view, task, *places[task.number]) for task in tasks.values()]
    left = f" · {len(view.tasks) - len(tasks):,} left out of the picture" if len(view.tasks) > len(tasks) else ""
    counts = " · ".join(f"{number:,} {name}" for name, number in view.counts().items() if number)
    width, height = (max([500, *(place[axis] for place in places.values())]) + _STEP_X for axis in (0, 1))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img"><title>{safe(title)}</title>'
        "<style>text{font:11px monospace}.t{font-size:18px}</style>"
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 1L10 5L0 9z"/></marker></defs><rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text class="t" x="24" y="30">{safe(title[:90])}</text><text x="24" y="51">{safe(counts or "no tasks")}{left}</text>'
        f"{''.join(arrows)}{''.join(boxes)}</svg>\n"
    )


def _places(numbers: list[int], edges: list[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """The upper left corner of each box: connected tasks in columns by order, the others below them in rows."""
    joined = {number: 0 for edge in edges for number in edge}
    for _ in range(len(joined) - 1):  # as far as the longest chain
        for before, after in edges:
            joined[after] = max(joined[after], min(joined[before] + 1, len(joined) - 1))
    rows: Counter[int] = Counter()
    places: dict[int, tuple[int, int]] = {}
    for number in numbers:
        if number in joined:
            places[number] = (24 + joined[number] * _STEP_X, _TOP + rows[joined[number]] * _STEP_Y)
            rows[joined[number]] += 1
    loose, top = [number for number in numbers if number not in joined], max(rows.values(), default=0)
    return places | {number: (24 + at % _PER_ROW * _STEP_X, _TOP + (top + at // _PER_ROW) * _STEP_Y) for at, number in enumerate(loose)}


def _arrow(start: tuple[int, int], end: tuple[int, int], words: str) -> str:
    line = f"M{start[0] + WIDTH} {start[1] + HEIGHT // 2}L{end[0]} {end[1] + HEIGHT // 2}"
    return f'<path class="arrow" fill="none" stroke="#8795a1" marker-end="url(#head)" d="{line}"><title>{words}</title></path>'


def _box(view: View, task: Task, x: int, y: int) -> str:
    state = view.states[task.number]
    fill, border = COLOURS[state]
    title = " ".join(task.title.split())
    return (
        f'<g fill="{fill}" stroke="{border}"><title>{safe(title[:300])}</title>'
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/></g><g>'
        f'<text x="{x + 9}" y="{y + 17}">{task.number} · {safe(task.status.marker.lower())} · {state}</text>'
        f'<text x="{x + 9}" y="{y + 33}">{safe(shorten(title, TITLE_CHARACTERS))}</text></g>'
    )


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
    words = (task.title, task.status.marker.lower(), view.states[task.number], ", ".join(map(str, view.graph.unmet(task))))
    cells = (str(task.number), *words, view.next_command(task) or task.blocking_reason)
    return f"<tr>{''.join(f'<td>{safe(cell)}</td>' for cell in cells)}</tr>"
