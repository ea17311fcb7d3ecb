"""From a name to its value: where code that answers only names a constant (`limit=_DEFAULT_LIMIT`), the line that gives it goes with it.

One step and no further. Used by `findings`, between ranking and choosing.
"""

import re
from collections.abc import Sequence

from remit.agents.builtin.researcher.passages import Kind
from remit.agents.builtin.researcher.question import Asks, Part
from remit.agents.builtin.researcher.ranking import Index, Ranked

_CONSTANT = re.compile(r"\b_*[A-Z][A-Z0-9]*_[A-Z0-9_]+\b|\b_*[A-Z]{5,}[A-Z0-9_]*\b")
_LOOKED_AT = 8


def with_constants(ranked: Sequence[Ranked], index: Index, part: Part) -> list[Ranked]:
    """The same, with the values of constants beside the code that names them: before it where a value is asked for."""
    result: list[Ranked] = []
    placed: set[int] = set()
    for number, one in enumerate(ranked):
        given = _given(one, index) if number < _LOOKED_AT and one.supports else None
        pair = [one] if given is None else [given, one] if part.asks is Asks.AMOUNT else [one, given]
        for member in pair:
            if id(member.sentence) not in placed:
                placed.add(id(member.sentence))
                result.append(member)
    return sorted(result, key=lambda one: -one.score)  # stable: pairs of one score stay as they are


def _given(one: Ranked, index: Index) -> Ranked | None:
    sentence = one.sentence
    if not sentence.unit.is_code or sentence.passage.kind is Kind.CODE:
        return None
    for name in _CONSTANT.findall(sentence.unit.text):
        found = index.constant(name, sentence.document) if name != sentence.unit.name else None
        if found is not None and found is not sentence:
            return Ranked(sentence=found, score=one.score, coverage=one.coverage, alone=one.alone)
    return None
