"""What a review has found, as values: read from whatever its agent handed back, weighed, and known again when it is found a second time.

Findings stand in `data.findings` of the return, or in a fenced JSON list of the report. Pure. Used by `review` and `review_tasks`.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SEVERITIES = ("critical", "high", "medium", "low", "info")
_SPELLED = {
    "blocker": "critical", "fatal": "critical", "severe": "high", "major": "high", "error": "high", "serious": "high",
    "moderate": "medium", "warning": "medium", "warn": "medium", "minor": "low", "trivial": "low", "nit": "low", "suggestion": "low",
    "note": "info", "information": "info", "informational": "info", "none": "info",
}  # fmt: skip
_FENCED = re.compile(r"^```[ \t]*json[^\n]*\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL | re.IGNORECASE)
_PLACE = re.compile(r"^(?P<file>.+?):(?P<line>\d+)(?:[:-]\d+)?$")
AT_MOST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    severity: str
    message: str
    file: str = ""
    line: int | None = None
    suggestion: str = ""
    rule: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file and self.line else self.file

    @property
    def rank(self) -> int:
        """0 is the worst."""
        return SEVERITIES.index(self.severity)

    @property
    def fingerprint(self) -> str:
        """The same for the same matter found again, also where lines have moved or numbers in the message changed."""
        words = re.sub(r"\d+", "#", " ".join(self.message.lower().split()))
        return hashlib.sha256("\0".join((self.file, self.rule, words)).encode(errors="replace")).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        fields = {
            "severity": self.severity, "file": self.file, "line": self.line, "message": self.message, "suggestion": self.suggestion,
            "rule": self.rule,
        }  # fmt: skip
        return {name: value for name, value in fields.items() if value not in (None, "")}


def findings_of(data: Any, report: str) -> list[Finding] | None:
    """The worst first. None: it gave none as data, which is not the same as having found none."""
    listed = _list_of(data.get("findings") if isinstance(data, Mapping) else None)
    if listed is None:
        listed = _listed_in(report)
    if listed is None:
        return None
    found = [finding for one in listed[:AT_MOST] if (finding := _finding(one)) is not None]
    return sorted(found, key=lambda finding: (finding.rank, finding.file, finding.line or 0))


def counted(findings: Iterable[Finding]) -> dict[str, int]:
    counts = Counter(finding.severity for finding in findings)
    return {severity: counts[severity] for severity in SEVERITIES if counts[severity]}


def told(findings: Sequence[Finding]) -> str:
    """How many, and the worst of them, in a sentence or two."""
    if not findings:
        return "No findings."
    numbers = ", ".join(f"{number} {severity}" for severity, number in counted(findings).items())
    worst = findings[0]
    words = " ".join(part for part in (worst.place, _short(worst.message, 160)) if part)
    return f"Findings: {numbers}. Worst: {words.rstrip('.')}."


def _listed_in(report: str) -> list[Any] | None:
    for block in _FENCED.finditer(report):
        try:
            held = json.loads(block["body"])
        except ValueError:
            continue
        listed = _list_of(held.get("findings") if isinstance(held, Mapping) else held)
        if listed is not None and all(isinstance(one, Mapping) and "severity" in one for one in listed):
            return listed
    return None


def _list_of(value: Any) -> list[Any] | None:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else None


def _finding(one: Any) -> Finding | None:
    """Liberal in names, as agents are: what has neither words nor a place is no finding."""
    if not isinstance(one, Mapping):
        return None
    said = str(one.get("severity") or one.get("level") or "").strip().lower()
    severity = said if said in SEVERITIES else _SPELLED.get(said, "medium")
    file, line = _place(one)
    title, why = (_short(str(one.get(name) or ""), 600) for name in ("title", "why"))
    message = _short(str(one.get("message") or one.get("description") or ""), 600) or ": ".join(part for part in (title, why) if part)
    if not message:
        return None
    suggestion = str(one.get("suggestion") or one.get("what_to_do") or one.get("recommendation") or one.get("fix") or "")
    rule = _short(str(one.get("rule") or one.get("code") or ""), 80)
    return Finding(severity=severity, message=message, file=file, line=line, suggestion=_short(suggestion, 400), rule=rule)


def _place(one: Mapping[str, Any]) -> tuple[str, int | None]:
    file = _short(str(one.get("file") or one.get("path") or one.get("location") or ""), 400).removeprefix("./")
    given = one.get("line") or one.get("line_number")
    line = int(given) if isinstance(given, int | float) or (isinstance(given, str) and given.strip().isdigit()) else None
    both = _PLACE.match(file)
    if both is not None:
        file, line = both["file"], line or int(both["line"])
    return file, line if line and 0 < line < 10_000_000 else None


def _short(text: str, most: int) -> str:
    flat = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return flat if len(flat) <= most else f"{flat[: most - 1].rpartition(' ')[0] or flat[: most - 1]}…"
