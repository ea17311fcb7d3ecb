"""Citations: each quotation numbered, with the place it stands at. What is not found again at its place is not cited.

The one maker of citations, for reports and data alike, so that both hold the same.
"""

from dataclasses import dataclass
from typing import Any

from remit.agents.builtin.researcher.passages import Document
from remit.agents.builtin.researcher.quoting import contains, shown
from remit.agents.builtin.researcher.sentences import Unit


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
        """As markdown, with its number."""
        return f"“{shown(self.unit.text)}” [{self.number}]"

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
        }


class Citations:
    def __init__(self) -> None:
        self._made: dict[tuple[str, int, str], Citation] = {}

    def cite(self, document: Document, unit: Unit) -> Citation | None:
        """None where the place does not hold the words: that would be a fault of ours, and must never become a false citation."""
        key = (document.name, unit.line, unit.text)
        if key not in self._made:
            if not contains(document.lines(unit.line, unit.end_line), unit.text):
                return None
            self._made[key] = Citation(number=len(self._made) + 1, document=document, unit=unit)
        return self._made[key]

    def all(self) -> list[Citation]:
        return list(self._made.values())
