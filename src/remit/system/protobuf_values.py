"""JSON as google.protobuf.Value and Struct, and seconds as nanoseconds, both ways.

Numbers of protobuf are doubles, and it reads no deeper than a hundred nested messages. Therefore, and nothing else is changed:
- a whole number comes back as an integer (2.0 as 2, which JSON does not tell apart); beyond 2**53 it stays a double;
- an integer beyond 2**53, which a double would round, becomes text with its digits, as in protobuf's own JSON;
- values nested deeper than `MAX_LEVELS` become JSON text;
- NaN and the infinities become null, a lone surrogate a question mark.
"""

import math
from collections.abc import Mapping
from json import dumps
from typing import Any

from google.protobuf.struct_pb2 import Struct, Value
from pydantic_core import to_json

MOST_EXACT = 2**53
MAX_LEVELS = 28
"""Each level takes three of the hundred messages."""
NANO = 10**9
_LONGEST = 2**63 - 1


def value_of(json: Any) -> Value:
    held = Struct()
    held.update({"value": _exact(json, MAX_LEVELS)})
    return held.fields["value"]


def struct_of(json: Mapping[str, Any]) -> Struct:
    struct = Struct()
    struct.update({text_of(str(name)): _exact(item, MAX_LEVELS) for name, item in json.items()})
    return struct


def json_of(value: Value) -> Any:
    """An unset value is None."""
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value
        case "number_value":
            return number_of(value.number_value)
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return dict_of(value.struct_value)
        case "list_value":
            return [json_of(item) for item in value.list_value.values]
    return None


def dict_of(struct: Struct) -> dict[str, Any]:
    return {name: json_of(item) for name, item in struct.fields.items()}


def number_of(number: float) -> int | float | None:
    if not math.isfinite(number):
        return None
    if number.is_integer() and -MOST_EXACT <= number <= MOST_EXACT and not (number == 0 and math.copysign(1, number) < 0):
        return int(number)
    return number


def text_of(text: str) -> str:
    """Without lone surrogates, which have no encoding."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _exact(json: Any, levels: int) -> Any:
    """The value as protobuf can keep it."""
    match json:
        case None | bool():
            return json
        case str():
            return text_of(json)
        case float():
            return json if math.isfinite(json) else None
        case int():
            return json if -MOST_EXACT <= json <= MOST_EXACT else str(json)
    if levels == 0:
        return _json_text(json)
    if isinstance(json, Mapping):
        return {text_of(str(name)): _exact(item, levels - 1) for name, item in json.items()}
    return [_exact(item, levels - 1) for item in json] if isinstance(json, list | tuple) else text_of(str(json))


def _json_text(json: Any) -> str:
    try:
        return to_json(json, inf_nan_mode="null", fallback=str).decode()
    except ValueError:  # a lone surrogate somewhere in it
        return dumps(json, default=str)


def nanoseconds(seconds: float | None) -> int:
    """None is 0. The fraction is converted separately: a date in nanoseconds exceeds the precision of a double."""
    if seconds is None:
        return 0
    try:
        whole = int(seconds)
        return max(-_LONGEST, min(_LONGEST, whole * NANO + round((seconds - whole) * NANO)))
    except (OverflowError, ValueError):  # infinite
        return _LONGEST


def seconds(nanoseconds: int) -> float | None:
    """0 is None."""
    return nanoseconds // NANO + (nanoseconds % NANO) / NANO if nanoseconds else None
