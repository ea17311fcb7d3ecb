"""Tasks and their dependencies as an SVG, and as one HTML page with a table.

Tasks are drawn from left to right in the order in which they can be done, coloured by status. Large boards are cut to a readable size, and
the picture states how many tasks it omits. Titles come from people: every text is escaped. The page loads nothing and runs no script."""

import re
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from html import escape

from remit.board.task import Priority, Status, Task
from remit.board.view import CLOSED, TaskState, View, circle_words

BOXES_AT_MOST = 90
ALONE_AT_MOST = 60
"""Maximum tasks without any dependency."""
ARROWS_AT_MOST = 160
CIRCLES_NAMED = 6
ROWS_AT_MOST = 2_000
FONT = "ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"
"""Monospace, so that the width of a text is known without measuring."""
CELL = 6.65
"""Width in pixels of one terminal cell at a font size of 11 pixels."""
WIDTH, HEIGHT, LINE = 204.0, 58.0, 15.0
COLUMNS = int((WIDTH - 18) / CELL)
"""Cells in one line of a box."""
_GAP_X, _GAP_Y, _MARGIN, _TOP = 64.0, 16.0, 28.0, 66.0
_UNSAFE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]")
"""Characters that XML cannot contain, and those that reverse the text direction."""
COLOURS = {
    Status.NOT_STARTED: ("#ffffff", "#9aa5b1"),
    Status.RESEARCHING: ("#cfe8fc", "#2680c2"),
    Status.RESEARCHED: ("#e6f4fe", "#4098d7"),
    Status.PLANNING: ("#ddd1f5", "#653cad"),
    Status.PLANNED: ("#efe8fb", "#8662c7"),
    Status.REVISING: ("#ddd1f5", "#653cad"),
    Status.REVISED: ("#efe8fb", "#8662c7"),
    Status.IMPLEMENTING: ("#fce2b6", "#c99a2e"),
    Status.PARTIAL: ("#fdf0cf", "#c99a2e"),
    Status.COMPLETED: ("#d5f2dc", "#2f8f4e"),
    Status.BLOCKED: ("#fbd5d5", "#ba2525"),
    Status.ABANDONED: ("#eceff2", "#9aa5b1"),
    Status.EXPANDED: ("#e4e7eb", "#7b8794"),
}
"""Fill and border of each status, in the picture and in the table."""
_BORDERS = {TaskState.READY: ("#2f8f4e", 2.2), TaskState.RUNNING: ("#0b69a3", 2.6)}
_ARROWS = {"plain": ("#8795a1", 1.2, ""), "cycle": ("#d64545", 2.0, ""), "part": ("#b8c4ce", 1.2, ' stroke-dasharray="4 3"')}
Place = tuple[float, float]
"""The upper left corner of a box."""


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


# ---- the picture


def draw(view: View, title: str, *, is_linked: bool = False) -> str:
    """A complete SVG document. `is_linked`: each box links to `#tN`, a row of the page."""
    circling = {(after, before) for circle in view.circles for before, after in zip(circle, (*circle[1:], circle[0]), strict=True)}
    joined, alone, edges = _selected(view)
    places, width, height = _placed(joined, alone, [(start, end) for start, end, _ in edges])
    arrows = [
        _arrow(places[start], places[end], start, end, "cycle" if (start, end) in circling else "part" if is_part else "plain")
        for start, end, is_part in edges
    ]
    boxes = [_box(view, task, places[task.number], is_linked=is_linked) for task in (*joined, *alone)]
    count, left_out = len(view.tasks), len(view.tasks) - len(places)
    left = f" · {left_out:,} left out of the picture" if left_out else ""
    subtitle = f"{count:,} task{'s' * (count != 1)}: {_counts(view) or 'none'}{left}"
    legend, width, height = _legend(view, (*joined, *alone), edges, max(width, len(subtitle) * CELL, 460.0), height)
    heads = "".join(
        f'<marker id="{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="9" '
        f'orient="auto"><path d="M0 1L10 5L0 9z" fill="{colour}"/></marker>'
        for kind, (colour, _, _) in _ARROWS.items()
    )
    size = f"{width + 2 * _MARGIN:.0f}", f"{height + _TOP + _MARGIN:.0f}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" viewBox="0 0 {size[0]} {size[1]}" '
        f'role="img"><title>{safe(title)}</title>'
        f"<style>text{{font:11px {FONT};fill:#1f2933}}.t{{font-size:18px;font-weight:600}}.s{{fill:#52606d}}</style><defs>{heads}</defs>"
        f'<rect width="100%" height="100%" fill="#ffffff"/><text class="t" x="{_MARGIN:g}" y="32">{safe(title[:90])}</text>'
        f'<text class="s" x="{_MARGIN:g}" y="51">{safe(subtitle)}</text>'
        f'<g transform="translate({_MARGIN:g} {_TOP:g})">{"".join(arrows)}{"".join(boxes)}{legend}</g></svg>\n'
    )


def _counts(view: View) -> str:
    return " · ".join(f"{number:,} {name}" for name, number in view.counts().items() if number)


def _selected(view: View) -> tuple[list[Task], list[Task], list[tuple[int, int, bool]]]:
    """Connected tasks, single tasks, and edges (first, second, whether it is a part). Cycles and open tasks first."""
    shown = {task.number: task for task in view.tasks}
    edges = {(before, task.number, False) for task in view.tasks for before in task.dependencies if before in shown}
    edges |= {(task.number, task.parent, True) for task in view.tasks if task.parent is not None and task.parent in shown}
    tangled = {number for circle in view.circles for number in circle}
    ends = {number for start, end, _ in edges for number in (start, end)} | (tangled & shown.keys())
    beside_open = {number for start, end, _ in edges for number in (start, end) if not {shown[start].status, shown[end].status} <= CLOSED}

    def rank(task: Task) -> tuple[int, int]:
        return (0 if task.number in tangled else 1 if task.status not in CLOSED else 2 if task.number in beside_open else 3, task.number)

    joined = sorted((shown[number] for number in ends), key=rank)[:BOXES_AT_MOST]
    alone = sorted((task for task in view.tasks if task.number not in ends), key=rank)[:ALONE_AT_MOST]
    kept = {task.number for task in joined}
    inside = {edge[:2]: edge for edge in sorted(edges, reverse=True) if edge[0] != edge[1] and {edge[0], edge[1]} <= kept}
    first = sorted(inside.values(), key=lambda edge: (edge[2], not {edge[0], edge[1]} <= tangled, edge))
    return sorted(joined, key=lambda task: task.number), alone, first[:ARROWS_AT_MOST]


def _placed(joined: Sequence[Task], alone: Sequence[Task], edges: Sequence[tuple[int, int]]) -> tuple[dict[int, Place], float, float]:
    """The position of each box: connected tasks in columns by order, then the others in rows."""
    sorter = _sorted({task.number: {start for start, end in edges if end == task.number} for task in joined})
    places: dict[int, Place] = {}
    column = 0
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        sorter.done(*ready)
        places |= {number: (column * (WIDTH + _GAP_X), row * (HEIGHT + _GAP_Y)) for row, number in enumerate(ready)}
        column += 1
    width = max((x + WIDTH for x, _ in places.values()), default=0.0)
    height = max((y + HEIGHT for _, y in places.values()), default=0.0)
    top, per_row = height + (52.0 if height and alone else 0.0), max(5, int((width + _GAP_Y) // (WIDTH + _GAP_Y)))
    for at, task in enumerate(alone):
        places[task.number] = (at % per_row * (WIDTH + _GAP_Y), top + at // per_row * (HEIGHT + _GAP_Y))
    corners = [(x + WIDTH, y + HEIGHT) for x, y in places.values()] or [(0.0, 0.0)]
    return places, max(x for x, _ in corners), max(y for _, y in corners)


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


def _arrow(start: Place, end: Place, before: int, after: int, kind: str) -> str:
    """A curve from the side of one box to the side of another."""
    is_forward = start[0] < end[0]
    x, y = start[0] + (WIDTH if is_forward else 0.0), start[1] + HEIGHT / 2
    to_x, to_y = end[0] + (0.0 if is_forward else WIDTH), end[1] + HEIGHT / 2
    bend = max(abs(to_x - x) / 2, _GAP_X / 2) * (1 if is_forward else -1)
    colour, thick, dashes = _ARROWS[kind]
    words = f"{before} is a part of {after}" if kind == "part" else f"{after} waits for {before}"
    return (
        f'<path class="{kind}" fill="none" stroke="{colour}" stroke-width="{thick:g}"{dashes} marker-end="url(#{kind})" '
        f'd="M{x:.1f} {y:.1f} C{x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"><title>{words}</title></path>'
    )


def _box(view: View, task: Task, place: Place, *, is_linked: bool) -> str:
    (x, y), state = place, view.states[task.number]
    fill, border = COLOURS[task.status]
    is_tangled = any(task.number in circle for circle in view.circles)
    stroke, thick = ("#d64545", 2.4) if is_tangled else _BORDERS.get(state, (border, 1.0))
    dashes = ' stroke-dasharray="5 3"' if task.status in (Status.ABANDONED, Status.EXPANDED) else ""
    facts = [task.status.marker.lower(), *([state] if state not in (TaskState.DONE, TaskState.BLOCKED) else [])]
    heading = " · ".join([f"{task.number}{' !' if task.priority is Priority.HIGH else ''}", *facts])
    lines = [("s", heading), *(("n", line) for line in wrap(task.title[:400]))]
    texts = "".join(
        f'<text class="{kind}" x="{x + 9:.1f}" y="{y + 17 + LINE * number:.1f}">{safe(line)}</text>'
        for number, (kind, line) in enumerate(lines)
    )
    drawn = (
        f'<g><title>{safe(_tooltip(view, task))}</title><rect x="{x:.1f}" y="{y:.1f}" width="{WIDTH:g}" height="{HEIGHT:g}" rx="6" '
        f'fill="{fill}" stroke="{stroke}" stroke-width="{thick:g}"{dashes}/>{texts}</g>'
    )
    return f'<a href="#t{task.number}">{drawn}</a>' if is_linked else drawn


def _tooltip(view: View, task: Task) -> str:
    """The whole title, and the next step."""
    waits, command = view.graph.unmet(task), view.next_command(task)
    parts = [f"{task.number}. {task.title[:300]}", f"[{task.status.marker}], {task.priority} priority, {task.language or 'no language'}"]
    parts += [f"waits for {', '.join(map(str, waits[:20]))}"] if waits else []
    return "\n".join([*parts, *filter(None, (task.blocking_reason[:300], command))])


def _legend(
    view: View, tasks: Sequence[Task], edges: Sequence[tuple[int, int, bool]], width: float, height: float
) -> tuple[str, float, float]:
    """The markup, and the size of the picture with it."""
    x, y, parts = 0.0, height + 44.0, []
    there = {task.status for task in tasks}
    for status in (status for status in Status if status in there):
        meaning, (fill, border) = status.marker.lower(), COLOURS[status]
        if x + len(meaning) * CELL > 900.0:
            x, y = 0.0, y + 20.0
        parts.append(f'<rect x="{x:.1f}" y="{y - 10:.1f}" width="16" height="12" rx="3" fill="{fill}" stroke="{border}"/>')
        parts.append(f'<text class="s" x="{x + 22:.1f}" y="{y:.1f}">{safe(meaning)}</text>')
        x += 44.0 + len(meaning) * CELL
        width = max(width, x)
    notes = ["arrows lead from what is done first to what waits for it"] if edges else []
    notes += ["thick border: ready (green) or running (blue)", "!: high priority"] if tasks else []
    notes += ["dashed arrows: part of a divided task"] if any(is_part for _, _, is_part in edges) else []
    lines = [" · ".join(notes)] if notes else []
    lines += [f"red: {circle_words(circle)}, so none of them can begin" for circle in view.circles[:CIRCLES_NAMED]]
    lines += [f"… and {len(view.circles) - CIRCLES_NAMED} more cycles"] if len(view.circles) > CIRCLES_NAMED else []
    for note in lines:
        y += 21.0
        parts.append(f'<text class="s" x="0" y="{y:.1f}">{safe(note)}</text>')
        width = max(width, len(note) * CELL)
    return "".join(parts), width, y + 8.0


# ---- the page


_HEADS = "<tr><th>N</th><th>task</th><th>status</th><th>waits for</th></tr>"
_STYLE = """
:root { color-scheme: light }
body { font: 14px/1.45 system-ui,'Segoe UI',Helvetica,Arial,sans-serif; color: #1f2933; margin: 0; background: #f5f7fa }
header { padding: 18px 28px; background: #fff; border-bottom: 1px solid #e4e7eb }
h1 { font-size: 20px; margin: 0 } header p { margin: 4px 0 0; color: #52606d } .circle { color: #ba2525; font-weight: 600 }
main { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 20px; padding: 20px 28px }
figure { margin: 0; flex: 3 1 560px; min-width: 0; overflow: auto; background: #fff; border: 1px solid #e4e7eb; border-radius: 8px;
 max-height: calc(100vh - 60px); position: sticky; top: 20px }
section { flex: 2 1 420px; min-width: 0; overflow-x: auto; background: #fff; border: 1px solid #e4e7eb; border-radius: 8px }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: 6px 10px; vertical-align: top }
th { color: #52606d; font-weight: 600; border-bottom: 1px solid #cbd2d9 } tr + tr td { border-top: 1px solid #f0f2f5 }
tr:target td { background: #fffbe6 } td.n { text-align: right; font-variant-numeric: tabular-nums; font-weight: 600 }
td.w { overflow-wrap: anywhere; min-width: 12em } small { color: #52606d } code { font-size: 12px }
.k { display: inline-block; padding: 0 7px; border-radius: 9px; border: 1px solid; font-size: 11px; white-space: nowrap; color: #1f2933 }
h2 { font-size: 13px; margin: 0; padding: 10px 10px 4px; text-transform: capitalize } svg { display: block; max-width: none }
"""

_CHIPS = {
    status: f'<span class="k" style="background:{filling};border-color:{border}">{safe(status.marker.lower())}</span>'
    for status, (filling, border) in COLOURS.items()
}
"""A status in the table."""


def page(view: View, title: str) -> str:
    circles = "".join(f'<p class="circle">{safe(circle_words(circle))}: none of them can begin.</p>' for circle in view.circles[:20])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(title)}</title><style>{_STYLE}</style></head><body>"
        f"<header><h1>{safe(title)}</h1><p>{safe(_counts(view) or 'No tasks.')}</p>{circles}</header>"
        f"<main><figure>{draw(view, title, is_linked=True)}</figure><section>{_tables(view)}</section></main></body></html>\n"
    )


def _tables(view: View) -> str:
    parts = []
    left = ROWS_AT_MOST
    for state in TaskState:
        tasks = view.group(state)
        if not tasks:
            continue
        rows = "".join(_row(view, task) for task in tasks[:left])
        parts.append(f"<h2>{safe(state)} · {len(tasks):,}</h2><table>{_HEADS}{rows}</table>")
        left = max(0, left - len(tasks))
    return "".join(parts) or "<p>No tasks.</p>"


def _row(view: View, task: Task) -> str:
    waits = ", ".join(f'<a href="#t{number}">{number}</a>' for number in view.graph.unmet(task)[:40])
    return (
        f'<tr id="t{task.number}"><td class="n">{task.number}</td><td class="w">{safe(task.title)}<br>'
        f"<small>{_more(view, task)}</small></td><td>{_CHIPS[task.status]}</td><td>{waits}</td></tr>"
    )


def _more(view: View, task: Task) -> str:
    words = [f"{task.priority} priority", *([task.language] if task.language else []), *([task.effort] if task.effort else [])]
    words += [task.blocking_reason] if task.blocking_reason else []
    command = view.next_command(task)
    return safe(" · ".join(words)) + (f" · <code>{safe(command)}</code>" if command else "")
