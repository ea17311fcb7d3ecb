"""Values as they are typed at a prompt: `k=v` pairs, budgets, moments like `2h` or an ISO date. Pure, but for `k=@file`."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from remit.core.errors import Misused

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGO = re.compile(r"^(\d+(?:\.\d+)?)([smhdw])$")


def pairs(given: Sequence[str], schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`k=v …`: JSON where it is JSON, else text; `k=@file` is the text of a file. What the schema calls a string stays text."""
    found: dict[str, Any] = {}
    properties = (schema or {}).get("properties", {})
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Misused(f"{pair!r} is not of the form name=value.", advice="Write e.g. path=README.md count=3 'tags=[\"a\"]'.")
        if name in found:
            raise Misused(f"{name} is given twice.", advice="Give a list as JSON: 'name=[1, 2]'.")
        found[name] = _value(name, value, wants_text=_is_text(properties.get(name)))
    return found


def _is_text(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "string"


def _value(name: str, text: str, *, wants_text: bool) -> Any:
    if text.startswith("@"):
        return _contents(name, text[1:])
    value = _parsed(text)
    return text if wants_text and not isinstance(value, str) else value


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _contents(name: str, file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise Misused(f"{name}: {file} cannot be read: {error.strerror or error}.", advice="Name a file after the @.") from None
    except UnicodeDecodeError:
        raise Misused(f"{name}: {file} is not UTF-8 text.", advice="Hand over its path instead of its contents.") from None


def moment(text: str | None, option: str, now: float) -> float | None:
    """Wall clock seconds: `1h` or `2d` ago, an ISO date or time (local unless it says otherwise), or unix seconds."""
    if text is None:
        return None
    if ago := _AGO.match(text.strip()):
        return now - float(ago[1]) * _UNITS[ago[2]]
    try:
        return float(text) if re.fullmatch(r"\d{9,}(\.\d+)?", text) else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise Misused(
            f"{option}: {text!r} is no time.", advice="Use e.g. 30m, 2h, 1d ago, or an ISO time such as 2026-01-31T12:00."
        ) from None
