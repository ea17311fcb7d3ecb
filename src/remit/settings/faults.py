"""What is wrong with settings, said so that it can be put right: the place, the key, what is allowed, and what was meant."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from remit.core.deadline import TimeLimits
from remit.core.errors import Misused
from remit.settings.layers import Key, Layer
from remit.settings.model import BudgetTable, RuleTable, SearchTable, SettingsTable, TimeoutTable, WebTable


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
    return f"{source}: {key} must be {demand}, not {found['input']!r}"


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
        case _:
            return SettingsTable


def _source(location: Key, layer: Layer) -> str:
    """Where the value at `location`, or the nearest part of it, was said."""
    for key, said in layer.items():
        shorter = min(len(key), len(location))
        if key[:shorter] == location[:shorter]:
            return said.source
    return "settings"
