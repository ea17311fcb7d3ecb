"""Events as text, the latest text of each delegation as read from the store, and the spending of a tree."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from remit.cli.render import count, json_text, money, one_line, spent
from remit.core.events import Event, EventKind
from remit.core.ports import Store
from remit.core.record import Record
from remit.core.result import Return

if TYPE_CHECKING:
    from remit.core.settings import Settings

LOOK_SECONDS = 0.05
"""Interval of checks for writes by other processes; each costs one pragma."""


def event_text(event: Event) -> str:
    """The text of an event; empty if it has none."""
    body = event.body
    match event.kind:
        case EventKind.STEP:
            return str(body["step"])
        case EventKind.PROGRESS | EventKind.NOTICE:
            return str(body.get("message", ""))
        case EventKind.DATA:
            return _chunk(body.get("chunk"))
        case EventKind.ARTIFACT:
            return f"{body.get('type')}: {body.get('path')}"
        case EventKind.SPENT:
            words = spent(body.get("tokens") or 0, body.get("cost") or 0.0)
            return f"{words} spent so far" if words else ""
        case EventKind.CANCEL:
            reason = str(body.get("reason") or "").rstrip(".")
            by, state = f"by {body.get('source')}{f': {reason}' if reason else ''}", body.get("state")
            if state == "requested":
                return f"Cancel requested {by}."
            return f"Cancelled {by}; {'it did not stop and was abandoned' if state == 'abandoned' else state}."
    return ""


def _chunk(chunk: Any) -> str:
    """The text of a chunk, which may be any value. Empty for those of coding agents: each comes with a progress message that says the
    same (`agents.transcript`)."""
    match chunk:
        case str():
            return chunk
        case {"stream": str(), "text": str(text)} if len(chunk) == 2:
            return text.rstrip()
        case {"tool": {"status": _}} | {"permission": {"decision": _}} | {"plan": [{"status": _}, *_]} | {"trouble": {"vendor": _}}:
            return "" if len(chunk) == 1 else json_text(chunk)
    return json_text(chunk)


def gist_of(result: Return) -> str:
    """A return on one line: its first error, else its summary, else the function's value."""
    if result.errors:
        return result.errors[0].message
    if result.data is not None and result.summary == f"{result.metadata.agent_type} finished.":
        return result.data if isinstance(result.data, str) else json_text(result.data)
    return result.summary


def parameters_hint(parameters: Mapping[str, Any]) -> str:
    """The first short parameter, which distinguishes a delegation from its siblings."""
    for value in parameters.values():
        if isinstance(value, str | int | float) and not isinstance(value, bool) and str(value).strip():
            return one_line(value, 28)
    return ""


class Word(NamedTuple):
    """The latest text of a delegation."""

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
        """Spending so far, by session, as reported by each delegation."""

    def look(self, records: Iterable[Record]) -> list[Event]:
        """New events of these delegations, by time."""
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
            text = event_text(event)
            if text and event.kind not in (EventKind.STEP, EventKind.SPENT):
                self.words[event.session_id] = Word(text=text, fraction=event.body.get("fraction"))


class Show:
    """Shows the progress of delegations; this one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    def show(self, records: list[Record], watch: Watch, events: list[Event]) -> None:
        return None


class SpendingTotal(NamedTuple):
    """Tokens and money."""

    tokens: int = 0
    cost: float = 0.0
    has_unknown: bool = False
    """Whether a model of unknown price was used."""

    def words(self) -> str:
        """`1,234 tokens, 0.0031`; `1,234 tokens, money unknown`; empty if nothing was spent."""
        if not self.tokens and not self.cost:
            return ""
        amount = money(self.cost) if not self.has_unknown else f"at least {money(self.cost)}" if self.cost else "money unknown"
        return f"{count(self.tokens, 'token')}, {amount}"


def spent_by(records: Sequence[Record], settings: "Settings") -> SpendingTotal:
    """The spending of a tree. Tokens without a cost belong to a free model or one of unknown price."""
    has_unknown = any(record.tokens and not record.cost for record in records)
    if has_unknown and settings.model:
        from remit.models.prices import price_for

        has_unknown = any(price_for(settings, name) is None for name in settings.model)
    return SpendingTotal(sum(record.tokens for record in records), sum(record.cost for record in records), has_unknown)
