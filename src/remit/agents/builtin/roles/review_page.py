"""The page of a review: verdict, findings by severity with place and suggestion, what was looked at and what was not. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

SEVERITIES = ("critical", "high", "medium", "low", "info")
_VERDICTS = (
    (("critical", "high"), "needs changes", "There are findings that should be settled."),
    (("medium",), "worth a look", "Nothing grave; some points deserve a look."),
    ((), "looks fine", "The checks found nothing that speaks against it."),
)
LISTED = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    title: str
    what: str
    findings: Sequence[Mapping[str, Any]]
    """The worst first, as `coder.review_code` gives them."""
    files: Sequence[str] = ()
    commits: Sequence[str] = ()
    looked_at: Sequence[str] = ()
    not_seen: Sequence[str] = ()
    has_change: bool = True
    number: int | None = None
    focus: str = ""


def verdict_of(findings: Sequence[Mapping[str, Any]], *, has_change: bool) -> tuple[str, str]:
    if not findings and not has_change:
        return "nothing to review", "There was no change to look at; the code around it was analysed."
    found = {one["severity"] for one in findings}
    return next((name, words) for severities, name, words in _VERDICTS if not severities or found.intersection(severities))


def counted(findings: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    counts = Counter(str(one["severity"]) for one in findings)
    return {severity: counts[severity] for severity in SEVERITIES if counts[severity]}


def place_of(finding: Mapping[str, Any]) -> str:
    line = finding.get("line")
    return f"{finding.get('file', '')}{f':{line}' if line else ''}"


def written(page: Page) -> str:
    return "\n".join(_lines(page)) + "\n"


def _lines(page: Page) -> Iterator[str]:
    verdict, words = verdict_of(page.findings, has_change=page.has_change)
    yield from (f"# Review: {_text(page.title)}", "")
    yield from (f"- **Task number**: {page.number}",) if page.number is not None else ()
    yield from (f"- **Asked for in particular**: {_text(page.focus)}",) if page.focus else ()
    yield f"- **Verdict**: {verdict}"
    yield "- **Made by**: the reviewer that comes with remit. It checks by rule; whether the code does what it should takes a reader."
    yield from ("", "## Summary", "")
    numbers = ", ".join(f"{number} {severity}" for severity, number in counted(page.findings).items())
    yield f"{words} {f'Findings: {numbers}.' if numbers else 'No findings.'} Reviewed: {_text(page.what)}."
    yield from _findings(page.findings)
    yield from ("", "## What was looked at", "")
    yield from (f"- {_text(one)}" for one in page.looked_at)
    yield from (f"- Commit {_text(one)}" for one in page.commits[:LISTED])
    yield from (f"- {code(path)}" for path in page.files[:LISTED])
    yield from (f"- and {len(page.files) - LISTED} more files",) if len(page.files) > LISTED else ()
    yield from ("", "## What was not looked at", "", "- Whether it does what it should: that takes a reader.")
    yield from (f"- {_text(one)}" for one in dict.fromkeys(page.not_seen))


def _findings(findings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from ("", "## Findings")
    if not findings:
        yield from ("", "None.")
    for severity, group in groupby(findings, key=lambda one: str(one["severity"])):
        yield from ("", f"### {severity.capitalize()}", "")
        for one in group:
            place = place_of(one)
            kind = "/".join(str(one[key]) for key in ("category", "rule") if one.get(key))
            yield f"- {f'**{code(place)}** ' if place else ''}{_text(str(one.get('message', '')))}{f' *({_text(kind)})*' if kind else ''}"
            yield from (f"  {code(str(one['snippet']))}", "") if one.get("snippet") else ()
            yield from (f"  → {_text(str(one['suggestion']))}",) if one.get("suggestion") else ()


def code(text: str) -> str:
    """As code, whatever backticks it holds; one line."""
    flat = " ".join(text.split())
    longest = max((len(run) for run in re.findall(r"`+", flat)), default=0)
    fence, pad = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def _text(text: str) -> str:
    """Words of a change must not become markup of ours."""
    return " ".join(text.split()).replace("<", "&lt;").replace("](", "] (")
