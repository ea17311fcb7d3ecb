"""The line that tells how it stands: model, tokens, money, time. Of a message while it is worked on, and of a conversation in all.

Money is only what is known: where the price of a model is not, that is said in place of a sum.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from remit.cli.chat_screen import spinner
from remit.cli.words import count, duration, money, one_line

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.assistant.conversations import Conversation
    from remit.cli.chat_turn import Answer
    from remit.cli.watch import Watch
    from remit.core.record import Record
    from remit.settings import Settings

UNKNOWN = "money unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    tokens: int = 0
    cost: float = 0.0
    has_unknown: bool = False
    """Something was asked of a model whose price nobody knows."""

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(tokens=self.tokens + other.tokens, cost=self.cost + other.cost, has_unknown=self.has_unknown or other.has_unknown)

    def words(self) -> str:
        """`1,234 tokens, 0.0031`; `1,234 tokens, money unknown`; empty when it is nothing."""
        if not self.tokens and not self.cost:
            return ""
        amount = money(self.cost) if not self.has_unknown else f"at least {money(self.cost)}" if self.cost else UNKNOWN
        return f"{count(self.tokens, 'token')}, {amount}"


def spent_by(records: "Sequence[Record]", settings: "Settings") -> Spent:
    """By a tree. Tokens that cost nothing come of a model that is free, or of one whose price nobody knows."""
    tokens, cost = sum(record.tokens for record in records), sum(record.cost for record in records)
    is_open = any(record.tokens and not record.cost for record in records)
    return Spent(tokens=tokens, cost=cost, has_unknown=is_open and not is_priced(settings))


def is_priced(settings: "Settings") -> bool:
    """Whether it is known what the models cost that are asked here."""
    from remit.models.pricing import price_of

    return bool(settings.model) and all(price_of(settings, name) is not None for name in settings.model)


def spent_in(conversation: "Conversation") -> Spent:
    """As it was written down with each of its messages."""
    from remit.assistant.lines import Spent as Noted

    total = Spent()
    for line in conversation.lines:
        if isinstance(line, Noted):
            total += Spent(tokens=line.tokens, cost=line.cost or 0.0, has_unknown=line.cost is None and line.tokens > 0)
    return total


def model_name(remit: "Remit") -> str:
    names = remit.settings.model
    return f"{names[0]} (+{len(names) - 1})" if len(names) > 1 else names[0] if names else "no model"


class Meter:
    """The line below what is shown while a message is worked on."""

    def __init__(self, remit: "Remit") -> None:
        self._model = model_name(remit)
        self._began = time.monotonic()

    def line(self, watch: "Watch | None", records: "Sequence[Record]") -> Text:
        running = sum(not record.state.is_settled for record in records[1:])
        tokens = sum((watch.tokens if watch else {}).values())
        parts = [one_line(self._model, 40), duration(time.monotonic() - self._began)]
        parts += [count(tokens, "token")] if tokens else []
        parts += [f"{count(running, 'delegation')} running"] if running else []
        line = Text(f"{spinner(time.time())} ", style="cyan", no_wrap=True, overflow="ellipsis")
        return line.append(" · ".join([*parts, "Ctrl-C stops it"]), style="dim")


def closing_line(remit: "Remit", answer: "Answer", *, with_conversation: bool = True) -> Text:
    """Below an answer that is whole."""
    parts = [one_line(model_name(remit), 40), duration(answer.result.metadata.duration_seconds), answer.spent.words()]
    parts += [count(len(answer.delegations), "delegation")] if answer.delegations else []
    parts += [answer.conversation] if with_conversation else []
    return Text(" · ".join(part for part in parts if part), style="dim", no_wrap=True, overflow="ellipsis")
