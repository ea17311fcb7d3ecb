"""The model's part: an answer written from numbered passages.

The model returns statements, each with its passages and the words copied from them. Those words are searched in the passage: a citation
that does not match literally is dropped, and a statement without any is marked. The reader judges whether a statement follows from its
quotation. A model that fails, is slow or returns nothing usable costs a warning, never the quotations."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remit.builtin.researcher.passages import contains, printable
from remit.builtin.researcher.reports import Citation, lay_out
from remit.core.context import Context
from remit.core.text import UNTRUSTED, escape_markdown, fence_untrusted, markdown_line, one_line, plural
from remit.models.questions import TextModel, ask_optional, list_schema, object_in, object_schema

MAX_PASSAGE_CHARACTERS = 28_000
"""For all passages that a model sees; best first."""
_MIN_QUOTE = 8
_MAX_CITATIONS = 6
_WRITE_SECONDS, _WRITE_SHARE = 150.0, 0.6
NO_ANSWER = "The sources do not answer this."
_WRITING = (
    "You write from numbered passages of several sources. Say only what the passages say. Return statements of one or two sentences, in"
    " reading order. With each statement give its citations: the number of the passage and a quotation of at least three words that the"
    " statement rests on, copied from the passage character by character. Put no citation marks into the text. Copy figures, names and"
    f" identifiers exactly. If the passages do not answer, return no statements. {UNTRUSTED} Answer with JSON alone:"
    ' {"statements": [{"heading": "", "text": "…", "citations": [{"passage": 1, "quote": "…"}]}]}'
)
_SUMMARY = "Summarise what the sources agree on, where they differ, and what one alone says."
_LAYOUTS = {
    "answer": "Answer the question in a few plain statements, the most important first.",
    "summary": _SUMMARY,
    "json": _SUMMARY,
    "table": "List what the sources say; each statement becomes one row of a table.",
    "outline": "Write an outline: give each statement the short heading that it belongs under; statements of one heading together.",
}
_TEXT = {"type": "string"}
_SCHEMA = object_schema(
    statements=list_schema(heading=_TEXT, text=_TEXT, citations=list_schema(passage={"type": "integer"}, quote=_TEXT)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of a model, with the citations that were found in their passages."""

    text: str
    heading: str = ""
    citations: tuple[int, ...] = ()
    unmatched: tuple[str, ...] = ()
    """Quotations that are not in their passage, and `[77]` for a passage that does not exist."""

    @property
    def standing(self) -> str:
        return "supported" if self.citations else "unsupported" if self.unmatched else "uncited"

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "standing": self.standing, "citations": list(self.citations)}

    def markdown(self) -> str:
        if not self.citations:
            return f"{escape_markdown(self.text)} ({self.standing})"
        body, stop = (self.text[:-1], self.text[-1]) if self.text[-1] in ".!?" else (self.text, "")
        return f"{escape_markdown(body)}{''.join(f' [{number}]' for number in self.citations)}{stop}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenAnswer:
    """What a model wrote, with its citations checked."""

    statements: tuple[Statement, ...]
    layout: str = "answer"
    by: str = ""

    @property
    def supported(self) -> list[Statement]:
        return [one for one in self.statements if one.citations]

    @property
    def text(self) -> str:
        """As markdown."""
        return lay_out(self.layout, [(one.heading, one.markdown()) for one in self.statements]) or NO_ANSWER

    def note(self) -> str:
        """Below the answer in a report: how far it was checked."""
        return f"*Written by {markdown_line(self.by) or 'a model'} from the quotations below; {self._count_supported()}.*"

    def _count_supported(self) -> str:
        return f"{len(self.supported)} of {plural(len(self.statements), 'statement')} with a citation that was found in its source"

    def summary(self, read: str) -> str:
        first = re.sub(r"[`*#<>\[\]|\\]", "", one_line(self.supported[0].text, 200))
        return f"{first} Written by {one_line(self.by, 60) or 'a model'} from passages of {read}; {self._count_supported()}."

    def to_data(self) -> dict[str, Any]:
        return {
            "written": self.text,
            "sentences": [one.to_dict() for one in self.statements],
            "uncited": [one.to_dict() for one in self.statements if not one.citations],
            "invented": list(dict.fromkeys(words for one in self.statements for words in one.unmatched)),
            "writtenBy": self.by,
        }


async def write(
    models: TextModel, ctx: Context, citations: Iterable[Citation], layout: str, question: str = ""
) -> tuple[WrittenAnswer | None, str]:
    """A model's answer from these passages, or the reason why there is none."""
    passages: dict[int, Citation] = {}
    room = MAX_PASSAGE_CHARACTERS
    for one in citations:
        room -= len(one.passage.text)
        if room >= 0:
            passages[one.number] = one
    if not passages or ctx.hand_in:
        return None, "the time limit was reached before it could be asked" if passages else "there was no passage to write from"
    ctx.progress(f"A model writes the answer from {plural(len(passages), 'passage')}")
    task = _LAYOUTS[layout] + (f"\n\n{fence_untrusted(question, kind='question')}" if question else "")
    prompt = "\n\n".join([*(one.fenced() for one in passages.values()), task])
    seconds = min(_WRITE_SECONDS, _WRITE_SHARE * ctx.remaining)
    heard = await ask_optional(models, ctx, prompt, instructions=_WRITING, seconds=seconds, schema=_SCHEMA)
    if heard.fault:
        return None, heard.fault
    given = (object_in(heard.text) or {}).get("statements")
    if not isinstance(given, list):
        return None, "its answer is not the JSON that was asked for"
    statements = check_statements(given, {number: one.passage.text for number, one in passages.items()})
    if given and not any(one.citations for one in statements):
        return None, f"none of its {plural(len(given), 'statement')} cites words that are there, so what it wrote was left out"
    return WrittenAnswer(statements=statements, layout=layout, by=heard.model), ""


def check_statements(given: Sequence[Any], passages: Mapping[int, str]) -> tuple[Statement, ...]:
    """The statements of a model's JSON, with their sources."""
    statements: list[Statement] = []
    for one in given:
        text = one.get("text") if isinstance(one, Mapping) else None
        text = " ".join(re.sub(r"\s*\[\d{1,4}\]", "", printable(text)).split()) if isinstance(text, str) else ""
        if text:
            heading = one["heading"] if isinstance(one.get("heading"), str) else ""
            citations, unmatched = _check(one.get("citations"), passages)
            statements.append(Statement(text=text, heading=heading, citations=citations, unmatched=unmatched))
    return tuple(statements)


def _check(cited: Any, passages: Mapping[int, str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The passages that contain the quoted words, and what was not found."""
    found: dict[int, None] = {}
    unmatched: dict[str, None] = {}
    for one in cited[:_MAX_CITATIONS] if isinstance(cited, list) else []:
        number, quote = (one.get("passage"), one.get("quote")) if isinstance(one, Mapping) else (None, None)
        if not isinstance(number, int) or not isinstance(quote, str):
            continue
        quote = " ".join(printable(quote).split())
        matching = [n for n, text in passages.items() if len(quote) >= _MIN_QUOTE and contains(text, quote)]
        if matching:  # copied correctly but with a wrong number: corrected
            found[number if number in matching else matching[0]] = None
        else:
            unmatched[quote[:120] if number in passages else f"[{number}]"] = None
    return tuple(found), tuple(unmatched)
