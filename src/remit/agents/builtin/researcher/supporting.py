"""Whether the passages that a sentence cites support it: by program, not by a model.

Every number, name and quotation of the sentence must stand in them, most of its other words too, and neither may deny what the other says.
It compares words: a sentence that twists its source without changing them can pass, one that says more than its source cannot. Pure.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from remit.agents.builtin.researcher.evidence import Evidence
from remit.agents.builtin.researcher.figures import figures
from remit.agents.builtin.researcher.quoting import contains
from remit.agents.builtin.researcher.words import alike, pieces, stem, stop_words

ENOUGH = 0.6
"""Share of a sentence's words that must stand in what it cites."""
ENOUGH_OF_CLAUSE = 0.5
"""The same of each clause, so that none rides along with one that is true."""
_CLAUSE = re.compile(r"[,;:–—()]\s+|\s+(?:and|but|while|whereas|because|so that|which|und|aber|weil)\s+")
_CLAUSE_WORDS = 2
MOST_CITED = 6
_NUMBER = re.compile(r"\d+(?:[.,’']\d+)*")
_QUOTED = re.compile(r"[“\"«]([^”\"»\n]{8,400})[”\"»]")
_NAME = re.compile(
    r"(?<=[\w,;:)] )[A-ZÀ-Þ][\w-]+|https?://[^\s)\]>]+|\b[\w.-]+@[\w-]+\.\w+|\b\w+(?:[._/:]+\w+)+\b|\b[A-Za-z]\w*?[a-z][A-Z]\w*|\b[A-Z]{2,}\w*\b"
)
_DENYING = frozenset(
    re.findall(
        r"\w+",
        "not no never none cannot without nor neither nobody nothing nowhere only unless except instead "
        "kein keine nicht nie ohne jamais sans",
    )
)
_NOT = re.compile(r"n['’]t\b", re.IGNORECASE)
_WORDS = {
    word: str(number)
    for number, word in enumerate(re.findall(r"\w+", "zero one two three four five six seven eight nine ten eleven twelve"))
    if word != "one"  # which mostly counts nothing
}
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
_UNITS = {
    "percent": "%", "per cent": "%", "prozent": "%", "sec": "s", "second": "s", "minute": "min", "hour": "h", "us": "µs",
    "usd": "dollar", "eur": "euro", "gbp": "pound",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    why_not: str = ""
    """Empty: it is supported."""
    invented: tuple[str, ...] = ()
    """Numbers and names that stand in nothing that it cites."""


def support(sentence: str, cited: Sequence[Evidence], question: str = "") -> Support:
    """Of a sentence without its citation marks."""
    if len(cited) > MOST_CITED:
        return Support(why_not=f"cites more than {MOST_CITED} passages at once")
    source = "\n".join(f"{one.headings}\n{one.text}" for one in cited)
    invented = (*_unknown_numbers(sentence, source), *_unknown_names(sentence, source, question), *_unknown_quotes(sentence, source))
    if invented:
        return Support(why_not=f"{', '.join(invented[:4])} stands in nothing that it cites", invented=invented)
    words, known = content(sentence), content(source)
    words = (words - content(question)) or words
    if not words:
        return Support(why_not="says too little to be compared")
    clauses = [own for clause in _CLAUSE.split(sentence) if len(own := content(clause) & words) >= _CLAUSE_WORDS]
    if share(words, known) < ENOUGH or any(share(own, known) < ENOUGH_OF_CLAUSE for own in clauses):
        return Support(why_not="too few of its words stand in what it cites")
    if _denies(sentence, words, cited):
        return Support(why_not="one of the two denies what the other says")
    return Support()


@cache
def _stop() -> frozenset[str]:
    return frozenset(stem(word) for word in stop_words()) | stop_words()


def content(text: str) -> frozenset[str]:
    stop = _stop()
    return frozenset(found for word in pieces(text) if (found := stem(word)) not in stop and word not in stop and len(word) > 1)


def share(words: frozenset[str], known: frozenset[str]) -> float:
    met = sum(1 for word in words if word in known or alike(word) & known)
    return met / len(words) if words else 0.0


def numbers_in(text: str) -> set[str]:
    found = {_plain(match.group()) for match in _NUMBER.finditer(text)}
    return found | {_WORDS[word] for word in re.findall(r"[a-z]+", text.lower()) if word in _WORDS}


def _plain(number: str) -> str:
    bare = re.sub(r"[,’'](?=\d{3}(?:\D|$))", "", number).replace(",", ".")
    return bare.rstrip("0").rstrip(".") if "." in bare and bare.count(".") == 1 else bare


def _unknown_numbers(sentence: str, source: str) -> tuple[str, ...]:
    """Numbers that the source has not, or has of something else: 80 °C are no 80 minutes."""
    known = numbers_in(source)
    lost = [number for number in sorted(numbers_in(sentence)) if number not in known]
    units: dict[str, set[str]] = {}
    for figure in figures(source):
        units.setdefault(_plain(figure.value), set()).add(_unit(figure.unit))
    for figure in figures(sentence):
        told = units.get(_plain(figure.value))
        if told and _unit(figure.unit) not in told and figure.unit != "date" and "date" not in told:
            lost.append(figure.text)
    return tuple(dict.fromkeys(lost))


def _unit(unit: str) -> str:
    bare = unit.strip().lower()
    bare = bare[:-1] if len(bare) > 3 and bare.endswith("s") else bare
    return _UNITS.get(bare, bare)


def _unknown_names(sentence: str, source: str, question: str) -> tuple[str, ...]:
    known = frozenset(map(stem, pieces(f"{source} {question}")))
    lost = []
    for match in _NAME.finditer(sentence):
        name = match.group().rstrip(".,;:")
        words = [stem(word) for word in pieces(name) if not word.isdigit()]
        if words and not all(word in known for word in words if word not in _stop()):
            lost.append(name[:80])
    return tuple(dict.fromkeys(lost))


def _unknown_quotes(sentence: str, source: str) -> tuple[str, ...]:
    quotes = [match.group(1).strip(" .,;") for match in _QUOTED.finditer(sentence)]
    return tuple(f"“{quote[:60]}”" for quote in quotes if not contains(source.lower(), quote.lower()))


def _denies(sentence: str, words: frozenset[str], cited: Iterable[Evidence]) -> bool:
    """Held against those sentences of the source that say most of the same: one of them must say it the same way round."""
    units = [unit for one in cited for unit in one.units]
    shares = {unit: share(words, content(unit)) for unit in units}
    best = max(shares.values(), default=0.0)
    nearest = [unit for unit in units if shares[unit] >= max(0.34, 0.75 * best)]
    return bool(nearest) and all(is_denied(unit) != is_denied(sentence) or _are_opposite(sentence, unit) for unit in nearest)


def is_denied(text: str) -> bool:
    return bool(_DENYING.intersection(re.findall(r"\w+", text.lower())) or _NOT.search(text))


def _are_opposite(sentence: str, unit: str) -> bool:
    mine, theirs = frozenset(map(stem, pieces(sentence))), frozenset(map(stem, pieces(unit)))
    return any(
        (mine & one and theirs & other and not mine & other and not theirs & one)
        or (mine & other and theirs & one and not mine & one and not theirs & other)
        for one, other in _OPPOSITES
    )
