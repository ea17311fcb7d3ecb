"""The board as one web page: the picture of the dependencies, and the table of tasks beside it. Pure: text out.

Self-contained: no script, nothing loaded from anywhere. Titles are other people's words: every text is escaped, and the page forbids
scripts besides.
"""

from remit.board.graph import circle_words
from remit.board.picture import COLOURS, draw
from remit.board.task import Task
from remit.board.view import Standing, View
from remit.builtin.graph_drawing import safe

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
