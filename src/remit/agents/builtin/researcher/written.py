"""What a model wrote, taken apart into sentences, each held against the passages it cites, and put together again with marks.

Nothing is thrown away and nothing is believed: a sentence that cites nothing, cites what is not there, or is not supported says so itself.
Pure. `writing` asks the model.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from remit.agents.builtin.researcher.evidence import Evidence
from remit.agents.builtin.researcher.meeting import content, is_denied, share
from remit.agents.builtin.researcher.quoting import contains, is_clean, shown
from remit.agents.builtin.researcher.sentences import units_of
from remit.agents.builtin.researcher.supporting import support

ABSENT = "The sources do not answer this."
"""What a model is to say where they do not; the one sentence that needs no citation."""
MOST_CHARACTERS = 20_000
_MARKS = re.compile(r"\s{0,3}\[(\d{1,4}(?:\s*[,;]\s*\d{1,4})*)\]")
_AFTER_STOP = re.compile(r"((?<![.!?])[.!?]{1,3}[\"'”’)]{0,3})((?:\s{0,3}\[\d{1,4}(?:\s*[,;]\s*\d{1,4})*\])+)")
_AFTER_CITED = re.compile(r"(?<=\][.!?])\s+")
"""There a sentence ends, however the next one begins."""
_LINE = re.compile(r"^(\s*(?:#{1,6}\s+|[-*+]\s+|\d{1,3}[.)]\s+|>\s?)?)(.*)$")
_STOP = re.compile(r"[.!?…]{1,8}[\"'”’)]{0,4}$")
_RULE = re.compile(r"^[\s|:+=*_-]*$")
_HEADING_WORDS = 8
_CLAIMS = re.compile(
    r"\d|\b(?:is|are|was|were|be|has|have|had|can|could|must|should|will|would|may|does|do|did|makes?|causes?|needs?|ist|sind|hat)\b",
    re.IGNORECASE,
)
"""What a heading has that says something, and does not only name it."""
_FORGED = re.compile(r"\s{0,3}\((?:un-?cited|not supported|supported|verified|checked)\b[^()\n]{0,300}\)", re.IGNORECASE)
"""Marks are ours to make."""
_UNSHOWN = "�"
_OF_TABLES = "statement source topic aspect claim detail item value figure summary passage citation number"
"""What columns are called, whatever the passages speak of."""


class Standing(StrEnum):
    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    UNCITED = "uncited"
    INVENTED = "invented"
    """It cites a source that is not there."""
    PLAIN = "plain"
    """It claims nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    text: str
    """Without marks."""
    standing: Standing
    citations: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    why: str = ""
    invented: tuple[str, ...] = ()

    @property
    def is_marked(self) -> bool:
        return self.standing not in (Standing.SUPPORTED, Standing.PLAIN)

    def to_dict(self) -> dict[str, Any]:
        told = {"text": self.text, "standing": str(self.standing), "citations": list(self.citations)}
        return told | ({"why": self.why} if self.why else {}) | ({"unknownSources": list(self.unknown)} if self.unknown else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    text: str
    """Markdown, with marks."""
    sentences: tuple[Sentence, ...]
    by: str = ""
    addressing: tuple[str, ...] = ()
    """Places that speak to a model, which it was not shown."""
    cut: bool = False
    """It was longer than is taken."""

    @property
    def claims(self) -> list[Sentence]:
        return [one for one in self.sentences if one.standing is not Standing.PLAIN]

    @property
    def supported(self) -> list[Sentence]:
        return [one for one in self.sentences if one.standing is Standing.SUPPORTED]

    @property
    def marked(self) -> list[Sentence]:
        return [one for one in self.sentences if one.is_marked]

    @property
    def says_absent(self) -> bool:
        return any(_is_absent(one.text) for one in self.sentences)

    def to_data(self) -> dict[str, Any]:
        """As it stands in `data` beside the quotations."""
        invented = [name for one in self.sentences for name in (*(f"[{number}]" for number in one.unknown), *one.invented)]
        return {
            "written": self.text,
            "sentences": [one.to_dict() for one in self.sentences if one.standing is not Standing.PLAIN],
            "uncited": [one.to_dict() for one in self.marked],
            "invented": list(dict.fromkeys(invented)),
            "writtenBy": self.by,
            **({"speaksToModels": list(self.addressing)} if self.addressing else {}),
            **({"cutOff": True} if self.cut else {}),
        }  # fmt: skip


@dataclass(slots=True)
class _Reading:
    passages: dict[int, Evidence]
    question: str
    sentences: list[Sentence] = field(default_factory=list)

    def line(self, line: str, *, is_head: bool = False) -> str:
        """One line of markdown, checked. `is_head`: the first row of a table."""
        lead, rest = _split(line)
        if not rest.strip() or _RULE.match(rest):
            return line.rstrip()
        if "#" in lead:
            return lead + self._said(self._heading(rest))
        if rest.lstrip().startswith("|"):
            return self._row(rest, is_head=is_head)
        moved = _AFTER_STOP.sub(r"\2\1", rest)
        pieces = _AFTER_CITED.split(moved)
        return lead + " ".join(self._said(self.judged(unit.text)) for piece in pieces for unit in units_of(piece, 1))

    def _row(self, row: str, *, is_head: bool) -> str:
        cells = row.strip().strip("|")
        words = " ; ".join(cell.strip() for cell in cells.split("|") if cell.strip())
        sentence = self._heading(words) if is_head else self.judged(words)
        self.sentences.append(sentence)
        safe = "|".join(shown(cell) for cell in cells.split("|"))
        return f"|{safe}{_mark(sentence)} |"

    def _said(self, sentence: Sentence) -> str:
        self.sentences.append(sentence)
        marks = "".join(f" [{number}]" for number in sentence.citations)
        body, stop = sentence.text, ""
        if found := _STOP.search(body):
            body, stop = body[: found.start()], found.group()
        return f"{shown(body)}{marks}{stop}{_mark(sentence)}"

    def _heading(self, text: str) -> Sentence:
        """It may name what one passage or the question is about; whatever it claims beyond that is uncited."""
        words = content(_MARKS.sub("", text)) - content(_OF_TABLES)
        asked = content(self.question)
        known = [asked, *(asked | content(f"{one.headings} {one.text}") for one in self.passages.values())]
        says = len(text.split()) > _HEADING_WORDS or _CLAIMS.search(text) or is_denied(text) or _UNSHOWN in text
        if not says and (not words or any(share(words, one) == 1.0 for one in known)):
            return Sentence(text=text.strip(), standing=Standing.PLAIN)
        return self.judged(text)

    def judged(self, text: str) -> Sentence:
        numbers = tuple(dict.fromkeys(int(n) for marks in _MARKS.findall(text) for n in re.findall(r"\d+", marks)))
        bare = " ".join(_MARKS.sub("", text).split())
        bare = re.sub(r"\s+([.!?,;])", r"\1", bare)
        known, unknown = tuple(n for n in numbers if n in self.passages), tuple(n for n in numbers if n not in self.passages)
        if not any(character.isalnum() for character in bare) or _is_absent(bare):
            return Sentence(text=bare, standing=Standing.PLAIN, citations=known)
        if _UNSHOWN in bare:
            return Sentence(text=bare, standing=Standing.UNSUPPORTED, citations=known, why="it holds characters that do not show")
        if unknown:
            why = f"there is no source {', '.join(f'[{n}]' for n in unknown)}"
            return Sentence(text=bare, standing=Standing.INVENTED, citations=known, unknown=unknown, why=why)
        if not known:
            return Sentence(text=bare, standing=Standing.UNCITED, why="it cites nothing")
        found = support(bare, [self.passages[n] for n in known], self.question)
        standing = Standing.UNSUPPORTED if found.why_not else Standing.SUPPORTED
        return Sentence(text=bare, standing=standing, citations=known, why=found.why_not, invented=found.invented)

    def code(self, lines: Sequence[str]) -> list[str]:
        """A block of code is a quotation or it is nothing."""
        block = "\n".join(lines[1:-1])
        if any(contains(one.text, block) for one in self.passages.values()) or not block.strip():
            self.sentences.append(Sentence(text=block[:400], standing=Standing.PLAIN))
            return list(lines)
        sentence = Sentence(text=block[:400], standing=Standing.UNCITED, why="the code stands in no passage")
        self.sentences.append(sentence)
        return [*lines, _mark(sentence).strip()]


def checked(text: str, passages: Sequence[Evidence], question: str, *, by: str = "", addressing: Sequence[str] = ()) -> Written:
    reading = _Reading({one.number: one for one in passages}, question)
    cut = len(text) > MOST_CHARACTERS
    told: list[str] = []
    block: list[str] = []
    lines = _unwrapped(_FORGED.sub("", _showing(text[:MOST_CHARACTERS])))
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if block or line.lstrip().startswith("```"):
            block.append(line)
            if len(block) > 1 and line.strip() == "```":
                told += reading.code(block)
                block = []
            continue
        told.append(reading.line(line, is_head="-" in following and "|" in following and _RULE.match(following) is not None))
    if block:
        told += reading.code([*block, "```"])
    return Written(text="\n".join(told).strip(), sentences=tuple(reading.sentences), by=by, addressing=tuple(addressing), cut=cut)


def _showing(text: str) -> str:
    """With a mark in place of each character that does not show, or does something."""
    return "".join(one if one in "\n\t" or is_clean(one) else _UNSHOWN for one in text.replace("\r\n", "\n"))


def _unwrapped(text: str) -> list[str]:
    """Lines of one paragraph as one line, so that a sentence is not cut in two."""
    lines: list[str] = []
    in_code = False
    for line in text.split("\n"):
        is_fence = line.lstrip().startswith("```")
        begins_anew = is_fence or in_code or not line.strip() or line.lstrip().startswith("|") or bool(_split(line)[0].strip())
        if lines and not begins_anew and lines[-1].strip() and not lines[-1].lstrip().startswith(("#", "|", "```")):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
        in_code ^= is_fence
    return lines


def _split(line: str) -> tuple[str, str]:
    """What makes a line a heading or an item, and its words."""
    found = _LINE.match(line)
    return (found.group(1), found.group(2)) if found is not None else ("", line)


def _is_absent(text: str) -> bool:
    return text.strip().rstrip(".") == ABSENT.rstrip(".")


def _mark(sentence: Sentence) -> str:
    match sentence.standing:
        case Standing.UNCITED:
            return " (uncited)"
        case Standing.INVENTED:
            return f" (uncited: {sentence.why})"
        case Standing.UNSUPPORTED:
            return f" (not supported: {shown(sentence.why)})"
    return ""
