"""JSON as protobuf messages and back, with the library's own conversion, as a client in another language does it."""

from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct, Value


def value_of(json: Any) -> Value:
    return ParseDict(_with_exact_integers(json), Value())


def struct_of(json: Any) -> Struct:
    return ParseDict(_with_exact_integers(json), Struct())


def json_of(value: Value) -> Any:
    return _with_integers(MessageToDict(value))


def dict_of(struct: Struct) -> dict[str, Any]:
    found: dict[str, Any] = _with_integers(MessageToDict(struct))
    return found


def _with_exact_integers(json: Any) -> Any:
    """Integers that a double would round become text, as in protobuf's own JSON."""
    if isinstance(json, dict):
        return {name: _with_exact_integers(value) for name, value in json.items()}
    if isinstance(json, list | tuple):
        return [_with_exact_integers(value) for value in json]
    return str(json) if isinstance(json, int) and abs(json) > 2**53 else json


def _with_integers(json: Any) -> Any:
    """Numbers of protobuf are doubles."""
    if isinstance(json, float) and json.is_integer():
        return int(json)
    if isinstance(json, dict):
        return {name: _with_integers(value) for name, value in json.items()}
    return [_with_integers(value) for value in json] if isinstance(json, list) else json
