"""Which sentences of a source a sentence speaks of, and whether both say it the same way round. Words are compared, by stem. Pure.

Used by `supporting`: a number, or a denial, is held against those sentences alone and not against everything that is cited.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from remit.agents.builtin.researcher.words import alike, pieces, stem, stop_words

_NEAR = 0.75
"""Of the likeness of the one that is nearest."""
_LEAST = 0.34
_DENYING = frozenset(
    re.findall(
        r"\w+",
        "not no never none cannot without nor neither nobody nothing nowhere only unless except instead hardly rarely seldom barely "
        "scarcely prevent prevents prevented avoid avoids avoided fails failed lacks kein keine nicht nie ohne kaum jamais sans",
    )
)
_NOT = re.compile(r"n['’]t\b", re.IGNORECASE)
_OPPOSITES = tuple(
    (frozenset(stem(word) for word in one.split()), frozenset(stem(word) for word in other.split()))
    for one, other in (
        ("increase rise grow", "decrease fall shrink drop"), ("before", "after"), ("more", "less fewer"), ("above", "below"),
        ("allow permit", "deny refuse forbid reject"), ("enable", "disable"), ("always", "never"), ("true", "false"),
        ("minimum", "maximum"),
        ("succeed success", "fail failure"), ("safe secure", "unsafe insecure dangerous"), ("hot hotter warm", "cold colder cool"),
        ("first", "last"), ("fast faster", "slow slower"), ("open", "close"), ("accept", "reject refuse"), ("start", "stop"),
    )
)  # fmt: skip
_POINTS_BACK = re.compile(r"^(?:\w+ )?(?:it|its|this|that|these|those|they|their|there|he|she|both)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    text: str
    """A sentence of a source."""
    before: str = ""
    """The one before it, where it points back to that."""
    headings: str = ""

    @property
    def said(self) -> str:
        return f"{self.before} {self.text}"

    @property
    def words(self) -> frozenset[str]:
        return content(f"{self.headings} {self.said}")


def units_of(sentences: Sequence[str], headings: str) -> list[Unit]:
    """Those of one passage."""
    before = ["", *sentences]
    return [
        Unit(text=text, before=before[place] if _POINTS_BACK.match(text) else "", headings=headings) for place, text in enumerate(sentences)
    ]


@cache
def stop_stems() -> frozenset[str]:
    return frozenset(stem(word) for word in stop_words()) | stop_words()


def content(text: str) -> frozenset[str]:
    return frozenset(_telling(text))


def _telling(text: str) -> list[str]:
    stop = stop_stems()
    return [found for word in pieces(text) if (found := stem(word)) not in stop and word not in stop and len(word) > 1]


def _without_numbers(text: str) -> frozenset[str]:
    return frozenset(word for word in content(text) if not word[0].isdigit())


def share(words: frozenset[str], known: frozenset[str]) -> float:
    met = sum(1 for word in words if word in known or alike(word) & known)
    return met / len(words) if words else 0.0


def nearest(clause: str, units: Sequence[Unit], sentence: str) -> list[Unit]:
    """Those that say most of what a clause of a sentence says, and not of another thing."""
    words = _without_numbers(clause) or _without_numbers(sentence)  # they are what is looked for
    shares = {unit: share(words, unit.words) for unit in units}
    least = _NEAR * max(shares.values(), default=0.0)
    return [unit for unit in units if shares[unit] >= least and not speaks_of_another(clause, unit, sentence)]


def speaks_of_another(clause: str, unit: Unit, sentence: str) -> bool:
    """Green tea is not black tea: the same word, told apart by another before it on each side."""
    known, mine = unit.words, content(sentence)
    before: dict[str, set[str]] = {}
    for one, other in pairwise(_telling(unit.said)):
        before.setdefault(other, set()).add(one)
    return any(
        other in before and not one.isdigit() and share(frozenset([one]), known) == 0 and _differ(before[other], mine)
        for one, other in pairwise(_telling(clause))
    )


def _differ(before: set[str], mine: frozenset[str]) -> bool:
    return all(word not in mine and not word.isdigit() for word in before)


def denies(sentence: str, words: frozenset[str], units: Sequence[Unit]) -> bool:
    """Whether none of those sentences of the source that say most of the same says it the same way round."""
    shares = {unit: share(words, content(unit.text)) for unit in units}
    least = max(_LEAST, _NEAR * max(shares.values(), default=0.0))
    near = [unit for unit in units if shares[unit] >= least]
    return bool(near) and all(_says_otherwise(sentence, unit) for unit in near)


def _says_otherwise(sentence: str, unit: Unit) -> bool:
    return is_denied(unit.text) != is_denied(sentence) or _are_opposite(sentence, unit.text) or speaks_of_another(sentence, unit, sentence)


def is_denied(text: str) -> bool:
    return bool(_DENYING.intersection(re.findall(r"\w+", text.lower())) or _NOT.search(text))


def _are_opposite(sentence: str, unit: str) -> bool:
    mine, theirs = frozenset(map(stem, pieces(sentence))), frozenset(map(stem, pieces(unit)))
    return any(
        (mine & one and theirs & other and not mine & other and not theirs & one)
        or (mine & other and theirs & one and not mine & one and not theirs & other)
        for one, other in _OPPOSITES
    )
