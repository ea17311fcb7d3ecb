"""The tasks of the board and what they wait for as an SVG: from left to right in the order in which they can be done, coloured by status.

Large boards are cut to what can be read, and the picture says how many tasks it leaves out.
"""

from remit.board.graph_svg import Arrow, Box, Picture, draw_svg, safe, wrap
from remit.board.task import Priority, Status, Task
from remit.board.view import CLOSED, Standing, View, circle_words

# ---- The tasks of the board and what they wait for as an SVG: from left to right in the order in which they can be done, colo


BOXES_AT_MOST = 90
ALONE_AT_MOST = 60
"""Of tasks that depend on nothing and nothing on them."""
ARROWS_AT_MOST = 160
CIRCLES_NAMED = 6
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
_BORDERS = {Standing.READY: ("#2f8f4e", 2.2), Standing.RUNNING: ("#0b69a3", 2.6)}


def draw(view: View, title: str, *, is_linked: bool = False) -> str:
    """A whole SVG document. `is_linked`: each box leads to `#tN`, where a page has a row for it."""
    tasks, arrows = _selected(view)
    tangled = {number for circle in view.circles for number in circle}
    counts = " · ".join(f"{number:,} {name}" for name, number in view.counts().items() if number)
    left_out = len(view.tasks) - len(tasks)
    left = f" · {left_out:,} left out of the picture" if left_out else ""
    there = {task.status for task in tasks}
    return draw_svg(
        Picture(
            title=title,
            subtitle=f"{len(view.tasks):,} task{'s' if len(view.tasks) != 1 else ''}: {counts or 'none'}{left}",
            boxes=[_box(view, task, is_tangled=task.number in tangled, is_linked=is_linked) for task in tasks],
            arrows=arrows,
            legend=[(*COLOURS[status], status.marker.lower()) for status in Status if status in there],
            notes=_notes(view, arrows, has_tasks=bool(tasks)),
        )
    )


def _selected(view: View) -> tuple[list[Task], list[Arrow]]:
    """Connected tasks, circles and open tasks first; completed ones only beside open ones, or where there is room."""
    shown = {task.number: task for task in view.tasks}
    edges = [(before, task.number, False) for task in view.tasks for before in task.dependencies if before in shown]
    edges += [(task.number, task.parent, True) for task in view.tasks if task.parent is not None and task.parent in shown]
    edges = sorted({edge for edge in edges if edge[0] != edge[1]})
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
    circling = {(after, before) for circle in view.circles for before, after in zip(circle, (*circle[1:], circle[0]), strict=True)}
    arrows: dict[tuple[int, int], Arrow] = {}
    for start, end, is_part in inside[:ARROWS_AT_MOST]:
        kind = "cycle" if (start, end) in circling else "part" if is_part else "plain"
        words = f"{start} is a part of {end}" if is_part else f"{end} waits for {start}"
        arrows.setdefault((start, end), Arrow(str(start), str(end), kind, words))
    return [*sorted(joined, key=lambda task: task.number), *alone], list(arrows.values())


def _box(view: View, task: Task, *, is_tangled: bool, is_linked: bool) -> Box:
    fill, border = COLOURS[task.status]
    standing = view.standing[task.number]
    stroke, width = ("#d64545", 2.4) if is_tangled else _BORDERS.get(standing, (border, 1.0))
    shown = [task.status.marker.lower(), *([standing] if standing not in (Standing.DONE, Standing.BLOCKED) else [])]
    return Box(
        key=str(task.number),
        heading=" · ".join([f"{task.number}{' !' if task.priority is Priority.HIGH else ''}", *shown]),
        label=wrap(task.title[:400]),
        tooltip=_tooltip(view, task),
        fill=fill,
        stroke=stroke,
        stroke_width=width,
        is_dashed=task.status in (Status.ABANDONED, Status.EXPANDED),
        link=f"#t{task.number}" if is_linked else "",
    )


def _tooltip(view: View, task: Task) -> str:
    """The whole title, and what is to be done."""
    waits = view.graph.unmet(task)
    parts = [f"{task.number}. {task.title[:300]}", f"[{task.status.marker}], {task.priority} priority, {task.language or 'no language'}"]
    parts += [f"waits for {', '.join(map(str, waits[:20]))}"] if waits else []
    parts += [task.blocking_reason[:300]] if task.blocking_reason else []
    parts += [view.next_command(task)] if view.next_command(task) else []
    return "\n".join(parts)


def _notes(view: View, arrows: list[Arrow], *, has_tasks: bool) -> list[str]:
    notes = ["arrows lead from what is done first to what waits for it"] if arrows else []
    notes += ["thick border: ready (green) or running (blue)", "!: high priority"] if has_tasks else []
    notes += ["dashed arrows: part of a divided task"] if any(arrow.kind == "part" for arrow in arrows) else []
    lines = [" · ".join(notes)] if notes else []
    lines += [f"red: {circle_words(circle)}, so none of them can begin" for circle in view.circles[:CIRCLES_NAMED]]
    more = len(view.circles) - CIRCLES_NAMED
    return [*lines, *([f"… and {more} more circles"] if more > 0 else [])]


# ---- The board as one web page: the picture of the dependencies, and the table of tasks beside it. Pure: text out.


ROWS_AT_MOST = 10_000
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
"""A status as it stands in the table."""


def page(view: View, title: str) -> str:
    circles = "".join(f'<p class="circle">{safe(circle_words(circle))}: none of them can begin.</p>' for circle in view.circles[:20])
    counts = " · ".join(f"{number:,} {name}" for name, number in view.counts().items() if number)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(title)}</title><style>{_STYLE}</style></head><body>"
        f"<header><h1>{safe(title)}</h1><p>{safe(counts or 'No tasks.')}</p>{circles}</header>"
        f"<main><figure>{draw(view, title, is_linked=True)}</figure><section>{_tables(view)}</section></main></body></html>\n"
    )


def _tables(view: View) -> str:
    parts = []
    left = ROWS_AT_MOST
    for standing in Standing:
        tasks = view.group(standing)
        if not tasks:
            continue
        rows = "".join(_row(view, task) for task in tasks[:left])
        parts.append(f"<h2>{safe(standing)} · {len(tasks):,}</h2><table>{_HEADS}{rows}</table>")
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
