"""Path patterns: globs as regular expressions, and the rules of .gitignore files."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

MAX_LENGTH = 1000
MAX_CHOICES = 64


class BadPattern(ValueError):
    """The fault, as a clause that continues a sentence."""


@lru_cache(maxsize=256)
def compile_glob(pattern: str) -> re.Pattern[str]:
    """For `fullmatch` against a path. Without a slash only the name counts, in any folder."""
    if not pattern or len(pattern) > MAX_LENGTH:
        raise BadPattern("is empty" if not pattern else f"is longer than {MAX_LENGTH} characters")
    return re.compile("|".join(_whole(choice) for choice in choices(pattern)), re.DOTALL)


def translate(pattern: str) -> str:
    """A path pattern without braces: `**` matches any number of folders; nothing else crosses a slash."""
    parts = [part for part in pattern.split("/") if part]
    runs: list[list[str]] = [[]]
    for part in parts:
        if part != "**":
            runs[-1].append(segment(part))
        elif runs[-1] or len(runs) == 1:
            runs.append([])
    if len(runs) == 1:
        return "/".join(runs[0])
    # Between two `**` is a fixed number of parts, so the first match is as good as any.
    middle = "".join(rf"(?>(?:[^/]+/)*?{'/'.join(run)}/)" for run in runs[1:-1] if run)
    last = "(?:.+)" if not runs[-1] else rf"(?:[^/]+/)*?{'/'.join(runs[-1])}"
    first = "/".join(runs[0])
    return (f"{first}/" if first else "") + middle + last


_SIGN = re.compile(r"\*+|\?|\[([!^]?+)(\]?+(?:\\.|[^\]\\])*)\]|\\?(.)", re.DOTALL)
"""Stars, a question mark, a class (whether it is negated, its content), or a literal character."""


def segment(part: str) -> str:
    """One name: `*`, `?`, `[…]`, and a backslash before a literal character."""
    pieces = [""]
    for sign in _SIGN.finditer(part):
        if sign[0].startswith("*"):
            pieces.append("")
        elif sign[0] == "?":
            pieces[-1] += "[^/]"
        else:
            pieces[-1] += re.escape(sign[3]) if sign[2] is None else _class(sign[2], is_negated=sign[1] != "")
    if len(pieces) == 1:
        return pieces[0]
    middle = "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:-1])
    return f"{pieces[0]}{middle}[^/]*{pieces[-1]}"


def _class(inside: str, *, is_negated: bool) -> str:
    found = re.findall(r"\\?(.)(?:-\\?(.))?", inside, re.DOTALL)
    ranges = "".join(f"{re.escape(low)}-{re.escape(high or low)}" for low, high in found if low <= (high or low))
    if not ranges:
        return "[^/]" if is_negated else "(?!)"
    return f"[^/{ranges}]" if is_negated else f"(?!/)[{ranges}]"


def _whole(pattern: str) -> str:
    translated = translate(pattern)
    return translated if "/" in pattern.rstrip("/") else f"(?:.*/)?{translated}"


def choices(pattern: str) -> Iterator[str]:
    """`{a,b}c` is `ac` and `bc`; braces may nest. Limited in number."""
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
            raise BadPattern(f"expands to more than {MAX_CHOICES} patterns")


def _brace(pattern: str) -> tuple[int, int, list[str]] | None:
    """The first pair of braces with a comma: its range and its alternatives."""
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


MAX_RULES = 5_000
_PLAIN_NAME = re.compile(r"[^*?\[\]\\/!#\s][^*?\[\]\\/]*\Z")


class Rule(NamedTuple):
    parts: tuple[str, ...]
    """The pattern's parts: a single one matches a name in any folder below, unless it is anchored."""
    is_anchored: bool
    is_negated: bool
    folders_only: bool

    @property
    def text(self) -> str:
        """As written, anchored to its folder."""
        lead = "!" if self.is_negated else "\\" if self.parts[0][:1] in ("!", "#") and not self.is_anchored else ""
        return lead + ("/" if self.is_anchored else "") + "/".join(self.parts) + ("/" if self.folders_only else "")


def read_rules(text: str) -> list[Rule]:
    """Rules without meaning are skipped, as in git."""
    rules = []
    for line in text.removeprefix("\ufeff").split("\n")[: MAX_RULES * 4]:
        pattern = line.rstrip(" \t\r")
        pattern += " " if pattern.endswith("\\") and len(pattern) < len(line.rstrip("\r")) else ""  # a backslash protects a blank
        if not pattern or pattern.startswith("#"):
            continue
        is_negated = pattern.startswith("!")
        pattern = pattern[1:] if is_negated else pattern.removeprefix("\\") if pattern[:2] in ("\\!", "\\#") else pattern
        folders_only = pattern.endswith("/")
        parts = tuple(part for part in pattern.split("/") if part)
        if parts and len(pattern) <= 1000:
            is_anchored = "/" in pattern.rstrip("/")
            rules.append(Rule(parts=parts, is_anchored=is_anchored, is_negated=is_negated, folders_only=folders_only))
    return rules[:MAX_RULES]


def below(rules: Iterable[Rule], folder: Sequence[str]) -> Iterator[Rule]:
    """The same rules relative to a subfolder: `/src/gen` is `/gen` from `src`. Anchored rules that do not spell the folder out are
    omitted."""
    for rule in rules:
        if not rule.is_anchored or rule.parts[0] == "**":
            yield rule
        elif rule.parts[: len(folder)] == tuple(folder) and len(rule.parts) > len(folder):
            yield rule._replace(parts=rule.parts[len(folder) :])


class Rules:
    """The compiled rules of one file."""

    __slots__ = ("_names", "_on_name", "_on_path", "_rules")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._names = frozenset(rule.parts[0] for rule in rules if not rule.is_anchored and _PLAIN_NAME.match(rule.parts[0]))
        self._on_name = _any([segment(r.parts[0]) for r in rules if not r.is_anchored and r.parts[0] not in self._names])
        self._on_path = _any([translate("/".join(r.parts)) for r in rules if r.is_anchored])
        self._rules = tuple(reversed([(rule, _compiled(rule)) for rule in rules]))

    def verdict(self, name: str, path: str, is_folder: bool) -> bool | None:
        """Whether it is ignored; None if no rule matches. `path` is relative to the folder of these rules."""
        if (
            name not in self._names
            and (self._on_name is None or self._on_name.fullmatch(name) is None)
            and (self._on_path is None or self._on_path.fullmatch(path) is None)
        ):
            return None
        for rule, pattern in self._rules:
            if (is_folder or not rule.folders_only) and pattern.fullmatch(path if rule.is_anchored else name):
                return not rule.is_negated
        return None


def _compiled(rule: Rule) -> re.Pattern[str]:
    return re.compile(translate("/".join(rule.parts)) if rule.is_anchored else segment(rule.parts[0]), re.DOTALL)


def _any(patterns: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.DOTALL) if patterns else None
