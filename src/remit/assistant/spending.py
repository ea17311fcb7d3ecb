"""What a message costs in all: the questions to its model, the summaries of its conversation, and whatever it handed on.

Written down with the conversation when the message has ended. The budget itself is the engine's.
"""

from collections.abc import Iterable

from remit.core.budget import Limits
from remit.core.record import Record
from remit.flow.context import Context
from remit.models.messages import Asked
from remit.models.pricing import price_of
from remit.settings import Settings


class Spending:
    """Also the purse that summaries draw on: what they take is drawn from the tree and counted here."""

    def __init__(self, ctx: Context, settings: Settings) -> None:
        self._ctx = ctx
        self._settings = settings
        self.tokens = 0
        self.cost: float | None = 0.0
        """None: the price of something is unknown."""
        self.is_anything = False

    def asked(self, asked: Asked) -> None:
        """A question of the talk, which was drawn from the tree already."""
        self._add(asked.tokens, asked.cost)

    def handed_on(self, records: Iterable[Record]) -> None:
        """What the delegations took, and those below them. Tokens for nothing are free where all prices are known."""
        for record in records:
            if record.tokens or record.cost:
                self._add(record.tokens, record.cost if record.cost or self._is_priced() else None)

    def _is_priced(self) -> bool:
        return all(price_of(self._settings, name) is not None for name in self._settings.model)

    def _add(self, tokens: int, cost: float | None) -> None:
        self.is_anything = True
        self.tokens += tokens
        self.cost = None if self.cost is None or cost is None else self.cost + cost

    # ---- as a purse

    @property
    def remaining(self) -> float:
        return self._ctx.remaining

    @property
    def budget(self) -> Limits:
        return self._ctx.budget

    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        self._add(tokens, cost if cost or self._is_priced() else None)  # counted also where the budget says that it was too much
        self._ctx.spend(tokens=tokens, cost=cost)

    def progress(self, message: str, fraction: float | None = None) -> None:
        self._ctx.progress(message, fraction)
