"""The structured result of a return as a person reads it: one field or one entry to a line, long text as text, not as JSON of it.

For people only: `--json` gives programs the whole of it. Used by `answer`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from remit.cli.output import json_text

LINE_CHARACTERS = 160


def data_lines(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield from data.splitlines()
    elif isinstance(data, Mapping) and data:
        yield from _fields(data)
    elif isinstance(data, list) and data and all(isinstance(one, Mapping) for one in data):
        yield from _entries(data)
    else:
        yield from json_text(data, indent=2).splitlines()


def _fields(data: Mapping[str, Any]) -> Iterator[str]:
    """What is short first; then each long one below its name."""
    long = {name: value for name, value in data.items() if _is_long(value)}
    width = max((len(name) for name in data if name not in long), default=0)
    for name, value in data.items():
        if name not in long:
            yield f"{name.ljust(width)}  {_short(value)}"
    for name, value in long.items():
        yield f"{name}:"
        if isinstance(value, str):
            yield from value.splitlines()
        elif isinstance(value, list):
            yield from _entries(value)
        else:
            yield from json_text(value, indent=2).splitlines()


def _entries(data: Sequence[Any]) -> Iterator[str]:
    for one in data:
        text = "  ".join(_short(value) for value in one.values()) if _is_flat(one) else _short(one)
        if "\n" not in text and len(text) <= LINE_CHARACTERS:
            yield f"- {text}"
        else:
            yield from (f"{'- ' if not number else '  '}{line}" for number, line in enumerate(json_text(one, indent=2).splitlines()))


def _is_long(value: Any) -> bool:
    if isinstance(value, str):
        return "\n" in value or len(value) > LINE_CHARACTERS
    return isinstance(value, list | Mapping) and len(json_text(value)) > LINE_CHARACTERS


def _is_flat(value: Any) -> bool:
    return isinstance(value, Mapping) and not any(isinstance(one, list | Mapping) for one in value.values())


def _short(value: Any) -> str:
    return value if isinstance(value, str) and value else json_text(value)
