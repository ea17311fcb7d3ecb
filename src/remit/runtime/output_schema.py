"""JSON schemas of agents' data: validation of schemas, and of values against them.

Uses jsonschema with bounds: it fetches nothing, matches patterns in linear time, and stops after two seconds, because
schema and data may come from an untrusted agent."""

import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from typing import Any

from pydantic_core import SchemaError, SchemaValidator, core_schema, from_json, to_json

from remit.core.errors import Misused, Unavailable
from remit.core.jsonable import clean_text

MAX_SECONDS = 2.0
MESSAGE_CHARACTERS = 4000
"""Maximum length of one fault: jsonschema repeats the faulty value for each alternative."""

Keyword = Callable[[Any, Any, Any, Any], Any]


class NotChecked(Exception):
    """Validation takes too long, or a pattern cannot be matched in linear time."""


def library() -> Any:
    """`jsonschema`. Raises `Unavailable` with the command that installs it."""
    try:
        return import_module("jsonschema")
    except ModuleNotFoundError as error:
        if error.name != "jsonschema":
            raise
        raise Unavailable(
            "Data cannot be checked against an output schema: the package jsonschema is not installed.",
            code="TOOL_UNAVAILABLE",
            advice="pip install 'remit[models]', or remove output_schema from the agent.",
        ) from None


@lru_cache(maxsize=512)
def matcher(pattern: str) -> Callable[[str], bool]:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python
    except SchemaError:
        raise NotChecked(f"{pattern!r:.80} is not a supported pattern: look-around and back references are not supported") from None


def _pattern(validator: Any, value: str, instance: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "string") and not matcher(value)(instance):
        yield library().ValidationError(f"{instance!r:.80} does not match {value!r}")


def _unique_items(validator: Any, value: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """Linear time; jsonschema compares all pairs."""
    if value and validator.is_type(instance, "array") and len({json.dumps(one, sort_keys=True) for one in instance}) < len(instance):
        yield library().ValidationError("has non-unique elements")


_KEYWORDS: dict[str, Keyword] = {"pattern": _pattern, "uniqueItems": _unique_items}
"""Keywords for which jsonschema takes more than linear time."""


_stop_at: ContextVar[float] = ContextVar("_stop_at", default=math.inf)
"""When the validation that runs now has taken too long."""


@lru_cache(maxsize=1)
def _bounded_class() -> Any:
    """A class of validators that give up at `_stop_at`. Making it takes longer than most validations."""
    jsonschema = library()
    draft = jsonschema.Draft202012Validator
    steps = itertools.count()

    def bounded(keyword: Keyword) -> Keyword:
        def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            if next(steps) % 256 == 0 and time.monotonic() > _stop_at.get():
                raise NotChecked("it takes too long")
            for error in keyword(validator, value, instance, schema) or ():
                if len(error.message) > MESSAGE_CHARACTERS:
                    half = MESSAGE_CHARACTERS // 2
                    error.message = f"{error.message[:half]} … {error.message[-half:]}"
                    error.args = (error.message,)  # an exception keeps its arguments
                yield error

        return check

    keywords = {**draft.VALIDATORS, **_KEYWORDS}
    return jsonschema.validators.extend(draft, {name: bounded(keyword) for name, keyword in keywords.items()})


MAX_CHARACTERS = 64_000
MAX_LEVELS = 40
MAX_PATTERN = 1000
MOST_FAULTS = 20
_FAULT_CHARACTERS = 300
_REFUSED = frozenset(
    {"$dynamicRef", "$recursiveRef", "$dynamicAnchor", "unevaluatedProperties", "unevaluatedItems", "$vocabulary", "patternProperties"}
)
_LITERAL = frozenset({"const", "enum", "default", "examples"})
"""Keys whose content is values, not schemas."""
_NAMED = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Keys whose content maps user-defined names to schemas."""


def check_schema(schema: object) -> dict[str, Any]:
    """Return `schema` if it can be used safely. Raises `Misused` with the fault and its location."""
    if not isinstance(schema, dict):
        raise _refused("", f"it must be an object that describes the data, not {type(schema).__name__}")
    _walk(schema, "", MAX_LEVELS)
    try:
        size = len(to_json(schema))
    except ValueError as error:
        raise _refused("", f"it is not JSON: {error}") from None
    if size > MAX_CHARACTERS:
        raise _refused("", f"it has {size} characters; the maximum is {MAX_CHARACTERS}")
    try:
        jsonschema = library()
    except Unavailable:
        return schema  # the agent is listed; a delegation to it reports what is missing
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise _refused(_place(error.absolute_path).lstrip("."), clean_text(error.message)[:_FAULT_CHARACTERS]) from None
    return schema


def parameter_faults(parameters: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Faults of parameters that an external tool describes. If its schema cannot be used safely, the tool checks them itself."""
    if not _can_be_used(to_json(schema, inf_nan_mode="constants")):
        return []
    found = [fault.removeprefix("data").removeprefix(".") for fault in schema_faults(dict(parameters), schema)]
    return [fault.removeprefix(": ") for fault in found if not fault.startswith(_NOT_JUDGED.removeprefix("data"))]


@lru_cache(maxsize=64)
def _can_be_used(schema: bytes) -> bool:
    """By its JSON text: checking a schema takes longer than most validations by it."""
    try:
        check_schema(from_json(schema))
        library()
    except (Misused, Unavailable):
        return False
    return True


def schema_faults(data: Any, schema: Mapping[str, Any]) -> list[str]:
    """The faults of `data`, each with its location; empty if valid."""
    from referencing import Registry

    faults: list[str] = []
    _stop_at.set(time.monotonic() + MAX_SECONDS)
    try:
        validator = _bounded_class()(dict(schema), registry=Registry())  # an empty one: the default one would fetch unknown references
        found = itertools.islice(validator.iter_errors(data), MOST_FAULTS)
        faults.extend(f"data{_place(error.absolute_path)}: {_words(error)}" for error in found)
    except NotChecked as error:
        faults.append(f"{_NOT_JUDGED}: {error}")
    except RecursionError:
        faults.append(f"{_NOT_JUDGED}: it refers to itself without end")
    except Exception as error:  # noqa: BLE001 - the library raises arbitrary exceptions for references it cannot follow
        faults.append(f"{_NOT_JUDGED}: {type(error).__name__}: {error}"[:_FAULT_CHARACTERS])
    return list(dict.fromkeys(faults))


_NOT_JUDGED = "data: could not be checked against the schema of this agent"


def _words(error: Any) -> str:
    words = clean_text(error.message)
    if error.validator == "required" and words.endswith(" is a required property"):
        return f"{words.removesuffix(' is a required property')} is required and missing"
    if error.validator in ("anyOf", "oneOf") and error.context:
        words += f" ({'; '.join(clean_text(one.message[:80]) for one in error.context[:3])})"
    return words if len(words) <= _FAULT_CHARACTERS else f"{words[: _FAULT_CHARACTERS // 2]} … {words[-_FAULT_CHARACTERS // 2 :]}"


def _place(path: Iterable[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{clean_text(str(part))[:80]}" for part in itertools.islice(path, 20))


# ---- the schema itself


def _walk(value: Any, place: str, levels: int, *, are_names: bool = False) -> None:
    """Check every inner schema. Raises `Misused` for anything that could fetch data or never end."""
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
        raise _refused(where, f"only references within the schema are supported (#/$defs/…), not {value!r:.80}")
    if name in _REFUSED:
        raise _refused(where, f"{name} is not supported")
    if name == "pattern" and isinstance(value, str):
        if len(value) > MAX_PATTERN:
            raise _refused(where, f"a pattern may have at most {MAX_PATTERN} characters, this one has {len(value)}")
        try:
            matcher(value)
        except NotChecked as error:
            raise _refused(where, str(error)) from None


def _refused(where: str, fault: str) -> Misused:
    place = f"output_schema.{where}"[:200] if where else "output_schema"
    return Misused(f"{place}: {fault}.", advice="Write a JSON schema of the agent's data.")
