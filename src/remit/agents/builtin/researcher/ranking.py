"""Ranking: which sentences of what was gathered answer a sub-question. BM25 over sentences and over passages, and what BM25 cannot see.

What it cannot see: how many of the question's words come together, in the sentence or around it; phrases; headings; the form that an
answer to this kind of question has; what kind of source it is. Burns CPU: runs in the researcher's own process.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from remit.agents.builtin.needing import need
from remit.agents.builtin.researcher.passages import Document, Kind, Passage
from remit.agents.builtin.researcher.question import Asks, Part, Term
from remit.agents.builtin.researcher.quoting import is_clean
from remit.agents.builtin.researcher.sentences import LONGEST, Unit
from remit.agents.builtin.researcher.words import stems

CANDIDATES = 500
_SMOOTHING = 50
ALIKE_WORTH = 0.45
AROUND_WORTH = 0.6
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
    Kind.DEFINITION: 0.55,
    Kind.CODE: 0.45,
}
_FORM = {
    Asks.DEFINITION: r"\b(?:is|are|means|refers to|stands for)\s+(?:an?|the|one|what|how)\b|^[`*\w .-]{2,40}(?::| is | are | – | — )",
    Asks.MANNER: r"\b(?:by|to|with|through|via|using|first|then|so that|each|every|call|set|run|use|when)\b",
    Asks.REASON: r"\b(?:because|since|so that|therefore|otherwise|hence|in order to|the reason|reason is|would)\b",
    Asks.TIME: r"\b(?:\d{4}|when|after|before|until|at the|on|seconds?|minutes?|hours?|days?|weeks?|months?|years?)\b",
    Asks.PLACE: r"`[^`]*[/.][^`]*`|\b\w+/\w+|\b(?:in|below|under|at|stands|kept|stored|lives|folder|file|module)\b",
    Asks.PERSON: r"\b(?:by|author|maintained|created|owner|who)\b|[A-Z][a-z]+ [A-Z][a-z]+",
    Asks.AMOUNT: r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|hundred|thousand|half|twice|at most|at least|default)\b",
}
_FORMS = {asks: re.compile(pattern, re.IGNORECASE) for asks, pattern in _FORM.items()}
_IS_A = re.compile(r"^.{1,60}?\b(?:is|are|means)\s+(?:an?|the|one|what)\b", re.IGNORECASE)
_ENTRY = re.compile(r"^[\W_]*\w+(?: \w+)?[\W_]*?(?: \||:| –| —) ?\S")
"""As in a glossary: the word, then what it is."""
_POINTS_ON = re.compile(r"^[\W_]*(?:see|cf|siehe|voir)\b", re.IGNORECASE)
_SPAN = re.compile(r"`[^`]*`")
_CODEY = re.compile(r"::|->|[=(){}\[\];]")
_POINTS_BACK = re.compile(r"^(?:it|this|that|these|those|they|he|she|such|there|so|then|here)\b", re.IGNORECASE)


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
            for passage in document.passages:
                heading = stems(" ".join(passage.headings[-3:]))
                units = [(unit, tuple(stems(unit.text))) for unit in passage.units if _quotable(unit)]
                words = [word for _, found in units for word in found]
                around = frozenset((*words, *heading, *title))
                self.sentences += [
                    Sentence(unit, passage, document, found, around, len(passages), position == 0)
                    for position, (unit, found) in enumerate(units)
                ]
                passages.append([*words, *heading, *heading, *title])
        self._passages = _bm25(passages)
        self._sentences = _bm25([[*sentence.stems] for sentence in self.sentences])
        self._frequency: dict[str, int] = {}
        for sentence in self.sentences:
            for word in set(sentence.stems):
                self._frequency[word] = self._frequency.get(word, 0) + 1

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
        asked = in_sentence = in_all = 0.0
        key = max((term for term in part.terms if self.knows(term)), key=lambda term: term.weight * self.rarity(term.stem), default=None)
        for term in part.terms:
            weight = term.weight * self.rarity(term.stem)
            here = _held(term, said)
            asked += weight
            in_sentence += weight * here
            in_all += weight * max(here, AROUND_WORTH * _held(term, sentence.around))
        coverage = in_all / asked if asked else 0.0
        base = 0.35 * coverage + 0.3 * (in_sentence / asked if asked else 0.0) + 0.175 * matched
        base += _bonus(part, sentence)
        if part.asks is Asks.DEFINITION:
            base *= 1.3 if _defines(part, sentence) else 0.9
        if key is not None and not _held(key, sentence.around):
            base, coverage = base * 0.8, coverage * 0.8  # about something near the question, not about what it asks for
        score = (
            base
            * _WORTH[sentence.passage.kind]
            * math.sqrt(sentence.document.worth)
            * _shape(sentence)
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


def _quotable(unit: Unit) -> bool:
    return 3 <= len(unit.text) <= LONGEST * 2 and is_clean(unit.text)


def _bonus(part: Part, sentence: Sentence) -> float:
    """What the words alone do not tell."""
    text = sentence.unit.text
    bonus = 0.12 * min(2, sum(phrase.lower() in text.lower() for phrase in part.phrases))
    order = [term.stem for term in part.terms]
    pairs = set(pairwise(order))
    bonus += 0.05 * min(2, len(pairs & set(pairwise(sentence.stems))))
    if (form := _FORMS.get(part.asks)) is not None and form.search(text):
        bonus += 0.05
    heading = set(stems(" ".join(sentence.passage.headings[-1:])))
    if heading:
        bonus += 0.1 * sum(_held(term, heading) for term in part.terms) / len(part.terms) * (1.0 if sentence.is_first else 0.6)
    return bonus


def _defines(part: Part, sentence: Sentence) -> bool:
    """The word first, then what it is."""
    text = sentence.unit.text
    begins = part.terms[0].stem in sentence.stems[:3]
    return begins and (_IS_A.search(text) is not None or _ENTRY.search(text) is not None)


def _shape(sentence: Sentence) -> float:
    """Whether it can stand alone."""
    text = sentence.unit.text
    shape = 1.0
    if len(sentence.stems) < 5:
        shape *= 0.7
    if len(text) > 350:
        shape *= 0.9
    if text.endswith("?"):
        shape *= 0.6
    elif text.endswith((":", ",", "…")):
        shape *= 0.85
    if _POINTS_BACK.match(text) and not sentence.is_first:
        shape *= 0.92
    if _POINTS_ON.match(text):
        shape *= 0.6
    bare = _SPAN.sub("", text)
    if sentence.passage.kind not in (Kind.CODE, Kind.DEFINITION) and len(_CODEY.findall(bare)) > 3 + 0.02 * len(bare):
        shape *= 0.6  # an example that stands among prose
    letters = sum(character.isalpha() or character.isspace() for character in text)
    return shape * (1.0 if letters > 0.7 * len(text) else 0.8)
