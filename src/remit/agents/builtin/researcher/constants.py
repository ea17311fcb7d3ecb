"""From a name to its value: where code that answers only names a constant (`limit=_DEFAULT_LIMIT`), the line that gives it goes with it.

One step and no further. Used by `findings`, between ranking and choosing.
"""

import re
from collections.abc import Sequence

from remit.agents.builtin.researcher.passages import Kind
from remit.agents.builtin.researcher.question import Asks, Part
from remit.agents.builtin.researcher.ranking import Index, Ranked
from remit.agents.builtin.researcher.words import stems

_CONSTANT = r"_*[A-Z][A-Z0-9]*_[A-Z0-9_]+|_*[A-Z]{5,}[A-Z0-9_]*"
_GIVEN_BY_NAME = re.compile(rf"(?:(\w+)\s*(?::[^=,\n]*)?[=<>]=?\s*|\b(?:return|min|max)\b\s*\(?\s*)({_CONSTANT})\b(?!\s*[(.])")
"""Something that has the value of a constant, or is compared with it."""
_LOOKED_AT = 8
_SAID_OF_ANY = frozenset(stems("default value"))


def with_constants(ranked: Sequence[Ranked], index: Index, part: Part) -> list[Ranked]:
    """The same, with the values of constants beside the code that names them: before it where a value is asked for."""
    result: list[Ranked] = []
    placed: set[int] = set()
    for number, one in enumerate(ranked):
        given = _given(one, index, part) if number < _LOOKED_AT and one.supports else None
        pair = [one] if given is None else [given, one] if part.asks is Asks.AMOUNT else [one, given]
        for member in pair:
            if id(member.sentence) not in placed:
                placed.add(id(member.sentence))
                result.append(member)
    return sorted(result, key=lambda one: -one.score)  # stable: pairs of one score stay as they are


def _given(one: Ranked, index: Index, part: Part) -> Ranked | None:
    sentence = one.sentence
    if not sentence.unit.is_code or sentence.passage.kind is Kind.CODE:
        return None
    asked = {term.stem for term in part.terms} - _SAID_OF_ANY
    for to, name in _GIVEN_BY_NAME.findall(sentence.unit.text):
        if name == sentence.unit.name or not asked & set(stems(f"{to} {name}")):
            continue
        found = index.constant(name, sentence.document)
        if found is not None and found is not sentence:
            return Ranked(sentence=found, score=one.score, coverage=one.coverage, alone=one.alone)
    return None
