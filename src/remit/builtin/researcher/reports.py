"""Reports as Markdown and as data. Every quotation has the number of its citation and is escaped.

With a model, the model writes from numbered passages (`write`). It returns statements, each with its passages and the words copied from
them. Those words are searched in the passage: a citation that does not match literally is dropped, and a statement without any is marked.
The reader judges whether a statement follows from its quotation. A model that fails, is slow or returns nothing usable costs a warning,
never the quotations."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from remit.builtin.researcher.passages import Document, Passage, printable
from remit.core.context import Context
from remit.core.text import MORE, UNTRUSTED, code_block, code_span, escape_markdown, fence_untrusted, markdown_line, one_line, plural
from remit.models.questions import TextModel, ask_optional, list_schema, object_in, object_schema

_MAX_LISTED = 30
NO_ANSWER = "The sources do not answer this."


@dataclass(frozen=True, slots=True)
class Citation:
    number: int
    passage: Passage

    @property
    def place(self) -> str:
        where = self.passage.place
        return f"<{markdown_line(where).replace('>', '%3E')}>" if self.passage.document.kind == "page" else code_span(where)

    def quoted(self) -> dict[str, Any]:
        return {"text": self.passage.text, "citation": self.number}

    def item(self) -> str:
        """As an item of a list with its place: prose in quotation marks, code as a block."""
        text, within = self.passage.text, self.passage.headings[-2:]
        if not self.passage.is_code:
            return f"- “{escape_markdown(text)}” [{self.number}] {' › '.join([self.place, *map(markdown_line, within)])}"
        block = "\n".join(f"  {line}".rstrip() for line in code_block(text).split("\n"))
        return f"- [{self.number}] {self.place}{f', in {code_span(chr(46).join(within))}' if within else ''}\n\n{block}\n"

    def fenced(self) -> str:
        """For a prompt: material, labelled with its number and place."""
        return fence_untrusted(
            self.passage.text, number=self.number, place=self.passage.place, headings=" > ".join(self.passage.headings[-2:])
        )

    def to_dict(self) -> dict[str, Any]:
        document = self.passage.document
        return {
            "number": self.number,
            "kind": document.kind,
            {"file": "path", "page": "url"}.get(document.kind, "title"): document.name,
            "line": self.passage.line,
            "endLine": self.passage.end_line,
            "date": document.date or document.fetched,
            **({"fetchedAt": document.fetched} if document.fetched else {}),
            "quote": self.passage.text,
            **({"code": True} if self.passage.is_code else {}),
        }


class Citations(list[Citation]):
    """Numbers passages in the order in which they are cited."""

    def cite(self, passage: Passage) -> Citation:
        known = next((one for one in self if one.passage is passage), None)
        if known is None:
            self.append(known := Citation(len(self) + 1, passage))
        return known


@dataclass(slots=True, kw_only=True)
class Result:
    query: str
    answer: list[Citation] = field(default_factory=list)
    citations: Sequence[Citation] = ()
    findings: list[dict[str, Any]] = field(default_factory=list)
    """For each question: whether a passage has enough of its words (`supported`), and the nearest ones (`sentences`)."""
    missing: dict[str, list[str]] = field(default_factory=dict)
    """For each question: words that occur nowhere in what was read."""

    @property
    def not_found(self) -> list[dict[str, Any]]:
        found = [(one["question"], one["supported"], self.missing[one["question"]]) for one in self.findings]
        return [{"question": question, "missingWords": words} for question, supported, words in found if words or not supported]

    def data(self, searched: dict[str, Any]) -> dict[str, Any]:
        return {
            "question": self.query,
            "answer": [citation.quoted() for citation in self.answer],
            "citations": [citation.to_dict() for citation in self.citations],
            "findings": self.findings,
            "notFound": self.not_found,
            "searched": searched,
        }


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
    def text(self) -> str:
        """As markdown."""
        return lay_out(self.layout, [(one.heading, one.markdown()) for one in self.statements]) or NO_ANSWER

    def note(self) -> str:
        """How far it was checked."""
        supported = sum(bool(one.citations) for one in self.statements)
        checked = f"{supported} of {plural(len(self.statements), 'statement')} with a citation that was found in its source"
        return f"Written by {one_line(self.by, 60) or 'a model'} from the quotations; {checked}."

    def summary(self) -> str:
        """Empty if no statement is supported."""
        first = next((one.text for one in self.statements if one.citations), "")
        return f"{re.sub(r'[`*#<>|]', '', one_line(first, 200))} {self.note()}" if first else ""

    def to_data(self) -> dict[str, Any]:
        return {
            "written": self.text,
            "sentences": [one.to_dict() for one in self.statements],
            "uncited": [one.to_dict() for one in self.statements if not one.citations],
            "invented": list(dict.fromkeys(words for one in self.statements for words in one.unmatched)),
            "writtenBy": self.by,
        }


def lay_out(layout: str, rows: Sequence[tuple[str, str]]) -> str:
    """Rows of heading and text as a table, as an outline, or one after the other."""
    if layout == "table":
        return "\n".join(["| statement |", "| --- |", *("| {} |".format(" ".join(text.split()).replace("|", "\\|")) for _, text in rows)])
    if layout == "outline":
        headings = ["", *(heading for heading, _ in rows)]
        titles = [f"\n## {markdown_line(new)}\n\n" if new and new != last else "" for last, new in pairwise(headings)]
        return "\n".join(f"{title}- {text}" for title, (_, text) in zip(titles, rows, strict=True)).strip()
    return " ".join(text for _, text in rows)


def amount_read(searched: dict[str, Any]) -> str:
    """How much was read, as text: only files with search hits are read."""
    pages = f" and {plural(len(searched['pages']), 'page')}" if searched["pages"] else ""
    return f"{plural(searched['filesListed'], 'file')} searched ({len(searched['files']) or 'none'} of them read){pages}"


def research_report(result: Result, searched: dict[str, Any], *, written: WrittenAnswer | None = None, warnings: Sequence[str] = ()) -> str:
    """`searched`: as in `data`. `written`: a model's text; then the quotations are its evidence."""
    quotes = "\n".join(citation.item() for citation in result.answer).rstrip()
    if result.answer:
        answer = f"The passages that fit the question best, quoted from {amount_read(searched)}.\n\n{quotes}"
    elif searched["files"] or searched["pages"]:
        answer = f"No passage in {amount_read(searched)} has enough of the question's words to answer it."
    else:
        answer = f"Nothing was read: {'no file has a word of the question' if searched['queries'] else 'nothing could be searched'}."
    evidence = f"{written.text}\n\n*{markdown_line(written.note())}*\n\n{MORE}\n\n## Evidence\n\n" if written is not None else ""
    sections = [
        f"# {markdown_line(result.query, 400)}",
        "\n".join(f"*{markdown_line(note)}*" for note in warnings),
        f"## Answer\n\n{evidence}{answer}",
        MORE if result.answer and written is None else "",
        _section("Further passages", (citation.item() for citation in result.citations if citation not in result.answer)),
        _section("Not found", _not_found(result)),
        _section("Searched", _search_rows(searched)),
        _section("What could not be searched", (f"- {row}" for row in _first(searched["failures"]))),
        _sources(result.citations),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _section(title: str, rows: Iterable[str]) -> str:
    text = "\n".join(rows).rstrip()
    return f"## {title}\n\n{text}" if text else ""


def _not_found(result: Result) -> list[str]:
    rows = []
    for one in result.not_found:
        words = ", ".join(f"“{markdown_line(word)}”" for word in one["missingWords"])
        rows.append(f"- {markdown_line(one['question'])}{f' Nowhere in what was read: {words}.' if words else ' No passage answers it.'}")
    return rows or ["- Each part of the question has passages with its words. Whether they answer it is for the reader to judge."]


def _search_rows(searched: dict[str, Any]) -> list[str]:
    lists = {"places": "Places", "queries": "Searched for", "webQueries": "Asked the web", "files": "Files", "pages": "Pages"}
    rows = [f"- {name} ({len(searched[key])}): {', '.join(_first(searched[key]))}" for key, name in lists.items() if searched[key]]
    return [*rows, f"- Depth {searched['depth']} of {searched['maxDepth']}; {plural(searched['children'], 'worker')} sent"]


def _first(items: Sequence[str]) -> list[str]:
    rest = len(items) - _MAX_LISTED
    return [*map(markdown_line, items[:_MAX_LISTED]), *([f"and {rest} more"] if rest > 0 else [])]


def _sources(citations: Iterable[Citation]) -> str:
    return _section("Sources", (f"{one.number}. {one.place}" for one in citations))


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesis:
    """Sources side by side: passages that several share word for word, and the first others of each."""

    documents: Sequence[Document]
    agreed: Sequence[Sequence[Citation]]
    single: Mapping[str, Sequence[Citation]]
    citations: Sequence[Citation]
    failures: Sequence[str] = ()

    def data(self, layout: str) -> dict[str, Any]:
        return {
            "format": layout,
            "sources": [{"kind": d.kind, "name": d.name, "title": d.title, "date": d.date or d.fetched} for d in self.documents],
            "agreed": [[{**one.quoted(), "source": one.passage.document.name} for one in group] for group in self.agreed],
            "single": {name: [{**one.quoted(), "source": name} for one in own] for name, own in self.single.items()},
            "citations": [citation.to_dict() for citation in self.citations],
            "failures": list(self.failures),
        }

    def markdown(self, layout: str, written: WrittenAnswer | None = None) -> str:
        groups = [("In several sources", group) for group in self.agreed]
        groups += [(name, [one]) for name, own in self.single.items() for one in own]
        quotes = [(name, escape_markdown(" ".join(group[0].passage.text.split())), group) for name, group in groups]
        rows = [(name, f"“{text}” {' '.join(f'[{one.number}]' for one in group)}") for name, text, group in quotes]
        sections = [
            f"# What {plural(len(self.documents), 'source')} say",
            *((written.text, f"*{markdown_line(written.note())}*", "## What they say, quoted") if written is not None else ()),
            lay_out("table" if layout == "table" else "outline", rows),
            _section("What could not be read", (f"- {markdown_line(one)}" for one in self.failures)),
            _sources(self.citations),
        ]
        return "\n\n".join(section for section in sections if section) + "\n"


# ---- what a model writes

MAX_PASSAGE_CHARACTERS = 28_000
"""For all passages that a model sees; best first."""
_MIN_QUOTE = 8
_MAX_CITATIONS = 6
_WRITE_SECONDS, _WRITE_SHARE = 150.0, 0.6
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
        matching = [n for n, text in passages.items() if len(quote) >= _MIN_QUOTE and quote in " ".join(text.split())]
        if matching:  # copied correctly but with a wrong number: corrected
            found[number if number in matching else matching[0]] = None
        else:
            unmatched[quote[:120] if number in passages else f"[{number}]"] = None
    return tuple(found), tuple(unmatched)
