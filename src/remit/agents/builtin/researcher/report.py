"""The report of a research as markdown: answer first, then findings, what was not found, what was searched, and the sources.

Pure. Every sentence that is not ours stands in quotation marks and carries the number of its source.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remit.agents.builtin.researcher.citing import Citation
from remit.agents.builtin.researcher.findings import Quoted, Result
from remit.agents.builtin.researcher.quoting import is_clean, shown, squeezed
from remit.agents.builtin.researcher.written import Written

MORE = "<!-- more -->"
"""Up to here it is the answer: what is shown of the report at a glance."""
_LISTED = 30
_LINE = 400


@dataclass(slots=True, kw_only=True)
class Searched:
    """What was done to find out."""

    places: list[str] = field(default_factory=list)
    depth: int = 0
    max_depth: int = 0
    queries: list[str] = field(default_factory=list)
    web_queries: list[str] = field(default_factory=list)
    leads: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)
    files_listed: int = 0
    sentences: int = 0
    children: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    cut_short: list[str] = field(default_factory=list)
    ran_out_of_time: bool = False

    @property
    def read(self) -> str:
        """How much was read, in words."""
        pages = count(len(self.pages), "page")
        return pages if self.pages and not self.files else count(len(self.files), "file") + (f" and {pages}" if self.pages else "")

    @property
    def looked_through(self) -> str:
        """How much was searched, in words: of many files only those are read in which a search found something."""
        if self.files_listed <= len(self.files):
            return self.read
        searched = f"{count(self.files_listed, 'file')} searched ({len(self.files) or 'none'} of them read)"
        return searched + (f" and {count(len(self.pages), 'page')}" if self.pages else "")

    def to_dict(self) -> dict[str, Any]:
        return {
            "places": self.places, "depth": self.depth, "maxDepth": self.max_depth, "queries": self.queries, "webQueries": self.web_queries,
            "leads": self.leads, "files": self.files, "pages": self.pages, "filesListed": self.files_listed, "sentences": self.sentences,
            "children": self.children, "seconds": round(self.seconds, 2), "failures": self.failures, "cutShort": self.cut_short,
        }  # fmt: skip


def report(
    result: Result, searched: Searched, *, is_final: bool = True, written: Written | None = None, warnings: Sequence[str] = ()
) -> str:
    """`written`: what a model made of it; the quotations are its evidence then."""
    quoted = _answer(result, searched, is_final=is_final)
    if written is not None:
        quoted = f"## Answer\n\n{written.text}\n\n{note(written)}\n\n{MORE}\n\n" + quoted.replace("## Answer", "## Evidence", 1)
    sections = [
        f"# {line(result.question.text)}",
        "" if is_final else "*In progress: this is what was found so far.*",
        "\n".join(f"*{line(warning)}*" for warning in warnings) if is_final else "",
        quoted,
        MORE if result.answer and written is None else "",
        _findings(result),
        _not_found(result, searched) if is_final or result.answer else "",
        _searched(searched),
        sources(result.citations),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def note(written: Written) -> str:
    """Below what was written: what a reader must know of it."""
    marked, claims = len(written.marked), len(written.claims)
    told = f"*Written by {line(written.by) or 'a model'} from the quotations below. A program compared each sentence with what it cites: "
    told += f"{len(written.supported)} of {claims} {'stands' if claims == 1 else 'stand'}" if claims else "it says that they hold no answer"
    told += f", {marked} {'is' if marked == 1 else 'are'} marked.*" if marked else ".*"
    if written.cut:
        told += "\n\n*It was cut off: the model wrote more than is taken.*"
    if written.addressing:
        told += f"\n\n*Not shown to it, since it speaks to a model that reads it: {', '.join(map(code, written.addressing[:5]))}.*"
    return told


def _why_nothing(searched: Searched) -> str:
    if searched.ran_out_of_time:
        return "time ran out before anything was searched"
    if searched.failures and not searched.queries:
        return "nothing could be searched; why is told below"
    within = f" ({count(searched.files_listed, 'file')})" if searched.files_listed else ""
    return f"no word of the question stands in what could be searched{within}"


def _answer(result: Result, searched: Searched, *, is_final: bool) -> str:
    what = searched.read
    if not result.answer:
        nearest = " The nearest passages are listed below; they may be about something else." if result.citations else ""
        if not is_final:
            return "## Answer\n\nNone yet: what was read has not been weighed."
        if not searched.files and not searched.pages:
            return f"## Answer\n\nNothing was read: {_why_nothing(searched)}."
        return f"## Answer\n\nNo passage in {searched.looked_through} holds enough of the question's words to answer it.{nearest}"
    quotes = "\n".join(quote.citation.item(_where(quote)) for quote in result.answer)
    return f"## Answer\n\nWhat fits the question best, quoted word for word from {what}.\n\n{quotes}".rstrip()


def _where(quote: Quoted) -> str:
    """The place itself beside the answer, so that nobody must look up the number; of code also what it is a part of."""
    citation = quote.citation
    inside = ".".join(quote.headings[-2:]) if citation.unit.is_code else ""
    return _place(citation) + (f", in {code(inside)}" if inside else "")


def _place(citation: Citation) -> str:
    return f"<{line(citation.place).replace('>', '%3E')}>" if citation.document.kind == "page" else code(citation.place)


def _findings(result: Result) -> str:
    """What stands above already is only named by its number: nothing is to be read twice."""
    parts = []
    told = {quote.citation.number for quote in result.answer}
    for finding in result.findings:
        if not finding.quotes:
            continue
        new = [quote for quote in finding.quotes if quote.citation.number not in told]
        above = " ".join(f"[{quote.citation.number}]" for quote in finding.quotes if quote.citation.number in told)
        note = "" if finding.is_supported or not new else "The nearest that was found, which may not answer it:"
        parts.append("\n\n".join(filter(None, (f"### {line(finding.question)}", above and f"Quoted above: {above}", note, grouped(new)))))
        told |= {quote.citation.number for quote in new}
    return "## Findings\n\n" + "\n\n".join(parts) if parts else ""


def grouped(quotes: Iterable[Quoted]) -> str:
    """By the place they come from, in the order of the best."""
    groups: dict[tuple[str, tuple[str, ...]], list[Quoted]] = {}
    for quote in quotes:
        groups.setdefault((quote.citation.document.name, quote.headings), []).append(quote)
    blocks = []
    for (_, headings), members in groups.items():
        where = " › ".join([_name(members[0].citation), *(line(heading) for heading in headings[-2:])])
        ordered = sorted(members, key=lambda quote: quote.citation.unit.line)
        blocks.append("\n".join([f"{where}", "", *(quote.citation.item() for quote in ordered)]).rstrip())
    return "\n\n".join(blocks)


def _name(citation: Citation) -> str:
    document = citation.document
    return f"**{line(document.title or document.name)}**" if document.kind != "file" else f"**{code(document.name)}**"


def _not_found(result: Result, searched: Searched) -> str:
    told = []
    if not searched.files and not searched.pages:
        return "## What was not found\n\n- Anything: nothing was read."
    for finding in result.findings:
        if not finding.is_supported:
            told.append(
                f"- {line(finding.question)} No passage holds enough of its words to count as an answer.{_missing(finding.missing)}"
            )
        elif finding.missing:
            told.append(f"- {line(finding.question)} Answered in part:{_missing(finding.missing)}")
    if not told:
        told = ["- Each part of the question has passages that hold its words. Whether they answer it is for the reader to judge."]
    return "## What was not found\n\n" + "\n".join(told)


def _missing(words: tuple[str, ...]) -> str:
    if not words:
        return ""
    named = ", ".join(f"“{line(word)}”" for word in words)
    return (
        f" The words {named} stand nowhere in what was read." if len(words) > 1 else f" The word {named} stands nowhere in what was read."
    )


def _searched(searched: Searched) -> str:
    within = f" ({count(searched.files_listed, 'file')})" if searched.files_listed else ""
    rows = [
        f"- Places: {', '.join(map(line, searched.places)) or 'none'}{within}",
        f"- Depth {searched.depth} of {searched.max_depth}; {count(searched.children, 'worker')} sent; {searched.seconds:.1f} s",
    ]
    for name, items in (
        ("Looked for in files", searched.queries),
        ("Asked the web", searched.web_queries),
        ("Leads followed", searched.leads),
        ("Files read", searched.files),
        ("Pages read", searched.pages),
    ):
        if items:
            rest = f" and {len(items) - _LISTED} more" if len(items) > _LISTED else ""
            rows.append(f"- {name} ({len(items)}): {', '.join(map(line, items[:_LISTED]))}{rest}")
    told = "## What was searched\n\n" + "\n".join(rows)
    for name, items in (("What could not be searched", searched.failures), ("Cut short", searched.cut_short)):
        if items:
            rows = [line(item) for item in items[:_LISTED]] + [f"and {len(items) - _LISTED} more"] * (len(items) > _LISTED)
            told += f"\n\n### {name}\n\n" + "\n".join(f"- {row}" for row in rows)
    return told


def sources(citations: Iterable[Citation]) -> str:
    rows = []
    for citation in citations:
        when = f" ({citation.when})" if citation.when else ""
        rows.append(f"{citation.number}. {_place(citation)}{when}")
    return "## Sources\n\n" + "\n".join(rows) if rows else ""


def line(text: str) -> str:
    """Somebody else's words on one line of ours, shown and not obeyed."""
    flat = squeezed(text)
    flat = flat if len(flat) <= _LINE else flat[: _LINE - 1] + "…"
    return shown(flat if is_clean(flat) else "".join(character if is_clean(character) else "�" for character in flat))


def code(name: str) -> str:
    """A name as a code span, whatever characters are in it."""
    flat = "".join(character if is_clean(character) else "�" for character in " ".join(name.split()))
    return f"`{flat.replace('`', '')}`"


def count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def as_data(result: Result, searched: Searched) -> Mapping[str, Any]:
    def quoted(quote: Quoted) -> dict[str, Any]:
        return {"text": quote.citation.unit.text, "citation": quote.citation.number}

    return {
        "question": result.question.text,
        "answer": [quoted(quote) for quote in result.answer],
        "findings": [
            {
                "question": finding.question,
                "supported": finding.is_supported,
                "sentences": [{**quoted(q), "headings": q.headings, "score": q.score, "coverage": q.coverage} for q in finding.quotes],
            }
            for finding in result.findings
        ],
        "citations": [citation.to_dict() for citation in result.citations],
        "notFound": [{"question": f.question, "missingWords": f.missing} for f in result.findings if f.missing or not f.is_supported],
        "searched": searched.to_dict(),
    }
