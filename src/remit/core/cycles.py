"""Cycles of a directed graph. Used for the dependencies of tasks and the imports of files."""

from collections.abc import Collection, Mapping
from typing import TypeVar

Node = TypeVar("Node", int, str)


def cyclic_components(after: Mapping[Node, Collection[Node]]) -> list[set[Node]]:
    """Strongly connected components with more than one node, and nodes that lead to themselves (Tarjan, without recursion)."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    path: list[Node] = []
    on_path: set[Node] = set()
    found: list[set[Node]] = []
    for root in after:
        work = [(root, iter(after[root]))] if root not in index else []
        while work:
            node, targets = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                path.append(node)
                on_path.add(node)
            target = next((one for one in targets if one in after and (one not in index or one in on_path)), None)
            if target is not None and target not in index:
                work.append((target, iter(after[target])))
            elif target is not None:
                low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component: set[Node] = set()
                    while node not in component:
                        component.add(path.pop())
                    on_path -= component
                    if len(component) > 1 or node in after[node]:
                        found.append(component)
    return found


def shortest_cycle(start: Node, after: Mapping[Node, Collection[Node]], within: Collection[Node]) -> tuple[Node, ...]:
    """The shortest path from a node back to itself, without the repeated node; empty if there is none."""
    before: dict[Node, Node] = {}
    queue = [start]
    for node in queue:  # grows during the loop
        for target in after.get(node, ()):
            if target == start:
                way = [node]
                while way[-1] != start:
                    way.append(before[way[-1]])
                return tuple(reversed(way))
            if target in within and target not in before:
                before[target] = node
                queue.append(target)
    return ()
