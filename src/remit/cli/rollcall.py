"""What is live in a project, judged: what each delegation does, how long it has, when it was last heard of, whether it is stuck."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from remit.cli.living import GONE
from remit.cli.tree import Node, forest
from remit.cli.watch import Watch
from remit.core.events import STEPS
from remit.core.ports import Store
from remit.core.record import Record
from remit.core.states import State
from remit.engine.vitals import Stuck, living_owners, signs_with_children, stuck

WORDS = {None: "", Stuck.GONE: GONE, Stuck.LATE: "past its deadline", Stuck.QUIET: "stuck?"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    record: Record
    indent: int
    doing: str
    age_seconds: float
    left_seconds: float
    heard_seconds_ago: float
    tokens: int
    cost: float
    """Both: spent so far."""
    stuck: str
    """Why it looks stuck; empty when it does not."""


class RollCall:
    """Asked again and again; remembers what was said."""

    def __init__(self, store: Store, root: Path) -> None:
        self._store = store
        self._root = root
        self._watch = Watch(store)

    def lines(self, now: float) -> list[Line]:
        """Callers before their children."""
        records = self._store.live()
        self._watch.look(records)
        heard = signs_with_children(records, self._store.last_sign([record.session_id for record in records]))
        living = living_owners(self._store, self._root / ".remit" / "run") if records else set()
        return [
            Line(
                record=node.record,
                indent=indent,
                doing=self._doing(node.record),
                age_seconds=max(0.0, now - node.record.created_at),
                left_seconds=max(0.0, node.record.deadline_at - now),
                heard_seconds_ago=max(0.0, now - heard[node.record.session_id]),
                tokens=self._watch.tokens.get(node.record.session_id, node.record.tokens),
                cost=self._watch.costs.get(node.record.session_id, node.record.cost),
                stuck=WORDS[stuck(node.record, now, heard[node.record.session_id], living)],
            )
            for node, indent in _walked(forest(records), 0)
        ]

    def _doing(self, record: Record) -> str:
        word = self._watch.words.get(record.session_id)
        if word is not None:
            return f"{word.fraction:.0%} {word.text}" if word.fraction is not None else word.text
        if record.state is State.QUEUED:
            return "queued"
        return next((str(STEPS[place]) for place in reversed(range(len(STEPS))) if record.step_times[place] is not None), "")


def _walked(nodes: list[Node], indent: int) -> Iterator[tuple[Node, int]]:
    for node in nodes:
        yield node, indent
        yield from _walked(node.children, indent + 1)
