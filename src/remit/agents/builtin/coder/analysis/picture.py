"""The import graph as an SVG that a person can read: boxes for files or folders, arrows for imports, cycles in red. Pure: text out.

Names come from a repository that may be anybody's: every text is escaped, and what XML cannot hold is replaced.
"""

from collections import Counter
from collections.abc import Mapping

from remit.agents.builtin.coder.analysis.graph import Groups, components
from remit.pictures.layout import Box, Edge, Layout, lay_out
from remit.pictures.svg import curve, document, heads, safe, wide

BOXES_AT_MOST = 48
ARROWS_AT_MOST = 70
"""More are thinned out: those that others imply are left away."""
_LABEL = 30
_MOST = 0.6
_ROW = 34.0
_COLOURS = ("#dbe9f8", "#e2f0d9", "#fdeccf", "#eadcf4", "#d6f0ef", "#f8dfe6", "#eceae1", "#e3e6ea")
_STYLE = ".n{font-size:12px}.k{font-size:10px;fill:#52606d}.e{fill:none;stroke:#8795a1}.c{fill:none;stroke:#d64545}.b{stroke:#7b8794}"
_HEADS = heads({"e": "#8795a1", "c": "#d64545"})


def draw(groups: Groups, title: str, left_out: str = "") -> str:
    """A whole SVG document. `left_out` names files that are in no box."""
    knots = components(groups.edges)
    knot_of = {node: number for number, knot in enumerate(knots) for node in knot}
    weights = {(start, end): weight for start, targets in groups.edges.items() for end, weight in targets.items()}
    shown = _thinned(weights, knot_of)
    joined = {node for edge in weights for node in edge}
    alone = sorted(set(groups.sizes) - joined)
    prefix = _common(list(groups.sizes))
    labels = {node: _label(node, prefix) for node in groups.sizes}
    sizes = {node: _size(labels[node], groups.sizes[node]) for node in groups.sizes}
    layout = lay_out({node: sizes[node] for node in joined}, shown)
    tops = _tops(groups.sizes, prefix)
    rows, width, height = _shelved(alone, sizes, layout)
    parts = [_arrow(edge, weights[edge], layout, is_cycle=_in_knot(edge, knot_of)) for edge in shown]
    parts += [_box(node, labels[node], groups.sizes[node], layout.boxes[node], tops, is_knot=node in knot_of) for node in sorted(joined)]
    parts += [_box(node, labels[node], groups.sizes[node], box, tops, is_knot=False) for node, box in rows.items()]
    legend, bottom, legend_width = _legend(tops, prefix, bool(knots), len(weights) - len(shown), height)
    said = _subtitle(groups, weights, knots) + (f" · left out: {left_out}" if left_out else "")
    size = (max(width, legend_width, wide(said), 460.0), bottom)
    return document(title, said, "".join(parts) + legend, size, style=_STYLE, definitions=_HEADS)


def _subtitle(groups: Groups, weights: Mapping[Edge, int], knots: list[list[str]]) -> str:
    files = sum(groups.sizes.values())
    what = f"{files:,} files" if len(groups.sizes) == files else f"{files:,} files in {len(groups.sizes)} folders"
    tangled = f" · {sum(map(len, knots))} of them in cycles" if knots else " · no cycles"
    return f"{what} · arrows lead from what imports to what is imported{tangled if weights else ''}"


def _in_knot(edge: Edge, knot_of: Mapping[str, int]) -> bool:
    return edge[0] in knot_of and knot_of[edge[0]] == knot_of.get(edge[1])


def _thinned(weights: Mapping[Edge, int], knot_of: Mapping[str, int]) -> list[Edge]:
    """All where they are few; else without those that a longer way implies, and without the weakest of what is still too many."""
    if len(weights) <= ARROWS_AT_MOST:
        return sorted(weights)
    after: dict[str, set[str]] = {}
    for start, end in weights:
        after.setdefault(start, set()).add(end)
    kept = []
    for edge in sorted(weights, key=lambda one: (weights[one], one)):  # one after another: of two that imply each other, one stays
        if not _in_knot(edge, knot_of) and _is_implied(edge, after):
            after[edge[0]].discard(edge[1])
        else:
            kept.append(edge)
    if len(kept) <= ARROWS_AT_MOST * 2:
        return sorted(kept)
    return sorted(sorted(kept, key=lambda edge: (-weights[edge], edge))[: ARROWS_AT_MOST * 2])


def _is_implied(edge: Edge, after: Mapping[str, set[str]]) -> bool:
    start, end = edge
    seen, queue = {start}, [one for one in after[start] if one != end]
    while queue:
        node = queue.pop()
        if node == end:
            return True
        if node not in seen:
            seen.add(node)
            queue += after.get(node, ())
    return False


def _shelved(alone: list[str], sizes: Mapping[str, tuple[float, float]], layout: Layout) -> tuple[dict[str, Box], float, float]:
    """What nothing connects: in rows below the rest."""
    width = max(layout.width, 900.0) if alone else layout.width
    x, y = 0.0, layout.height + (40.0 if layout.boxes and alone else 0.0)
    rows: dict[str, Box] = {}
    for node in alone:
        own, height = sizes[node]
        if x and x + own > width:
            x, y = 0.0, y + _ROW + 12.0
        rows[node] = Box(x=x, y=y, width=own, height=height)
        x += own + 14.0
    return rows, width, y + (_ROW if alone else 0.0)


def _arrow(edge: Edge, weight: int, layout: Layout, *, is_cycle: bool) -> str:
    kind, stroke = ("c", 1.6) if is_cycle else ("e", 1.0)
    stroke = min(4.0, stroke + 0.35 * max(0, weight.bit_length() - 1))
    title = f"{edge[0]} → {edge[1]}: {weight} import{'s' if weight != 1 else ''}"
    return (
        f'<path class="{kind}" stroke-width="{stroke:.2g}" marker-end="url(#{kind}h)" d="{curve(layout.ways[edge])}">'
        f"<title>{safe(title)}</title></path>"
    )


def _box(node: str, label: str, files: int, box: Box, tops: Mapping[str, str], *, is_knot: bool) -> str:
    colour = next((shade for top, shade in tops.items() if node.startswith(top)), "#ffffff")
    stroke = 'stroke="#d64545" stroke-width="1.6"' if is_knot else 'class="b" stroke-width="0.8"'
    middle = box.x + box.width / 2
    lines = f'<text class="n" text-anchor="middle" x="{middle:.1f}" y="{box.y + (14 if files > 1 else 21):.1f}">{safe(label)}</text>'
    if files > 1:
        lines += f'<text class="k" text-anchor="middle" x="{middle:.1f}" y="{box.y + 27:.1f}">{files:,} files</text>'
    return (
        f'<g><title>{safe(node)}</title><rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="5" '
        f'fill="{colour}" {stroke}/>{lines}</g>'
    )


def _tops(sizes: Mapping[str, int], prefix: str) -> dict[str, str]:
    """The largest folders below the one that holds most, each with its colour; longest name first, so that the nearest counts."""
    weights: Counter[str] = Counter()
    for node in sizes:
        base = prefix if node.startswith(prefix) else ""
        head, slash, _ = node[len(base) :].partition("/")
        if slash and head:
            weights[f"{base}{head}/"] += 1
    shared = [name for name, count in weights.most_common(len(_COLOURS)) if count > 1]
    chosen = {name: _COLOURS[number] for number, name in enumerate(shared)}
    return dict(sorted(chosen.items(), key=lambda item: (-len(item[0]), item[0])))


def _legend(tops: Mapping[str, str], prefix: str, has_knots: bool, left_away: int, height: float) -> tuple[str, float, float]:
    x, y, parts = 0.0, height + 40.0, []
    for name, colour in sorted(tops.items()):
        label = _label(name, prefix)
        parts.append(f'<rect class="b" x="{x:.1f}" y="{y - 10:.1f}" width="12" height="12" rx="2" fill="{colour}"/>')
        parts.append(f'<text class="s" x="{x + 17:.1f}" y="{y:.1f}">{safe(label)}</text>')
        x += 36 + wide(label)
    notes = ["red: they import one another in a circle"] if has_knots else []
    notes += ["thicker: more imports"]
    notes += [f"{left_away} arrows that longer ways imply, or that stand for few imports, are left away"] if left_away > 0 else []
    notes += [f"names are below {prefix}, those with / before them are not"] if prefix else []
    line = " · ".join(notes)
    parts.append(f'<text class="s" x="0" y="{y + 22:.1f}">{safe(line)}</text>')
    return "".join(parts), y + 28.0, max(x, wide(line))


def _size(label: str, files: int) -> tuple[float, float]:
    return max(wide(label), wide(f"{files:,} files") * 0.85 if files > 1 else 0.0) + 18.0, _ROW


def _common(names: list[str]) -> str:
    """The deepest folder that holds most of them: it need not be said in each box."""
    prefix = ""
    while True:
        heads = Counter(name[len(prefix) :].partition("/")[0] for name in names if name.startswith(prefix) and "/" in name[len(prefix) :])
        head, count = max(heads.items(), key=lambda item: (item[1], item[0]), default=("", 0))
        if not head or head == "." or count < 2 or count < _MOST * len(names):
            return prefix
        prefix += head + "/"


def _label(node: str, prefix: str) -> str:
    short = node[len(prefix) :] or "./" if node.startswith(prefix) else "/" + node
    short = "".join(" " if sign.isspace() or ord(sign) < 32 else sign for sign in short)
    return short if len(short) <= _LABEL else short[: _LABEL // 2 - 3] + "…" + short[-(_LABEL // 2 + 2) :]
