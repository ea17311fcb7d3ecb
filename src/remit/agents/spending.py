"""What the run of another framework's agent spends: drawn while it runs, each request once, whoever of its agents made it.

Frameworks tell of a request when it has been answered, and some keep a total in which the runs inside of their run stand too. Here both
are drawn against each other. A reply that is still coming is weighed by its characters: one that never ends must pass a budget as well,
and one that broke off was paid for all the same. Used by `Errand`, on the loop of its delegation.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple

from remit.flow.context import Context
from remit.models.pricing import CHARACTERS_PER_TOKEN, MOST_TOLD, Spent

Costs = Callable[[str, Spent], float | None]
"""What so many tokens of the model of that name cost; None: unknown."""

SURELY_PER_TOKEN = 2 * CHARACTERS_PER_TOKEN
"""An estimate may be wrong, and a run that has room left is not to be stopped: only so many characters are a token for certain."""


class Answered(NamedTuple):
    """A request that has been answered in full."""

    used: Spent
    """As its provider says."""
    model: str = ""
    """`provider:model`, as far as it is known."""
    cost: float | None = None
    """As its framework has it."""
    written: int = 0
    """Characters of the reply."""
    total: int | None = None
    """Tokens of the whole run, if the framework keeps such a total."""


class Spending:
    def __init__(self, ctx: Context, costs: Costs, is_priced: Callable[[str], bool]) -> None:
        """`is_priced`: whether the project itself says what the model costs, which goes before what a framework has."""
        self._ctx = ctx
        self._costs, self._is_priced = costs, is_priced
        self._reading: dict[Hashable, int] = {}
        """Characters of each question that waits for its answer."""
        self._weighed = 0
        """Characters that came of their answers so far."""
        self._of_total = 0
        """So much of the framework's total has been drawn, in tokens, and in money."""
        self._cost_of_total = 0.0
        self._has_told: set[str] = set()

    def begins(self, request: Hashable, characters: int) -> None:
        self._reading[request] = characters

    def fails(self, request: Hashable) -> None:
        """A question that was not answered at all."""
        self._reading.pop(request, None)

    def weigh(self, characters: int) -> None:
        """So much more came of an answer. It is drawn when it is whole, or at once when there is surely no room for it."""
        self._weighed += characters
        left = self._ctx.budget.tokens
        if left is not None and self._weighed > left * SURELY_PER_TOKEN:
            self.break_off()

    def break_off(self) -> None:
        """What came of answers that will not be whole."""
        if self._weighed:
            used = estimated(sum(self._reading.values()), self._weighed)
            self._reading, self._weighed = {}, 0
            self._draw(used.tokens, None, used, "")

    def answered(self, request: Hashable, one: Answered) -> None:
        """A budget that is passed stops the run here."""
        read = self._reading.pop(request, 0)
        self._weighed = max(0, self._weighed - one.written) if self._reading else 0
        used = one.used if _is_sound(one.used) else estimated(read, one.written)
        own = self._costs(one.model, used) if one.model and (one.cost is None or self._is_priced(one.model)) else None
        self._cost_of_total += one.cost or 0.0
        tokens = used.tokens if one.total is None or used.is_estimated else self._rest(one.total)
        self._draw(tokens, one.cost if own is None else own, used, one.model)

    def total(self, tokens: int) -> None:
        """The framework's own: more than was told of requests are those of runs inside of its run."""
        rest = self._rest(tokens)
        if rest:
            self._ctx.spend(tokens=rest)
            if self._ctx.budget.cost is not None and self._is_first("inner"):
                self._ctx.progress("The money of agents inside of it is counted only where its framework knows it.")

    def total_cost(self, cost: float) -> None:
        """Between two requests: then everything that was told of is in it."""
        rest = cost - self._cost_of_total
        if rest > 1e-12:
            self._cost_of_total = cost
            self._ctx.spend(cost=rest)

    def _rest(self, total: int) -> int:
        rest = max(0, total - self._of_total)
        self._of_total += rest
        return rest

    def _draw(self, tokens: int, cost: float | None, used: Spent, model: str) -> None:
        if cost is None and self._ctx.budget.cost is not None and self._is_first(f"price {model}"):
            self._ctx.progress(f"The price of {model or 'its model'} is unknown: its money is not counted. Write it under [prices].")
        if used.is_estimated and self._is_first("estimated"):
            self._ctx.progress("Its model does not say how many tokens it used: they are estimated.")
        self._ctx.spend(tokens=tokens, cost=cost or 0.0)

    def _is_first(self, what: str) -> bool:
        is_first = what not in self._has_told
        self._has_told.add(what)
        return is_first


def estimated(read: int, written: int) -> Spent:
    """By the characters, where a provider does not say."""
    return Spent(input_tokens=read // CHARACTERS_PER_TOKEN + 1, output_tokens=max(1, written // CHARACTERS_PER_TOKEN), is_estimated=True)


def _is_sound(used: Spent) -> bool:
    """Less than nothing would fill a budget up again; nothing at all is no answer either."""
    return used.input_tokens >= 0 and used.output_tokens >= 0 and 0 < used.tokens <= MOST_TOLD
