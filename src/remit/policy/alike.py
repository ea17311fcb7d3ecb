"""Which values are all one to the rules: two paths that fit the same patterns are decided alike.

Where rules do no more with a fact than compare it with texts (`==`, `like`, `contains`, `containsAny`), which of these fit is all there
is to know of it: an outcome that was found for one value holds for all that fit the same. Used by `judging` for what it remembers.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

USUAL = object()
"""Stands for every value that fits nothing."""
_CONTEXT = {"Var": "context"}


class Comparisons:
    """What a fact is compared with."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.patterns: set[str] = set()
        self.members: set[str] = set()
        self.is_only_compared = True
        self._any: re.Pattern[str] | None = None
        self._each: list[re.Pattern[str]] = []

    def kind_of(self, value: Any) -> Any:
        """`USUAL`, what it fits, or the value itself, to be a part of a key."""
        if value.__class__ is str:
            if self.is_only_compared and not self.members and value not in self.texts:
                return self._fitting(value)
        elif value.__class__ is list:
            is_plain = self.is_only_compared and not self.texts and not self.patterns
            return (frozenset(self.members.intersection(value)) or USUAL) if is_plain else tuple(value)
        return value

    def _fitting(self, value: str) -> Any:
        """The patterns it fits; most values fit none, and one look tells that."""
        if self._any is None:
            self._any = re.compile("|".join(sorted(self.patterns)) or r"(?!)", re.DOTALL)
            self._each = [re.compile(pattern, re.DOTALL) for pattern in sorted(self.patterns)]
        if self._any.fullmatch(value) is None:
            return USUAL
        return tuple([number for number, pattern in enumerate(self._each) if pattern.fullmatch(value) is not None])


def comparisons(conditions: Iterable[Any]) -> dict[str, Comparisons]:
    """By fact, of all these conditions in Cedar's JSON: each an operator over its operands, which are such themselves."""
    found: dict[str, Comparisons] = {}
    stack = list(conditions)
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack += [one for operator, inside in node.items() for one in _rest(operator, inside, found)]
    return found


def _rest(operator: str, inside: Any, found: dict[str, Comparisons]) -> Iterator[Any]:
    """Notes a comparison of a fact; what else is in it has still to be looked at."""
    if operator == "Value" or not isinstance(inside, dict | list):
        return
    if isinstance(inside, list):
        yield from inside
        return
    if operator == "has" and inside.get("left") == _CONTEXT:
        return  # whether it is there at all is part of the key by itself
    fact = _fact(inside.get("left"))
    if fact is not None and _note(operator, inside, found.setdefault(fact, Comparisons())):
        return
    if operator == "." and inside.get("left") == _CONTEXT:
        found.setdefault(str(inside["attr"]), Comparisons()).is_only_compared = False
        return
    yield from inside.values()


def _note(operator: str, inside: dict[str, Any], fact: Comparisons) -> bool:
    """Whether it is a comparison with texts, and noted."""
    right = _literal(inside.get("right"))
    if operator == "like":
        fact.patterns.add("".join(".*" if part == "Wildcard" else re.escape(part["Literal"]) for part in inside["pattern"]))
        return True
    if operator in ("==", "!=") and isinstance(right, str):
        fact.texts.add(right)
        return True
    if operator == "contains" and isinstance(right, str):
        fact.members.add(right)
        return True
    if operator == "containsAny" and isinstance(right, list) and all(isinstance(one, str) for one in right):
        fact.members.update(right)
        return True
    return False


def _fact(node: Any) -> str | None:
    """The name of `context.name`."""
    inside = node.get(".") if isinstance(node, dict) else None
    return str(inside["attr"]) if isinstance(inside, dict) and inside.get("left") == _CONTEXT else None


def _literal(node: Any) -> Any:
    if isinstance(node, dict) and "Value" in node:
        return node["Value"]
    if isinstance(node, dict) and isinstance(node.get("Set"), list):
        return [_literal(one) for one in node["Set"]]
    return None
