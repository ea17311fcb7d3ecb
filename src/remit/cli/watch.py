"""Watching delegations through a store: what each last said, gathered piece by piece, whichever process runs it.

Asks only what it does not know yet. Used by every command that shows something while it happens; draws nothing itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from remit.cli.telling import told
from remit.core.events import Event, EventKind
from remit.core.ports import Store
from remit.core.record import Record

LOOK_SECONDS = 0.05
"""How often the store is asked whether another process has written: one cheap pragma."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """The last thing a delegation said."""

    text: str
    fraction: float | None = None


class Watch:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._heard: dict[str, int] = {}
        self._finished: set[str] = set()
        self.words: dict[str, Word] = {}
        self.tokens: dict[str, int] = {}
        self.costs: dict[str, float] = {}
        """What each has spent so far, as it said itself."""

    def look(self, records: Iterable[Record]) -> list[Event]:
        """Everything new that these delegations said or went through, by time."""
        events: list[Event] = []
        for record in records:
            session_id = record.session_id
            if session_id in self._finished:
                continue
            new = self._store.events(session_id, self._heard.get(session_id, 0))
            if new:
                self._heard[session_id] = new[-1].number
                events += new
                self._listen(new)
            if record.state.is_settled:
                self._finished.add(session_id)
        events.sort(key=lambda event: event.at)
        return events

    def _listen(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.kind is EventKind.SPENT:
                self.tokens[event.session_id] = event.body.get("tokens", 0)
                self.costs[event.session_id] = event.body.get("cost", 0.0)
            text = told(event)
            if text and event.kind not in (EventKind.STEP, EventKind.SPENT):
                self.words[event.session_id] = Word(text=text, fraction=event.body.get("fraction"))
