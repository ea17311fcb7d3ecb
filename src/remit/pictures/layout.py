"""Where boxes and arrows go: layers from left to right, few crossings, no box upon another. Pure.

The usual steps of a layered drawing (Sugiyama): arrows that close a cycle are turned for the time being, each box gets a layer, long arrows
get a way of their own through the layers between, each layer is ordered by where its neighbours are, and boxes move towards them.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

GAP_X = 70.0
GAP_Y = 16.0
WAY_HEIGHT = 8.0
_ROUNDS = 24
Edge = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    x: float
    y: float
    width: float
    height: float


@dataclass(slots=True)
class Layout:
    boxes: dict[str, Box] = field(default_factory=dict)
    ways: dict[Edge, list[tuple[float, float]]] = field(default_factory=dict)
    """Through which points an arrow goes, from its source to its target."""
    width: float = 0.0
    height: float = 0.0


def lay_out(sizes: Mapping[str, tuple[float, float]], edges: Iterable[Edge]) -> Layout:
    """`sizes`: width and height of each box, all of which have an edge."""
    edges = sorted(set(edges))
    forward = _acyclic(sorted(sizes), edges)
    layer = _layers(sorted(sizes), [pair for pair, _ in forward])
    chains: dict[Edge, list[str]] = {}
    heights = {name: height for name, (_, height) in sizes.items()}
    links: list[Edge] = []
    for (start, end), edge in forward:
        chain = [start, *(f"\0{edge[0]}\0{edge[1]}\0{level}" for level in range(layer[start] + 1, layer[end])), end]
        for level, name in enumerate(chain[1:-1], start=layer[start] + 1):
            layer[name], heights[name] = level, WAY_HEIGHT
        chains[edge] = chain
        links += itertools.pairwise(chain)
    columns = _ordered(layer, links)
    ys = _heights(columns, heights, links)
    return _drawn(sizes, edges, forward, chains, columns, ys)


def _acyclic(nodes: Sequence[str], edges: Sequence[Edge]) -> list[tuple[Edge, Edge]]:
    """Each edge as it is laid out, turned where it would close a cycle, beside what it is."""
    after: dict[str, list[str]] = defaultdict(list)
    into: dict[str, int] = defaultdict(int)
    for start, end in edges:
        after[start].append(end)
        into[end] += 1
    state: dict[str, int] = {}
    turned: set[Edge] = set()
    for root in sorted(nodes, key=lambda node: (into[node] - len(after[node]), node)):
        if root in state:
            continue
        state[root] = 1
        work = [(root, iter(after[root]))]
        while work:
            node, targets = work[-1]
            target = next(targets, None)
            if target is None:
                state[node] = 2
                work.pop()
            elif target not in state:
                state[target] = 1
                work.append((target, iter(after[target])))
            elif state[target] == 1:
                turned.add((node, target))
    return [((edge[1], edge[0]) if edge in turned else edge, edge) for edge in edges]


def _layers(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """The longest way to each; then each source is drawn close to what it leads to."""
    before: dict[str, list[str]] = defaultdict(list)
    after: dict[str, list[str]] = defaultdict(list)
    for start, end in edges:
        before[end].append(start)
        after[start].append(end)
    waiting = {node: len(before[node]) for node in nodes}
    ready = [node for node in nodes if not waiting[node]]
    layer: dict[str, int] = {}
    for node in ready:  # grows while it is gone through
        layer[node] = max((layer[one] + 1 for one in before[node]), default=0)
        for target in after[node]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    for node in reversed(ready):
        if not before[node] and after[node]:
            layer[node] = min(layer[target] for target in after[node]) - 1
    return layer


def _ordered(layer: Mapping[str, int], links: Sequence[Edge]) -> list[list[str]]:
    columns: list[list[str]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for node in sorted(layer, key=lambda one: one.replace("\0", "")):
        columns[layer[node]].append(node)
    before, after = _neighbours(links)
    best, fewest = [list(column) for column in columns], _crossings(columns, after)
    for turn in range(_ROUNDS):
        rightward = turn % 2 == 0
        neighbours = before if rightward else after
        order = range(1, len(columns)) if rightward else range(len(columns) - 2, -1, -1)
        for level in order:
            beside = {node: place for place, node in enumerate(columns[level - 1 if rightward else level + 1])}
            places = {node: place for place, node in enumerate(columns[level])}
            columns[level].sort(key=lambda node: _middle([beside[one] for one in neighbours[node] if one in beside], places[node]))
        crossings = _crossings(columns, after)
        if crossings < fewest:
            best, fewest = [list(column) for column in columns], crossings
    return best


def _neighbours(links: Sequence[Edge]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    before: dict[str, list[str]] = defaultdict(list)
    after: dict[str, list[str]] = defaultdict(list)
    for start, end in links:
        before[end].append(start)
        after[start].append(end)
    return before, after


def _middle(places: Sequence[int], otherwise: int) -> float:
    return sum(places) / len(places) if places else float(otherwise)


def _crossings(columns: Sequence[Sequence[str]], after: Mapping[str, Sequence[str]]) -> int:
    count = 0
    for left, right in itertools.pairwise(columns):
        places = {node: place for place, node in enumerate(right)}
        ends = [place for node in left for place in sorted(places[one] for one in after.get(node, ()) if one in places)]
        count += sum(1 for i, one in enumerate(ends) for other in ends[i + 1 :] if other < one) if len(ends) < 400 else len(ends)
    return count


def _heights(columns: Sequence[Sequence[str]], heights: Mapping[str, float], links: Sequence[Edge]) -> dict[str, float]:
    """The middle of each: stacked at first, then each column is drawn towards its neighbours, in its order and without overlap."""
    ys: dict[str, float] = {}
    for column in columns:
        _stack(column, heights, {}, ys)
    before, after = _neighbours(links)
    for turn in range(_ROUNDS):
        both = (before, after, None)[turn % 3]
        for column in columns if turn % 2 == 0 else reversed(columns):
            wanted = {}
            for node in column:
                near = [*before[node], *after[node]] if both is None else both[node]
                wanted[node] = sum(ys[one] for one in near) / len(near) if near else ys[node]
            _stack(column, heights, wanted, ys)
    return ys


def _stack(column: Sequence[str], heights: Mapping[str, float], wanted: Mapping[str, float], ys: dict[str, float]) -> None:
    """As near to where each wants to be as the order allows: clumps of boxes that touch are moved as one."""
    clumps: list[list[float]] = []  # of each: sum of wishes, how many, height before its last
    members: list[list[str]] = []
    for node in column:
        half = heights[node] / 2
        clump = [wanted.get(node, 0.0) - half, 1.0, heights[node] + GAP_Y]
        names = [node]
        while clumps and clumps[-1][0] / clumps[-1][1] + clumps[-1][2] > clump[0] / clump[1]:
            above = clumps.pop()
            clump = [above[0] + clump[0] - clump[1] * above[2], above[1] + clump[1], above[2] + clump[2]]
            names = members.pop() + names
        clumps.append(clump)
        members.append(names)
    for clump, names in zip(clumps, members, strict=True):
        top = clump[0] / clump[1]
        for node in names:
            ys[node] = top + heights[node] / 2
            top += heights[node] + GAP_Y


def _drawn(
    sizes: Mapping[str, tuple[float, float]],
    edges: Sequence[Edge],
    forward: Sequence[tuple[Edge, Edge]],
    chains: Mapping[Edge, Sequence[str]],
    columns: Sequence[Sequence[str]],
    ys: Mapping[str, float],
) -> Layout:
    layout = Layout()
    top = min((ys[node] - (sizes[node][1] if node in sizes else 0) / 2 for column in columns for node in column), default=0.0)
    x, middles = 0.0, {}
    for column in columns:
        width = max((sizes[node][0] for node in column if node in sizes), default=20.0)
        for node in column:
            middles[node] = (x + width / 2, ys[node] - top, width)
            if node in sizes:
                own, height = sizes[node]
                layout.boxes[node] = Box(x=x + (width - own) / 2, y=ys[node] - top - height / 2, width=own, height=height)
        x += width + GAP_X
    for laid, edge in forward:
        points = _points(chains[edge], middles, layout.boxes)
        layout.ways[edge] = points if laid == edge else points[::-1]
    layout.width = max(0.0, x - GAP_X)
    layout.height = max((box.y + box.height for box in layout.boxes.values()), default=0.0)
    layout.height = max([layout.height, *(y for way in layout.ways.values() for _, y in way)])
    return layout


def _points(chain: Sequence[str], middles: Mapping[str, tuple[float, float, float]], boxes: Mapping[str, Box]) -> list[tuple[float, float]]:
    start, end = boxes[chain[0]], boxes[chain[-1]]
    points = [(start.x + start.width, start.y + start.height / 2)]
    for way in chain[1:-1]:
        x, y, width = middles[way]
        points += [(x - width / 2, y), (x + width / 2, y)]  # straight past the boxes of that layer
    return [*points, (end.x, end.y + end.height / 2)]
