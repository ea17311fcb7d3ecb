"""Output schemas: validated when declared; no schema fetches anything or hangs."""

import time
import tracemalloc
from typing import Any

import pytest

from remit import Misused
from remit.runtime.output_schema import check_schema, schema_faults
from support.pace import allowed

PEOPLE = {
    "type": "object",
    "properties": {"people": {"type": "array", "items": {"$ref": "#/$defs/person"}}},
    "required": ["people"],
    "$defs": {"person": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}}}},
}


def test_faults_name_their_location() -> None:
    assert schema_faults({"people": [{"name": "A", "age": 3}]}, PEOPLE) == []
    assert schema_faults({"people": [{"age": 3}, {"age": "old"}]}, PEOPLE) == ["data.people[1].age: 'old' is not of type 'integer'"]
    assert schema_faults({}, PEOPLE) == ["data: 'people' is required and missing"]
    assert len(schema_faults({"people": [{"age": -1}] * 500}, PEOPLE)) == 20


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ([], "output_schema: it must be an object"),
        ({"$ref": "https://example.com/schema"}, "output_schema.$ref"),
        ({"properties": {"a": {"items": {"$ref": "file:///etc/passwd"}}}}, "output_schema.properties.a.items.$ref"),
        ({"pattern": r"(a+)+\1"}, "output_schema.pattern"),
        ({"properties": {"a": {"pattern": "(?=x)"}}}, "output_schema.properties.a.pattern"),
        ({"patternProperties": {"(": {}}}, "output_schema.patternProperties"),
        ({"type": "word"}, "output_schema.type"),
        ({"unevaluatedProperties": False}, "output_schema.unevaluatedProperties"),
        ({"description": "x" * 70_000}, "output_schema: it has"),
        ({"properties": {1: {}}}, "output_schema.properties.1"),
    ],
)
def test_schema_that_could_fetch_or_hang_is_refused_when_declared(schema: Any, where: str) -> None:
    with pytest.raises(Misused) as caught:
        check_schema(schema)
    assert caught.value.message.startswith(where)


def test_hostile_schemas_neither_hang_nor_fetch() -> None:
    started = time.monotonic()
    deep: dict[str, Any] = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 4} for i in range(30)}
    deep["d30"] = {"type": "integer"}
    assert "does not match" in schema_faults("a" * 50_000 + "!", {"pattern": "^(a+)+$"})[0]
    assert schema_faults("a", {"$defs": deep, "$ref": "#/$defs/d0"})[0].startswith("data: could not be checked")
    assert "without end" in schema_faults("a", {"$ref": "#"})[0]
    assert "could not be checked" in schema_faults("a", {"$ref": "http://127.0.0.1:9/schema"})[0]
    assert schema_faults([{"a": number} for number in range(20_000)], {"uniqueItems": True}) == []
    assert schema_faults([{"a": 1, "b": 2}, {"b": 2, "a": 1}], {"uniqueItems": True})
    assert time.monotonic() - started < allowed(15)


def test_faults_do_not_copy_the_faulty_value() -> None:
    """The library repeats the value for each alternative."""
    tracemalloc.start()
    try:
        faults = schema_faults("x" * 200_000, {"anyOf": [{"type": "integer"}] * 400})
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert len(faults) == 1
    assert len(faults[0]) < 1000
