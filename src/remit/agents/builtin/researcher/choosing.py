"""Choosing what to show of what was ranked: no repetition, and not the same thing from one side only (MMR)."""

from collections.abc import Iterable

from remit.agents.builtin.researcher.ranking import Ranked
from remit.agents.builtin.researcher.words import jaccard, shingles

REPEATS = 0.6
"""From this likeness on, two sentences say the same in the same words."""
_RELEVANCE = 0.75


def diverse(ranked: Iterable[Ranked], most: int, taken: Iterable[Ranked] = (), per_document: int = 3) -> list[Ranked]:
    """Up to `most`, the best first, each next one as relevant and as new as can be. `taken`: what is shown already."""
    pool = list(ranked)[: most * 12]
    if not pool:
        return []
    likeness = _Likeness()
    chosen = list(taken)
    before = len(chosen)
    scale = max(one.score for one in pool) or 1.0
    counts: dict[str, int] = {}
    while pool and len(chosen) - before < most:
        best = max(pool, key=lambda one: _RELEVANCE * one.score / scale - (1 - _RELEVANCE) * likeness.nearest(one, chosen))
        pool.remove(best)
        name = best.sentence.document.name
        if likeness.nearest(best, chosen) >= REPEATS or counts.get(name, 0) >= per_document or any(_overlap(best, one) for one in chosen):
            continue
        counts[name] = counts.get(name, 0) + 1
        chosen.append(best)
    return chosen[before:]


def _overlap(one: Ranked, other: Ranked) -> bool:
    """Code is quoted in lines, so a docstring's sentence and its signature may hold the same."""
    mine, theirs = one.sentence.unit, other.sentence.unit
    if one.sentence.document is not other.sentence.document or not (mine.is_code or theirs.is_code):
        return False
    return mine.line <= theirs.end_line and theirs.line <= mine.end_line


class _Likeness:
    def __init__(self) -> None:
        self._shingles: dict[int, frozenset[tuple[str, ...]]] = {}
        self._likeness: dict[tuple[int, int], float] = {}

    def _of(self, one: Ranked) -> frozenset[tuple[str, ...]]:
        key = id(one.sentence)
        if key not in self._shingles:
            self._shingles[key] = shingles(one.sentence.unit.text, 2)
        return self._shingles[key]

    def nearest(self, one: Ranked, others: list[Ranked]) -> float:
        return max((self._between(one, other) for other in others), default=0.0)

    def _between(self, one: Ranked, other: Ranked) -> float:
        key = (id(one.sentence), id(other.sentence))
        if key not in self._likeness:
            self._likeness[key] = jaccard(self._of(one), self._of(other))
        return self._likeness[key]
