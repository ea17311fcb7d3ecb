"""Shared options and arguments, and how their values are read: `k=v` pairs, budgets, durations, times, task numbers."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from remit.core.budget import Limits
from remit.core.errors import Misused
from remit.core.parameters import own_name

Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="Folder of the project. Default: the nearest one upwards with .remit, remit.toml or .git, else this one.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="SECONDS", help="Stop it after this long; also 10s, 2m, 1h.", show_default=False)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")]
Session = Annotated[
    str,
    typer.Argument(metavar="SESSION", help="A session id, the beginning or end of one, or `last`.", show_default=False),
]


OPTIONS = ("accept", "budget", "idle", "key", "priority", "resume", "timeout")
"""Of `remit delegate`; in a program they stand beside the parameters, so that people write them as such."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"^(\d+(?:\.\d+)?|\.\d+)\s*([smh]?)$")
_COMMA = re.compile(r",(?![^{}]{0,200}})")
"""Not within braces: `*.{py,md}` is one pattern."""
_AGO = re.compile(r"^(\d+(?:\.\d+)?)([smhdw])$")


def pairs(given: Sequence[str], schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`k=v …`: JSON where it is JSON, else text; `k=@file` is the text of a file. What the schema calls a string stays text; what it calls
    a list of strings may be `k=a,b` or `k=a k=b`. Names may be in camelCase or in snake_case.

    A bare text is the `task` of an agent that takes one. Without a schema nothing is known of the agent.
    """
    found: dict[str, Any] = {}
    properties = (schema or {}).get("properties", {})
    for pair in given:
        name, _, value = pair.partition("=")
        name = own_name(name, properties)
        if is_bare(pair) and name not in properties:
            name, value = "task", pair
            if "task" not in properties:
                raise _no_pair(pair, schema)
        elif schema is not None and name in OPTIONS and name not in properties:
            raise Misused(f"{name} is no parameter of this agent, but an option.", advice=f"Write --{name} {shlex.quote(value[:100])}")
        if value is not pair and _is_list(properties.get(name)):
            found[name] = _with(found.get(name), _items(value))
            continue
        if name in found:
            advice = "Put the whole task between quotes." if value is pair else "Give a list as JSON: 'name=[1, 2]'."
            raise Misused(f"{name} is given twice.", advice=advice)
        found[name] = pair if value is pair else _value(name, value, wants_text=_is_text(properties.get(name)))
    return found


def is_bare(pair: str) -> bool:
    """Whether it is a text rather than a name with a value: `a b=c` is a sentence with a sign in it."""
    name, equals, _ = pair.partition("=")
    return not equals or not name.strip() or len(name.split()) > 1


def _no_pair(pair: str, schema: Mapping[str, Any] | None) -> Misused:
    """With an example that this agent would take."""
    fault = f"{pair[:100]!r} is not of the form name=value."
    if schema is None:
        return Misused(fault, advice="Write e.g. path=README.md count=3 'tags=[\"a\"]'.")
    properties = schema.get("properties", {})
    if not properties:
        return Misused(fault, advice="This agent takes no parameters.")
    name = next(iter([*schema.get("required", ()), *properties]))
    return Misused(fault, advice=f"Write {name}={shlex.quote(pair[:100]) if _is_text(properties.get(name)) else '…'}")


def _is_text(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "string"


def _is_list(schema: Any) -> bool:
    """A list of strings, and not a string as well, which may hold commas of its own."""
    if not isinstance(schema, dict):
        return False
    kinds = [one for one in schema.get("anyOf") or [schema] if isinstance(one, dict)]
    is_list = any(one.get("type") == "array" and _is_text(one.get("items")) for one in kinds)
    return is_list and not any(one.get("type") in (None, "string") for one in kinds)


def _items(text: str) -> Any:
    """Lists, objects and null as JSON has them; a JSON string is one item; anything else is cut at its commas."""
    value = _parsed(text)
    if value is None or isinstance(value, list | dict):
        return value
    is_quoted = isinstance(value, str) and value != text
    return [value] if is_quoted else [item for item in map(str.strip, _COMMA.split(text)) if item]


def _with(before: Any, items: Any) -> Any:
    return [*before, *items] if isinstance(before, list) and isinstance(items, list) else items


def _value(name: str, text: str, *, wants_text: bool) -> Any:
    if text.startswith("@"):
        return _contents(name, text[1:])
    value = _parsed(text)
    return text if wants_text and not isinstance(value, str) else value


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _contents(name: str, file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise Misused(f"{name}: {file} cannot be read: {error.strerror or error}.", advice="Name a file after the @.") from None
    except UnicodeDecodeError:
        raise Misused(f"{name}: {file} is not UTF-8 text.", advice="Hand over its path instead of its contents.") from None


def seconds(text: str | None, option: str) -> float | None:
    """A span of time: seconds, or `10s`, `2m`, `1.5h`."""
    if text is None:
        return None
    span = _SPAN.match(text.strip())
    value = float(span[1]) * _UNITS[span[2] or "s"] if span else 0.0
    if not 0 < value < float("inf"):
        raise Misused(f"{option} must be a number of seconds above 0, not {text!r}.", advice=f"Write e.g. {option} 30, or 10s, 2m, 1h.")
    return value


def budget(given: Sequence[str]) -> Limits | None:
    """`KIND=LIMIT …`"""
    kinds = ", ".join(Limits.__dataclass_fields__)
    limits: dict[str, Any] = {}
    for pair in given:
        kind, equals, text = pair.partition("=")
        if not equals or not text:
            raise Misused(f"--budget takes KIND=LIMIT, not {pair!r}.", advice="Write e.g. --budget tokens=50000 --budget seconds=120.")
        if kind not in Limits.__dataclass_fields__:
            raise Misused(f"There is no budget of {kind!r}.", advice=f"Use one of {kinds}.")
        if kind in limits:
            raise Misused(f"The budget of {kind} is given twice.")
        limits[kind] = _amount(kind, text)
    return Limits(**limits) if limits else None


def _amount(kind: str, text: str) -> float:
    value = _parsed(text)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
    if not is_number or (kind not in ("cost", "seconds") and value != int(value)):
        what = "number" if kind in ("cost", "seconds") else "whole number"
        raise Misused(f"--budget {kind} must be a {what} of at least 0, not {text!r}.", advice=f"Write e.g. --budget {kind}=10.")
    return value if kind in ("cost", "seconds") else int(value)


def parse_time(text: str | None, option: str, now: float) -> float | None:
    """Wall clock seconds: `1h` or `2d` ago, an ISO date or time (local unless it says otherwise), or unix seconds."""
    if text is None:
        return None
    if ago := _AGO.match(text.strip()):
        return now - float(ago[1]) * _UNITS[ago[2]]
    try:
        return float(text) if re.fullmatch(r"\d{9,}(\.\d+)?", text) else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise Misused(
            f"{option}: {text!r} is no time.", advice="Use e.g. 30m, 2h, 1d ago, or an ISO time such as 2026-01-31T12:00."
        ) from None


NUMBERS_AT_MOST = 10_000
"""A longer range is a slip of the fingers; nobody waits until it is written out."""
_DIGITS = 100
"""A number with more is no number that anybody means; Python itself reads some thousands."""
_NUMBER = re.compile(rf"#?([0-9]{{1,{_DIGITS}}})")
_RANGE = re.compile(rf"#?([0-9]{{1,{_DIGITS}}})\s*(?:-|–|\.\.)\s*#?([0-9]{{1,{_DIGITS}}})")


def number_of(text: str | None, usage: str) -> int:
    """One task's number. `usage` is the command with its arguments: `remit research N [focus]`. Raises `Misused`."""
    if text is None or not text.strip():
        raise Misused(f"Task number required. Usage: {usage}")
    return _integer(text.strip())


def numbers_of(text: str | None, usage: str = "") -> list[int]:
    """Numbers and ranges, separated by commas or spaces: each once, in the order in which they are named. Raises `Misused`."""
    found: dict[int, None] = {}
    for part in _parts(text or ""):
        spelled = _RANGE.fullmatch(part)
        numbers = _written_out(int(spelled[1]), int(spelled[2])) if spelled else (_integer(part),)
        found |= dict.fromkeys(numbers)
        if len(found) > NUMBERS_AT_MOST:
            raise Misused(f"{text!r} names more than {NUMBERS_AT_MOST:,} tasks.", advice="Name fewer.")
    if not found:
        raise Misused("Task number required." + (f" Usage: {usage}" if usage else ""))
    return list(found)


def is_range(text: str) -> bool:
    """Whether more than one task is named, so that they are worked on in turn."""
    return len(numbers_of(text)) > 1


def _parts(text: str) -> list[str]:
    joined = re.sub(r"\s*(-|–|\.\.)\s*", r"\1", text)
    return [part for part in re.split(r"[,;\s]+", joined) if part]


def _written_out(first: int, last: int) -> range:
    if last < first or first < 1:
        raise Misused(f"Invalid range {first}-{last}", advice="A range leads from the smaller number to the larger one, like 343-345.")
    if last - first >= NUMBERS_AT_MOST:
        raise Misused(f"Invalid range {first}-{last}", advice=f"It holds more than {NUMBERS_AT_MOST:,} tasks.")
    return range(first, last + 1)


def _integer(part: str) -> int:
    spelled = _NUMBER.fullmatch(part)
    if spelled is None or int(spelled[1]) < 1:
        raise Misused(f"Task number must be an integer. Got: {part[:80]}", advice="Task numbers are 1, 2, 3, …")
    return int(spelled[1])
