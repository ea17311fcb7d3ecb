"""The JSON schema that an agent declares for its `data`: judged when it is declared, and then the data of its returns by it.

A schema may come with a file that was cloned a minute ago, and data from a model: nothing is ever fetched, patterns take linear time (the
engine of pydantic-core, which has neither look-around nor references back), and steps are counted. `jsonschema` does the judging; it is
imported only where an agent declares a schema. Used by `validate`, by `agents.table` when an agent is declared, and by `agents.model`.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import to_json

from remit.core.errors import Misused, Unavailable
from remit.flow.bounded_schema import NoPattern, TooMuch, bounded, library, matcher
from remit.flow.format import is_sample
from remit.flow.plain import clean

MAX_CHARACTERS = 64_000
MAX_LEVELS = 40
MAX_PATTERN = 1000
MOST_FAULTS = 20
_FAULT_CHARACTERS = 300
_REFUSED = frozenset({"$dynamicRef", "$recursiveRef", "$dynamicAnchor", "unevaluatedProperties", "unevaluatedItems", "$vocabulary"})
_LITERAL = frozenset({"const", "enum", "default", "examples"})
"""Where values stand, not schemas."""
_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
"""Where names of one's own stand, with a schema for each."""


def checked_schema(schema: object) -> dict[str, Any]:
    """`schema`, if data can be judged by it safely. Raises `Misused` saying what is wrong and where."""
    if not isinstance(schema, dict):
        raise _refused("", f"it must be an object that describes the data, not {type(schema).__name__}")
    _walk(schema, "", MAX_LEVELS)
    try:
        size = len(to_json(schema))
    except ValueError as error:
        raise _refused("", f"it is no JSON: {error}") from None
    if size > MAX_CHARACTERS:
        raise _refused("", f"it has {size} characters, at most {MAX_CHARACTERS} are taken")
    try:
        jsonschema = library()
    except Unavailable:
        return schema  # it is listed all the same: whoever delegates to it is told what is missing
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise _refused(_place(error.absolute_path).lstrip("."), clean(error.message)[:_FAULT_CHARACTERS]) from None
    return schema


def must_be_checkable(schema: Mapping[str, Any] | None) -> None:
    """Raises `Unavailable` where what data is judged with is not installed: said before the work, not after it."""
    if schema is not None:
        library()


def schema_faults(data: Any, schema: Mapping[str, Any]) -> list[str]:
    """What is wrong with `data`, each fault beginning with its place; empty when it is as it should be."""
    faults: list[str] = []
    try:
        with bounded(schema) as judge:
            found = itertools.islice(judge.iter_errors(data), MOST_FAULTS)
            faults.extend(f"data{_place(error.absolute_path)}: {_words(error)}" for error in found)
    except (TooMuch, NoPattern) as error:
        faults.append(f"{_NOT_JUDGED}: {error}")
    except RecursionError:
        faults.append(f"{_NOT_JUDGED}: it refers to itself without end")
    except Exception as error:  # noqa: BLE001 - the boundary to the library, which raises what it likes for references it cannot follow
        faults.append(f"{_NOT_JUDGED}: {type(error).__name__}: {error}"[:_FAULT_CHARACTERS])
    if not faults and is_sample(data, schema):
        faults.append("data: is the example of the instruction, not a result")
    return list(dict.fromkeys(faults))


_NOT_JUDGED = "data: could not be judged by the schema of this agent"


def _words(error: Any) -> str:
    words = clean(error.message)
    if error.validator == "required" and words.endswith(" is a required property"):
        return f"{words.removesuffix(' is a required property')} is required and missing"
    if error.validator in ("anyOf", "oneOf") and error.context:
        words += f" ({'; '.join(clean(one.message[:80]) for one in error.context[:3])})"
    return words if len(words) <= _FAULT_CHARACTERS else f"{words[: _FAULT_CHARACTERS // 2]} … {words[-_FAULT_CHARACTERS // 2 :]}"


def _place(path: Iterable[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{clean(str(part))[:80]}" for part in itertools.islice(path, 20))


# ---- the schema itself


def _walk(value: Any, place: str, levels: int, *, are_names: bool = False) -> None:
    """Every schema inside of it. Raises `Misused` for what could fetch something, or never end."""
    if levels == 0:
        raise _refused(place, f"it is nested deeper than {MAX_LEVELS} levels")
    if isinstance(value, list):
        for number, one in enumerate(value):
            _walk(one, f"{place}[{number}]", levels - 1)
    if not isinstance(value, dict):
        return
    for name, one in value.items():
        where = f"{place}.{name}" if place else f"{name}"
        if not isinstance(name, str):
            raise _refused(where, "names must be text")
        if not are_names:
            _check_keyword(name, one, where)
        if are_names or name not in _LITERAL:
            _walk(one, where, levels - 1, are_names=not are_names and name in _NAMED)


def _check_keyword(name: str, value: Any, where: str) -> None:
    if name == "$ref" and not (isinstance(value, str) and value.startswith("#")):
        raise _refused(where, f"only what stands in the schema itself can be referred to (#/$defs/…), not {value!r:.80}")
    if name in _REFUSED:
        raise _refused(where, f"{name} is not taken here")
    if name == "pattern" and isinstance(value, str):
        _check_pattern(value, where)
    if name == "patternProperties" and isinstance(value, dict):
        for pattern in value:
            _check_pattern(str(pattern), where)


def _check_pattern(pattern: str, where: str) -> None:
    if len(pattern) > MAX_PATTERN:
        raise _refused(where, f"a pattern may have {MAX_PATTERN} characters, this has {len(pattern)}")
    try:
        matcher(pattern)
    except NoPattern as error:
        raise _refused(where, str(error)) from None


def _refused(where: str, fault: str) -> Misused:
    place = f"output_schema.{where}"[:200] if where else "output_schema"
    return Misused(f"{place}: {fault}.", advice="Write a JSON schema of what the agent's data is to be.")
