"""Tokens and cost of a question: estimated before the request and if a provider reports nothing, otherwise as reported.

An estimate is the number of characters divided by four. Prices come from `[prices]`, then from the installed genai-prices, never from the
network; an unknown price is reported as unknown."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from remit.core.budget import Limits
from remit.core.errors import Stopped, Unavailable
from remit.core.model_messages import Question, SpendSink
from remit.core.settings import Price, Settings
from remit.models.local import DEFAULT_CONTEXT_TOKENS
from remit.models.providers import LOCAL, OWN_HOSTS, ModelRef, resolve_model
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from pydantic_ai.usage import RequestUsage

# ---- tokens


CHARACTERS_PER_TOKEN = 4
FEWEST_TOKENS = 64
"""Minimum length of a reply, which some providers require."""
MOST_TOLD = 1_000_000_000
"""Maximum plausible tokens of one reply; a larger report is ignored."""
UNPRICED = "The price of this model is unknown, so the budget of money does not hold it: limit tokens, or say its price under [prices]."
_PER = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Input tokens from the provider's cache."""
    written_tokens: int = 0
    """Tokens written to the cache, at their own price."""
    is_estimated: bool = False

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def estimated_input(question: Question) -> int:
    parts = (question.instructions, *question.messages, *question.tools)
    return sum(len(str(part)) for part in parts) // CHARACTERS_PER_TOKEN + 1


def usage_of(usage: "RequestUsage", question: Question, *, characters: int, is_whole: bool) -> TokenUsage:
    """The provider's reported usage of a complete reply. Without a report, or if the reply broke off, at least what was seen: the question
    and the received characters."""
    given, taken = _plausible(usage.input_tokens), _plausible(usage.output_tokens)
    is_told = is_whole and given is not None and taken is not None and given + taken > 0
    return TokenUsage(
        input_tokens=(given or 0) if is_told else given or estimated_input(question),
        output_tokens=(taken or 0) if is_told else max(taken or 0, -(-characters // CHARACTERS_PER_TOKEN)),
        cached_tokens=_plausible(usage.cache_read_tokens) or 0,
        written_tokens=_plausible(usage.cache_write_tokens) or 0,
        is_estimated=not is_told,
    )


def _plausible(tokens: Any) -> int | None:
    """A valid token count; None otherwise: a negative count would refill a budget."""
    return tokens if isinstance(tokens, int) and 0 <= tokens <= MOST_TOLD else None


def most_tokens(sink: SpendSink, question: Question, own: int | None, price: Price | None) -> int | None:
    """Maximum length of the reply: of the request, the model's settings and the tree's budget. None: no limit.

    Raises `Stopped` (BUDGET_EXCEEDED) if the question alone would exceed the budget by far: it is not sent."""
    bounds = [bound for bound in (question.max_tokens, own) if bound is not None]
    left: Any = getattr(sink, "budget", None)
    if isinstance(left, Limits):
        asking = estimated_input(question)
        if left.tokens is not None:
            bounds.append(_affordable(left.tokens - asking, f"{left.tokens} tokens are left", asking))
        if left.cost is not None and price is not None and price.output > 0:
            rest = (left.cost - asking * price.input / _PER) / price.output * _PER
            bounds.append(_affordable(int(rest), f"{left.cost:g} of money is left", asking))
        elif left.cost is not None and price is None:
            sink.progress(UNPRICED)
    return min(bounds) if bounds else None


def _affordable(tokens: int, left: str, asking: int) -> int:
    if tokens < -asking // 2 or (tokens <= 0 and asking < FEWEST_TOKENS):
        raise Stopped(
            f"The question is about {asking} tokens long, and {left} in this tree's budget: it was not asked.",
            code="BUDGET_EXCEEDED",
            advice="Give the tree a larger budget.",
        )
    return max(tokens, FEWEST_TOKENS)


# ---- prices


_IDS = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "google-cloud": "google",
    "bedrock": "aws",
    "xai": "x-ai",
}
"""Provider names in genai-prices, if different."""


def price_for(settings: Settings, meant: ModelRef | str) -> Price | None:
    """Per million tokens, in dollars unless `[prices]` says otherwise. None: unknown. For a price in tiers the first counts: longer
    questions may cost more."""
    said, found = _prices(settings, meant)
    if found is None:
        return said
    listed = found.get_prices(datetime.now(UTC))
    given, taken, cached = (getattr(one, "base", one) for one in (listed.input_mtok, listed.output_mtok, listed.cache_read_mtok))
    if given is None or taken is None:
        return None
    return Price(input=float(given), output=float(taken), cached=None if cached is None else float(cached))


def cost_of(settings: Settings, meant: ModelRef | str, used: TokenUsage) -> float | None:
    """Cost of one question, with the tiers and cached parts of the provider's prices. None: unknown."""
    said, found = _prices(settings, meant)
    read = min(used.cached_tokens, used.input_tokens)
    if said is not None:
        cached = said.input if said.cached is None else said.cached
        return ((used.input_tokens - read) * said.input + read * cached + used.output_tokens * said.output) / _PER
    if found is None:
        return None
    from genai_prices.types import Usage

    written = min(used.written_tokens, used.input_tokens - read)
    usage = Usage(input_tokens=used.input_tokens, output_tokens=used.output_tokens, cache_read_tokens=read, cache_write_tokens=written)
    with suppress(LookupError, ValueError):
        return float(found.get_prices(datetime.now(UTC)).calc_price(usage)["total_price"])
    return None


async def load_prices() -> None:
    """Load the price table, which takes a while."""
    if not _find_price.cache_info().currsize:
        await off_loop(_find_price, "openai", "any")


def context_of(meant: ModelRef) -> int | None:
    """Context size in tokens. None: unknown."""
    if meant.context_tokens is not None:
        return meant.context_tokens
    if meant.provider == LOCAL:
        return DEFAULT_CONTEXT_TOKENS
    found = _find_price(_id(meant), meant.model)
    return None if found is None else found.context_window


def _prices(settings: Settings, meant: ModelRef | str) -> tuple[Price | None, Any]:
    """What `[prices]` says by name or as `provider:model`, else the entry of the price table. None where another server answers, with its
    own prices: a table with an address, or a private server. A name may be unknown here: another program uses that model."""
    if isinstance(meant, str):
        name = meant
        try:
            meant = resolve_model(settings, name)
        except Unavailable:
            return settings.prices.get(name), None
    for name in (meant.name, f"{meant.provider}:{meant.model}", f"{meant.provider}/{meant.model}"):
        if name in settings.prices:
            return settings.prices[name], None
    if meant.provider == LOCAL:
        return Price(input=0.0, output=0.0), None
    is_elsewhere = meant.is_named and meant.url is not None and not any(host in meant.url for host in OWN_HOSTS)
    return None, None if is_elsewhere or meant.provider in ("ollama", "vllm") else _find_price(_id(meant), meant.model)


def _id(meant: ModelRef) -> str:
    return _IDS.get(meant.provider, meant.provider)


@lru_cache(maxsize=256)
def _find_price(provider: str, model: str) -> Any:
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    with suppress(LookupError, ValueError):
        return get_snapshot().find_provider_model(model, provider=None, provider_id=provider, provider_api_url=None)[1]
    return None
