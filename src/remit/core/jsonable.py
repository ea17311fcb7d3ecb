"""Plain JSON from the values of agents' code, so that the recorded value equals the one the caller receives.

Independent of returns. Used by `receive`, `validate` and every builder of returns."""

import dataclasses
import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from remit.core.errors import Failed, Misused
from remit.core.ids import SHORTEST, redact_token_bytes, redact_tokens

MAX_DEPTH = 100
"""Maximum nesting. The serializer gives up at 255, and a return wraps the value."""
MAX_VALUES = 250_000
"""Maximum values in one value, each counted as often as it would be written: a list that contains one list a thousand times must be bounded
too."""
MAX_CHARACTERS = 64 * 1024 * 1024
_MAX_BITS = 14_000
"""About 4,200 digits: Python refuses to parse more than 4,300."""
_SIMPLE = frozenset({int, float, bool, type(None)})
_CONSTANTS = frozenset({bool, type(None)})
_LISTS = (list, tuple, set, frozenset, deque)
_BUILT_IN = frozenset({dict, list, tuple})
"""The most frequent types, recognised by type alone, which is faster than protocol checks."""


def clean_text(text: str) -> str:
    """`text` with a question mark for each lone surrogate, which cannot be encoded, and without token secrets."""
    if len(text) >= SHORTEST:
        text = redact_tokens(text)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def to_jsonable(value: Any) -> Any:
    """`value` as plain JSON. NaN and infinities become null. Raises `Failed` with the reason for other values."""
    try:
        check_size(value)
        return _plain(value, MAX_DEPTH)
    except Failed:
        raise
    except Exception as error:  # reading an agent's object may raise anything
        raise Failed(f"a {type(value).__name__} that JSON cannot hold", code="VALIDATION_FAILED") from error


def check_size(value: Any) -> None:
    """Raise `Failed` for values that would take for ever to serialize: iterators, and values that are small in memory but huge as text.

    Call it before compiled code reads the value: that cannot be interrupted."""
    values = characters = 0
    stack: list[tuple[Collection[Any], int]] = [((value,), MAX_DEPTH)]
    while stack:
        items, levels = stack.pop()
        for item in items:
            kind = type(item)
            if kind in _SIMPLE:
                continue
            if kind is str:
                characters += len(item)
                continue
            if kind is dict and levels:
                inside: Collection[Any] = item.values()
            elif isinstance(item, str | bytes | bytearray):
                characters += len(item)
                continue
            elif kind not in _BUILT_IN and isinstance(item, Iterator):
                raise Failed(f"a {kind.__name__}, which may never end: hand over a list", code="VALIDATION_FAILED")
            elif levels == 0:
                raise Failed(f"nested deeper than {MAX_DEPTH} levels", code="VALIDATION_FAILED")
            else:
                inside = _inside(item)
            if not _SIMPLE.issuperset(map(type, inside)):
                stack.append((inside, levels - 1))
            values += len(inside)
            if values > MAX_VALUES:
                raise _too_large()
        if characters > MAX_CHARACTERS:
            raise _too_large()


def _too_large() -> Failed:
    what = f"more than {MAX_VALUES:,} values or {MAX_CHARACTERS:,} characters"
    return Failed(f"{what}: hand over a file instead", code="VALIDATION_FAILED")


def safe_repr(value: Any, limit: int = 100_000) -> str:
    """A `repr` of `value` that never fails, for messages and for keeping invalid answers."""
    try:
        check_size(value)
        return clean_text(repr(value))[:limit]
    except Exception as error:  # noqa: BLE001 - an agent's object may raise anything, even in __repr__
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
            _key(key): item if type(item) in _CONSTANTS else _plain(item, levels - 1)  # saves a call in the frequent case
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
    """Convert models, dates, paths, dataclasses and the like with pydantic."""
    return to_jsonable_python(value, inf_nan_mode="null")


def _is_not_unicode(*values: Any) -> bool:
    """Whether a text in these contains a lone surrogate: a byte of a command line that is not UTF-8, or half a pair from JSON."""
    stack, left = list(values), MAX_VALUES
    while stack and left:
        value, left = stack.pop(), left - 1
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                return True
        elif isinstance(value, dict):
            stack += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            stack += value
    return False


def plain_parameters(parameters: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Parameters as plain JSON without tokens, for the record and for other processes; as values and as text."""
    try:
        check_size(parameters)
        data = redact_token_bytes(to_json(dict(parameters), inf_nan_mode="constants"))
        plain = from_json(data)
    except (Failed, PydanticSerializationError, ValueError, RecursionError, UnicodeError) as error:
        # only what passed `check_size` can be searched in bounded time
        wrong = () if isinstance(error, Failed) else [str(name) for name, value in parameters.items() if _is_not_unicode(name, value)]
        if wrong:
            raise Misused(
                f"Parameters must be text in UTF-8, and these are not: {clean_text(', '.join(wrong))}.",
                advice="Write them in UTF-8. Rename a file whose name is not UTF-8, or pass its folder.",
            ) from None
        raise Misused(
            f"Parameters must be what JSON can hold: {error}",
            advice="Pass text, numbers, lists and mappings; leave files and objects to paths and names.",
        ) from None
    assert isinstance(plain, dict)
    return plain, data
