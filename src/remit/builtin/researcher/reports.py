"""Reports as Markdown and as data. Every quotation has the number of its citation and is escaped."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from remit.builtin.researcher.passages import Document, Passage
from remit.builtin.researcher.relevance import RankedPassage
from remit.core.text import MORE, code_span, escape_markdown, fence_untrusted, markdown_line, plural

if TYPE_CHECKING:
    from remit.builtin.researcher.answers import WrittenAnswer

_MAX_LISTED = 30


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
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        block = "\n".join(f"  {line}".rstrip() for line in (fence, *text.split("\n"), fence))
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


class Citations:
    """Numbers passages in the order in which they are cited."""

    def __init__(self) -> None:
        self._made: dict[int, Citation] = {}

    def cite(self, passage: Passage) -> Citation:
        return self._made.setdefault(id(passage), Citation(len(self._made) + 1, passage))

    def all(self) -> list[Citation]:
        return list(self._made.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The findings for one question."""

    question: str
    quotes: Sequence[tuple[Citation, RankedPassage]]
    missing: Sequence[str] = ()
    """Words of the question that occur nowhere in what was read."""

    @property
    def is_supported(self) -> bool:
        return any(ranked.is_supported for _, ranked in self.quotes)

    def to_dict(self) -> dict[str, Any]:
        sentences = [{**one.quoted(), "headings": one.passage.headings, **ranked.to_dict()} for one, ranked in self.quotes]
        return {"question": self.question, "supported": self.is_supported, "sentences": sentences}


@dataclass(slots=True, kw_only=True)
class Result:
    query: str
    answer: list[Citation] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    citations: list[Citation] = field(default_factory=list)

    def data(self, searched: dict[str, Any]) -> dict[str, Any]:
        return {
            "question": self.query,
            "answer": [citation.quoted() for citation in self.answer],
            "findings": [finding.to_dict() for finding in self.findings],
            "citations": [citation.to_dict() for citation in self.citations],
            "notFound": [{"question": f.question, "missingWords": f.missing} for f in self.findings if f.missing or not f.is_supported],
            "searched": searched,
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
    files, pages = len(searched["files"]), len(searched["pages"])
    words = plural(files, "file") if files else ""
    if searched["filesListed"] > files:
        words = f"{plural(searched['filesListed'], 'file')} searched ({files or 'none'} of them read)"
    return " and ".join(filter(None, [words, plural(pages, "page") if pages or not words else ""]))


def research_report(
    result: Result, searched: dict[str, Any], *, is_final: bool = True, written: "WrittenAnswer | None" = None, warnings: Sequence[str] = ()
) -> str:
    """`searched`: as in `data`. `written`: a model's text; then the quotations are its evidence."""
    notes = [*warnings, *([] if is_final else ["In progress: this is what was found so far."])]
    further = [citation for citation in result.citations if citation not in result.answer]
    sections = [
        f"# {markdown_line(result.query, 400)}",
        "\n".join(f"*{markdown_line(note)}*" for note in notes),
        f"## Answer\n\n{written.text}\n\n{written.note()}\n\n{MORE}\n\n## Evidence" if written is not None else "## Answer",
        _answer(result, searched),
        MORE if result.answer and written is None else "",
        _section("Further passages", (citation.item() for citation in further)),
        _section("Not found", _not_found(result)) if is_final else "",
        _section("Searched", _search_rows(searched)),
        _section("What could not be searched", (f"- {row}" for row in _first([*searched["failures"], *searched["cutShort"]]))),
        _sources(result.citations),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _section(title: str, rows: Iterable[str]) -> str:
    text = "\n".join(rows).rstrip()
    return f"## {title}\n\n{text}" if text else ""


def _answer(result: Result, searched: dict[str, Any]) -> str:
    if result.answer:
        quotes = "\n".join(citation.item() for citation in result.answer)
        return f"The passages that fit the question best, quoted from {amount_read(searched)}.\n\n{quotes}".rstrip()
    if not searched["files"] and not searched["pages"]:
        return f"Nothing was read: {'no file has a word of the question' if searched['queries'] else 'nothing could be searched'}."
    nearest = " The nearest passages are listed below; they may be about something else." if result.citations else ""
    return f"No passage in {amount_read(searched)} has enough of the question's words to answer it.{nearest}"


def _not_found(result: Result) -> list[str]:
    rows = []
    for finding in result.findings:
        words = ", ".join(f"“{markdown_line(word)}”" for word in finding.missing)
        lacks = "" if finding.is_supported else " No passage has enough of its words to count as an answer."
        if words or lacks:
            rows.append(f"- {markdown_line(finding.question)}{lacks}" + (f" Nowhere in what was read: {words}." if words else ""))
    return rows or ["- Each part of the question has passages with its words. Whether they answer it is for the reader to judge."]


def _search_rows(searched: dict[str, Any]) -> list[str]:
    lists = {
        "places": "Places",
        "queries": "Searched for",
        "webQueries": "Asked the web",
        "leads": "Links",
        "files": "Files",
        "pages": "Pages",
    }
    rows = [f"- {name} ({len(searched[key])}): {', '.join(_first(searched[key]))}" for key, name in lists.items() if searched[key]]
    return [*rows, f"- Depth {searched['depth']} of {searched['maxDepth']}; {plural(searched['children'], 'worker')} sent"]


def _first(items: Sequence[str]) -> list[str]:
    rest = len(items) - _MAX_LISTED
    return [*map(markdown_line, items[:_MAX_LISTED]), *([f"and {rest} more"] if rest > 0 else [])]


def _sources(citations: Iterable[Citation]) -> str:
    return _section("Sources", (f"{one.number}. {one.place}" for one in citations))


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesis:
    """Sources side by side: passages that several share literally, and the first ones of each."""

    documents: Sequence[Document]
    agreed: Sequence[Sequence[Citation]]
    single: dict[str, Sequence[Citation]]
    citations: Sequence[Citation]
    failures: Sequence[str] = ()
    without_text: Sequence[str] = ()
    """Sources without text."""

    @property
    def unquoted(self) -> list[str]:
        """Sources that were read but not quoted."""
        quoted = {citation.passage.document.name for citation in self.citations}
        return [*(document.name for document in self.documents if document.name not in quoted), *self.without_text]

    def data(self, layout: str) -> dict[str, Any]:
        """`differing` and `figures` are kept for compatibility and empty: comparing sentences needs a model."""

        def quotes(group: Iterable[Citation]) -> list[dict[str, Any]]:
            return [{**one.quoted(), "source": one.passage.document.name} for one in group]

        documents = enumerate(self.documents, 1)
        return {
            "format": layout,
            "sources": [{"number": i, "kind": d.kind, "name": d.name, "title": d.title, "date": d.date or d.fetched} for i, d in documents],
            "agreed": [quotes(group) for group in self.agreed],
            "differing": [],
            "single": {name: quotes(own) for name, own in self.single.items()},
            "figures": [],
            "citations": [citation.to_dict() for citation in self.citations],
            "failures": list(self.failures),
            "notQuoted": self.unquoted,
        }

    def markdown(self, layout: str, written: "WrittenAnswer | None" = None) -> str:
        model = [written.text, written.note(), "## What they say, quoted"] if written is not None else []
        rows = [("In several sources", _short_quote(*group)) for group in self.agreed]
        rows += [(name, _short_quote(one)) for name, own in self.single.items() for one in own]
        return "\n\n".join(
            section
            for section in (
                f"# What {plural(len(self.documents), 'source')} say",
                *model,
                lay_out("table" if layout == "table" else "outline", rows),
                _section("What could not be read", (f"- {markdown_line(one)}" for one in self.failures)),
                _section("Read, but not quoted", (f"- {markdown_line(one)}" for one in self.unquoted)),
                _sources(self.citations),
            )
            if section
        ) + "\n"  # fmt: skip


def _short_quote(*same: Citation) -> str:
    """A passage on one line, with the numbers of all its places."""
    text = " ".join(same[0].passage.text.split())
    return f"“{escape_markdown(text)}” {' '.join(f'[{one.number}]' for one in same)}"
