"""The structured result of a return as a person reads it: fields on lines, lists of like things as tables, text as text, never JSON of it.

For people only: `--json` gives programs the whole of it. What is a list of files, of matches or the content of a file is shown as such
(`listing`). Used by `answer`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from remit.cli.listing import listing
from remit.cli.output import json_text
from remit.cli.words import one_line

LINE_CHARACTERS = 160
_CELL_CHARACTERS = 60
_DEEPEST = 5
"""What lies deeper is told on one line."""


def data_lines(data: Any) -> Iterator[str]:
    yield from listing(data) or _lines(data, 0)


def _lines(data: Any, depth: int) -> Iterator[str]:
    if isinstance(data, str):
        yield from data.splitlines() or ['""']
    elif depth >= _DEEPEST or not data:
        yield _short(data)
    elif isinstance(data, Mapping):
        yield from _fields(data, depth)
    elif isinstance(data, list | tuple):
        yield from _items(data, depth)
    else:
        yield _short(data)


def _fields(data: Mapping[str, Any], depth: int) -> Iterator[str]:
    """What is short first; then each long one below its name."""
    long = {name: value for name, value in data.items() if not _fits_a_line(value)}
    width = max((len(str(name)) for name in data if name not in long), default=0)
    for name, value in data.items():
        if name not in long:
            yield f"{str(name).ljust(width)}  {_short(value)}"
    for name, value in long.items():
        yield f"{name}:"
        yield from (f"  {line}" for line in _lines(value, depth + 1))


def _items(data: Sequence[Any], depth: int) -> Iterator[str]:
    if _is_table(data):
        yield from _table(data)
        return
    for one in data:
        for number, line in enumerate(_lines(one, depth + 1)):
            yield f"{'- ' if not number else '  '}{line}"


def _is_table(data: Sequence[Any]) -> bool:
    """Several things with the same short fields."""
    first = data[0]
    if len(data) < 2 or not isinstance(first, Mapping) or not 1 < len(first) <= 8:
        return False
    return all(isinstance(one, Mapping) and list(one) == list(first) and all(map(_is_cell, one.values())) for one in data)


def _table(data: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = [str(name) for name in data[0]]
    rows = [names, *([_short(value) for value in one.values()] for one in data)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(names))]
    right = [all(isinstance(value, int | float) for value in column) for column in zip(*(one.values() for one in data), strict=True)]
    for row in rows:
        cells = (cell.rjust(width) if is_right else cell.ljust(width) for cell, width, is_right in zip(row, widths, right, strict=True))
        yield "  ".join(cells).rstrip()


def _is_cell(value: Any) -> bool:
    if isinstance(value, str):
        return "\n" not in value and len(value) <= _CELL_CHARACTERS
    return value is None or isinstance(value, bool | int | float)


def _fits_a_line(value: Any) -> bool:
    if isinstance(value, str):
        return "\n" not in value and len(value) <= LINE_CHARACTERS
    if isinstance(value, Mapping):
        return not value
    if isinstance(value, list | tuple):
        return all(map(_is_cell, value)) and len(_short(value)) <= LINE_CHARACTERS
    return True


def _short(value: Any) -> str:
    """On one line: a text as it is, a list of short things with commas between."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list | tuple) and value and all(map(_is_cell, value)):
        return ", ".join(map(_short, value))
    return json_text(value) if _is_cell(value) or not value else one_line(json_text(value), LINE_CHARACTERS)
