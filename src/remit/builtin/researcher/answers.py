"""What a model adds: sub-questions to look for, and an answer written from numbered passages.

The model returns statements, each with the passages it rests on and the words it copied from them. Those words are looked for in the
passage: a citation that does not match literally is dropped, and a statement that is left without one is marked. Whether a statement
follows from its quotation is for the reader to judge. A model that fails, is slow or writes nothing usable costs a warning, never the
quotations.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remit.builtin.researcher.passages import contains, printable
from remit.builtin.researcher.ranking import MAX_PARTS, Part, Words
from remit.builtin.researcher.reports import Citation, escape_markdown, lay_out, one_line
from remit.core.context import Context
from remit.core.text import UNTRUSTED, fence_untrusted, plural
from remit.models.questions import TextModel, ask_optional, object_in

MAX_PASSAGE_CHARACTERS = 28_000
"""Of all passages that a model is shown; the best ones first."""
MAX_WRITTEN_CHARACTERS = 20_000
_MIN_QUOTE = 8
_MAX_CITATIONS = 6
_MAX_SUB_QUESTION = 300
_PLAN_SECONDS, _PLAN_SHARE, _PLAN_LEAST = 45.0, 0.15, 15.0
_WRITE_SECONDS, _WRITE_SHARE = 150.0, 0.6
NO_ANSWER = "The sources do not answer this."
_PLANNING = (
    "You plan a search in files and documents. The search finds words, not meanings. Take the question apart into at most"
    f" {MAX_PARTS - 1} short sub-questions that together answer it, each in the words that a source would use, each naming what it is"
    f" about (no pronouns). Keep names, identifiers and quoted phrases as they are. {UNTRUSTED}"
    ' Answer with JSON alone: {"questions": ["…"]}'
)
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


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


_TEXT = {"type": "string"}
_PLAN_SCHEMA = _object(questions=_list(_TEXT))
_CITATIONS_SCHEMA = _list(_object(passage={"type": "integer"}, quote=_TEXT))
_SCHEMA = _object(statements=_list(_object(heading=_TEXT, text=_TEXT, citations=_CITATIONS_SCHEMA)))


async def plan(models: TextModel, ctx: Context, query: str, parts: tuple[Part, ...], words: Words) -> tuple[tuple[Part, ...], str, str]:
    """Parts with further sub-questions, the model that planned them, and why none did. The parts of the query itself always stay."""
    if ctx.remaining < _PLAN_LEAST:
        return parts, "", "there was no time to have the question planned"
    ctx.progress("A model plans what to look for")
    seconds = min(_PLAN_SECONDS, _PLAN_SHARE * ctx.remaining)
    heard = await ask_optional(
        models, ctx, f"The question:\n\n{fence_untrusted(query)}", instructions=_PLANNING, seconds=seconds, schema=_PLAN_SCHEMA
    )
    asked = (object_in(heard.text) or {}).get("questions")
    texts = [" ".join(one.split()) for one in asked if isinstance(one, str)] if isinstance(asked, list) else []
    new = [part for part in (words.part(one) for one in texts if one.isprintable() and len(one) <= _MAX_SUB_QUESTION) if part.words]
    if heard.fault or not new:
        return parts, "", heard.fault or "what it planned cannot be used"
    distinct = {frozenset(part.words): part for part in (*reversed(new), *reversed(parts))}
    return tuple(reversed(distinct.values()))[:MAX_PARTS], heard.model, ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of a model, with the citations that were found in their passages."""

    text: str
    heading: str = ""
    citations: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    """Passages it cites that do not exist."""
    unmatched: tuple[str, ...] = ()
    """Quotations that are not in the passage they are said to come from."""

    @property
    def standing(self) -> str:
        return "supported" if self.citations else "unsupported" if self.unmatched else "invented" if self.unknown else "uncited"

    @property
    def why(self) -> str:
        sources = ", ".join(f"[{number}]" for number in self.unknown)
        reasons = {"uncited": "it cites nothing", "invented": f"there is no source {sources}"}
        return "" if self.citations else reasons.get(self.standing, "the words it quotes are not in what it cites")

    def to_dict(self) -> dict[str, Any]:
        data = {"text": self.text, "standing": self.standing, "citations": list(self.citations)}
        return data | ({"why": self.why} if self.why else {}) | ({"unknownSources": list(self.unknown)} if self.unknown else {})

    def markdown(self) -> str:
        marks = "".join(f" [{number}]" for number in self.citations)
        body, stop = (self.text[:-1], self.text[-1]) if self.text[-1] in ".!?" else (self.text, "")
        note = {"uncited": " (uncited)", "invented": f" (uncited: {self.why})", "unsupported": f" (not supported: {self.why})"}
        return f"{escape_markdown(body)}{marks}{stop}{note.get(self.standing, '')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenAnswer:
    """What a model wrote, with its citations checked."""

    statements: tuple[Statement, ...]
    layout: str = "answer"
    by: str = ""
    is_cut: bool = False

    @property
    def supported(self) -> list[Statement]:
        return [one for one in self.statements if one.citations]

    @property
    def marked(self) -> list[Statement]:
        return [one for one in self.statements if not one.citations]

    @property
    def text(self) -> str:
        """As markdown."""
        return lay_out(self.layout, [(one.heading, one.markdown()) for one in self.statements]) or NO_ANSWER

    def note(self) -> str:
        """Below the answer in a report: how far it was checked."""
        text = f"*Written by {one_line(self.by) or 'a model'} from the quotations below. Each citation was matched with its source:"
        text += f" {len(self.supported)} of {plural(len(self.statements), 'statement')} with words that are there; the others are marked.*"
        return text + ("\n\n*It was cut off: the model wrote more than is taken.*" if self.is_cut else "")

    def summary(self, read: str) -> str:
        first = re.sub(r"[`*#<>\[\]|\\]", "", one_line(self.supported[0].text, 200))
        text = f"{first} Written by {one_line(self.by, 60) or 'a model'} from passages of {read};"
        return f"{text} {len(self.supported)} of {plural(len(self.statements), 'statement')} with a citation that was found in its source."

    def to_data(self) -> dict[str, Any]:
        invented = [name for one in self.statements for name in (*(f"[{number}]" for number in one.unknown), *one.unmatched)]
        return {
            "written": self.text,
            "sentences": [one.to_dict() for one in self.statements],
            "uncited": [one.to_dict() for one in self.marked],
            "invented": list(dict.fromkeys(invented)),
            "writtenBy": self.by,
            **({"cutOff": True} if self.is_cut else {}),
        }


async def write(
    models: TextModel, ctx: Context, citations: Iterable[Citation], layout: str, question: str = ""
) -> tuple[WrittenAnswer | None, str]:
    """What a model wrote from these passages, or why there is nothing."""
    passages: dict[int, Citation] = {}
    room = MAX_PASSAGE_CHARACTERS
    for one in citations:
        room -= len(one.passage.text)
        if room >= 0:
            passages[one.number] = one
    if not passages or ctx.hand_in:
        return None, "time was up before it could be asked" if passages else "there was no passage to write from"
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
    statements, is_cut = check_statements(given, {number: one.passage.text for number, one in passages.items()})
    if given and not any(one.citations for one in statements):
        return None, f"none of its {plural(len(given), 'statement')} cites words that are there, so what it wrote was left out"
    return WrittenAnswer(statements=statements, layout=layout, by=heard.model, is_cut=is_cut or heard.is_cut), ""


def check_statements(given: Sequence[Any], passages: Mapping[int, str]) -> tuple[tuple[Statement, ...], bool]:
    """The statements of a model's JSON, and whether there were more than are taken."""
    statements: list[Statement] = []
    room = MAX_WRITTEN_CHARACTERS
    for one in given:
        if not isinstance(one, Mapping) or not isinstance(text := one.get("text"), str):
            continue
        text = " ".join(re.sub(r"\s*\[\d{1,4}\]", "", printable(text)).split())
        room -= len(text)
        if room < 0:
            return tuple(statements), True
        if any(character.isalnum() for character in text):
            heading = one.get("heading")
            statements.append(
                Statement(text=text, heading=heading if isinstance(heading, str) else "", **_check(one.get("citations"), passages))
            )
    return tuple(statements), False


def _check(cited: Any, passages: Mapping[int, str]) -> dict[str, Any]:
    found: dict[str, dict[Any, None]] = {"citations": {}, "unknown": {}, "unmatched": {}}
    for one in cited[:_MAX_CITATIONS] if isinstance(cited, list) else []:
        number, quote = (one.get("passage"), one.get("quote")) if isinstance(one, Mapping) else (None, None)
        if not isinstance(number, int) or not isinstance(quote, str):
            continue
        quote = " ".join(printable(quote).split())
        matching = [n for n, text in passages.items() if len(quote) >= _MIN_QUOTE and contains(text, quote)]
        if matching:  # copied right and numbered wrong: the number is corrected
            found["citations"][number if number in matching else matching[0]] = None
        elif number in passages:
            found["unmatched"][quote[:120]] = None
        else:
            found["unknown"][number] = None
    return {name: tuple(values) for name, values in found.items()}
