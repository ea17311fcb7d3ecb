"""What is wrong with settings, said so that it can be put right: the place, the key, what is allowed, and what was meant."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from remit.core.deadline import TimeLimits
from remit.core.errors import Misused
from remit.core.secret_looks import is_secret_name
from remit.core.secrets import redacted_text
from remit.runtime.settings.layers import Key, Layer
from remit.runtime.settings.model import (
    AssistantTable,
    BudgetTable,
    ModelTable,
    PriceTable,
    RuleTable,
    SearchTable,
    ServeTable,
    SettingsTable,
    SignalTable,
    TimeoutTable,
    WebTable,
)

_VARIABLE = "the name of a variable of the environment (keys are never kept in files)"
_ADDRESS = "an address, http://HOST:PORT/… without a name or password in it"
_LISTENING = "unix, unix:PATH or HOST:PORT"
_PATTERNS = {
    **dict.fromkeys(("key_variable", "brave_key_variable"), _VARIABLE),
    **dict.fromkeys(("url", "searxng_url", "public_url", "otlp_url"), _ADDRESS),
    **dict.fromkeys(("http", "grpc"), _LISTENING),
}


def misused(faults: list[str]) -> Misused:
    message = "; ".join(faults)
    return Misused(
        message if message.endswith("?") else f"{message}.", advice="Put it right; `remit config --all` then lists every setting."
    )


def shape_faults(error: ValidationError, layer: Layer) -> list[str]:
    return list(dict.fromkeys(_fault(dict(found), layer) for found in error.errors()))


def timeout_faults(limits: Mapping[str, TimeLimits], layer: Layer) -> list[str]:
    """A default above its maximum: each may be right, the two together are not."""
    return [
        f"{_source(('timeouts', name), layer)}: the default of {limit.default_seconds:g} s for {name} is above its maximum of "
        f"{limit.maximum_seconds:g} s"
        for name, limit in limits.items()
        if limit.default_seconds > limit.maximum_seconds
    ]


def _fault(found: dict[str, Any], layer: Layer) -> str:
    location = tuple(str(part) for part in found["loc"])
    source = _source(location, layer)
    if found["type"] == "extra_forbidden":
        allowed = list(_table_at(location[:-1]).model_fields)
        close = get_close_matches(location[-1], allowed, n=1)
        if "key_variable" in allowed and is_secret_name(location[-1]):
            close = ["key_variable"]
        return f"{source}: there is no key {location[-1]!r}: " + (
            f"did you mean {close[0]}?" if close else f"allowed are {', '.join(allowed)}"
        )
    key = ".".join(location)
    if found["type"] == "missing":
        return f"{source}: {key} is missing"
    demand = found["msg"].removeprefix("Input should be ")
    if found["type"] in ("model_type", "dict_type", "model_attributes_type"):
        demand = "a table of keys"
    elif found["type"] == "string_too_short":
        demand = "text that is not empty"
    elif found["type"] == "string_pattern_mismatch":
        demand = _PATTERNS.get(location[-1], f"text of the form {found['ctx']['pattern']}")
    # Whoever puts a key where its variable's name belongs, or a password into an address, is not shown it on every screen.
    text = str(found["input"])
    is_secret = location[-1].endswith("key_variable") or redacted_text(text) != text
    shown = "not what stands there" if is_secret else f"not {found['input']!r}"
    return f"{source}: {key} must be {demand}, {shown}"


def _table_at(location: Key) -> type[BaseModel]:
    match location:
        case ("budget",):
            return BudgetTable
        case ("timeouts", _):
            return TimeoutTable
        case ("routing", *_):
            return RuleTable
        case ("web",):
            return WebTable
        case ("search",):
            return SearchTable
        case ("models", _):
            return ModelTable
        case ("prices", _):
            return PriceTable
        case ("assistant",):
            return AssistantTable
        case ("serve",):
            return ServeTable
        case ("signals",):
            return SignalTable
        case _:
            return SettingsTable


def _source(location: Key, layer: Layer) -> str:
    """Where the value at `location`, or the nearest part of it, was said."""
    for key, said in layer.items():
        shorter = min(len(key), len(location))
        if key[:shorter] == location[:shorter]:
            return said.source
    return "settings"
