"""Ranks passages for a question: BM25 over stemmed words, with identifiers of the question and their definitions weighted most.

Compares words, not meaning. Tokens are words, the parts of identifiers, and adjacent pairs joined, so that "status code" in a question
matches `status_code` in a program and "not read" matches `ResponseNotRead`."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from remit.builtin.researcher.passages import Document, Passage
from remit.system.packages import need

MAX_PARTS = 5
MAX_TERMS = 14
SUPPORTED = 0.5
"""Share of a question's words that a passage needs to count as an answer."""
NAME_WEIGHT, HEADING_WEIGHT = 3, 2
"""Weight of the names that a passage defines, and of its headings, relative to its text."""
DEFINES_IDENTIFIER, INSIDE_DEFINITION, MENTIONS_IDENTIFIER = 0.8, 0.6, 0.15
COVERAGE_WEIGHT = 0.3
REPEATS = 0.75
"""Share of common tokens from which a passage repeats another."""
CANDIDATES = 400
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-zA-Z])(?=\d)")
_QUOTED = re.compile(r"\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”|«([^»\n]{2,80})»|`([^`\n]{2,80})`|(?<!\w)'([^'\n]{2,80})'(?!\w)")
_IDENTIFIER = re.compile(
    r"\b[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)+\b|\b[A-Za-z]\w*_\w+\b|\b[a-z]+(?:[A-Z][a-z0-9]*)+\b|\b(?:[A-Z]+[a-z0-9]+){2,}\b|\b[A-Z]{2,}[a-z]\w+\b"
)
_URL = re.compile(r"https?://[^\s<>\"')\]]+")


def pieces(text: str) -> list[str]:
    """The words of a text in lower case, identifiers split."""
    return [part.lower() for word in _WORD.findall(text) for part in (_HUMP.split(word) if not word.islower() else (word,))]


def split_words(text: str) -> list[str]:
    """The index terms: each word, and each pair of neighbours."""
    words = pieces(text)
    return [*words, *(f"{one}{other}" for one, other in pairwise(words))]


@dataclass(frozen=True, slots=True)
class Part:
    """A question, or one of several in a query."""

    text: str
    words: tuple[str, ...]
    """Without stop words, as in the question."""
    identifiers: tuple[str, ...] = ()
    """Program names and quoted text, matched literally."""


class Words:
    """The tokeniser of bm25s with a stemmer. Imported on use, since both packages are optional."""

    @cached_property
    def _stem(self) -> Any:
        return need("Stemmer", "research").Stemmer("english").stemWord

    @cached_property
    def stop_words(self) -> frozenset[str]:
        return frozenset(need("bm25s.stopwords", "research").STOPWORDS_EN_PLUS)

    def tokenizer(self) -> Any:
        tokenization = need("bm25s.tokenization", "research")
        return tokenization.Tokenizer(lower=False, splitter=split_words, stopwords=list(self.stop_words), stemmer=self._stem)

    def stem(self, word: str) -> str:
        return str(self._stem(word))

    def stems(self, text: str) -> set[str]:
        return {self.stem(word) for word in pieces(text) if word not in self.stop_words}

    def part(self, text: str) -> Part:
        quoted = [next(group for group in match.groups() if group).strip() for match in _QUOTED.finditer(text)]
        found = dict.fromkeys(one for one in (*quoted, *_IDENTIFIER.findall(text)) if len(one) > 2)
        words = dict.fromkeys(word for word in pieces(text) if word not in self.stop_words)
        return Part(text.strip(), tuple(words)[:MAX_TERMS], tuple(found))

    def parts(self, query: str) -> tuple[Part, ...]:
        """Split several questions in one query at question marks and lines."""
        bare = _URL.sub(" ", query)
        texts = [" ".join(one.split()) for one in re.split(r"(?<=\?)\s+|\n+", bare)]
        parts = [part for part in map(self.part, texts) if part.words]
        return tuple(parts[:MAX_PARTS])


def addresses(query: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(url.rstrip(".,;?!") for url in _URL.findall(query)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPassage:
    passage: Passage
    score: float
    coverage: float
    """Share of the question's words that are in the passage, its headings or its path."""

    @property
    def is_supported(self) -> bool:
        return self.coverage >= SUPPORTED


class Index:
    """All passages of the documents, ready for ranking."""

    def __init__(self, documents: Iterable[Document], words: Words) -> None:
        self._words = words
        self.passages: list[Passage] = [passage for document in documents for passage in document.passages]
        tokenizer = words.tokenizer()
        tokens = tokenizer.tokenize([_indexed(one) for one in self.passages], update_vocab=True, show_progress=False)
        self._vocabulary: dict[str, int] = tokenizer.get_vocab_dict()
        self._tokens = {id(passage): frozenset(known) for passage, known in zip(self.passages, tokens, strict=True)}
        self._bm25 = need("bm25s", "research").BM25(k1=1.2, b=0.5)
        if self._vocabulary and self.passages:
            self._bm25.index((tokens, self._vocabulary), show_progress=False)

    def has(self, word: str) -> bool:
        return self._words.stem(word) in self._vocabulary

    def rank(self, part: Part) -> list[RankedPassage]:
        """The best passages, best first."""
        pairs = [self._words.stem(f"{one}{other}") for one, other in pairwise(pieces(part.text)) if {one, other} - self._words.stop_words]
        stems = [self._words.stem(word) for word in part.words]
        scored = [token for token in dict.fromkeys([*pairs, *stems]) if token in self._vocabulary]
        if not scored or not self.passages:
            return []
        scores = self._bm25.get_scores(scored)
        asked = [self._vocabulary.get(stem, -1) for stem in dict.fromkeys(stems)]
        ranked = []
        for number in scores.argsort(kind="stable")[::-1][:CANDIDATES]:
            passage = self.passages[number]
            if scores[number] <= 0:
                break
            coverage = sum(token in self._tokens[id(passage)] for token in asked) / len(asked)
            score = float(scores[number] / scores.max()) + COVERAGE_WEIGHT * coverage + _identifier_score(part, passage)
            ranked.append(RankedPassage(passage=passage, score=score * passage.document.weight, coverage=coverage))
        return sorted(ranked, key=lambda one: (-one.score, one.passage.place))

    def choose(self, ranked: Sequence[RankedPassage], most: int) -> list[RankedPassage]:
        """The best ones, without repetitions of better ones."""
        chosen: list[RankedPassage] = []
        for one in ranked:
            if len(chosen) < most and not any(self._repeats(one, other) for other in chosen):
                chosen.append(one)
        return chosen

    def _repeats(self, one: RankedPassage, other: RankedPassage) -> bool:
        own, others = self._tokens[id(one.passage)], self._tokens[id(other.passage)]
        return len(own & others) > REPEATS * min(len(own), len(others))


def _indexed(passage: Passage) -> str:
    """The text with the names it defines, its headings and its path, repeated by weight."""
    document = passage.document
    path = f"{document.title} {document.name if document.kind == 'file' else ''}"
    fields = [passage.text, path, *[" . ".join(passage.names)] * NAME_WEIGHT, *[" . ".join(passage.headings)] * HEADING_WEIGHT]
    return " . ".join(filter(None, fields))


def _identifier_score(part: Part, passage: Passage) -> float:
    score = 0.0
    names, headings = ({one.lower() for one in group} for group in (passage.names, passage.headings))
    for identifier in part.identifiers:
        last = re.split(r"\.|::", identifier.lower())[-1]
        if last in names:
            score += DEFINES_IDENTIFIER
        elif last in headings:
            score += INSIDE_DEFINITION
        elif identifier.lower() in passage.text.lower():
            score += MENTIONS_IDENTIFIER
    return score
