"""Whether the passages that a sentence cites support it: by program, not by a model.

Every number, name and quotation of the sentence must stand in them, most of its other words too, and something of each clause. A number
must stand in a sentence of the source that speaks of the same (`meeting`), and neither side may deny what the other says. It compares
words: a sentence that twists its source without changing them can pass, one that says more than its source cannot. Pure.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from remit.agents.builtin.researcher.evidence import Evidence
from remit.agents.builtin.researcher.figures import figures
from remit.agents.builtin.researcher.meeting import content, denies, nearest, share, stop_stems, units_of
from remit.agents.builtin.researcher.quoting import contains
from remit.agents.builtin.researcher.words import pieces, stem

ENOUGH = 0.6
"""Share of a sentence's words that must stand in what it cites."""
ENOUGH_OF_CLAUSE = 0.5
"""The same of each clause, so that none rides along with one that is true."""
_CLAUSE = re.compile(r"[,;:–—()]\s+|\s+(?:and|but|while|whereas|because|so that|which|und|aber|weil)\s+")
_FILLING = frozenset(
    re.findall(
        r"\w+",
        "according additionally also although besides briefly consequently contrast conversely example finally first firstly further "
        "furthermore general generally hence however importantly instance instead likewise meanwhile moreover namely nevertheless note "
        "notably otherwise overall particular passage passages respectively say says second secondly short similarly source sources "
        "specifically state stated states summary then therefore thus together typically usually writes zusammenfassend laut",
    )
)
"""Words that join what is said and say nothing of it."""
MOST_CITED = 6
_NUMBER = re.compile(r"(?<![\w.,)-])[-−](?=\d)\d+(?:[.,’']\d+)*|\d+(?:[.,’']\d+)*")
_BELOW = re.compile(r"\b(?:below|minus|negative|unter)\b", re.IGNORECASE)
_QUOTED = re.compile(r"[“\"«]([^”\"»\n]{8,400})[”\"»]")
_NAME = re.compile(
    r"(?<=[\w,;:)] )[A-ZÀ-Þ][\w-]+|https?://[^\s)\]>]+|\b[\w.-]+@[\w-]+\.\w+|\b\w+(?:[._/:]+\w+)+\b|\b[A-Za-z]\w*?[a-z][A-Z]\w*|\b[A-Z]{2,}\w*\b"
)
_WORDS = {
    word: str(number)
    for number, word in enumerate(re.findall(r"\w+", "zero one two three four five six seven eight nine ten eleven twelve"))
    if word != "one"  # which mostly counts nothing
}
_SMALL = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b", re.IGNORECASE)
_MINUS = re.compile(r"\b[Mm]inus\s(?=\d)|−(?=\d)")
_CYRILLIC, _LATIN = re.compile(r"[\u0400-\u052f]"), re.compile(r"[A-Za-z]")
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
    if mixed := mixed_word(sentence):
        return Support(why_not=f"{mixed[:40]} is written in two alphabets")
    sentence, source = plainly(sentence), plainly("\n".join(f"{one.headings}\n{one.text}" for one in cited))
    invented = (*_unknown_numbers(sentence, source), *_unknown_names(sentence, source, question), *_unknown_quotes(sentence, source))
    if invented:
        return Support(why_not=f"{', '.join(invented[:4])} stands in nothing that it cites", invented=invented)
    words, asked = content(sentence), content(question)
    known = content(source).union(*(content(one.place) for one in cited))  # it may say where it stands
    if not words:
        return Support(why_not="says too little to be compared")
    fresh = (words - asked) or words
    clauses = [clause for clause in _CLAUSE.split(sentence) if clause]
    if share(fresh, known) < ENOUGH or not all(_is_met(clause, asked, known, sentence) for clause in clauses):
        return Support(why_not="too few of its words stand in what it cites")
    units = [unit for one in cited for unit in units_of([plainly(text) for text in one.units], plainly(one.headings))]
    if denies(sentence, words, units):
        return Support(why_not="one of the two denies what the other says")
    for clause in clauses:
        numbers = numbers_in(clause)
        near = nearest(clause, units, sentence) if numbers else []
        if lost := sorted(number for number in numbers if not any(number in numbers_in(unit.said) for unit in near)):
            return Support(why_not=f"{', '.join(lost[:4])} is said there of something else", invented=tuple(lost))
    return Support()


def _is_met(clause: str, asked: frozenset[str], known: frozenset[str], sentence: str) -> bool:
    """Something of what a clause says beside the question's words must stand in the source, and half of it: so none rides along with
    another that is true. What the question says already is nothing new, unless there is nothing else."""
    own = content(clause) - _filling()
    fresh = own - asked if own - asked or content(sentence) - asked else own
    return not fresh or share(fresh, known) >= ENOUGH_OF_CLAUSE


@cache
def _filling() -> frozenset[str]:
    return frozenset(map(stem, _FILLING))


def plainly(text: str) -> str:
    """As it is compared: one form of each character, nothing that does not show, small numbers as digits."""
    shown = "".join(one for one in unicodedata.normalize("NFKC", text.replace("²", "^2")) if unicodedata.category(one) != "Cf")
    return _MINUS.sub("-", _SMALL.sub(lambda word: _WORDS[word.group().lower()], shown))


def mixed_word(text: str) -> str:
    """A word with letters of two alphabets that look alike: it reads as one word and is another."""
    return next((word.group() for word in re.finditer(r"\w+", text) if _CYRILLIC.search(word.group()) and _LATIN.search(word.group())), "")


def numbers_in(text: str) -> set[str]:
    return {_plain(match.group()) for match in _NUMBER.finditer(text)}


def _plain(number: str) -> str:
    bare = re.sub(r"[,’'](?=\d{3}(?:\D|$))", "", number).replace(",", ".")
    return bare.rstrip("0").rstrip(".") if "." in bare and bare.count(".") == 1 else bare


def _unknown_numbers(sentence: str, source: str) -> tuple[str, ...]:
    """Numbers that the source has not, or has of something else: 80 °C are no 80 minutes."""
    known = numbers_in(source)
    if _BELOW.search(sentence):
        known |= {number.lstrip("-") for number in known}
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
        if words and not all(word in known for word in words if word not in stop_stems()):
            lost.append(name[:80])
    return tuple(dict.fromkeys(lost))


def _unknown_quotes(sentence: str, source: str) -> tuple[str, ...]:
    quotes = [match.group(1).strip(" .,;") for match in _QUOTED.finditer(sentence)]
    return tuple(f"“{quote[:60]}”" for quote in quotes if not contains(source.lower(), quote.lower()))
