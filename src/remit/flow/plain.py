"""Plain JSON out of whatever an agent's code made: what is kept on disk must be what the caller was handed.

Knows nothing of returns. Used by `receive` and `validate`, and by whoever puts an agent's value into a return.
"""

import math
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_jsonable_python

from remit.core.errors import Failed

MAX_DEPTH = 100
"""Levels of nesting; the serializer below gives up at 255, and a return wraps what it is given."""
_MAX_BITS = 14_000
"""About 4,200 digits: Python refuses to read more than 4,300 back from text."""


def clean(text: str) -> str:
    """`text` with a question mark in place of each lone surrogate: no encoding can carry those."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def plain(value: Any) -> Any:
    """`value` as JSON holds it. NaN and the infinities become null. Raises `Failed` for what cannot be held, saying why."""
    try:
        return _plain(value, MAX_DEPTH)
    except Failed:
        raise
    except Exception as error:  # an agent's object may raise anything while it is being read
        raise Failed(f"a {type(value).__name__} that JSON cannot hold", code="VALIDATION_FAILED") from error


def _plain(value: Any, levels: int) -> Any:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return clean(str.__str__(value))
    if isinstance(value, int):
        return _bounded(int(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if levels == 0:
        raise Failed(f"nested deeper than {MAX_DEPTH} levels", code="VALIDATION_FAILED")
    if isinstance(value, Mapping):
        return {_key(key): _plain(item, levels - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, levels - 1) for item in value]
    return _plain(_converted(value), levels - 1)


def _bounded(number: int) -> int:
    if number.bit_length() > _MAX_BITS:
        raise Failed("a number of more than 4,000 digits", code="VALIDATION_FAILED")
    return number


def _key(key: Any) -> str:
    return clean(str.__str__(key)) if isinstance(key, str) else clean(str(_converted(key)))


def _converted(value: Any) -> Any:
    """Models, dates, paths, dataclasses and the like by pydantic's rules."""
    return to_jsonable_python(value, inf_nan_mode="null")
