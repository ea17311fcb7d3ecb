"""Ranking: which sentences of what was gathered answer a sub-question. BM25 over sentences and over passages, and what BM25 cannot see.

What it cannot see: how many of the question's words come together, in the sentence or around it; phrases; headings; the form that an
answer to this kind of question has; what kind of source it is. Burns CPU: runs in the researcher's own process.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from remit.agents.builtin.needing import need
from remit.agents.builtin.researcher.implied import implied
from remit.agents.builtin.researcher.passages import Document, Kind, Passage
from remit.agents.builtin.researcher.question import Asks, Part, Term
from remit.agents.builtin.researcher.quoting import is_clean, is_clean_code
from remit.agents.builtin.researcher.sentences import LONGEST, Unit
from remit.agents.builtin.researcher.signs import form_bonus, says_what_it_is, shape_of, tells_value
from remit.agents.builtin.researcher.words import pieces, stem, stems

CANDIDATES = 500
_SMOOTHING = 50
ALIKE_WORTH = 0.45
AROUND_WORTH = 0.6
IMPLIED_WORTH = 0.7
WITHIN_WORTH = 0.85
"""Of a word in the name of the class or function that a statement stands in."""
WITHOUT_A_VALUE = 0.75
CODE_WITHOUT_A_VALUE = 0.6
SUPPORTS = 0.5
"""The part of the question's words, weighed by rarity, that must come together for a sentence to count as an answer."""
SUPPORTS_ALONE = 0.4
"""The same for a sentence that holds all of these itself, and not only together with what stands around it."""
_WORTH = {
    Kind.PROSE: 1.0,
    Kind.ITEM: 0.97,
    Kind.ROW: 0.9,
    Kind.DOCSTRING: 0.93,
    Kind.COMMENT: 0.8,
    Kind.DEFINITION: 0.85,
    Kind.STATEMENT: 0.9,
    Kind.CODE: 0.5,
}


@dataclass(frozen=True, slots=True)
class Sentence:
    """One unit in its place, with what it is compared by."""

    unit: Unit
    passage: Passage
    document: Document
    stems: tuple[str, ...]
    around: frozenset[str]
    """Stems of the passage, its headings and the document's title."""
    passage_number: int
    is_first: bool
    named: frozenset[str] = frozenset()
    """Stems of the name that code gives, words that it runs together taken apart."""
    package: frozenset[str] = frozenset()
    """Stems of the path of its file: what a package and a module are called need not be said in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    sentence: Sentence
    score: float
    coverage: float
    """How much of the sub-question's words, weighed by rarity, stands in it or around it."""

    alone: float
    """The same, in the sentence itself."""

    @property
    def supports(self) -> bool:
        return self.coverage >= SUPPORTS or self.alone >= SUPPORTS_ALONE


class Index:
    """Everything gathered so far, ready to be asked."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.sentences: list[Sentence] = []
        passages: list[list[str]] = []
        for document in documents:
            title = stems(f"{document.title} {document.name.rpartition('/')[2] if document.kind == 'file' else ''}")
            package = frozenset(stems(document.name.rpartition(".")[0]) if document.kind == "file" else [])
            for passage in document.passages:
                heading = stems(" ".join(passage.headings[-3:]))
                units = [(unit, tuple(stems(unit.text))) for unit in passage.units if _quotable(unit)]
                words = [word for _, found in units for word in found]
                around = frozenset((*words, *heading, *title, *package))
                self.sentences += [
                    Sentence(unit, passage, document, found, around, len(passages), position == 0, frozenset(stems(unit.name)), package)
                    for position, (unit, found) in enumerate(units)
                ]
                passages.append([*words, *heading, *heading, *title])
        self._constants: dict[str, list[int]] = {}
        self._frequency: dict[str, int] = {}
        for sentence in self.sentences:
            for word in set(sentence.stems):
                self._frequency[word] = self._frequency.get(word, 0) + 1
        self._take_names_apart()
        self._passages = _bm25(passages)
        self._sentences = _bm25([[*sentence.stems] for sentence in self.sentences])

    def _take_names_apart(self) -> None:
        """`MAXHEADERS` runs two words together, which stand elsewhere for themselves: then it holds both."""
        for i, sentence in enumerate(self.sentences):
            if not (name := sentence.unit.name):
                continue
            if name.isupper():
                self._constants.setdefault(name, []).append(i)
            apart = {word: halves for word in pieces(name) if 6 < len(word) < 30 and (halves := self._halves(word))}
            if apart:
                both = [half for pair in apart.values() for half in pair]
                named = sentence.named - {stem(word) for word in apart} | set(both)
                self.sentences[i] = replace(sentence, stems=(*sentence.stems, *both), named=named)

    def constant(self, name: str, document: Document) -> Sentence | None:
        """Where a constant is given, in this document first; None where several others give one of this name."""
        given = [self.sentences[i] for i in self._constants.get(name, ()) if self.sentences[i].passage.kind is Kind.STATEMENT]
        here = [sentence for sentence in given if sentence.document is document]
        return here[0] if here else given[0] if len(given) == 1 else None

    def _halves(self, word: str) -> tuple[str, ...]:
        for at in range(3, len(word) - 3):
            one, other = stem(word[:at]), stem(word[at:])
            if self._frequency.get(one, 0) > 1 and self._frequency.get(other, 0) > 1 and len(word) - at > 3:
                return (one, other)
        return ()

    def rarity(self, stemmed: str) -> float:
        """As in BM25, smoothed: among a handful of sentences, a word that none holds must not outweigh all the others."""
        held = self._frequency.get(stemmed, 0) + 1
        return math.log(1 + (len(self.sentences) + _SMOOTHING - held + 0.5) / (held + 0.5))

    def knows(self, term: Term) -> bool:
        return term.stem in self._frequency

    def rank(self, part: Part, expansion: Sequence[Term] = ()) -> list[Ranked]:
        """The best sentences for a sub-question, best first. `expansion`: words that go with it, of little weight."""
        if self._sentences is None or self._passages is None or not part.terms:
            return []
        numpy = need("numpy", "research")
        by_sentence = self._scores(self._sentences, (*part.terms, *expansion))
        by_passage = self._scores(self._passages, (*part.terms, *expansion))[[s.passage_number for s in self.sentences]]
        together = by_sentence / (by_sentence.max() or 1.0) + by_passage / (by_passage.max() or 1.0)
        best = numpy.argsort(-together, kind="stable")[:CANDIDATES]
        ranked = [self._ranked(part, self.sentences[i], float(together[i])) for i in best if together[i] > 0]
        return sorted(ranked, key=lambda one: (-one.score, one.sentence.document.name, one.sentence.unit.line))

    def _scores(self, index: Any, terms: Sequence[Term]) -> Any:
        total = 0.0
        for term in terms:
            scores = index.get_scores([term.stem])
            for other in term.alike:
                scores = scores.clip(min=index.get_scores([other]) * ALIKE_WORTH)
            total = total + scores * term.weight
        return total

    def _ranked(self, part: Part, sentence: Sentence, matched: float) -> Ranked:
        said = set(sentence.stems)
        more = _said_by_code(sentence) if sentence.unit.is_code else {}
        asked = in_sentence = in_all = 0.0
        key = max((term for term in part.terms if self.knows(term)), key=lambda term: term.weight * self.rarity(term.stem), default=None)
        for term in part.terms:
            weight = term.weight * self.rarity(term.stem)
            here = max(_held(term, said), more.get(term.stem, 0.0))
            asked += weight
            in_sentence += weight * here
            in_all += weight * max(here, AROUND_WORTH * _held(term, sentence.around))
        coverage = in_all / asked if asked else 0.0
        base = 0.35 * coverage + 0.3 * (in_sentence / asked if asked else 0.0) + 0.175 * matched
        base += _bonus(part, sentence)
        if part.asks is Asks.AMOUNT and not tells_value(part, sentence.unit):
            base *= CODE_WITHOUT_A_VALUE if sentence.unit.is_code else WITHOUT_A_VALUE
        if part.asks is Asks.DEFINITION:
            base *= 1.3 if _defines(part, sentence) else 0.9
        if key is not None and not _held(key, sentence.around) and key.stem not in more:
            less = 0.7 if sentence.unit.is_code else 0.8
            base, coverage = base * less, coverage * less  # about something near the question, not about what it asks for
        score = (
            base
            * _WORTH[sentence.passage.kind]
            * math.sqrt(sentence.document.worth)
            * shape_of(sentence.unit, len(sentence.stems), is_first=sentence.is_first)
            / (1 + 0.05 * sentence.document.depth)
        )
        return Ranked(sentence=sentence, score=score, coverage=coverage, alone=in_sentence / asked if asked else 0.0)


def _bm25(corpus: list[list[str]]) -> Any:
    if not any(corpus):
        return None
    index = need("bm25s", "research").BM25(k1=1.2, b=0.6)
    index.index([words or ["\x00"] for words in corpus], show_progress=False)
    return index


def _held(term: Term, words: "frozenset[str] | set[str]") -> float:
    return 1.0 if term.stem in words else ALIKE_WORTH if term.alike & words else 0.0


def _said_by_code(sentence: Sentence) -> dict[str, float]:
    """What code says by its shape, by what it stands in, and by the package it belongs to, beside its own words."""
    said = dict.fromkeys((*implied(sentence.unit.text), *sentence.package), IMPLIED_WORTH)
    return said | dict.fromkeys(stems(" ".join(sentence.passage.headings[-2:])), WITHIN_WORTH)


def _quotable(unit: Unit) -> bool:
    return 3 <= len(unit.text) <= LONGEST * 2 and (is_clean_code(unit.text) if unit.is_code else is_clean(unit.text))


def _bonus(part: Part, sentence: Sentence) -> float:
    """What the words alone do not tell."""
    text = sentence.unit.text
    spoken = f"{'.'.join(sentence.passage.headings)}.{text}".lower() if sentence.unit.is_code else text.lower()
    bonus = 0.12 * min(2, sum(phrase.lower() in spoken for phrase in part.phrases))
    order = [term.stem for term in part.terms]
    pairs = set(pairwise(order))
    bonus += 0.05 * min(2, len(pairs & set(pairwise(sentence.stems))))
    bonus += form_bonus(part, sentence.unit)
    bonus += 0.1 * any("." in phrase and phrase.lower().replace(".", "/") in sentence.document.name.lower() for phrase in part.phrases)
    if sentence.unit.name:
        bonus += _naming(part, sentence)
    heading = set(stems(" ".join(sentence.passage.headings[-2 if sentence.unit.is_code else -1 :])))
    if heading:
        bonus += 0.1 * sum(_held(term, heading) for term in part.terms) / len(part.terms) * (1.0 if sentence.is_first else 0.6)
    return bonus


def _naming(part: Part, sentence: Sentence) -> float:
    """What is worth more in a place where a name is defined: that the question names it, or says what it says; and the value itself."""
    name, own = sentence.unit.name, sentence.named
    worth = 0.1 if part.asks is Asks.AMOUNT and tells_value(part, sentence.unit) else 0.0
    if _is_named(part, name):
        is_meant = sentence.passage.kind is not Kind.DEFINITION or part.asks in (Asks.DEFINITION, Asks.PLACE) or len(part.terms) < 4
        return worth + (0.34 if is_meant else 0.18)
    known = [word for word in own if any(_held(term, {word}) for term in part.terms)]
    if not known:
        return 0.0
    whole = len(own) == len(known)
    return worth + 0.18 * len(known) / len(own) * min(1.0, len(known) / 2 + 0.3 * whole) + 0.04 * name.isupper()


def _is_named(part: Part, name: str) -> bool:
    return any(phrase.rpartition(".")[2].lower() == name.lower() for phrase in part.phrases) or name in part.constants


def _defines(part: Part, sentence: Sentence) -> bool:
    if sentence.unit.name:
        return _is_named(part, sentence.unit.name)
    begins = part.terms[0].stem in sentence.stems[:3]
    return begins and says_what_it_is(sentence.unit.text)
