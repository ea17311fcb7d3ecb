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
from remit.models.known import OWN_HOSTS
from remit.models.naming import LOCAL, Meant, meant_by
from remit.settings.values import Price, Settings

_FREE = Price(input=0.0, output=0.0)
_IDS = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "azure-responses": "azure",
    "google-cloud": "google",
    "bedrock": "aws",
    "bedrock-mantle": "aws",
    "xai": "x-ai",
    "huggingface": "huggingface",
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
    for name in (meant.name, f"{meant.provider}:{meant.model}", f"{meant.provider}/{meant.model}"):
        if name in settings.prices:
            return settings.prices[name]
    if meant.provider in (LOCAL, "ollama", "vllm"):
        return _FREE if meant.provider == LOCAL else None
    if meant.is_named and meant.url is not None and not any(host in meant.url for host in OWN_HOSTS):
        return None  # whoever answers there has prices of their own
    return _known(_IDS.get(meant.provider.removeprefix("gateway/"), meant.provider.removeprefix("gateway/")), meant.model)


@lru_cache(maxsize=256)
def _known(provider: str, model: str) -> Price | None:
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    with suppress(LookupError, ValueError):
        _, found = get_snapshot().find_provider_model(model, provider=None, provider_id=provider, provider_api_url=None)
        prices = found.get_prices(datetime.now(UTC))
        given, taken = _each(prices.input_mtok), _each(prices.output_mtok)
        if given is not None and taken is not None:
            return Price(input=given, output=taken, cached=_each(prices.cache_read_mtok))
    return None


def _each(price: Any) -> float | None:
    """Of a price in steps the first: longer questions may cost more, which is then counted too low."""
    if isinstance(price, Decimal | int | float):
        return float(price)
    base = getattr(price, "base", None)
    return None if base is None else float(base)
