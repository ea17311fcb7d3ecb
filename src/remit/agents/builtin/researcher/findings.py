"""What the gathered documents say to a question: answer, findings by sub-question, and what they do not say. Quotations only.

Ranks, chooses and cites; writes nothing (see `report`) and fetches nothing (see `gathering`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from remit.agents.builtin.researcher.choosing import diverse
from remit.agents.builtin.researcher.citing import Citation, Citations
from remit.agents.builtin.researcher.constants import with_constants
from remit.agents.builtin.researcher.passages import Document
from remit.agents.builtin.researcher.question import Part, Question, Term
from remit.agents.builtin.researcher.ranking import Index, Ranked
from remit.agents.builtin.researcher.words import alike

IN_ANSWER = 4
IN_FINDING = 8
NEAREST = 4
"""How many are shown that do not really answer, where nothing does."""
_NEAR = 0.25
"""Below this much of the question's words, a sentence is not even near."""
_KEEPS_UP = 0.72
"""A sentence far behind the best one is no part of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoted:
    citation: Citation
    headings: tuple[str, ...]
    score: float
    coverage: float
    supports: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    question: str
    quotes: tuple[Quoted, ...]
    missing: tuple[str, ...] = ()
    """Words of the sub-question that stand nowhere in what was read."""

    @property
    def is_supported(self) -> bool:
        return any(quote.supports for quote in self.quotes)


@dataclass(slots=True, kw_only=True)
class Result:
    question: Question
    answer: list[Quoted] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    citations: list[Citation] = field(default_factory=list)
    best: list[Ranked] = field(default_factory=list)
    """The best passages of all parts: where leads are looked for."""

    @property
    def not_found(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.is_supported]


def weigh_up(question: Question, documents: Sequence[Document], expansion: Sequence[Term] = ()) -> tuple[Result, Index]:
    index = Index(documents)
    result = Result(question=question)
    citations = Citations()
    taken: list[Ranked] = []
    picked: list[tuple[Part, list[Ranked]]] = []
    for part in question.parts:
        ranked = with_constants(index.rank(part, expansion), index, part)
        supported = [one for one in ranked if one.supports]
        result.best += ranked[:10]
        own = diverse(supported, IN_FINDING) if supported else diverse([one for one in ranked if one.coverage >= _NEAR], NEAREST)
        picked.append((part, own))
    result.answer = _answer(picked, citations)
    for part, own in picked:
        new = [one for one in own if one.sentence not in [other.sentence for other in taken]] or own
        taken += new
        result.findings.append(_finding(part, new, index, citations))
    result.best.sort(key=lambda one: -one.score)
    result.citations = citations.all()
    return result, index


def _answer(picked: list[tuple[Part, list[Ranked]]], citations: Citations) -> list[Quoted]:
    """The best sentences, each part of the question in its turn; only what supports it."""
    each = IN_ANSWER if len(picked) == 1 else 2
    chosen: list[Quoted] = []
    for _, own in picked:
        supported = [one for one in own if one.supports]
        for one in supported[:each]:
            quote = _quoted(one, citations) if one.score >= _KEEPS_UP * supported[0].score else None
            if quote is not None and quote.citation.number not in {other.citation.number for other in chosen}:
                chosen.append(quote)
    return chosen


def _finding(part: Part, own: list[Ranked], index: Index, citations: Citations) -> Finding:
    quotes = [quote for one in own if (quote := _quoted(one, citations)) is not None]
    missing = tuple(
        term.word for term in part.terms if not index.knows(term) and not any(index.knows(_bare(word)) for word in alike(term.stem))
    )
    return Finding(question=part.text, quotes=tuple(quotes), missing=missing)


def _bare(stemmed: str) -> Term:
    return Term(stem=stemmed, word=stemmed)


def _quoted(one: Ranked, citations: Citations) -> Quoted | None:
    citation = citations.cite(one.sentence.document, one.sentence.unit)
    if citation is None:
        return None
    score, coverage = round(one.score, 3), round(one.coverage, 3)
    return Quoted(citation=citation, headings=one.sentence.passage.headings, score=score, coverage=coverage, supports=one.supports)
