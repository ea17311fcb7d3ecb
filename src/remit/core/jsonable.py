"""Plain JSON from the values of agents' code, so that the recorded value equals the one the caller receives.

Independent of returns. Used by `receive`, `validate` and every builder of returns."""

import dataclasses
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
    if type(value) in _CONSTANTS:
        return value
    try:
        check_size(value)
        try:
            data = to_json(value, inf_nan_mode="null", fallback=_plain_mapping)
        except ValueError:  # a lone surrogate, which only Python's own text has
            data = to_json(_encodable(to_jsonable_python(_encodable(value), inf_nan_mode="null", fallback=_plain_mapping)))
        return from_json(redact_token_bytes(data))
    except Failed:
        raise
    except Exception as error:  # reading an agent's object may raise anything
        raise Failed(f"a {type(value).__name__} that JSON cannot hold", code="VALIDATION_FAILED") from error


def _plain_mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(type(value).__name__)


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {_encodable(name): _encodable(one) for name, one in value.items()}
    return [_encodable(one) for one in value] if isinstance(value, _LISTS) else value


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


def plain_parameters(parameters: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Parameters as plain JSON without tokens, for the record and for other processes; as values and as text."""
    try:
        check_size(parameters)
        data = redact_token_bytes(to_json(dict(parameters), inf_nan_mode="constants"))
        plain = from_json(data)
    except (Failed, PydanticSerializationError, ValueError, RecursionError, UnicodeError) as error:
        raise Misused(
            f"Parameters must be what JSON can hold, with text in UTF-8: {error}",
            advice="Pass text, numbers, lists and mappings; leave files and objects to paths and names.",
        ) from None
    assert isinstance(plain, dict)
    return plain, data
