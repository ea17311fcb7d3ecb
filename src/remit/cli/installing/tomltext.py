"""One table of a TOML document put in, changed or taken out as text; every other character stays.

TOML is read by `tomllib`, which knows no places: so a change is made by lines and believed only when reading it again gives exactly
what was meant. What cannot be done that way is refused.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

Path = tuple[str, ...]
_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


class NotToml(Exception):
    pass


def parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"at line (\d+)", str(error))
        message = re.sub(r" \(at .*\)$", "", str(error))
        raise NotToml(f"line {where[1] if where else text.count(chr(10)) + 1}: {message[:1].lower()}{message[1:]}") from None
    except RecursionError:
        raise NotToml("it is nested too deeply") from None


def value_at(text: str, path: Path) -> Any:
    found: Any = parsed(text)
    for key in path:
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found


def with_table(text: str, path: Path, table: dict[str, Any]) -> str:
    """The document with `table` at `path`: in the place of the one that is there, else at the end."""
    wanted = _set(parsed(text), path, table)
    end_of_line = "\r\n" if "\r\n" in text else "\n"
    block = rendered(path, table).replace("\n", end_of_line)
    if value_at(text, path) is None:
        gap = "" if not text.strip() else end_of_line if text.endswith("\n") else end_of_line * 2
        candidates = iter([text + gap + block])
    else:
        candidates = (text[:start] + block + text[end:] for start, end in _blocks(text, path))
    return _first(candidates, wanted, path)


def without_table(text: str, path: Path) -> str:
    """The document without the table at `path`; the same when there is none."""
    if value_at(text, path) is None:
        return text
    cuts = ((_without_gap(text[:start], text[end:])) for start, end in _blocks(text, path))
    return _first(cuts, _set(parsed(text), path, None), path)


def rendered(path: Path, table: dict[str, Any]) -> str:
    """Strings, numbers, truths and lists of strings: JSON writes them as TOML reads them."""
    lines = [f"[{'.'.join(path)}]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict)]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += ["", rendered((*path, key), value).rstrip("\n")]
    return "\n".join(lines) + "\n"


def _first(candidates: Iterator[str], wanted: dict[str, Any], path: Path) -> str:
    for text in candidates:
        try:
            found = parsed(text)
            if not found.get(path[0], True):
                del found[path[0]]  # an empty table that was there before
            if repr(found) == repr(wanted):  # not ==: what is not a number equals nothing, itself among them
                return text
        except NotToml:
            continue
    raise NotToml(f"[{'.'.join(path)}] cannot be changed here without touching the rest")


def _blocks(text: str, path: Path) -> Iterator[tuple[int, int]]:
    """Where the table may stand: from its own header to before one of the next."""
    headers = [found.start() for found in _HEADER.finditer(text)]
    name = r"[ \t]*\.[ \t]*".join(rf"(?:{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}')" for key in path)
    own = re.compile(rf"[ \t]*\[[ \t]*{name}[ \t]*\]")
    for start in headers:
        if own.match(text, start):
            for end in (*(at for at in headers if at > start), len(text)):
                yield start, _without_comments_of_the_next(text, start, end)


def _without_comments_of_the_next(text: str, start: int, end: int) -> int:
    """Comments and empty lines straight above a header belong to it."""
    lines = text[start:end].splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return start + sum(map(len, lines))


def _without_gap(before: str, after: str) -> str:
    """One empty line less, where there would be two, or one at the end."""
    for gap in ("\r\n\r\n", "\n\n"):
        if before.endswith(gap) and (not after or after.startswith(("\n", "\r\n"))):
            return before[: -len(gap) // 2] + after
    return before + after


def _set(document: dict[str, Any], path: Path, value: dict[str, Any] | None) -> dict[str, Any]:
    """A copy with `value` at `path`, or (None) nothing there; a table that was there only for it goes with it."""
    head, rest = path[0], path[1:]
    copy = dict(document)
    if rest:
        inner = copy.get(head, {})
        if not isinstance(inner, dict):
            raise NotToml(f"{head} must be a table")
        value = _set(inner, rest, value) or None
    if value is None:
        copy.pop(head, None)
    else:
        copy[head] = value
    return copy
