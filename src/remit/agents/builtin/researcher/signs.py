"""What a sentence or a statement shows by its form: whether it can stand alone, tells a value, names a place, says what something is.

Patterns only; no word of the question is compared here (see `ranking`, which asks).
"""

import re

from remit.agents.builtin.researcher.question import Asks, Part
from remit.agents.builtin.researcher.sentences import Unit

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
_VALUE = re.compile(
    r"\d|['\"`][^'\"`]{1,80}['\"`]|\b(?:None|null|True|False|unlimited|never|no limit|one|two|three|four|five|six|seven|eight|nine|ten"
    r"|twelve|hundred|thousand|half|once|twice|infinite)\b",
    re.IGNORECASE,
)
"""What an answer holds that tells how much, or which."""
_GIVES_VALUE = re.compile(r"(?:[=:,?]\s*\(?\s*|\b(?:min|max|return)\b\s*\(?)(?:-?\d|[\"']|True\b|False\b|true\b|false\b)")
_NAMES_VALUE = re.compile(r"=\s*_*[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")
"""By a constant, whose own line goes with it (`constants`)."""
_COUNTS = re.compile(
    r"\b(?:how (?:many|much|long|large|big|fast|often|old|far|deep)|number of|numeric|maximum|minimum|limit|timeout)\b", re.IGNORECASE
)
_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|hundred|thousand|half|once|twice|unlimited|infinite"
    r"|never|no|each|every|daily|weekly)\b",
    re.IGNORECASE,
)
_REMARK = re.compile(r"(?:^|(?<=\s))(?:#|//).*$", re.MULTILINE)
_DECIDING = re.compile(r"\b(?:decides?|chooses?|chosen|selects?|selected|determines?|whether)\b", re.IGNORECASE)
_DECIDES = re.compile(r"^(?:#.*\n|//.*\n)*[\s}]*(?:if|elif|else if|switch|match|case|unless)\b|\sif\s.+\selse\s|\s\?\s.+:\s")
_A_PATH = re.compile(r"[`'\"][^`'\"\s]*[/\\.][^`'\"\s]*[`'\"]")
_DEFAULTS = re.compile(r"(?:the\s+)?defaults?\b", re.IGNORECASE)
_IS_A = re.compile(r"^.{1,60}?\b(?:is|are|means)\s+(?:an?|the|one|what)\b", re.IGNORECASE)
_ENTRY = re.compile(r"^[\W_]*\w+(?: \w+)?[\W_]*?(?: \||:| –| —) ?\S")
"""As in a glossary: the word, then what it is."""
_POINTS_ON = re.compile(r"^[\W_]*(?:see|cf|siehe|voir)\b", re.IGNORECASE)
_SPAN = re.compile(r"`[^`]*`")
_CODEY = re.compile(r"::|->|[=(){}\[\];]")
_POINTS_BACK = re.compile(r"^(?:it|this|that|these|those|they|he|she|such|there|so|then|here)\b", re.IGNORECASE)


def form_bonus(part: Part, unit: Unit) -> float:
    """For the form that an answer to this kind of question has."""
    form = _FORMS.get(part.asks)
    bonus = 0.05 if form is not None and form.search(unit.text) else 0.0
    if part.asks is Asks.PLACE and _A_PATH.search(unit.text):
        bonus += 0.06
    if unit.is_code and _DECIDING.search(part.text) and _DECIDES.search(unit.text):
        bonus += 0.12
    if part.asks is Asks.AMOUNT and not unit.name and _DEFAULTS.match(unit.text):
        bonus += 0.12
    return bonus


def says_what_it_is(text: str) -> bool:
    """The word first, then what it is."""
    return _IS_A.search(text) is not None or _ENTRY.search(text) is not None


def tells_value(part: Part, unit: Unit) -> bool:
    """Whether there is anything in it that may be the value asked for: a number, where only a number can be."""
    text = _REMARK.sub("", unit.text) if unit.is_code else unit.text
    if unit.is_code and _NAMES_VALUE.search(text):
        return True
    if _COUNTS.search(part.text) and not _NUMBER.search(text):
        return False
    return (_GIVES_VALUE if unit.is_code else _VALUE).search(text) is not None


def shape_of(unit: Unit, length: int, *, is_first: bool) -> float:
    """Whether a sentence of so many words can stand alone."""
    text = unit.text
    shape = 1.0
    if unit.is_code:
        return 0.88 if length < 2 or not unit.name else 1.0
    if length < 5 and not (_DEFAULTS.match(text) and _VALUE.search(text)):
        shape *= 0.7
    if len(text) > 350:
        shape *= 0.9
    if text.endswith("?"):
        shape *= 0.6
    elif text.endswith((":", ",", "…")):
        shape *= 0.85
    if _POINTS_BACK.match(text) and not is_first:
        shape *= 0.92
    if _POINTS_ON.match(text):
        shape *= 0.6
    bare = _SPAN.sub("", text)
    if len(_CODEY.findall(bare)) > 3 + 0.02 * len(bare):
        shape *= 0.6  # an example that stands among prose
    letters = sum(character.isalpha() or character.isspace() for character in text)
    return shape * (1.0 if letters > 0.7 * len(text) else 0.8)
