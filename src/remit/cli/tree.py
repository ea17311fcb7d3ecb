"""Delegations drawn as a tree with rich: a line for each, its state, what it says or how it ended, within the height it is given.

`LiveTree` redraws it in place while something runs.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from remit.cli.approval import standing_still
from remit.cli.events import Watch, Word, gist_of, parameters_hint
from remit.cli.live import REFRESH_SECONDS
from remit.cli.render import MARKS, count, duration, error_console, one_line, short
from remit.core.events import Event
from remit.core.record import Record
from remit.core.result import Artifact
from remit.core.states import State

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
GONE_MARK = Text("!", style="bold red")
BAR_CELLS = 10
MOVING_CHILDREN = 12
"""So many children of one caller are shown while things move: more would push what happens now off the screen."""
MOVING_QUIET = 3
"""So many of them that completed: the latest."""


@dataclass(slots=True)
class Node:
    record: Record
    children: list["Node"] = field(default_factory=list)

    @property
    def is_quiet(self) -> bool:
        """Completed, and so is everything below: nothing a reader must see."""
        return self.record.state is State.COMPLETED and all(child.is_quiet for child in self.children)

    def size(self) -> int:
        return 1 + sum(child.size() for child in self.children)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How to draw."""

    now: float
    words: Mapping[str, Word] = field(default_factory=dict)
    rows: int | None = None
    """So many lines are there; None: as many as it takes."""
    is_moving: bool = False
    """Redrawn again and again."""
    ids: bool = True
    gone: Collection[str] = ()
    """Session ids of those that nobody runs any more."""
    tokens: Mapping[str, int] = field(default_factory=dict)
    """What each has spent so far, by session id."""
    stuck: Mapping[str, str] = field(default_factory=dict)
    """Why one looks stuck, by session id."""


def forest(records: Sequence[Record]) -> list[Node]:
    """The trees that these delegations form. One whose caller is not among them stands at a root."""
    nodes = {record.session_id: Node(record) for record in records}
    roots: list[Node] = []
    for node in nodes.values():
        parent = nodes.get(node.record.parent_id or "")
        (parent.children if parent is not None else roots).append(node)
    return roots


def draw(node: Node, view: View) -> Tree:
    """A tree as rich shows it; when it is too high, what completed is folded up first, then what lies deepest."""
    tree = Tree(_line(node, view, 0), guide_style="dim")
    _hang(tree, node, view, _folding(node, view))
    return tree


def collapsed(node: Node, view: View) -> Text:
    """It and everything below it on one line."""
    return _line(node, view, node.size() - 1)


@dataclass(frozen=True, slots=True)
class _Fold:
    quiet: bool
    """Fold up what completed with all its children."""
    most: int | None
    """So many children of one caller are shown."""


def _folding(node: Node, view: View) -> _Fold:
    rows = view.rows
    if rows is None:
        return _Fold(quiet=False, most=None)
    moving = MOVING_CHILDREN if view.is_moving else None
    if node.size() <= rows:
        return _Fold(quiet=False, most=moving)
    parents = 1 + sum(1 for child in node.children if child.children and not child.is_quiet)
    most = max(2, (rows - 2) // parents - 1)
    return _Fold(quiet=True, most=most if moving is None else min(most, moving))


def _hang(tree: Tree, node: Node, view: View, fold: _Fold) -> None:
    children = node.children
    loud = sum(not child.is_quiet for child in children)
    most = min(fold.most, loud + MOVING_QUIET) if view.is_moving and fold.most is not None else fold.most
    if most is not None and len(children) > most + 1:
        # Kept: what still runs and what did not go well, then the latest; each in its order.
        kept = sorted(range(len(children)), key=lambda place: (children[place].is_quiet, -place))[:most]
        left_out = [child for place, child in enumerate(children) if place not in kept]
        children = [node.children[place] for place in sorted(kept)]
        tree.add(Text(f"… and {len(left_out)} more ({_tally(left_out)})", style="dim"))
    for child in children:
        folded = child.size() - 1 if fold.quiet and child.is_quiet else 0
        branch = tree.add(_line(child, view, folded))
        if not folded:
            _hang(branch, child, view, fold)


def _tally(nodes: Sequence[Node]) -> str:
    states: dict[str, int] = {}
    for node in nodes:
        states[node.record.state] = states.get(node.record.state, 0) + 1
    return ", ".join(f"{number} {state}" for state, number in states.items())


# ---- one line


def _line(node: Node, view: View, folded: int) -> Text:
    record = node.record
    is_gone = record.session_id in view.gone
    line = GONE_MARK.copy() if is_gone else state_mark(record.state, view.now if view.is_moving else None)
    line.append(f" {record.agent}", style="bold")
    if hint := parameters_hint(record.parameters):
        line.append(f" {hint}", style="cyan")
    if view.ids:
        line.append(f" {short(record.session_id)}", style="dim")
    line.append("  ")
    if is_gone:
        line.append("its process is gone", style="bold red")
    else:
        line.append_text(_settled_part(record, view) if record.state.is_settled else _live_part(record, view))
    if folded:
        line.append(f"  (+ {count(folded, 'delegation')} below)", style="dim")
    line.no_wrap = True
    line.overflow = "ellipsis"
    return line


def state_mark(state: State, spinning_at: float | None) -> Text:
    """`spinning_at`: the moment, where the picture is redrawn again and again."""
    mark, style = MARKS[state]
    if state is State.RUNNING and spinning_at is not None:
        mark = SPINNER[int(spinning_at * 10) % len(SPINNER)]
    return Text(mark, style=style)


def _live_part(record: Record, view: View) -> Text:
    if record.state is State.QUEUED:
        return Text(f"queued for {duration(view.now - record.created_at)}", style="dim")
    word = view.words.get(record.session_id)
    line = Text(f"{duration(view.now - (record.started_at or record.created_at))}")
    left = record.deadline_at - view.now
    line.append(f" ({duration(left)} left)", style="dim" if left > 2 else "yellow")
    if tokens := view.tokens.get(record.session_id):
        line.append(f"  {count(tokens, 'token')}", style="dim")
    if why := view.stuck.get(record.session_id):
        line.append(f"  ! {why}", style="bold red")
    if word is not None:
        if word.fraction is not None:
            line.append_text(_bar(word.fraction))
        line.append(f" {one_line(word.text)}")
    return line


def _bar(fraction: float) -> Text:
    full = round(fraction * BAR_CELLS)
    bar = Text(" " + "━" * full, style="cyan")
    return bar.append("━" * (BAR_CELLS - full), style="dim")


def _settled_part(record: Record, view: View) -> Text:
    _, style = MARKS[record.state]
    line = Text(record.state, style=style) if record.state is not State.COMPLETED else Text()
    result = record.result
    if result is not None:
        if record.state is not State.REFUSED:
            line.append(f"{' ' if line else ''}{duration(result.metadata.duration_seconds)}")
        if result.artifacts:
            line.append(f"  {count(len(result.artifacts), 'artifact')} ({_level(result.artifacts)})", style="green")
        line.append(f"  {one_line(gist_of(result))}", style="dim")
    return line


def _level(artifacts: Sequence[Artifact]) -> str:
    """The weakest evidence among them."""
    order = ("claimed", "checked", "verified")
    return min((str(a.evidence) for a in artifacts), key=order.index)


class LiveTree:
    """The tree, redrawn in place; gone when it ends, for the answer to take its place."""

    def __init__(self) -> None:
        self._live = self._new()
        self._is_still = False
        self._registered = standing_still(self._pause, self._resume)

    @staticmethod
    def _new() -> Live:
        return Live(console=error_console(), refresh_per_second=1 / REFRESH_SECONDS, transient=True, auto_refresh=False)

    def __enter__(self) -> "LiveTree":
        self._live.__enter__()
        self._registered.__enter__()
        return self

    def _pause(self) -> None:
        """A question is asked: it has the terminal for itself."""
        self._is_still = True
        self._live.stop()

    def _resume(self) -> None:
        self._live = self._new()
        self._live.start()
        self._is_still = False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._registered.__exit__(kind, error, trace)
        self._live.__exit__(kind, error, trace)

    def show(self, records: list[Record], watch: Watch, events: list[Event]) -> None:
        if self._is_still:
            return
        roots = forest(records)
        rows = max(6, error_console().height - 2) // max(1, len(roots))
        trees: list[RenderableType] = [draw(root, View(now=time.time(), words=watch.words, rows=rows, is_moving=True)) for root in roots]
        self._live.update(Group(*trees), refresh=True)
