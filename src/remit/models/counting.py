"""Tokens and money of a question: estimated before it is asked and where a provider does not say, else as it says. Used by `asking`.

An estimate is the number of characters divided by four: near for English and code, low for other scripts, and said to be one.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from remit.core.budget import Limits
from remit.core.errors import Stopped
from remit.models.messages import Message, Reply, Result, Said
from remit.models.question import Purse, Question
from remit.settings.values import Price

CHARACTERS_PER_TOKEN = 4
FEWEST_TOKENS = 64
"""Of a reply: below it no provider says anything, and some refuse."""
MOST_TOLD = 1_000_000_000
"""Tokens that one reply can have used; a provider that says more has said nothing."""
UNPRICED = "The price of this model is unknown, so the budget of money does not hold it: limit tokens, or say its price under [prices]."
_PER = 1_000_000


class Usage(Protocol):
    """As pydantic-ai counts it."""

    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def cache_read_tokens(self) -> int: ...
    @property
    def cache_write_tokens(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Those of the input that the provider read from its cache."""
    written_tokens: int = 0
    """Those that it put there, at a price of their own."""
    is_estimated: bool = False

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def estimated_input(question: Question) -> int:
    characters = len(question.instructions) + sum(map(_size, question.messages))
    characters += sum(len(tool.description) + len(str(tool.schema)) for tool in question.tools)
    return characters // CHARACTERS_PER_TOKEN + 1


def _size(message: Message) -> int:
    if isinstance(message, Said | Result):
        return len(message.text)
    assert isinstance(message, Reply)
    return len(message.text) + sum(len(call.name) + len(str(call.arguments)) for call in message.calls)


def spent(usage: Usage, question: Question, *, characters: int, is_whole: bool) -> Spent:
    """What a provider said was used, of a whole reply. Where it said nothing, or the reply broke off before it could, at least what
    was seen: the question, and the characters that came."""
    given, taken = _sound(usage.input_tokens), _sound(usage.output_tokens)
    is_told = is_whole and given is not None and taken is not None and given + taken > 0
    return Spent(
        input_tokens=(given or 0) if is_told else given or estimated_input(question),
        output_tokens=(taken or 0) if is_told else max(taken or 0, -(-characters // CHARACTERS_PER_TOKEN)),
        cached_tokens=_sound(usage.cache_read_tokens) or 0,
        written_tokens=_sound(usage.cache_write_tokens) or 0,
        is_estimated=not is_told,
    )


def _sound(tokens: Any) -> int | None:
    """A number that can be one of tokens: less than nothing would fill a budget up again. None: it is none."""
    return tokens if isinstance(tokens, int) and 0 <= tokens <= MOST_TOLD else None


def money(price: Price | None, used: Spent) -> float | None:
    """None: the price is unknown."""
    if price is None:
        return None
    cached = min(used.cached_tokens, used.input_tokens)
    cached_price = price.input if price.cached is None else price.cached
    return ((used.input_tokens - cached) * price.input + cached * cached_price + used.output_tokens * price.output) / _PER


def most_tokens(purse: Purse, question: Question, own: int | None, price: Price | None) -> int | None:
    """How long the reply may be: what was asked for, what the model's table says, what the tree's budget has left. None: no limit of ours.

    Raises `Stopped` (BUDGET_EXCEEDED) where the question alone would pass the budget by far: it is not asked at all.
    """
    bounds = [bound for bound in (question.max_tokens, own) if bound is not None]
    left: Any = getattr(purse, "budget", None)
    if isinstance(left, Limits):
        asking = estimated_input(question)
        if left.tokens is not None:
            bounds.append(_affordable(left.tokens - asking, f"{left.tokens} tokens are left", asking))
        if left.cost is not None and price is not None and price.output > 0:
            rest = (left.cost - asking * price.input / _PER) / price.output * _PER
            bounds.append(_affordable(int(rest), f"{left.cost:g} of money is left", asking))
        elif left.cost is not None and price is None:
            purse.progress(UNPRICED)
    return min(bounds) if bounds else None


def _affordable(tokens: int, left: str, asking: int) -> int:
    if tokens < -asking // 2 or (tokens <= 0 and asking < FEWEST_TOKENS):
        raise Stopped(
            f"The question is about {asking} tokens long, and {left} in this tree's budget: it was not asked.",
            code="BUDGET_EXCEEDED",
            advice="Give the tree a larger budget.",
        )
    return max(tokens, FEWEST_TOKENS)
