"""A judge of JSON schema that cannot be made to hang or to fetch: `jsonschema`, with its steps counted and its dangerous parts replaced.

Patterns are matched in linear time, by the engine of pydantic-core; whether values are unique is seen in one pass; references lead nowhere
but into the schema. Used by `output_schema` alone.
"""

import contextlib
import contextvars
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

from pydantic_core import SchemaError, SchemaValidator, core_schema, to_json

from remit.core.errors import Unavailable

MAX_STEPS = 1_000_000
MAX_SECONDS = 2.0
MESSAGE_CHARACTERS = 4000
"""Of one fault: the library writes out whatever is faulty, a thousand times over where there are as many ways to be right."""
_LOOK_AT_CLOCK = 256
_CHARACTERS_A_STEP = 1000

Keyword = Callable[[Any, Any, Any, Any], Any]


class TooMuch(Exception):
    """It takes too many steps."""


class NoPattern(Exception):
    """It cannot be matched in linear time, or not at all."""


def library() -> Any:
    """`jsonschema`. Raises `Unavailable` with what to install."""
    try:
        return import_module("jsonschema")
    except ModuleNotFoundError as error:
        if error.name != "jsonschema":
            raise
        raise Unavailable(
            "Data cannot be checked against an output schema: the package jsonschema is not installed.",
            code="TOOL_UNAVAILABLE",
            advice="pip install 'remit[models]', or take output_schema out of the agent.",
        ) from None


@contextlib.contextmanager
def bounded(schema: Mapping[str, Any]) -> Iterator[Any]:
    """A validator for as long as this lasts."""
    from referencing import Registry

    kept = _STEPS.set(_Steps())
    try:
        yield _judge()(dict(schema), registry=Registry())  # an empty one: the library's own would fetch what it does not know
    finally:
        _STEPS.reset(kept)


@lru_cache(maxsize=512)
def matcher(pattern: str) -> Callable[[str], bool]:
    try:
        checks = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        raise NoPattern(f"{pattern!r:.80} is no pattern that is taken here: it must do without look-around and references back") from None
    return checks.isinstance_python


class _Steps:
    __slots__ = ("count", "until")

    def __init__(self) -> None:
        self.count = 0
        self.until = time.monotonic() + MAX_SECONDS

    def step(self, many: int = 1) -> None:
        is_time = self.count // _LOOK_AT_CLOCK != (self.count + many) // _LOOK_AT_CLOCK
        self.count += many
        if self.count > MAX_STEPS or (is_time and time.monotonic() > self.until):
            raise TooMuch("it takes too many steps")


_STEPS: contextvars.ContextVar[_Steps | None] = contextvars.ContextVar("steps", default=None)


@lru_cache(maxsize=1)
def _judge() -> Any:
    jsonschema = library()
    known: dict[str, Keyword] = dict(jsonschema.Draft202012Validator.VALIDATORS)
    known |= {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    return jsonschema.validators.extend(jsonschema.Draft202012Validator, {name: _counted(keyword) for name, keyword in known.items()})


def _counted(keyword: Keyword) -> Keyword:
    def counted(judge: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        steps = _STEPS.get()
        if steps is not None:
            steps.step()
        for error in keyword(judge, value, instance, schema) or ():
            if len(error.message) > MESSAGE_CHARACTERS:
                if steps is not None:
                    steps.step(len(error.message) // _CHARACTERS_A_STEP)
                half = MESSAGE_CHARACTERS // 2
                error.message = f"{error.message[:half]} … {error.message[-half:]}"
                error.args = (error.message,)  # an exception holds on to what it was made with
            yield error

    return counted


def _error(message: str) -> Any:
    return library().ValidationError(message)


def _pattern(judge: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    if judge.is_type(instance, "string") and not matcher(pattern)(instance):
        yield _error(f"{instance!r:.80} does not match {pattern!r}")


def _pattern_properties(judge: Any, patterns: Mapping[str, Any], instance: Any, _schema: Any) -> Iterator[Any]:
    if not judge.is_type(instance, "object"):
        return
    for pattern, inner in patterns.items():
        matches = matcher(pattern)
        for name, value in instance.items():
            if matches(name):
                yield from judge.descend(value, inner, path=name, schema_path=pattern)


def _additional_properties(judge: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    if not judge.is_type(instance, "object"):
        return
    patterns = [matcher(pattern) for pattern in schema.get("patternProperties", ())]
    known = schema.get("properties", {})
    extras = [name for name in instance if name not in known and not any(matches(name) for matches in patterns)]
    if judge.is_type(allowed, "object"):
        for name in extras:
            yield from judge.descend(instance[name], allowed, path=name)
    elif not allowed and extras:
        named = ", ".join(f"{name!r:.60}" for name in extras[:5])
        yield _error(
            f"{named} {'is' if len(extras) == 1 else 'are'} not among {', '.join(map(repr, list(known)[:20])) or 'what is allowed'}"
        )


def _unique_items(judge: Any, unique: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if unique and judge.is_type(instance, "array") and len({to_json(_sorted(one)) for one in instance}) != len(instance):
        yield _error("holds the same value more than once")


def _sorted(value: Any) -> Any:
    """The same for values that are equal: the order of names does not count, and 1.0 is 1."""
    if isinstance(value, dict):
        return [["{", name, _sorted(one)] for name, one in sorted(value.items())]
    if isinstance(value, list):
        return [_sorted(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
