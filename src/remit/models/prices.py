"""What a model costs: the table `[prices]` of the settings first, then what genai-prices knows, else unknown.

Never fetched: prices are those of the installed package. Importing it costs time, so only who asks for a price pays. Used by `asking`
and by the list of models.
"""

from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from remit.core.errors import Unavailable
from remit.models.counting import Spent, money
from remit.models.known import OWN_HOSTS
from remit.models.naming import LOCAL, Meant, meant_by
from remit.settings.values import Price, Settings
from remit.system.threads import off_loop

_FREE = Price(input=0.0, output=0.0)
_IDS = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "azure-responses": "azure",
    "google-cloud": "google",
    "bedrock": "aws",
    "bedrock-mantle": "aws",
    "xai": "x-ai",
}
"""What genai-prices calls a provider, where it differs."""


def price_of(settings: Settings, name: str) -> Price | None:
    """For a million tokens, in dollars unless `[prices]` says otherwise. None: unknown. Never raises for a name nobody knows."""
    try:
        return price_for(settings, meant_by(settings, name))
    except Unavailable:
        return settings.prices.get(name)


def price_for(settings: Settings, meant: Meant) -> Price | None:
    """By its name, then as `provider:model`, then by what is known of it at the provider's own address."""
    said = _said(settings, meant)
    if said is not None:
        return said
    found = None if _is_elsewhere(meant) else _found(_id(meant), meant.model)
    if found is None:
        return None
    prices = found.get_prices(datetime.now(UTC))
    given, taken = _each(prices.input_mtok), _each(prices.output_mtok)
    return Price(input=given, output=taken, cached=_each(prices.cache_read_mtok)) if given is not None and taken is not None else None


def cost_of(settings: Settings, meant: Meant, used: Spent) -> float | None:
    """Of one question: with the steps and the cached parts that a provider's prices have. None: unknown."""
    said = _said(settings, meant)
    if said is not None:
        return money(said, used)
    found = None if _is_elsewhere(meant) else _found(_id(meant), meant.model)
    if found is None:
        return None
    from genai_prices.types import Usage

    read = min(used.cached_tokens, used.input_tokens)
    written = min(used.written_tokens, used.input_tokens - read)
    usage = Usage(input_tokens=used.input_tokens, output_tokens=used.output_tokens, cache_read_tokens=read, cache_write_tokens=written)
    with suppress(LookupError, ValueError):
        return float(found.get_prices(datetime.now(UTC)).calc_price(usage)["total_price"])
    return money(price_for(settings, meant), used)


def cost_by_name(settings: Settings, name: str, used: Spent) -> float | None:
    """`cost_of` a model that somebody else asks, by what they call it."""
    try:
        return cost_of(settings, meant_by(settings, name), used)
    except Unavailable:
        return money(settings.prices.get(name), used)


async def load_prices() -> None:
    """The table of genai-prices takes a while to load."""
    if not _found.cache_info().currsize:
        await off_loop(_found, "openai", "any")


def context_of(meant: Meant) -> int | None:
    """How many tokens it can read at once. None: unknown."""
    if meant.context_tokens is not None or meant.provider == LOCAL:
        return meant.context_tokens
    found = _found(_id(meant), meant.model)
    return None if found is None else found.context_window


def _said(settings: Settings, meant: Meant) -> Price | None:
    for name in (meant.name, f"{meant.provider}:{meant.model}", f"{meant.provider}/{meant.model}"):
        if name in settings.prices:
            return settings.prices[name]
    return _FREE if meant.provider == LOCAL else None


def _is_elsewhere(meant: Meant) -> bool:
    """Whether somebody else answers, who has prices of their own: a table with an address, or a server of one's own."""
    if meant.provider in ("ollama", "vllm"):
        return True
    return meant.is_named and meant.url is not None and not any(host in meant.url for host in OWN_HOSTS)


def _id(meant: Meant) -> str:
    provider = meant.provider.removeprefix("gateway/")
    return _IDS.get(provider, provider)


@lru_cache(maxsize=256)
def _found(provider: str, model: str) -> Any:
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    with suppress(LookupError, ValueError):
        return get_snapshot().find_provider_model(model, provider=None, provider_id=provider, provider_api_url=None)[1]
    return None


def _each(price: Any) -> float | None:
    """Of a price in steps the first: longer questions may cost more, which is then counted too low."""
    if isinstance(price, Decimal | int | float):
        return float(price)
    base = getattr(price, "base", None)
    return None if base is None else float(base)
