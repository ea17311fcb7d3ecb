"""Plain JSON out of whatever an agent's code made: what is kept on disk must be what the caller was handed.

Knows nothing of returns. Used by `receive`, `validate` and every builder of returns.
"""

import dataclasses
import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic_core import to_jsonable_python

from remit.core.errors import Failed
from remit.core.ids import SHORTEST, redact_tokens

MAX_DEPTH = 100
"""Levels of nesting; the serializer below gives up at 255, and a return wraps what it is given."""
MAX_VALUES = 250_000
"""In one value, each counted as often as it would be written: a list that holds one list a thousand times over must end too."""
MAX_CHARACTERS = 64 * 1024 * 1024
_MAX_BITS = 14_000
"""About 4,200 digits: Python refuses to read more than 4,300 back from text."""
_SIMPLE = frozenset({int, float, bool, type(None)})
_CONSTANTS = frozenset({bool, type(None)})
_LISTS = (list, tuple, set, frozenset, deque)
_BUILT_IN = frozenset({dict, list, tuple})
"""What nearly every value is made of: known by its type alone, which is quicker than to ask what it can do."""


def clean_text(text: str) -> str:
    """`text` with a question mark in place of each lone surrogate, which no encoding can carry, and without the secrets of tokens."""
    if len(text) >= SHORTEST:
        text = redact_tokens(text)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def to_jsonable(value: Any) -> Any:
    """`value` as JSON holds it. NaN and the infinities become null. Raises `Failed` for what cannot be held, saying why."""
    try:
        check_size(value)
        return _plain(value, MAX_DEPTH)
    except Failed:
        raise
    except Exception as error:  # an agent's object may raise anything while it is being read
        raise Failed(f"a {type(value).__name__} that JSON cannot hold", code="VALIDATION_FAILED") from error


def check_size(value: Any) -> None:
    """Raise `Failed` for what would take for ever to read: iterators, and values that are small in memory and vast on paper.

    To be asked before compiled code reads it: once that has begun, nothing can stop it.
    """
    values = characters = 0
    stack: list[tuple[Collection[Any], int]] = [((value,), MAX_DEPTH)]
    while stack:
        items, levels = stack.pop()
        for item in items:
            kind = type(item)
            if kind in _SIMPLE:
                continue
            if kind is str or isinstance(item, str | bytes | bytearray):
                characters += len(item)
            elif kind not in _BUILT_IN and isinstance(item, Iterator):
                raise Failed(f"a {kind.__name__}, which may never end: hand over a list", code="VALIDATION_FAILED")
            elif levels == 0:
                raise Failed(f"nested deeper than {MAX_DEPTH} levels", code="VALIDATION_FAILED")
            else:
                inside = _inside(item)
                values += len(inside)
                stack.append((inside, levels - 1))
            if values > MAX_VALUES or characters > MAX_CHARACTERS:
                what = f"more than {MAX_VALUES:,} values or {MAX_CHARACTERS:,} characters"
                raise Failed(f"{what}: hand over a file instead", code="VALIDATION_FAILED")


def safe_repr(value: Any, limit: int = 100_000) -> str:
    """`value` as a programmer would see it, as far as that can be had: for messages and for keeping what was no answer."""
    try:
        check_size(value)
        return clean_text(repr(value))[:limit]
    except Exception as error:  # noqa: BLE001 - an agent's object may raise anything, even from __repr__
        return f"<a {type(value).__name__} that cannot be shown: {error.message if isinstance(error, Failed) else type(error).__name__}>"


def _inside(value: Any) -> Collection[Any]:
    if type(value) is dict or isinstance(value, Mapping):
        return value.values()
    if isinstance(value, _LISTS):
        return value
    if isinstance(value, type):
        return ()
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    held: dict[str, Any] = getattr(value, "__dict__", {})
    return held.values()


def _plain(value: Any, levels: int) -> Any:
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if kind in _CONSTANTS:
        return value
    if kind is int:
        return _bounded(value)
    if kind not in _BUILT_IN:
        if isinstance(value, str):
            return clean_text(str.__str__(value))
        if isinstance(value, int):
            return _bounded(int(value))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
    if levels == 0:
        raise Failed(f"nested deeper than {MAX_DEPTH} levels", code="VALIDATION_FAILED")
    if kind is dict or isinstance(value, Mapping):
        return {
            _key(key): item if type(item) in _CONSTANTS else _plain(item, levels - 1)  # a call less for what is frequent
            for key, item in value.items()
        }
    if isinstance(value, _LISTS):
        return [_plain(item, levels - 1) for item in value]
    return _plain(_converted(value), levels - 1)


def _bounded(number: int) -> int:
    if number.bit_length() > _MAX_BITS:
        raise Failed("a number of more than 4,000 digits", code="VALIDATION_FAILED")
    return number


def _key(key: Any) -> str:
    if type(key) is str:
        return clean_text(key)
    return clean_text(str.__str__(key)) if isinstance(key, str) else clean_text(str(_converted(key)))


def _converted(value: Any) -> Any:
    """Models, dates, paths, dataclasses and the like by pydantic's rules."""
    return to_jsonable_python(value, inf_nan_mode="null")
