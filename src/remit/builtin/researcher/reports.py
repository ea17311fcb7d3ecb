"""Reports as markdown, and the same as data. Every quotation carries the number of its citation and takes no effect as markup."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from remit.builtin.researcher.passages import Document, Passage, printable
from remit.builtin.researcher.ranking import RankedPassage
from remit.core.text import fence_untrusted, plural

if TYPE_CHECKING:
    from remit.builtin.researcher.answers import WrittenAnswer

MORE = "<!-- more -->"
"""The command line shows the report up to here."""
_MAX_LISTED = 30


def escape_markdown(text: str) -> str:
    """Text as markdown that shows it: no tag, link or picture takes effect, and no code span stays open."""
    if text.count("`") % 2 or "``" in text:
        text = text.replace("`", "\\`")
    text = re.sub(r"<(?=[A-Za-z/!?])", r"\\<", text).replace("![", "!\\[")
    return text.replace("](", "]\\(").replace("][", "]\\[").replace("]:", "]\\:")


def one_line(text: str, most: int = 400) -> str:
    flat = " ".join(printable(text).split())
    return escape_markdown(flat if len(flat) <= most else flat[: most - 1] + "…")


def code_span(text: str) -> str:
    return f"`{' '.join(printable(text).split()).replace('`', '')}`"


@dataclass(frozen=True, slots=True)
class Citation:
    number: int
    passage: Passage

    @property
    def place(self) -> str:
        where = self.passage.place
        return f"<{one_line(where).replace('>', '%3E')}>" if self.passage.document.kind == "page" else code_span(where)

    def quoted(self) -> dict[str, Any]:
        return {"text": self.passage.text, "citation": self.number}

    def item(self) -> str:
        """As an item of a list with its place: prose in quotation marks, code as a block."""
        text, within = self.passage.text, self.passage.headings[-2:]
        if not self.passage.is_code:
            where = " › ".join([self.place, *map(one_line, within)])
            return f"- “{escape_markdown(text)}” [{self.number}] {where}"
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        suffix = self.passage.document.name.rpartition(".")[2].lower()
        language = suffix if suffix.isascii() and suffix.isalnum() and len(suffix) <= 8 else ""
        block = "\n".join(f"  {line}".rstrip() for line in (f"{fence}{language}", *text.split("\n"), fence))
        return f"- [{self.number}] {self.place}{f', in {code_span(chr(46).join(within))}' if within else ''}\n\n{block}\n"

    def fenced(self) -> str:
        """For a prompt: material, labelled with its number and place."""
        return fence_untrusted(
            self.passage.text, number=self.number, place=self.passage.place, headings=" > ".join(self.passage.headings[-2:])
        )

    def source_line(self) -> str:
        document = self.passage.document
        dates = {"page": (("published", document.date), ("fetched", document.fetched)), "file": (("changed", document.date),)}
        dated = [f"{what} {when[:10]}" for what, when in dates.get(document.kind, ()) if when]
        return f"{self.number}. {self.place}" + (f" ({', '.join(dated)})" if dated else "")

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

    def cite(self, passage: Passage) -> Citation | None:
        """None where the source does not have these words at these lines, which would be a bug."""
        if id(passage) not in self._made:
            if not passage.matches_source():
                return None
            self._made[id(passage)] = Citation(len(self._made) + 1, passage)
        return self._made[id(passage)]

    def all(self) -> list[Citation]:
        return list(self._made.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found for one question."""

    question: str
    quotes: Sequence[tuple[Citation, RankedPassage]]
    missing: Sequence[str] = ()
    """Words of the question that are nowhere in what was read."""

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
        titles = [f"\n## {one_line(new)}\n\n" if new and new != last else "" for last, new in pairwise(headings)]
        return "\n".join(f"{title}- {text}" for title, (_, text) in zip(titles, rows, strict=True)).strip()
    return " ".join(text for _, text in rows)


def amount_read(searched: dict[str, Any]) -> str:
    """How much was read, in words: only files in which a search found something are read."""
    files, pages = len(searched["files"]), len(searched["pages"])
    if searched["filesListed"] > files:
        words = f"{plural(searched['filesListed'], 'file')} searched ({files or 'none'} of them read)"
    else:
        words = plural(files, "file") if files or not pages else ""
    return " and ".join(filter(None, [words, plural(pages, "page") if pages else ""]))


def research_report(
    result: Result, searched: dict[str, Any], *, is_final: bool = True, written: "WrittenAnswer | None" = None, warnings: Sequence[str] = ()
) -> str:
    """`searched` is what `data` has under that name. `written`: what a model made of it; the quotations are its evidence then."""
    answer = _answer(result, searched, is_final=is_final)
    if written is not None:
        answer = f"## Answer\n\n{written.text}\n\n{written.note()}\n\n{MORE}\n\n" + answer.replace("## Answer", "## Evidence", 1)
    sections = [
        f"# {one_line(result.query)}",
        "" if is_final else "*In progress: this is what was found so far.*",
        "\n".join(f"*{one_line(warning)}*" for warning in warnings) if is_final else "",
        answer,
        MORE if result.answer and written is None else "",
        _findings(result),
        _not_found(result, searched) if is_final else "",
        _searched(searched),
        _sources(result.citations),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _answer(result: Result, searched: dict[str, Any], *, is_final: bool) -> str:
    if result.answer:
        quotes = "\n".join(citation.item() for citation in result.answer)
        return f"## Answer\n\nThe passages that fit the question best, quoted from {amount_read(searched)}.\n\n{quotes}".rstrip()
    if not is_final:
        return "## Answer\n\nNone yet: the sources have not been ranked."
    if not searched["files"] and not searched["pages"]:
        found = "no word of the question is in what could be searched" if searched["queries"] else "nothing could be searched"
        return f"## Answer\n\nNothing was read: {found}."
    nearest = " The nearest passages are listed below; they may be about something else." if result.citations else ""
    return f"## Answer\n\nNo passage in {amount_read(searched)} has enough of the question's words to answer it.{nearest}"


def _findings(result: Result) -> str:
    """By question; passages that are quoted above are named by their number."""
    parts: list[str] = []
    shown = {citation.number for citation in result.answer}
    for finding in result.findings:
        new = [citation for citation, _ in finding.quotes if citation.number not in shown]
        above = " ".join(f"[{citation.number}]" for citation, _ in finding.quotes if citation.number in shown)
        note = "The nearest that was found, which may not answer it:" if new and not finding.is_supported else ""
        items = "\n".join(citation.item() for citation in new).rstrip()
        if finding.quotes:
            head = (f"### {one_line(finding.question)}", above and f"Quoted above: {above}", note, items)
            parts.append("\n\n".join(filter(None, head)))
        shown |= {citation.number for citation in new}
    return "## Findings\n\n" + "\n\n".join(parts) if parts else ""


def _not_found(result: Result, searched: dict[str, Any]) -> str:
    rows = [] if searched["files"] or searched["pages"] else ["- Anything: nothing was read."]
    for finding in result.findings:
        words = ", ".join(f"“{one_line(word)}”" for word in finding.missing)
        lacks = "" if finding.is_supported else " No passage has enough of its words to count as an answer."
        if words or lacks:
            rows.append(f"- {one_line(finding.question)}{lacks}" + (f" Nowhere in what was read: {words}." if words else ""))
    rows = rows or ["- Each part of the question has passages with its words. Whether they answer it is for the reader to judge."]
    return "## What was not found\n\n" + "\n".join(rows)


def _searched(searched: dict[str, Any]) -> str:
    rows = [
        f"- Places: {', '.join(map(one_line, searched['places'])) or 'none'} ({plural(searched['filesListed'], 'file')})",
        *(f"- {note}" for note in searched.get("notes", ())),
        f"- Depth {searched['depth']} of {searched['maxDepth']}; {plural(searched['children'], 'worker')} sent; {searched['seconds']} s",
    ]
    lists = {"queries": "Searched for", "webQueries": "Asked the web", "leads": "Leads", "files": "Files", "pages": "Pages"}
    rows += [f"- {name} ({len(searched[key])}): {', '.join(_first(searched[key]))}" for key, name in lists.items() if searched[key]]
    text = "## What was searched\n\n" + "\n".join(rows)
    for name, items in (("What could not be searched", searched["failures"]), ("Cut short", searched["cutShort"])):
        text += f"\n\n### {name}\n\n" + "\n".join(f"- {row}" for row in _first(items)) if items else ""
    return text


def _first(items: Sequence[str]) -> list[str]:
    rest = len(items) - _MAX_LISTED
    return [*map(one_line, items[:_MAX_LISTED]), *([f"and {rest} more"] if rest > 0 else [])]


def _sources(citations: Iterable[Citation]) -> str:
    rows = [citation.source_line() for citation in citations]
    return "## Sources\n\n" + "\n".join(rows) if rows else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesis:
    """Sources side by side: passages that several have word for word, and the central ones of each."""

    documents: Sequence[Document]
    agreed: Sequence[Sequence[Citation]]
    single: dict[str, Sequence[Citation]]
    citations: Sequence[Citation]
    failures: Sequence[str] = ()
    without_text: Sequence[str] = ()
    """Sources that were read and contain no text."""

    @property
    def unquoted(self) -> list[str]:
        """Sources that were read and not quoted."""
        quoted = {citation.passage.document.name for citation in self.citations}
        return [*(document.name for document in self.documents if document.name not in quoted), *self.without_text]

    def data(self, layout: str) -> dict[str, Any]:
        """`differing` and `figures` were filled by comparing sentences, which only a model can do; they are kept, empty."""

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
        head = [
            f"# What {plural(len(self.documents), 'source')} say",
            *model,
            "The central passages of each source, chosen by their words.",
        ]
        several = [("In several sources", _short_quote(*group)) for group in self.agreed if group]
        rows = several + [(self._heading(one, layout), _short_quote(one)) for own in self.single.values() for one in own]
        body = lay_out("table" if layout == "table" else "outline", rows)
        unread = ["## What could not be read", "\n".join(f"- {one_line(one)}" for one in self.failures)] if self.failures else []
        unread += ["## Read, but not quoted", "\n".join(f"- {one_line(one)}" for one in self.unquoted)] if self.unquoted else []
        return "\n\n".join([*head, body, *unread, _sources(self.citations)]) + "\n"

    def _heading(self, citation: Citation, layout: str) -> str:
        """In an outline with the headings above the passage."""
        passage = citation.passage
        return " › ".join([passage.document.title or passage.document.name, *(passage.headings if layout == "outline" else ())])


def _short_quote(*same: Citation) -> str:
    """A passage on one line, with the numbers of all places that have it."""
    text = " ".join(same[0].passage.text.split())
    return f"“{escape_markdown(text)}” {' '.join(f'[{one.number}]' for one in same)}"
