"""What a review finds: one finding, its severity, and a list of them put in order, without repetition and not without end. Plain values."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

LIMIT = 200
LIMIT_OF_ONE_KIND = 15
"""Of one rule, unless it is grave: whoever reads the sixteenth has understood it."""


class Severity(StrEnum):
    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"


ORDER = {severity: number for number, severity in enumerate(Severity)}


def lower(severity: Severity) -> Severity:
    return list(Severity)[min(ORDER[severity] + 1, len(Severity) - 1)]


def higher(severity: Severity) -> Severity:
    return list(Severity)[max(ORDER[severity] - 1, 0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    severity: Severity
    category: str
    """patch, secrets, security, correctness, lint, leftovers, tests, size, interface, dependencies, files, guidelines."""
    rule: str
    message: str
    suggestion: str = ""
    file: str = ""
    line: int | None = None
    column: int | None = None
    snippet: str = ""
    by: str = ""
    """`model` where it is a model's judgement; empty where a check found it."""

    def to_dict(self) -> dict[str, Any]:
        fields = {
            "severity": str(self.severity),
            "category": self.category,
            "rule": self.rule,
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "message": self.message,
            "suggestion": self.suggestion,
            "snippet": self.snippet,
            "by": self.by,
        }
        return {name: value for name, value in fields.items() if value not in (None, "")}


def in_order(findings: Iterable[Finding]) -> tuple[list[Finding], int]:
    """The worst first, each once; and how many were left out because there are so many."""
    first: dict[tuple[str, int | None, str, str], Finding] = {}
    for finding in sorted(findings, key=_place):
        first.setdefault((finding.file, finding.line, finding.rule, "" if finding.line else finding.message), finding)
    kept: list[Finding] = []
    of_kind: Counter[str] = Counter()
    for finding in _without_echo(list(first.values())):
        of_kind[finding.rule] += 1
        is_grave = finding.severity in (Severity.CRITICAL, Severity.HIGH)
        if (is_grave or of_kind[finding.rule] <= LIMIT_OF_ONE_KIND) and len(kept) < LIMIT:
            kept.append(finding)
    return kept, sum(of_kind.values()) - len(kept)


def _place(finding: Finding) -> tuple[int, str, int, bool, str]:
    return ORDER[finding.severity], finding.file, finding.line or 0, finding.category == "lint", finding.rule


_SAME_MATTER = {
    "S102": "eval",
    "S307": "eval",
    "S602": "shell",
    "S604": "shell",
    "S605": "shell",
    "S301": "pickle",
    "S506": "yaml-load",
    "S501": "no-verify",
    "S306": "mktemp",
    "S324": "weak-hash",
    "S608": "sql",
    "S110": "swallowed",
    "BLE001": "swallowed",
    "E722": "swallowed",
    "T201": "print",
    "T100": "breakpoint",
    "S113": "no-timeout",
    "S105": "secret",
    "S106": "secret",
    "S202": "extractall",
    "FIX002": "todo",
    "TD002": "todo",
    "B006": "mutable-default",
    "S101": "assert",
    "E501": "line-length",
}


def _without_echo(findings: list[Finding]) -> list[Finding]:
    """What two tools say of one line is said once, in the words of the graver."""
    told = {(finding.file, finding.line, _SAME_MATTER.get(finding.rule, finding.rule)): finding for finding in reversed(findings)}
    return [
        finding
        for finding in findings
        if finding is told[finding.file, finding.line, _SAME_MATTER.get(finding.rule, finding.rule)] or not finding.line
    ]


def struck(findings: Iterable[Finding], strike: Any) -> list[Finding]:
    """Each with its texts passed through `strike`, which takes secrets out."""
    return [
        replace(
            finding,
            message=strike(finding.message),
            suggestion=strike(finding.suggestion),
            snippet=strike(finding.snippet),
            file=strike(finding.file),
        )
        for finding in findings
    ]
