"""The language models of a project, gathered for `remit models` and `remit doctor`. Asks none of them, and shows no key."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from remit.core.errors import Unavailable
from remit.core.secrets import redacted_text
from remit.models.local import DEFAULT_CONTEXT_TOKENS, find_weights
from remit.models.pricing import price_for
from remit.models.providers import LOCAL, PROVIDERS, Meant, meant_by
from remit.settings.values import Price, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A model that the settings name."""

    name: str
    place: int | None
    """Which one it is in the setting `model`, from 1; None: it is only declared."""
    source: str
    """Where it was said."""
    meant: Meant | None = None
    price: Price | None = None
    context_tokens: int | None = None
    fault: str = ""
    """Why it cannot be asked as things stand, and what to do about it."""
    advice: str = ""

    @property
    def is_local(self) -> bool:
        return self.meant is not None and self.meant.provider == LOCAL

    def to_dict(self) -> dict[str, Any]:
        meant, price = self.meant, self.price
        return {
            "name": self.name,
            "place": self.place,
            "source": self.source,
            "provider": meant.provider if meant else None,
            "model": meant.model if meant else None,
            "url": redacted_text(meant.url) if meant and meant.url else None,
            "key_variables": list(meant.key_variables) if meant else [],
            "key_set": bool(meant and meant.key),
            "price": {"input": price.input, "output": price.output, "cached": price.cached} if price else None,
            "context_tokens": self.context_tokens,
            "fault": self.fault or None,
            "advice": self.advice or None,
        }


def listed(settings: Settings, root: Path) -> list[Listed]:
    """Those of the setting `model`, in its order, then those that are declared beside them."""
    places = {name: number for number, name in enumerate(settings.model, 1)}
    return [_listed(settings, root, name, places.get(name)) for name in dict.fromkeys((*settings.model, *settings.models))]


def keys_present() -> Iterator[tuple[str, list[str]]]:
    """Variables of the environment that hold a provider's key, by name, and the providers that read them."""
    readers: dict[str, list[str]] = {}
    for provider, known in PROVIDERS.items():
        for variable in known.keys:
            readers.setdefault(variable, []).append(provider)
    yield from ((variable, providers) for variable, providers in readers.items() if os.environ.get(variable, "").strip())


def _listed(settings: Settings, root: Path, name: str, place: int | None) -> Listed:
    source = settings.source_of("model" if place is not None else f"models.{name}")
    try:
        meant = meant_by(settings, name)
        context_tokens, fault, advice = meant.context_tokens, meant.lacks or "", f"Set {meant.key_variables[0]}." if meant.lacks else ""
        if meant.provider == LOCAL:
            find_weights(meant.model, root)
            context_tokens = meant.context_tokens or DEFAULT_CONTEXT_TOKENS
    except Unavailable as error:
        return Listed(name=name, place=place, source=source, meant=_or_none(settings, name), fault=error.message, advice=error.advice)
    return Listed(
        name=name,
        place=place,
        source=source,
        meant=meant,
        price=price_for(settings, meant),
        context_tokens=context_tokens or _known_context(meant.provider, meant.model),
        fault=fault,
        advice=advice,
    )


def _or_none(settings: Settings, name: str) -> Meant | None:
    with suppress(Unavailable):
        return meant_by(settings, name)
    return None


@lru_cache(maxsize=256)
def _known_context(provider: str, model: str) -> int | None:
    """Of the same table as the prices."""
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    with suppress(LookupError, ValueError):
        _, found = get_snapshot().find_provider_model(model, provider=None, provider_id=provider.partition("-")[0], provider_api_url=None)
        return found.context_window
    return None
