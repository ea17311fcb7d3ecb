"""Comparing sources with one another: what several of them say, where their numbers differ, and what one alone says.

Statements are sentences as they stand. Two say the same when most of their rarer words are the same; two that do, with other numbers,
differ. It compares words, not meaning, and the report says so. Burns CPU: runs in the researcher's own process.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from remit.agents.builtin.researcher.figures import Figure, figures, numbers
from remit.agents.builtin.researcher.passages import Document, Kind, Passage
from remit.agents.builtin.researcher.quoting import is_clean
from remit.agents.builtin.researcher.sentences import LONGEST, Unit
from remit.agents.builtin.researcher.words import alike, jaccard, pieces, shingles, stem, stop_words

SAME = 0.5
"""Cosine of two sentences from which on they count as saying the same."""
MOST_STATEMENTS = 600
"""Of one source; of longer ones the weightiest."""
SAME_IF_SHORT = 0.65
_SHORT = 6
_SHARED = 3
_FREQUENT = 60
"""Words in more sentences than this bring no pairs together."""
_KINDS = (Kind.PROSE, Kind.ITEM, Kind.ROW, Kind.DOCSTRING, Kind.COMMENT)


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    unit: Unit
    passage: Passage
    document: Document
    words: frozenset[str]
    position: int


@dataclass(slots=True, kw_only=True)
class Compared:
    agreed: list[list[Statement]] = field(default_factory=list)
    """Each a statement as the sources put it, one of each source, the weightiest first."""
    differing: list[list[Statement]] = field(default_factory=list)
    """The same words, other numbers."""
    single: dict[str, list[Statement]] = field(default_factory=dict)
    """By source: what it alone says, the weightiest first."""
    figures: list[tuple[Figure, Statement]] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    """Stems of the words that the sources are about."""


def compare(documents: Sequence[Document], *, most: int = 8) -> Compared:
    statements = [statement for document in documents for statement in _statements(document)]
    weights = _Weights(statements, len(documents))
    kept = [one for document in documents for one in weights.best([s for s in statements if s.document is document], MOST_STATEMENTS)]
    groups = _groups(kept, weights)
    compared = Compared(topics=weights.topics())
    grouped: set[int] = set()
    for group in sorted(groups, key=lambda group: -sum(map(weights.of, group))):
        grouped.update(id(one) for one in group)
        if len(members := _one_of_each(group, weights)) > 1:
            _file(members, compared)
    del compared.agreed[most * 2 :]
    for document in documents:
        own = [one for one in kept if one.document is document and id(one) not in grouped]
        compared.single[document.name] = _unlike(weights.best(own, most * 4), most)
    compared.figures = _figures(weights.best(kept, len(kept)), most * 3)
    return compared


def _statements(document: Document) -> Iterator[Statement]:
    stop = {stem(word) for word in stop_words()} | stop_words()
    position = 0
    for passage in document.passages:
        if passage.kind not in _KINDS:
            continue
        for unit in passage.units:
            words = frozenset(found for word in pieces(unit.text) if (found := stem(word)) not in stop and word not in stop)
            if len(words) >= 3 and len(unit.text) <= LONGEST and is_clean(unit.text) and not unit.text.endswith(("?", ":")):
                yield Statement(unit, passage, document, words, position)
                position += 1


class _Weights:
    """How much a word and a statement say about what the sources have in common."""

    def __init__(self, statements: Sequence[Statement], sources: int) -> None:
        self._held = Counter(word for one in statements for word in one.words)
        self._total = max(1, len(statements))
        spread: dict[str, set[str]] = defaultdict(set)
        for one in statements:
            for word in one.words:
                spread[word].add(one.document.name)
        self._theme = {word: (len(names) / max(1, sources)) * math.log1p(self._held[word]) for word, names in spread.items()}

    def rarity(self, word: str) -> float:
        return math.log(1 + self._total / self._held[word])

    def of(self, one: Statement) -> float:
        themes = sorted((self._theme[word] for word in one.words if not word.isdigit()), reverse=True)[:8]
        weight = sum(themes) / math.sqrt(6 + len(one.words))
        weight *= 1.15 if one.position < 3 else 1.0
        return weight * (1.2 if figures(one.unit.text) else 1.0) * (0.8 if len(one.unit.text) > 320 else 1.0)

    def best(self, statements: Sequence[Statement], most: int) -> list[Statement]:
        return sorted(statements, key=lambda one: (-self.of(one), one.document.name, one.position))[:most]

    def likeness(self, one: Statement, other: Statement) -> float:
        """Cosine over the words that are no numbers, the rare ones weightier; words that say about the same count as the same."""
        mine, theirs = _worded(one), _worded(other)
        shared = mine & theirs
        shared |= {word for word in mine - shared if alike(word) & theirs}
        if len(shared) < _SHARED:
            return 0.0
        size = math.sqrt(sum(self.rarity(w) ** 2 for w in mine) * sum(self.rarity(w) ** 2 for w in theirs))
        return sum(self.rarity(word) ** 2 for word in shared) / size if size else 0.0

    def topics(self) -> list[str]:
        return sorted((word for word in self._theme if not word.isdigit()), key=lambda word: (-self._theme[word], word))[:12]


def _worded(one: Statement) -> frozenset[str]:
    return frozenset(word for word in one.words if not word[0].isdigit())


def _groups(statements: Sequence[Statement], weights: _Weights) -> list[list[Statement]]:
    """Statements of several sources that say the same."""
    holders: dict[str, list[int]] = defaultdict(list)
    for number, one in enumerate(statements):
        for word in one.words:
            holders[word].append(number)
    met: Counter[tuple[int, int]] = Counter()
    for held in holders.values():
        if len(held) <= _FREQUENT:
            met.update((a, b) for i, a in enumerate(held) for b in held[i + 1 :] if statements[a].document is not statements[b].document)
    links = [(weights.likeness(statements[a], statements[b]), a, b) for (a, b), times in met.items() if times >= 2]
    short = {number for number, one in enumerate(statements) if len(one.words) < _SHORT}
    group_of: dict[int, list[int]] = {}
    for likeness, a, b in sorted(links, reverse=True):
        if likeness < SAME:
            break
        if likeness >= SAME_IF_SHORT or not short & {a, b}:
            _join(group_of, a, b)
    unique = {id(group): group for group in group_of.values()}
    return [[statements[i] for i in group] for group in unique.values()]


def _join(group_of: dict[int, list[int]], a: int, b: int) -> None:
    """The likest are joined first; groups are never joined with groups, so that no chain leads from one thing to another."""
    one, other = group_of.get(a), group_of.get(b)
    if one is None and other is None:
        group_of[a] = group_of[b] = [a, b]
    elif one is not None and other is None:
        one.append(b)
        group_of[b] = one
    elif other is not None and one is None:
        other.append(a)
        group_of[a] = other


def _one_of_each(group: list[Statement], weights: _Weights) -> list[Statement]:
    """One statement of each source: the one that is likest to the group's first."""
    first = weights.best(group, 1)[0]
    chosen: dict[str, Statement] = {first.document.name: first}
    for one in sorted(group, key=lambda one: -weights.likeness(first, one) if one is not first else -2.0):
        if weights.likeness(first, one) >= SAME * 0.8:
            chosen.setdefault(one.document.name, one)
    return list(chosen.values())


def _file(members: list[Statement], compared: Compared) -> None:
    told = [numbers(one.unit.text) for one in members]
    differ = any(a and b and not (a <= b or b <= a) for i, a in enumerate(told) for b in told[i + 1 :])
    (compared.differing if differ else compared.agreed).append(members)


def _unlike(statements: Sequence[Statement], most: int) -> list[Statement]:
    chosen: list[Statement] = []
    for one in statements:
        if len(chosen) == most:
            break
        if all(jaccard(shingles(one.unit.text, 2), shingles(other.unit.text, 2)) < 0.5 for other in chosen):
            chosen.append(one)
    return chosen


def _figures(statements: Sequence[Statement], most: int) -> list[tuple[Figure, Statement]]:
    seen: set[tuple[str, str, str]] = set()
    found: list[tuple[Figure, Statement]] = []
    for one in statements:
        for figure in figures(one.unit.text):
            key = (one.document.name, figure.value, figure.unit)
            if key not in seen and len(found) < most:
                seen.add(key)
                found.append((figure, one))
    return found
