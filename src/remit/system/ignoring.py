"""What git ignores: rules of `.gitignore` files and `.git/info/exclude`, asked of one entry after another on the way down a tree.

Reads no file: it is given their text. Git's own rules: the last that fits decides, a deeper file before a higher one, `!` takes back, a
pattern with a slash is held to the folder of its file. Quick for the many entries that nothing is said of. Used by `system.listing`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from remit.system.globs import segment, translate

MAX_RULES = 5_000
_PLAIN_NAME = re.compile(r"[^*?\[\]\\/!#\s][^*?\[\]\\/]*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    parts: tuple[str, ...]
    """The pattern's parts: a single one is a name, wherever below it stands, unless it is anchored."""
    is_anchored: bool
    is_negated: bool
    folders_only: bool

    @property
    def text(self) -> str:
        """As it would be written, held to the folder it is for."""
        lead = "!" if self.is_negated else "\\" if self.parts[0][:1] in ("!", "#") and not self.is_anchored else ""
        return lead + ("/" if self.is_anchored else "") + "/".join(self.parts) + ("/" if self.folders_only else "")


def read_rules(text: str) -> list[Rule]:
    """Rules that mean nothing are left out, as git does."""
    rules = []
    for line in text.removeprefix("\ufeff").split("\n")[: MAX_RULES * 4]:
        pattern = _trimmed(line)
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
    """The same rules as seen from a folder further down: `/src/gen` is `/gen` from `src`. What cannot fit there is left out."""
    for rule in rules:
        if not rule.is_anchored:
            yield rule
            continue
        for parts in _rests(rule.parts, tuple(folder)):
            if parts:
                yield Rule(parts=parts, is_anchored=True, is_negated=rule.is_negated, folders_only=rule.folders_only)


class Rules:
    """The rules of one file, ready to be asked."""

    __slots__ = ("_names", "_on_name", "_on_path", "_rules")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._names = frozenset(rule.parts[0] for rule in rules if not rule.is_anchored and _PLAIN_NAME.match(rule.parts[0]))
        self._on_name = _any([segment(r.parts[0]) for r in rules if not r.is_anchored and r.parts[0] not in self._names])
        self._on_path = _any([translate("/".join(r.parts)) for r in rules if r.is_anchored])
        self._rules = tuple(reversed([(rule, _compiled(rule)) for rule in rules]))

    def verdict(self, name: str, path: str, is_folder: bool) -> bool | None:
        """Whether it is ignored; None when nothing is said of it. `path` is from the folder of these rules."""
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


def _trimmed(line: str) -> str:
    """Without blanks at the end, but for one that a backslash protects."""
    stripped = line.rstrip(" \t\r")
    return stripped + " " if stripped.endswith("\\") and len(stripped) < len(line.rstrip("\r")) else stripped


def _rests(parts: tuple[str, ...], folder: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """What is left of a pattern once it has matched its way down to `folder`: each way once, however many `**` there are."""
    here = {0}
    for name in folder:
        here = {step for position in here for step in _steps(parts, position, name)}
    yield from (parts[position:] for position in sorted(here))


def _steps(parts: tuple[str, ...], position: int, name: str) -> Iterator[int]:
    if position < len(parts) and parts[position] == "**":
        yield position
        yield from _steps(parts, position + 1, name)
    elif position < len(parts) and re.fullmatch(segment(parts[position]), name, re.DOTALL):
        yield position + 1


def _compiled(rule: Rule) -> re.Pattern[str]:
    return re.compile(translate("/".join(rule.parts)) if rule.is_anchored else segment(rule.parts[0]), re.DOTALL)


def _any(patterns: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.DOTALL) if patterns else None
