"""Delegation trees drawn with rich: one line per delegation with its state and latest text or outcome, within a given height.

`LiveTree` redraws the tree in place while it runs."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from rich.console import Group
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from remit.cli.approval import pausing
from remit.cli.events import Show, Watch, Word, gist_of, parameters_hint
from remit.cli.render import MARKS, count, duration, error_console, one_line, short
from remit.core.events import Event
from remit.core.record import Record
from remit.core.states import State

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
ALARM = "bold red"


@dataclass(slots=True)
class Node:
    record: Record
    children: list["Node"] = field(default_factory=list)

    @property
    def is_quiet(self) -> bool:
        """Whether it and everything below is completed."""
        return self.record.state is State.COMPLETED and all(child.is_quiet for child in self.children)

    def size(self) -> int:
        return 1 + sum(child.size() for child in self.children)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Options of drawing."""

    now: float
    words: Mapping[str, Word] = field(default_factory=dict)
    rows: int | None = None
    """Height; None: unlimited."""
    is_moving: bool = False
    """Whether it is redrawn in place."""
    stuck: Mapping[str, str] = field(default_factory=dict)
    """Why delegations seem not to continue, by session id."""


def forest(records: Sequence[Record]) -> list[Node]:
    """The trees that these delegations form. A delegation whose caller is missing is a root."""
    nodes = {record.session_id: Node(record) for record in records}
    roots: list[Node] = []
    for node in nodes.values():
        parent = nodes.get(node.record.parent_id or "")
        (parent.children if parent is not None else roots).append(node)
    return roots


def draw(node: Node, view: View) -> Tree:
    """The tree for rich. If it is too high, completed subtrees are folded, and of many siblings running, failed and late ones are shown."""
    tree = Tree(_line(node, view, 0), guide_style="dim")
    is_high = view.rows is not None and node.size() > view.rows
    parents = 1 + sum(1 for child in node.children if child.children and not child.is_quiet)
    _hang(tree, node, view, max(2, ((view.rows or 0) - 2) // parents - 1) if is_high else None)
    return tree


def _hang(tree: Tree, node: Node, view: View, most: int | None) -> None:
    children = node.children
    if most is not None and len(children) > most + 1:
        kept = sorted(range(len(children)), key=lambda place: (children[place].is_quiet, -place))[:most]
        states = Counter(one.record.state for place, one in enumerate(children) if place not in kept)
        children = [node.children[place] for place in sorted(kept)]
        tree.add(Text(f"… and {states.total()} more ({', '.join(f'{number} {state}' for state, number in states.items())})", style="dim"))
    for child in children:
        folded = child.size() - 1 if most is not None and child.is_quiet else 0
        branch = tree.add(_line(child, view, folded))
        if not folded:
            _hang(branch, child, view, most)


# ---- one line


def _line(node: Node, view: View, folded: int) -> Text:
    record = node.record
    stuck = view.stuck.get(record.session_id)
    mark, style = MARKS[record.state] if not stuck else ("!", ALARM)
    if record.state is State.RUNNING and view.is_moving and not stuck:
        mark = SPINNER[int(view.now * 10) % len(SPINNER)]
    line = Text(mark, style=style)
    line.append(f" {record.agent}", style="bold")
    if hint := parameters_hint(record.parameters):
        line.append(f" {hint}", style="cyan")
    line.append(f" {short(record.session_id)}", style="dim")
    line.append("  ")
    if stuck:
        line.append(stuck.partition(":")[0], style=ALARM)
    else:
        line.append_text(_settled_part(record, view) if record.state.is_settled else _live_part(record, view))
    if folded:
        line.append(f"  (+ {count(folded, 'delegation')} below)", style="dim")
    line.no_wrap = True
    line.overflow = "ellipsis"
    return line


def _live_part(record: Record, view: View) -> Text:
    if record.state is State.QUEUED:
        return Text(f"queued for {duration(view.now - record.created_at)}", style="dim")
    word = view.words.get(record.session_id)
    line = Text(f"{duration(view.now - (record.started_at or record.created_at))}")
    left = record.deadline_at - view.now
    line.append(f" ({duration(left)} left)", style="dim" if left > 2 else "yellow")
    if word is not None:
        if word.fraction is not None:
            line.append(f"  {word.fraction:.0%}", style="cyan")
        line.append(f" {one_line(word.text)}")
    return line


def _settled_part(record: Record, view: View) -> Text:
    _, style = MARKS[record.state]
    line = Text(record.state, style=style) if record.state is not State.COMPLETED else Text()
    result = record.result
    if result is not None:
        if record.state is not State.REFUSED:
            line.append(f"{' ' if line else ''}{duration(result.metadata.duration_seconds)}")
        if result.artifacts:
            weakest = min((str(one.evidence) for one in result.artifacts), key=("claimed", "checked", "verified").index)
            line.append(f"  {count(len(result.artifacts), 'artifact')} ({weakest})", style="green")
        line.append(f"  {one_line(gist_of(result))}", style="dim")
    return line


class LiveTree(Show):
    """The tree, redrawn in place; hidden during questions to the user and removed at the end."""

    def __init__(self) -> None:
        self.console = error_console()
        self.is_paused = False
        self._live = self._new()
        self._registered = pausing(self._pause, self._resume)

    def _new(self) -> Live:
        return Live(console=self.console, auto_refresh=False, transient=True, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.__enter__()
        self._registered.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._registered.__exit__(None, None, None)
        self._live.__exit__(None, None, None)

    def _pause(self) -> None:
        self.is_paused = True
        self._live.stop()

    def _resume(self) -> None:
        self._live = self._new()
        self._live.start()
        self.is_paused = False

    def show(self, records: list[Record], watch: Watch, events: list[Event]) -> None:
        if self.is_paused:
            return
        roots = forest(records)
        rows = max(6, self.console.height - 2) // max(1, len(roots))
        view = View(now=time.time(), words=watch.words, rows=rows, is_moving=True)
        self._live.update(Group(*(draw(root, view) for root in roots)), refresh=True)
