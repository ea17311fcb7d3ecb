"""The report on several sources, in the forms that can be asked for: summary, table, outline, and the data that json holds. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from remit.agents.builtin.researcher.citing import Citation, Citations
from remit.agents.builtin.researcher.comparing import Compared, Statement
from remit.agents.builtin.researcher.passages import Document
from remit.agents.builtin.researcher.report import line, sources
from remit.agents.builtin.researcher.words import stems

FORMATS = ("summary", "table", "outline", "json")
_NOTE = "Every statement is quoted word for word; its number names the place. Sources are compared by their words, not by their meaning."


class Synthesis:
    def __init__(self, documents: Sequence[Document], compared: Compared, citations: Citations, failures: Sequence[str]) -> None:
        self._documents = documents
        self._citations = citations
        self._failures = failures
        self._agreed = [self._cited(group) for group in compared.agreed]
        self._differing = [self._cited(group) for group in compared.differing]
        self._single = {name: self._cited(own) for name, own in compared.single.items()}
        self._figures = [(figure, cited[0]) for figure, one in compared.figures if (cited := self._cited([one]))]
        self._topics = compared.topics

    def _cited(self, statements: Iterable[Statement]) -> list[tuple[Citation, Statement]]:
        made = ((self._citations.cite(one.document, one.unit), one) for one in statements)
        return [(citation, one) for citation, one in made if citation is not None]

    def data(self, format_: str) -> dict[str, Any]:
        return {
            "format": format_,
            "sources": [
                {"number": i, "kind": d.kind, "name": d.name, "title": d.title, "date": d.date or d.fetched}
                for i, d in enumerate(self._documents, 1)
            ],
            "agreed": [_quotes(group) for group in self._agreed],
            "differing": [_quotes(group) for group in self._differing],
            "single": {name: _quotes(own) for name, own in self._single.items()},
            "figures": [
                {"figure": figure.text, "value": figure.value, "unit": figure.unit, "text": citation.unit.text, "citation": citation.number}
                for figure, (citation, _) in self._figures
            ],
            "citations": [citation.to_dict() for citation in self._citations.all()],
            "failures": list(self._failures),
        }  # fmt: skip

    def markdown(self, format_: str) -> str:
        body = {"summary": self._summary, "table": self._table, "outline": self._outline}[format_]()
        unread = ["## What could not be read", "\n".join(f"- {line(failure)}" for failure in self._failures)] if self._failures else []
        head = [f"# What {len(self._documents)} source{'s' if len(self._documents) != 1 else ''} say", _NOTE]
        return "\n\n".join(part for part in [*head, *body, *unread, sources(self._citations.all())] if part) + "\n"

    def _summary(self) -> list[str]:
        parts = []
        if len(self._documents) > 1:
            parts += ["## What several sources say", _groups(self._agreed) or "No statement stands in two of them in much the same words."]
        if self._differing:
            parts += ["## Where their numbers differ", _groups(self._differing)]
        parts.append("## What one source alone says" if len(self._documents) > 1 else "## What it says")
        for document in self._documents:
            own = self._single.get(document.name) or []
            if own:
                parts.append(f"### {line(document.title or document.name)}\n\n" + _bullets(own))
        if self._figures:
            told: dict[int, tuple[Citation, list[str]]] = {}
            for figure, (citation, _) in self._figures:
                told.setdefault(citation.number, (citation, []))[1].append(line(figure.text))
            rows = [f"- **{', '.join(said)}**: {citation.quoted}" for citation, said in told.values()]
            parts += ["## Figures and dates", "\n".join(rows)]
        return parts

    def _table(self) -> list[str]:
        """One row for each statement, one column for each source, in it the numbers of the quotations."""
        names = [document.name for document in self._documents]
        head = ["what", "statement", *(f"source {i}" for i in range(1, len(names) + 1))]
        rows = [head, ["---"] * len(head)]
        for what, groups in (("several", self._agreed), ("differ", self._differing)):
            rows += [[what, _cell(group[0][0]), *_marks(group, names)] for group in groups if group]
        for own in self._single.values():
            rows += [["one", _cell(one[0]), *_marks([one], names)] for one in own]
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        key = "\n".join(f"- source {i}: {line(document.title or document.name)}" for i, document in enumerate(self._documents, 1))
        figures = [["figure", "unit", "statement"], ["---"] * 3]
        figures += [[_escaped(figure.text), _escaped(figure.unit), _cell(citation)] for figure, (citation, _) in self._figures]
        listed = "\n".join(f"| {' | '.join(row)} |" for row in figures) if self._figures else ""
        return [key, "## Statements", table, "## Figures and dates" if listed else "", listed]

    def _outline(self) -> list[str]:
        """By topic: the words that the sources are about, each statement below the first that it holds."""
        rest = [("", one) for group in (*self._agreed, *self._differing) for one in group]
        rest += [("only here: ", one) for own in self._single.values() for one in own]
        parts = []
        for topic in [*self._topics, ""]:
            held = [(note, one) for note, one in rest if not topic or topic in one[1].words]
            if len(held) < 2 and topic:
                continue
            rest = [pair for pair in rest if pair not in held]
            title = _word_of(topic, [one[1] for _, one in held]) if topic else "Else"
            rows = [f"- {note}{citation.quoted}" for note, (citation, _) in held]
            if rows:
                parts.append(f"## {title}\n\n" + "\n".join(rows))
        return parts


def _quotes(group: Iterable[tuple[Citation, Statement]]) -> list[dict[str, Any]]:
    return [{"text": citation.unit.text, "citation": citation.number, "source": citation.document.name} for citation, _ in group]


def _bullets(group: Iterable[tuple[Citation, Statement]]) -> str:
    return "\n".join(f"- {citation.quoted}" for citation, _ in group)


def _groups(groups: Iterable[Sequence[tuple[Citation, Statement]]]) -> str:
    """The statement as the first source puts it, the others' words below it where they are not the same."""
    blocks = []
    for group in groups:
        first, *others = [citation for citation, _ in group]
        same = [other for other in others if other.unit.text == first.unit.text]
        blocks.append(f"- {first.quoted}{''.join(f' [{other.number}]' for other in same)}")
        blocks += [f"  - {other.quoted}" for other in others if other not in same]
    return "\n".join(blocks)


def _cell(citation: Citation) -> str:
    return _escaped(citation.quoted)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _marks(group: Sequence[tuple[Citation, Statement]], names: Sequence[str]) -> list[str]:
    numbers = {citation.document.name: citation.number for citation, _ in group}
    return [f"[{numbers[name]}]" if name in numbers else "" for name in names]


def _word_of(topic: str, statements: Iterable[Statement]) -> str:
    """A stem as a word again, as it stands in the statements."""
    for one in statements:
        for word in one.unit.text.split():
            bare = word.strip(".,;:!?()[]`*\"'“”")
            if stems(bare) == [topic]:
                return line(bare.capitalize())
    return line(topic.capitalize())
