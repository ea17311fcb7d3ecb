"""The schema of the delegate tool in the form that strict modes of vendors take: every property named as required, none besides.

What an operation takes depends on the operation, which such a form cannot say: parameters are an object written as text there, and what
may be left out may be null. The tool reads both forms, whoever writes them. Pure; used by `anywhere`.
"""

from collections.abc import Mapping
from typing import Any

_PARAMETERS = "What that operation takes, by name, as listed in this tool's description: a JSON object, written as text."


def strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Of an `inputSchema` without conditions."""
    needed = frozenset(schema.get("required", ()))
    properties = {name: one if name in needed else _or_null(one) for name, one in schema["properties"].items()}
    properties["parameters"] = {"type": "string", "description": _PARAMETERS}
    return {**schema, "properties": properties, "required": list(properties), "additionalProperties": False}


def _or_null(one: Mapping[str, Any]) -> dict[str, Any]:
    values = {"enum": [*one["enum"], None]} if "enum" in one else {}
    return {**one, **values, "type": [one["type"], "null"]}
