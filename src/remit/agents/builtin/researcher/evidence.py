"""Evidence: the numbered passages that a model writes from, and the only ones its sentences can be held against. Pure.

A passage that speaks to a model ("ignore your instructions") is none: it is not shown, supports nothing, and is named.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from remit.agents.builtin.researcher.citing import Citation
from remit.agents.builtin.researcher.quoting import is_clean, squeezed
from remit.models.optional import fenced

MOST_CHARACTERS = 28_000
"""Of all passages that a model is shown; the first are the best."""
LONGEST = 900
"""Of one passage."""
_TO_A_MODEL = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}\b(?:instruction|prompt|rule|guideline|direction|context|message|above|previous|prior)"
    r"|\b(?:ignore|disregard|forget) (?:all|everything|whatever|anything)\b"
    r"|\b(?:ignorier\w*|vergiss|vergessen sie|missachte\w*)\b.{0,40}\b(?:anweisung|vorherig|bisherig|regel|oben|vorgabe)"
    r"|\b(?:ignore[zr]?|oublie[zr]?|ignora|olvida|ignorar)\b.{0,40}\b(?:pr[ée]c[ée]dent|consigne|anterior|instruccion|istruzion|instruç)"
    r"|\b(?:new|real|actual|updated|following) (?:system )?instructions?\b|\bsystem prompt\b|\b(?:jailbreak|developer mode)\b"
    r"|\byou are (?:now |actually )?(?:an? )?(?:ai|assistant|language model|llm|chatbot|dan)\b|\bas an ai\b"
    r"|\b(?:ai|llm|language model)s? (?:reading|that reads?)\b|\b(?:tell|inform|convince) the (?:user|reader|person)\b"
    r"|\b(?:reply|respond|answer) (?:only )?(?:with|that)\b|\bdo not (?:tell|mention|cite|reveal)\b"
    r"|<\s*/?\s*(?:system|assistant|material|instructions?)\b|\[/?(?:inst|system)\]|<\|[a-z_]{2,20}\|>",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    number: int
    place: str
    text: str
    """What a model is shown of it: the sentence that was quoted, with those around it."""
    units: tuple[str, ...]
    """The same, sentence by sentence."""
    headings: str = ""

    def shown(self) -> str:
        where = {"headings": self.headings} if self.headings else {}
        return fenced(self.text, number=self.number, place=plain_name(self.place, f"source {self.number}"), **where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    passages: tuple[Evidence, ...]
    addressing: tuple[str, ...]
    """Places of passages that were left out, since they speak to whoever reads them."""


_LOOK_ALIKE = str.maketrans("аеорсухіјѕԁһӏАЕОРСТХІЈЅНКМВαοιΑΕΟΙΡΤ", "aeopcyxijsdhlAEOPCTXIJSHKMBaoiAEOIPT")
_APART = re.compile(r"[\W_]+")


def speaks_to_a_model(text: str) -> bool:
    """As a model reads it: letters that look like others are those, and what does not show is not there."""
    read = "".join(one for one in unicodedata.normalize("NFKC", text) if unicodedata.category(one) != "Cf").translate(_LOOK_ALIKE)
    return _TO_A_MODEL.search(" ".join(read.split())) is not None


def plain_name(name: str, otherwise: str) -> str:
    """The name of a source, which somebody else chose too: one that speaks to a model is not told."""
    return otherwise if speaks_to_a_model(name) or speaks_to_a_model(_APART.sub(" ", name)) else name


def evidence_of(citations: Iterable[Citation]) -> Gathered:
    passages: list[Evidence] = []
    addressing: list[str] = []
    total = 0
    for citation in citations:
        around = _around(citation)
        if any(speaks_to_a_model(text) for text in _whole(citation)):
            addressing.append(citation.place)
            continue
        text = "\n".join(around) if citation.unit.is_code else " ".join(around)
        total += len(text)
        if total > MOST_CHARACTERS:
            break
        headings = " > ".join(squeezed(heading) for heading in _headings(citation)[-2:])
        passages.append(
            Evidence(
                number=citation.number,
                place=citation.place,
                text=text,
                units=tuple(around),
                headings=headings if not speaks_to_a_model(headings) else "",
            )
        )
    return Gathered(passages=tuple(passages), addressing=tuple(dict.fromkeys(addressing)))


def _passage(citation: Citation) -> tuple[int, Sequence[str], tuple[str, ...]]:
    """Where in its passage it stands, the sentences of that passage, and their headings."""
    for passage in citation.document.passages:
        for place, unit in enumerate(passage.units):
            if unit.line == citation.unit.line and unit.text == citation.unit.text:
                return place, [one.text for one in passage.units], passage.headings
    return 0, [citation.unit.text], ()


def _headings(citation: Citation) -> tuple[str, ...]:
    return _passage(citation)[2]


def _whole(citation: Citation) -> list[str]:
    """The whole passage, and as one text: what is told to a model may run over a sentence's end."""
    _, units, headings = _passage(citation)
    return [*units, " ".join(units), *headings]


def _around(citation: Citation) -> list[str]:
    """The sentence with its neighbours, as far as they fit; what could show something else than it says is left out."""
    place, units, _ = _passage(citation)
    kept = [citation.unit.text[: LONGEST * 2]]
    if citation.unit.is_code:
        return kept
    room = LONGEST - len(kept[0])
    for near in (place + 1, place - 1):
        if 0 <= near < len(units) and len(units[near]) <= room and is_clean(units[near]):
            room -= len(units[near])
            kept = [*kept, units[near]] if near > place else [units[near], *kept]
    return kept
