"""The tasks and what they wait for as an SVG: from left to right in the order in which they can be done, colours for how they stand. Pure.

Titles are people's and agents' words: `pictures.svg` escapes them. Large boards are cut to what can be read, and the picture says so.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from remit.board.graph import CLOSED, circle_words
from remit.board.statuses import Status
from remit.board.task import Priority, Task
from remit.board.view import Standing, View
from remit.pictures.layout import Box, Edge, Layout, lay_out
from remit.pictures.svg import broken, curve, document, heads, safe, wide

BOXES_AT_MOST = 90
ALONE_AT_MOST = 60
"""Of tasks that depend on nothing and nothing on them."""
ARROWS_AT_MOST = 160
_LINES = 2
_WIDTH = 204.0
_SHELF = 5
_GAP = 16.0
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
"""Filling and border of each status: the same in the picture and in the table beside it."""
_EDGES = {Standing.READY: ("#2f8f4e", 2.2), Standing.RUNNING: ("#0b69a3", 2.6)}
_STYLE = (
    ".n{font-size:12px}.h{font-size:10px;fill:#52606d}.i{font-weight:700;fill:#1f2933}.m{fill:#ba2525;font-weight:700}"
    ".e{fill:none;stroke:#8795a1;stroke-width:1.2}.c{fill:none;stroke:#d64545;stroke-width:2}"
    ".p{fill:none;stroke:#b8c4ce;stroke-dasharray:4 3}"
)
_HEADS = heads({"e": "#8795a1", "c": "#d64545", "p": "#b8c4ce"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What of the board is in the picture."""

    joined: tuple[Task, ...]
    alone: tuple[Task, ...]
    edges: tuple[Edge, ...]
    """From what is to be done first to what waits for it."""
    parts: frozenset[Edge]
    """Those of them that lead from a part to the task that was divided."""
    left_out: int


def draw(view: View, title: str, *, is_linked: bool = False) -> str:
    """A whole SVG document. `is_linked`: each box leads to `#tN`, where a page has a row for it."""
    drawn = _selected(view)
    circling = _circling(view.circles)
    texts = {_key(task.number): broken(task.title[:400], _WIDTH - 18.0, _LINES) for task in (*drawn.joined, *drawn.alone)}
    sizes = {key: (_WIDTH, 28.0 + 15.0 * len(lines)) for key, lines in texts.items()}
    layout = lay_out({_key(task.number): sizes[_key(task.number)] for task in drawn.joined}, drawn.edges)
    shelf, width, height = _shelved(drawn.alone, sizes, layout)
    boxes = {**layout.boxes, **shelf}
    tangled = {number for circle in view.circles for number in circle}
    parts = [_arrow(edge, layout, is_cycle=edge in circling, is_part=edge in drawn.parts) for edge in drawn.edges]
    for task in (*drawn.joined, *drawn.alone):
        key = _key(task.number)
        parts.append(_box(view, task, texts[key], boxes[key], is_tangled=task.number in tangled, is_linked=is_linked))
    legend, bottom, legend_width = _legend(drawn, view, height)
    said = _said(view, drawn)
    size = (max(width, legend_width, wide(said), 460.0), bottom)
    return document(title, said, "".join(parts) + legend, size, style=_STYLE, definitions=_HEADS)


def _selected(view: View) -> Drawn:
    """What hangs together, circles and open tasks first; what is done only where something still hangs on it, or where there is room."""
    shown = {task.number: task for task in view.tasks}
    edges = [
        (number, task.number, False) for task in view.tasks for number in task.dependencies if number in shown and number != task.number
    ]
    edges += [(task.number, task.parent, True) for task in view.tasks if task.parent in shown and task.parent is not None]
    tangled = {number for circle in view.circles for number in circle}
    near = {number for start, end, _ in edges for number in (start, end)} | (tangled & shown.keys())
    beside_open = {number for start, end, _ in edges for number in (start, end) if not {shown[start].status, shown[end].status} <= CLOSED}

    def rank(task: Task) -> tuple[int, int]:
        return (0 if task.number in tangled else 1 if task.status not in CLOSED else 2 if task.number in beside_open else 3, task.number)

    joined = sorted((shown[number] for number in near), key=rank)[:BOXES_AT_MOST]
    alone = sorted((task for task in view.tasks if task.number not in near), key=rank)[:ALONE_AT_MOST]
    kept = {task.number for task in joined}
    inside = [edge for edge in edges if edge[0] in kept and edge[1] in kept]
    inside.sort(key=lambda edge: (edge[2], not {edge[0], edge[1]} <= tangled, edge))
    inside = inside[:ARROWS_AT_MOST]
    return Drawn(
        joined=tuple(sorted(joined, key=lambda task: task.number)),
        alone=tuple(alone),
        edges=tuple(sorted({(_key(start), _key(end)) for start, end, _ in inside})),
        parts=frozenset((_key(start), _key(end)) for start, end, is_part in inside if is_part),
        left_out=len(view.tasks) - len(joined) - len(alone),
    )


def _circling(circles: Iterable[tuple[int, ...]]) -> set[Edge]:
    """The arrows of the circles: against the walk, from what is waited for to what waits."""
    return {(_key(after), _key(before)) for circle in circles for before, after in zip(circle, (*circle[1:], circle[0]), strict=True)}


def _key(number: int) -> str:
    return f"{number:012d}"


def _shelved(alone: Sequence[Task], sizes: dict[str, tuple[float, float]], layout: Layout) -> tuple[dict[str, Box], float, float]:
    """What hangs on nothing: in rows below the rest."""
    columns = max(_SHELF, int((layout.width + _GAP) // (_WIDTH + _GAP)))
    top = layout.height + (52.0 if layout.boxes and alone else 0.0)
    shelf: dict[str, Box] = {}
    for start in range(0, len(alone), columns):
        row = [_key(task.number) for task in alone[start : start + columns]]
        for place, key in enumerate(row):
            shelf[key] = Box(x=place * (_WIDTH + _GAP), y=top, width=_WIDTH, height=sizes[key][1])
        top += max(sizes[key][1] for key in row) + _GAP
    width = max([layout.width, *(box.x + box.width for box in shelf.values())])
    return shelf, width, top - (_GAP if alone else 0.0)


def _arrow(edge: Edge, layout: Layout, *, is_cycle: bool, is_part: bool) -> str:
    kind = "c" if is_cycle else "p" if is_part else "e"
    words = f"{int(edge[0])} is a part of {int(edge[1])}" if is_part else f"{int(edge[1])} waits for {int(edge[0])}"
    return f'<path class="{kind}" marker-end="url(#{kind}h)" d="{curve(layout.ways[edge])}"><title>{words}</title></path>'


def _box(view: View, task: Task, lines: Sequence[str], box: Box, *, is_tangled: bool, is_linked: bool) -> str:
    filling, border = COLOURS[task.status]
    standing = view.standing[task.number]
    stroke, thick = ("#d64545", 2.4) if is_tangled else _EDGES.get(standing, (border, 1.0))
    dashes = ' stroke-dasharray="5 3"' if task.status in (Status.ABANDONED, Status.EXPANDED) else ""
    urgent = '<tspan class="m"> !</tspan>' if task.priority is Priority.HIGH else ""
    head = f'<tspan class="i">{task.number}</tspan>{urgent} · {task.status.marker.lower()}'
    head += f" · {standing}" if standing not in (Standing.DONE, Standing.BLOCKED) else ""
    words = "".join(
        f'<text class="n" x="{box.x + 9:.1f}" y="{box.y + 32 + 15 * place:.1f}">{safe(line)}</text>' for place, line in enumerate(lines)
    )
    drawn = (
        f"<g><title>{safe(_hint(view, task))}</title>"
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="6" fill="{filling}" '
        f'stroke="{stroke}" stroke-width="{thick:g}"{dashes}/>'
        f'<text class="h" x="{box.x + 9:.1f}" y="{box.y + 15:.1f}">{head}</text>{words}</g>'
    )
    return f'<a href="#t{task.number}">{drawn}</a>' if is_linked else drawn


def _hint(view: View, task: Task) -> str:
    """What stands beside the pointer: all of the title, and what is to be done."""
    waits = view.graph.unmet(task)
    parts = [f"{task.number}. {task.title[:300]}", f"[{task.status.marker}], {task.priority} priority, {task.language or 'no language'}"]
    parts += [f"waits for {', '.join(map(str, waits[:20]))}"] if waits else []
    parts += [task.blocking_reason[:300]] if task.blocking_reason else []
    parts += [view.next_command(task)] if view.next_command(task) else []
    return "\n".join(parts)


def _said(view: View, drawn: Drawn) -> str:
    counts = " · ".join(f"{number:,} {name}" for name, number in view.counts().items() if number)
    left = f" · {drawn.left_out:,} left out of the picture" if drawn.left_out else ""
    return f"{len(view.tasks):,} task{'s' if len(view.tasks) != 1 else ''}: {counts or 'none'}{left}"


def _legend(drawn: Drawn, view: View, height: float) -> tuple[str, float, float]:
    """Colours that occur, what the lines mean, and every circle by name; how far down and to the right it goes."""
    x, y, parts, reach = 0.0, height + 44.0, [], 0.0
    there = {task.status for task in (*drawn.joined, *drawn.alone)}
    for status in (status for status in Status if status in there):
        filling, border = COLOURS[status]
        label = status.marker.lower()
        if x + wide(label) > 900.0:
            x, y = 0.0, y + 20.0
        parts.append(f'<rect x="{x:.1f}" y="{y - 10:.1f}" width="16" height="12" rx="3" fill="{filling}" stroke="{border}"/>')
        parts.append(f'<text class="s" x="{x + 22:.1f}" y="{y:.1f}">{label}</text>')
        x += 44.0 + wide(label)
        reach = max(reach, x)
    notes = ["arrows lead from what is done first to what waits for it"] if drawn.edges else []
    notes += ["thick border: ready (green) or running (blue)", "!: high priority"] if there else []
    notes += ["dashed arrows: part of a divided task"] if drawn.parts else []
    lines = [" · ".join(notes)] if notes else []
    lines += [f"red: {circle_words(circle)}, so none of them can begin" for circle in view.circles[:6]]
    lines += [f"… and {len(view.circles) - 6} more circles"] if len(view.circles) > 6 else []
    for line in lines:
        y += 21.0
        parts.append(f'<text class="s" x="0" y="{y:.1f}">{safe(line)}</text>')
        reach = max(reach, wide(line))
    return "".join(parts), y + 8.0, reach
