r"""Patterns of file names (`*.py`, `src/**/test_?.py`, `[a-z]*`, `{a,b}`) as regular expressions that cannot be made to take long.

Patterns come from callers and from `.gitignore` files of strangers, and Python's `re` holds the whole process while it matches. So each
`*` takes the shortest that lets the rest of its part begin, once and for all (an atomic group): for names that is always enough, and a
name is read a bounded number of times. Pure. Used by `system.ignoring` and by whoever filters names.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

MAX_LENGTH = 1000
MAX_CHOICES = 64
_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9a-fA-F",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "graph": "!-~",
    "print": " -~",
}


class BadPattern(ValueError):
    """Says, in a clause that continues a sentence, what is wrong."""


@lru_cache(maxsize=256)
def compile_glob(pattern: str) -> re.Pattern[str]:
    """To be matched against a path (`fullmatch`). Without a slash it is the name that counts, in whatever folder."""
    if not pattern or len(pattern) > MAX_LENGTH:
        raise BadPattern("is empty" if not pattern else f"is longer than {MAX_LENGTH} characters")
    return re.compile("|".join(_whole(choice) for choice in choices(pattern)), re.DOTALL)


def translate(pattern: str) -> str:
    """A path pattern without braces: `**` stands for any number of folders; nothing else crosses a slash."""
    parts = [part for part in pattern.split("/") if part]
    runs: list[list[str]] = [[]]
    for part in parts:
        if part != "**":
            runs[-1].append(segment(part))
        elif runs[-1] or len(runs) == 1:
            runs.append([])
    if len(runs) == 1:
        return "/".join(runs[0])
    # Between two `**` stands a fixed number of parts, so the first place where they fit is as good as any.
    middle = "".join(rf"(?>(?:[^/]+/)*?{'/'.join(run)}/)" for run in runs[1:-1] if run)
    last = "(?:.+)" if not runs[-1] else rf"(?:[^/]+/)*?{'/'.join(runs[-1])}"
    first = "/".join(runs[0])
    return (f"{first}/" if first else "") + middle + last


def segment(part: str) -> str:
    """One name: `*`, `?`, `[…]`, and a backslash before what is meant as it stands."""
    pieces: list[list[str]] = [[]]
    position = 0
    while position < len(part):
        sign = part[position]
        position += 1
        if sign == "*":
            if pieces[-1] or len(pieces) == 1:
                pieces.append([])
        elif sign == "?":
            pieces[-1].append("[^/]")
        elif sign == "[" and (end := _end_of_class(part, position)) is not None:
            pieces[-1].append(_class(part[position:end]))
            position = end + 1
        elif sign == "\\" and position < len(part):
            pieces[-1].append(re.escape(part[position]))
            position += 1
        else:
            pieces[-1].append(re.escape(sign))
    joined = ["".join(piece) for piece in pieces]
    if len(joined) == 1:
        return joined[0]
    middle = "".join(f"(?>[^/]*?{piece})" for piece in joined[1:-1])
    return joined[0] + middle + "[^/]*" + joined[-1]


def _whole(pattern: str) -> str:
    translated = translate(pattern)
    return translated if "/" in pattern.rstrip("/") else f"(?:.*/)?{translated}"


def choices(pattern: str) -> Iterator[str]:
    """`{a,b}c` is `ac` and `bc`; braces may nest. At most so many."""
    todo = [pattern]
    given = 0
    while todo:
        one = todo.pop()
        opened = _brace(one)
        if opened is None:
            given += 1
            yield one
        else:
            start, end, offered = opened
            todo.extend(one[:start] + choice + one[end + 1 :] for choice in reversed(offered))
        if given + len(todo) > MAX_CHOICES:
            raise BadPattern(f"stands for more than {MAX_CHOICES} patterns")


def _brace(pattern: str) -> tuple[int, int, list[str]] | None:
    """The first pair of braces with a comma in it: where it begins and ends, and what it offers."""
    start = pattern.find("{")
    if start < 0:
        return None
    depth, begin, offered = 0, start + 1, []
    for position in range(start, len(pattern)):
        sign = pattern[position]
        depth += (sign == "{") - (sign == "}")
        if depth == 1 and sign == ",":
            offered.append(pattern[begin:position])
            begin = position + 1
        elif depth == 0:
            return (start, position, [*offered, pattern[begin:position]]) if offered else None
    return None


def _end_of_class(part: str, start: int) -> int | None:
    position = start
    if part[position : position + 1] in ("!", "^"):
        position += 1
    if part[position : position + 1] == "]":
        position += 1
    while position < len(part):
        if part.startswith("[:", position) and (end := part.find(":]", position)) >= 0:
            position = end + 2
        elif part[position] == "]":
            return position
        else:
            position += 2 if part[position] == "\\" else 1
    return None


def _class(inside: str) -> str:
    negated = inside[:1] in ("!", "^")
    body = inside[1:] if negated else inside
    named = re.split(r"\[:(\w+):\]", body)
    held = "".join(_CLASSES.get(piece, "") if number % 2 else _ranges(piece) for number, piece in enumerate(named))
    if not held:
        return "[^/]" if negated else "(?!)"
    return f"[^/{held}]" if negated else f"(?!/)[{held}]"


def _ranges(text: str) -> str:
    signs = [sign[-1] for sign in re.findall(r"\\?.", text, re.DOTALL)]
    made, position = [], 0
    while position < len(signs):
        if position + 2 < len(signs) and signs[position + 1] == "-":
            low, high = signs[position], signs[position + 2]
            if low <= high:
                made.append(f"{re.escape(low)}-{re.escape(high)}")
            position += 3
        else:
            made.append(re.escape(signs[position]))
            position += 1
    return "".join(made)
