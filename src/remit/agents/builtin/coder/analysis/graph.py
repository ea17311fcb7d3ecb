"""The import graph: cycles, who is depended on, and the same seen from further away, folders instead of files. No input or output."""

import posixpath
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Adjacency = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    members: tuple[str, ...]
    """All that can reach one another."""
    ring: tuple[str, ...]
    """The shortest way round from the one most depended on within it: the last imports the first."""


@dataclass(slots=True)
class Groups:
    """Files put together by folder, for a picture of at most so many boxes."""

    of: dict[str, str] = field(default_factory=dict)
    sizes: Counter[str] = field(default_factory=Counter)
    edges: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))


def components(edges: Adjacency) -> list[list[str]]:
    """Strongly connected ones of more than one member (Tarjan, without recursion), each sorted, largest first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    on_stack: set[str] = set()
    stack: list[str] = []
    found: list[list[str]] = []
    for root in sorted(edges):
        if root in index:
            continue
        work = [(root, iter(sorted(edges.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(edges.get(target, ())))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found.append(_popped(stack, on_stack, node))
    return sorted((sorted(one) for one in found if len(one) > 1), key=lambda one: (-len(one), one))


def _popped(stack: list[str], on_stack: set[str], until: str) -> list[str]:
    one = []
    while True:
        node = stack.pop()
        on_stack.discard(node)
        one.append(node)
        if node == until:
            return one


def cycles(edges: Adjacency) -> list[Cycle]:
    return [Cycle(members=tuple(one), ring=_ring(one, edges)) for one in components(edges)]


def _ring(members: list[str], edges: Adjacency) -> tuple[str, ...]:
    inside = set(members)
    popular = Counter(target for one in members for target in edges.get(one, ()) if target in inside)
    start = min(members, key=lambda one: (-popular[one], one))
    came: dict[str, str] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for target in sorted(edges.get(node, ())):
            if target == start:
                return _way(came, start, node)
            if target in inside and target not in came:
                came[target] = node
                queue.append(target)
    return tuple(members)


def _way(came: Mapping[str, str], start: str, end: str) -> tuple[str, ...]:
    way = [end]
    while way[-1] != start:
        way.append(came[way[-1]])
    return tuple(reversed(way))


def dependents(*graphs: Adjacency) -> Counter[str]:
    """How many others import each."""
    users: dict[str, set[str]] = defaultdict(set)
    for edges in graphs:
        for source, targets in edges.items():
            for target in targets:
                users[target].add(source)
    return Counter({node: len(them) for node, them in users.items()})


def reachable(starts: Iterable[str], *graphs: Adjacency) -> set[str]:
    seen = set(starts)
    queue = deque(seen)
    while queue:
        node = queue.popleft()
        for edges in graphs:
            for target in edges.get(node, ()):
                if target not in seen:
                    seen.add(target)
                    queue.append(target)
    return seen


def grouped(nodes: Iterable[str], edges: Adjacency, at_most: int) -> Groups:
    """Files alone where they are few; else folders, opened one by one, largest first, as long as there is room."""
    nodes = sorted(set(nodes))
    groups = Groups()
    groups.of = {node: node for node in nodes} if len(nodes) <= at_most else by_folder(nodes, at_most)
    for node in nodes:
        groups.sizes[groups.of[node]] += 1
    for source, targets in edges.items():
        for target, weight in targets.items():
            start, end = groups.of.get(source), groups.of.get(target)
            if start is not None and end is not None and start != end:
                groups.edges[start][end] += weight
    return groups


def by_folder(nodes: list[str], at_most: int) -> dict[str, str]:
    """For each the folder that stands for it: those at the top, the largest opened as long as there is room.

    Where a folder has more parts than there is room for, its largest parts are shown and the rest stays under its name.
    """
    weights = Counter(posixpath.dirname(node) for node in nodes)
    depths = dict.fromkeys(weights, 1)
    closed: set[str] = set()
    while True:
        members: dict[str, list[str]] = defaultdict(list)
        for folder, depth in depths.items():
            members[_cut(folder, depth)].append(folder)
        inside = _largest_to_open(members, depths, weights, closed)
        if inside is None:
            return {node: _cut(posixpath.dirname(node), depths[posixpath.dirname(node)]) for node in nodes}
        parts: dict[str, list[str]] = defaultdict(list)
        for one in inside:
            parts[_cut(one, depths[one] + 1)].append(one)
        room = at_most - len(members) + 1
        ranked = sorted(parts.values(), key=lambda part: (-sum(weights[one] for one in part), part))
        for number, part in enumerate(ranked):
            if len(ranked) <= room or number < room - 1:
                for one in part:
                    depths[one] += 1
            else:
                closed.update(part)


def _largest_to_open(
    members: Mapping[str, list[str]], depths: Mapping[str, int], weights: Mapping[str, int], closed: set[str]
) -> list[str] | None:
    choices = [
        [one for one in inside if one not in closed]
        for inside in members.values()
        if any(one.count("/") >= depths[one] and one not in closed for one in inside)
    ]
    return max(choices, key=lambda inside: (sum(weights[one] for one in inside), inside), default=None)


def _cut(folder: str, depth: int) -> str:
    return "/".join(folder.split("/")[:depth]) + "/" if folder else "./"
