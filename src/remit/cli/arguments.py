"""Shared options and arguments, and the parsers of their values: `k=v` pairs, budgets, durations, times, task numbers."""

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from remit.cli.completion import sessions
from remit.core.errors import Misused
from remit.core.parameters import declared_name

if TYPE_CHECKING:
    from remit.core.budget import Limits

Root = Annotated[
    Path | None,
    Option(
        "--root",
        metavar="DIR",
        help="Folder of the project. Default: the nearest one upwards with .remit, remit.toml or .git, else this one.",
    ),
]
Json = Annotated[bool, Option("--json", help="One JSON document on stdout.")]
Trust = Annotated[bool, Option("--trust", help="Approve everything in this project, for this command only.")]
Timeout = Annotated[str | None, Option("--timeout", metavar="SECONDS", help="Stop it after this long; also 10s, 2m, 1h.")]
StopAfter = Annotated[str | None, Option(metavar="SECONDS", help="How long running work may finish after a stop; also 10s, 2m.")]
DryRun = Annotated[bool, Option("--dry-run", help="Say what would be done; change nothing.")]
Session = Annotated[str, Argument(metavar="SESSION", help="A session id, the beginning or end of one, or `last`.", autocompletion=sessions)]


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_SPAN = r"(\d+(?:\.\d+)?|\.\d+)\s*([smhdwy]?)"
_COMMA = r",(?![^{}]{0,200}})"
"""A comma outside braces: `*.{py,md}` is one pattern."""
NUMBERS_AT_MOST = 10_000
_RANGE = r"#?([0-9]{1,100})(?:(?:-|–|\.\.)#?([0-9]{1,100}))?"


# ---- NAME=VALUE


def pairs(given: Sequence[str], schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Parse `k=v …`: JSON if it is valid JSON, else text; `k=@file` reads a file. A string in the schema stays text; a list of strings may
    be `k=a,b` or `k=a k=b`. Names may be in camelCase or snake_case.

    A bare text is the `task` of an agent that takes one. `schema` is None if the agent is unknown."""
    found: dict[str, Any] = {}
    properties = (schema or {}).get("properties", {})
    for pair in given:
        name, _, value = pair.partition("=")
        name = declared_name(name, properties)
        is_task = is_bare(pair) and name not in properties
        if is_task:
            name = "task"
            if "task" not in properties:
                raise _no_pair(pair, schema)
        elif _is_list(properties.get(name)):
            items, before = _items(value), found.get(name)
            found[name] = [*before, *items] if isinstance(before, list) and isinstance(items, list) else items
            continue
        if name in found:
            advice = "Put the whole task between quotes." if is_task else "Give a list as JSON: 'name=[1, 2]'."
            raise Misused(f"{name} is given twice.", advice=advice)
        found[name] = pair if is_task else _value(name, value, wants_text=_is_text(properties.get(name)))
    return found


def is_bare(pair: str) -> bool:
    """Whether it is a text rather than name=value: `a b=c` is a sentence."""
    name, equals, _ = pair.partition("=")
    return not equals or not name.strip() or len(name.split()) > 1


def _no_pair(pair: str, schema: Mapping[str, Any] | None) -> Misused:
    """The error for an invalid pair, with an example that this agent accepts."""
    names = [*(schema or {}).get("required", ()), *(schema or {}).get("properties", {})]
    advice = "Write e.g. path=README.md count=3 'tags=[\"a\"]'." if schema is None else "This agent takes no parameters."
    return Misused(
        f"{pair[:100]!r} is not of the form name=value.", advice=f"Write {names[0]}={shlex.quote(pair[:100])}" if names else advice
    )


def _is_text(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "string"


def _is_list(schema: Any) -> bool:
    """Whether it is a list of strings and not also a string, which may contain commas."""
    kinds = (schema.get("anyOf") or [schema]) if isinstance(schema, dict) else []
    is_list = any(one.get("type") == "array" and _is_text(one.get("items")) for one in kinds)
    return is_list and not any(one.get("type") in (None, "string") for one in kinds)


def _items(text: str) -> Any:
    """Parse lists, objects and null as JSON. A JSON string is one item; other text is split at commas."""
    value = _parsed(text)
    if value is None or isinstance(value, list | dict):
        return value
    is_quoted = isinstance(value, str) and value != text
    return [value] if is_quoted else [item for item in map(str.strip, re.split(_COMMA, text)) if item]


def _value(name: str, text: str, *, wants_text: bool) -> Any:
    if not text.startswith("@"):
        value = _parsed(text)
        return text if wants_text and not isinstance(value, str) else value
    try:
        return read_input(text[1:]).decode()
    except UnicodeDecodeError:
        raise Misused(f"{name}: {text[1:]} is not UTF-8 text.", advice="Pass its path instead of its contents.") from None


def read_input(file: str) -> bytes:
    """The content of a file; `-` is stdin."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise Misused(f"Cannot read {file}: {error.strerror or error}.", advice="Name an existing file, or - for stdin.") from None


def _parsed(text: str) -> Any:
    def reject(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(text, parse_constant=reject)
    except (ValueError, RecursionError):
        return text


# ---- durations, budgets, times


def seconds(text: str | None, option: str) -> float | None:
    """Parse a duration: seconds, or `10s`, `2m`, `1.5h`, `30d`."""
    if text is None:
        return None
    span = re.fullmatch(_SPAN, text.strip())
    value = float(span[1]) * _UNITS[span[2] or "s"] if span else 0.0
    if not 0 < value < float("inf"):
        raise Misused(f"{option} must be a number of seconds above 0, not {text!r}.", advice=f"Write e.g. {option} 30, 10s, 2m, 1h or 30d.")
    return value


def budget(given: Sequence[str]) -> "Limits | None":
    """Parse `KIND=LIMIT …`."""
    from remit.core.budget import Limits

    kinds = Limits.__dataclass_fields__
    limits: dict[str, Any] = {}
    for pair in given:
        kind, _, text = pair.partition("=")
        value, is_amount = _parsed(text), kind in ("cost", "seconds")
        if kind not in kinds:
            raise Misused(f"There is no budget of {kind!r}.", advice=f"--budget takes KIND=LIMIT, with KIND one of {', '.join(kinds)}.")
        if type(value) not in ((int, float) if is_amount else (int,)) or not 0 <= value < float("inf"):
            what = "number" if is_amount else "whole number"
            raise Misused(f"--budget {kind} must be a {what} of at least 0, not {text!r}.", advice=f"Write e.g. --budget {kind}=10.")
        limits[kind] = value
    return Limits(**limits) if limits else None


def parse_time(text: str | None, option: str, now: float) -> float | None:
    """Parse a time to wall clock seconds: `1h` or `2d` ago, an ISO date or time (local by default), or unix seconds."""
    if text is None:
        return None
    if (ago := re.fullmatch(_SPAN, text.strip())) and ago[2]:
        return now - float(ago[1]) * _UNITS[ago[2]]
    try:
        return float(text) if re.fullmatch(r"\d{9,}(\.\d+)?", text) else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        advice = "Use e.g. 30m, 2h, 1d ago, or an ISO time such as 2026-01-31T12:00."
        raise Misused(f"{option}: {text!r} is not a time.", advice=advice) from None


# ---- task numbers


def number_of(text: str | None, usage: str) -> int:
    """Parse one task number. `usage` is the command with its arguments: `remit research N [focus]`."""
    if text is None or not text.strip():
        raise Misused(f"Task number required. Usage: {usage}")
    found = re.fullmatch(_RANGE, text.strip())
    if found is None or found[2] or int(found[1]) < 1:
        raise _no_number(text.strip())
    return int(found[1])


def numbers_of(text: str | None, usage: str = "") -> list[int]:
    """Parse numbers and ranges separated by commas or spaces. Returns each once, in the given order."""
    found: dict[int, None] = {}
    joined = re.sub(r"\s*(-|–|\.\.)\s*", r"\1", text or "")
    for part in filter(None, re.split(r"[,;\s]+", joined)):
        spelled = re.fullmatch(_RANGE, part)
        if spelled is None or (not spelled[2] and int(spelled[1]) < 1):
            raise _no_number(part)
        first, last = int(spelled[1]), int(spelled[2] or spelled[1])
        if not 1 <= first <= last or last - first >= NUMBERS_AT_MOST:
            advice = f"A range leads from the smaller number to the larger one, like 343-345, with at most {NUMBERS_AT_MOST:,} tasks."
            raise Misused(f"Invalid range {first}-{last}", advice=advice)
        found |= dict.fromkeys(range(first, last + 1))
        if len(found) > NUMBERS_AT_MOST:
            raise Misused(f"{text!r} names more than {NUMBERS_AT_MOST:,} tasks.", advice="Name fewer.")
    if not found:
        raise Misused("Task number required." + (f" Usage: {usage}" if usage else ""))
    return list(found)


def _no_number(part: str) -> Misused:
    return Misused(f"Task number must be an integer. Got: {part[:80]}", advice="Task numbers are 1, 2, 3, …")
