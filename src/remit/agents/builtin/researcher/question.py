"""A question taken apart: its sub-questions, and the words, phrases and identifiers to look for. By rule, not by meaning.

Pure. What it finds is looked for by `gathering` and weighed by `ranking`.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from remit.agents.builtin.researcher.words import WEAK, alike, language_of, pieces, stem, stop_words

MOST_PARTS = 5
MOST_TERMS = 14
_QUOTED = re.compile(r"\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”|«([^»\n]{2,80})»|`([^`\n]{2,80})`|(?<!\w)'([^'\n]{2,80})'(?!\w)")
_IDENTIFIER = re.compile(
    r"\b[A-Za-z_][\w]*(?:(?:\.|::|/)[A-Za-z_]\w*)+\b|\b[A-Za-z]\w*_\w+\b|\b[a-z]+(?:[A-Z][a-z0-9]*)+\b|\b(?:[A-Z][a-z0-9]+){2,}\b"
)
_CONSTANT = re.compile(r"\b[A-Z][A-Z0-9_]{2,}\b")
_TIMES_OUT = re.compile(r"\btim(?:e|es|ed|ing) out\b", re.IGNORECASE)
_ASKING = r"(?:how|what|why|when|where|which|who|whom|whose|does|do|did|is|are|can|could|should|will|would|must)"
_BORDER = re.compile(rf"[?;\n]+\s*|,?\s+(?:and|und|et|y)(?:\s+also)?\s+(?={_ASKING}\b)|,\s+(?={_ASKING}\b)", re.IGNORECASE)
_COMPARED = re.compile(
    r"(?:difference|differences|compare|comparison|choose)\b.*?\b(?:between\s+|of\s+)?(?:an?\s+|the\s+)?(?P<one>[\w.`'\"-]+(?:\s[\w.`'\"-]+)?)"
    r"\s+(?:and|or|with|to|from)\s+(?:an?\s+|the\s+)?(?P<other>[\w.`'\"-]+(?:\s[\w.`'\"-]+)?)|(?P<left>[\w.`-]+)\s+(?:vs\.?|versus)\s+(?P<right>[\w.`-]+)",
    re.IGNORECASE,
)
_HOW_MUCH = re.compile(r"\bhow (?:many|much|long|large|big|fast|often|old|far|deep|quickly|soon)\b", re.IGNORECASE)
_URL = re.compile(r"https?://[^\s<>\"')\]]+")
_OUTSIDE = re.compile(
    r"\b(?:online|on the (?:web|internet)|search the web|web search|news|latest|nowadays|worldwide|im internet)\b", re.IGNORECASE
)


class Asks(StrEnum):
    """What kind of answer is wanted."""

    DEFINITION = "definition"
    MANNER = "manner"
    REASON = "reason"
    TIME = "time"
    PLACE = "place"
    PERSON = "person"
    AMOUNT = "amount"
    ANYTHING = "anything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    stem: str
    word: str
    """As it stood in the question."""
    weight: float = 1.0
    alike: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A sub-question."""

    text: str
    asks: Asks
    terms: tuple[Term, ...]
    phrases: tuple[str, ...] = ()
    """Quoted words and identifiers: to be found as they stand."""
    constants: tuple[str, ...] = ()
    """Words in capitals, which may be names in a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    text: str
    parts: tuple[Part, ...]
    urls: tuple[str, ...] = ()
    asks_for_web: bool = False

    @property
    def terms(self) -> tuple[Term, ...]:
        """Of all its parts, each once, the weightiest first."""
        seen: dict[str, Term] = {}
        for part in self.parts:
            for term in part.terms:
                if term.stem not in seen or seen[term.stem].weight < term.weight:
                    seen[term.stem] = term
        return tuple(sorted(seen.values(), key=lambda term: -term.weight)[:MOST_TERMS])


def taken_apart(text: str) -> Question:
    text = " ".join(text.split())
    urls = tuple(dict.fromkeys(url.rstrip(".,;?!") for url in _URL.findall(text)))
    bare = _URL.sub(" ", text).strip()
    parts = [part_of(piece) for piece in _pieces(bare)]
    parts = [part for part in parts if part.terms] or [part_of(bare)]
    return Question(text=text, parts=tuple(parts[:MOST_PARTS]), urls=urls, asks_for_web=bool(urls) or bool(_OUTSIDE.search(bare)))


def _pieces(text: str) -> list[str]:
    """Where one question ends and another begins; a comparison is about each side as well."""
    kept = {f"\x00{i}\x00": match.group() for i, match in enumerate(_QUOTED.finditer(text))}
    for mark, quoted in kept.items():
        text = text.replace(quoted, mark)  # what is quoted is not split
    found = []
    for piece in _BORDER.split(text):
        found.append(piece)
        if compared := _COMPARED.search(piece):
            sides = [compared["one"] or compared["left"], compared["other"] or compared["right"]]
            found += [f"What is {side.strip(' .`')}" for side in sides]
    restored = []
    for piece in found:
        for mark, quoted in kept.items():
            piece = piece.replace(mark, quoted)
        if any(character.isalnum() for character in piece):
            restored.append(piece.strip(" ,.;"))
    return list(dict.fromkeys(restored))


def part_of(text: str) -> Part:
    words = pieces(_TIMES_OUT.sub("timeout", _HOW_MUCH.sub("how", text)))
    language = language_of(words)
    stop = stop_words(language) | (stop_words() if language != "EN_PLUS" else frozenset())
    quoted = [next(group for group in match.groups() if group).strip() for match in _QUOTED.finditer(text)]
    identifiers = _IDENTIFIER.findall(text)
    strong = {stem(word) for phrase in (*quoted, *identifiers) for word in pieces(phrase)}
    names = {stem(word.lower()) for word in re.findall(r"(?<=\w\s)[A-Z][\w-]+", text)}
    terms: dict[str, Term] = {}
    for word in words:
        stemmed = stem(word)
        if word in stop or stemmed in terms or (len(word) < 2 and not word.isdigit()):
            continue
        weight = 1.6 if stemmed in strong else 1.3 if stemmed in names else 0.4 if stemmed in WEAK else 1.0
        terms[stemmed] = Term(stem=stemmed, word=word, weight=weight, alike=alike(stemmed))
    return Part(
        text=_as_question(text),
        asks=_kind(text),
        terms=tuple(terms.values())[:MOST_TERMS],
        phrases=tuple(dict.fromkeys(phrase for phrase in (*quoted, *identifiers) if len(phrase) > 2)),
        constants=tuple(dict.fromkeys(_CONSTANT.findall(text))),
    )


def _as_question(text: str) -> str:
    text = text.strip()
    asking = re.match(rf"{_ASKING}\b", text, re.IGNORECASE) is not None
    return f"{text[:1].upper()}{text[1:]}" + ("?" if asking and not text.endswith("?") else "")


_KINDS = (
    (
        Asks.AMOUNT,
        r"\b(?:how (?:many|much|long|large|big|fast|often|old|far|deep)|number of|value of|maximum|minimum|default|wie viele?|combien)\b",
    ),
    (Asks.REASON, r"^\W*(?:why|warum|pourquoi)\b|\b(?:reason|because)\b"),
    (Asks.TIME, r"^\W*(?:when|since when|wann|quand)\b|\bwhat (?:date|year|time)\b"),
    (Asks.PLACE, r"^\W*(?:where|wo|wohin|où|in which (?:file|folder|module))\b|\bwhich (?:file|folder|module)\b"),
    (Asks.PERSON, r"^\W*(?:who|whom|whose|wer|qui)\b"),
    (
        Asks.DEFINITION,
        r"^\W*(?:what(?:'s| is| are)\b|^\W*what does .*\b(?:do|stand for)\b|was ist|define|definition|qu'est)\b|\bmeaning of\b|\bmean\b",
    ),
    (Asks.MANNER, r"^\W*(?:how|wie|comment|cómo)\b|\bsteps? to\b"),
)


def _kind(text: str) -> Asks:
    return next((kind for kind, pattern in _KINDS if re.search(pattern, text, re.IGNORECASE)), Asks.ANYTHING)
