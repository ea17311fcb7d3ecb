"""Citations: each quotation numbered, with the place it stands at. What is not found again at its place is not cited.

The one maker of citations, for reports and data alike, so that both hold the same.
"""

from dataclasses import dataclass
from typing import Any

from remit.agents.builtin.researcher.passages import Document
from remit.agents.builtin.researcher.quoting import code_block, code_span, contains, shown
from remit.agents.builtin.researcher.sentences import Unit
from remit.agents.builtin.researcher.statements import as_it_stands


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    number: int
    document: Document
    unit: Unit

    @property
    def place(self) -> str:
        """`docs/guide.md:12-14`, or the address of a page with its date."""
        if self.document.kind != "page":
            lines = f"{self.unit.line}" if self.unit.line == self.unit.end_line else f"{self.unit.line}-{self.unit.end_line}"
            return f"{self.document.name}:{lines}"
        return self.document.name

    @property
    def when(self) -> str:
        told = [f"published {self.document.date[:10]}"] if self.document.date and self.document.kind == "page" else []
        if self.document.kind == "page" and self.document.fetched:
            told.append(f"fetched {self.document.fetched[:10]}")
        elif self.document.kind == "file" and self.document.date:
            told.append(f"changed {self.document.date[:10]}")
        return ", ".join(told)

    @property
    def quoted(self) -> str:
        """As markdown on one line, with its number: words in quotation marks, a line of code as a code span."""
        if self.unit.is_code:
            return f"{code_span(self.unit.text.replace(chr(10), ' '))} [{self.number}]"
        return f"“{shown(self.unit.text)}” [{self.number}]"

    def item(self, note: str = "") -> str:
        """As an item of a list; of code that has several lines, a block below it."""
        after = f" {note}" if note else ""
        if not self.unit.is_code or "\n" not in self.unit.text:
            return f"- {self.quoted}{after}"
        return f"- [{self.number}]{after}\n\n{code_block(self.unit.text, self.document.name)}\n"

    def to_dict(self) -> dict[str, Any]:
        where = {"file": "path", "page": "url"}.get(self.document.kind, "title")
        return {
            "number": self.number,
            "kind": self.document.kind,
            where: self.document.name,
            "line": self.unit.line,
            "endLine": self.unit.end_line,
            "date": self.document.date or self.document.fetched,
            **({"fetchedAt": self.document.fetched} if self.document.fetched else {}),
            "quote": self.unit.text,
            **({"code": True} if self.unit.is_code else {}),
        }


def _stands(source: str, unit: Unit) -> bool:
    """Code is held to its very characters; prose to its words."""
    if unit.is_code:
        return bool(unit.text) and as_it_stands(source) == unit.text
    return contains(source, unit.text)


class Citations:
    def __init__(self) -> None:
        self._made: dict[tuple[str, int, str], Citation] = {}

    def cite(self, document: Document, unit: Unit) -> Citation | None:
        """None where the place does not hold the words: that would be a fault of ours, and must never become a false citation."""
        key = (document.name, unit.line, unit.text)
        if key not in self._made:
            if not _stands(document.lines(unit.line, unit.end_line), unit):
                return None
            self._made[key] = Citation(number=len(self._made) + 1, document=document, unit=unit)
        return self._made[key]

    def all(self) -> list[Citation]:
        return list(self._made.values())
