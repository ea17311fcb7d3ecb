"""Figures and dates in a sentence: numbers with what they count, amounts of money, days. By shape, in a few languages. Pure."""

import re
from dataclasses import dataclass

_UNIT = (
    r"%|‰|percent|per cent|Prozent|[kKMGT]i?B(?:/s)?|[kMG]?bit/s|bytes?|ns|µs|us|ms|s|sec(?:onds?)?|min(?:utes?)?|h|hours?|days?|weeks?"
    r"|months?|years?|Sekunden|Minuten|Stunden|Tage|Jahre|[kKMG]?Hz|[kMG]?W|kWh|[kcm]?m|km|mi(?:les)?|[kmµ]?g|tons?|tonnes?|°[CF]|K|l"
    r"|litres?|liters?|V|A|px|fps|USD|EUR|GBP|CHF|dollars?|euros?|pounds?|million|billion|thousand|people|users|files|lines|times|x|cores?"
    r"|requests?|tokens?"
)
_NUMBER = r"[-+−]?\d{1,3}(?:[,’' ]\d{3})+(?:\.\d+)?|[-+−]?\d+(?:[.,]\d+)?"
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_DATE = re.compile(
    rf"\b\d{{4}}-\d{{2}}-\d{{2}}\b|\b\d{{1,2}}\.? {_MONTH}\.? \d{{4}}\b|\b{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}\b"
    rf"|\b{_MONTH} \d{{4}}\b|\b(?:in|since|of|until|by|im Jahr|en) (?P<year>1[5-9]\d\d|20\d\d)\b"
)
_MONEY = re.compile(rf"(?P<sign>[$€£¥])\s?(?P<number>{_NUMBER})(?P<scale>\s?(?:k|K|M|m|bn|million|billion))?\b")
_MEASURE = re.compile(rf"(?<![\w.#/:-])(?P<number>{_NUMBER})(?P<gap>[  -]?)(?P<unit>{_UNIT})(?![\w/])")
_BARE = re.compile(rf"(?<![\w.])(?:{_NUMBER})(?!\w)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    text: str
    """As it stands in the sentence."""
    value: str
    """The number without separators, or the day."""
    unit: str
    """`date` for a day."""


def figures(sentence: str) -> list[Figure]:
    """The figures of a sentence in the order they stand there; numbers without a unit are not figures."""
    found: list[tuple[int, int, Figure]] = []
    for match in _DATE.finditer(sentence):
        said = match["year"] or match.group()
        found.append((match.start(), match.end(), Figure(text=said, value=said, unit="date")))
    for match in _MONEY.finditer(sentence):
        scale = (match["scale"] or "").strip()
        unit = f"{match['sign']} {scale}".strip()
        found.append((match.start(), match.end(), Figure(text=match.group(), value=_value(match["number"]), unit=unit)))
    for match in _MEASURE.finditer(sentence):
        if not any(start < match.end() and match.start() < end for start, end, _ in found):
            found.append((match.start(), match.end(), Figure(text=match.group(), value=_value(match["number"]), unit=match["unit"])))
    return [figure for _, _, figure in sorted(found, key=lambda one: one[0])]


def numbers(sentence: str) -> frozenset[str]:
    """All numbers of a sentence, with or without a unit, so that two that differ in them are told apart."""
    return frozenset(_value(match.group()) for match in _BARE.finditer(sentence)) | {figure.value for figure in figures(sentence)}


def _value(number: str) -> str:
    bare = re.sub(r"(?<=\d)[,’'  ](?=\d{3})", "", number).replace("−", "-").replace(",", ".")
    return bare.rstrip("0").rstrip(".") if "." in bare else bare
