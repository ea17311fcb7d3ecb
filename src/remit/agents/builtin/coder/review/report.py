"""The review as a page to read: verdict first, findings by severity with the line itself, then what was and was not checked. Pure."""

import re
from collections.abc import Iterator
from itertools import groupby

from remit.agents.builtin.coder.review.applying import State
from remit.agents.builtin.coder.review.findings import Finding
from remit.agents.builtin.coder.review.reviewing import Reviewed, clean

_VERDICTS = {
    "looks fine": "Nothing was found that speaks against it.",
    "worth a look": "Nothing grave; some points deserve a look before it goes in.",
    "needs changes": "There are findings that should be settled before it goes in.",
    "does not apply": "It cannot be applied to the files as they stand.",
}
MORE = "<!-- more -->"
"""Up to here it is what is shown of the report at a glance."""
UNFIT = ("needs changes", "does not apply")
"""Verdicts with which a change should not go in."""
_STATES = {
    State.APPLIES: "It applies to the workspace as it stands.",
    State.APPLIED: "It is in the files already: they were reviewed as they are.",
    State.FAILS: "It does not apply: see the findings of the kind *patch*.",
    State.UNCHECKED: "Whether it applies was not checked.",
}


def written(reviewed: Reviewed) -> str:
    return "\n".join(_lines(reviewed)) + "\n"


def summary(reviewed: Reviewed) -> str:
    """Two to five sentences, without markup."""
    added, removed = reviewed.lines
    count = len(reviewed.matter.files)
    told = [f"Review of {count} file{'s' * (count != 1)} (+{added} -{removed}): {reviewed.verdict}."]
    numbers = [f"{number} {severity}" for severity, number in reviewed.counts.items() if number]
    told.append(f"Findings: {', '.join(numbers)}." if numbers else "No findings.")
    if reviewed.findings and reviewed.findings[0].severity in ("critical", "high"):
        first = reviewed.findings[0]
        place = f"{first.file}{f', line {first.line}' if first.line else ''}: " if first.file else ""
        told.append(f"First: {_plain(place + first.message)[:150].rstrip('. ')}.")
    if reviewed.not_checked:
        count = len(reviewed.not_checked)
        told.append(f"{count} thing{'s were' if count != 1 else ' was'} not checked; the report says what.")
    return " ".join(told)[:399]


def _plain(text: str) -> str:
    """Without marks; an underscore within a name is none."""
    return re.sub(r"[`*#<>\[\]]|(?<!\w)_|_(?!\w)", "", text)


def _lines(reviewed: Reviewed) -> Iterator[str]:
    added, removed = reviewed.lines
    files = len(reviewed.matter.files)
    yield f"# Review: {reviewed.verdict}"
    yield ""
    yield f"{_VERDICTS[reviewed.verdict]} {_state(reviewed)}"
    yield ""
    numbers = [f"{number} {severity}" for severity, number in reviewed.counts.items() if number]
    yield f"{files} file{'s' * (files != 1)}, +{added} −{removed} lines. " + (
        f"Findings: {', '.join(numbers)}." if numbers else "No findings."
    )
    for severity, group in groupby(reviewed.findings, key=lambda finding: finding.severity):
        yield from ("", f"## {severity.capitalize()}", "")
        for finding in group:
            yield from _finding(finding)
    if reviewed.left_out:
        yield from ("", f"{reviewed.left_out} more findings of the same kinds are not listed.")
    yield from ("", MORE)
    yield from _checked(reviewed)


def _state(reviewed: Reviewed) -> str:
    if not reviewed.matter.in_workspace or reviewed.what.startswith("what is"):
        return f"Reviewed: {reviewed.what}."
    return _STATES[reviewed.state]


def _finding(finding: Finding) -> Iterator[str]:
    place = finding.file + (f":{finding.line}" if finding.line else "")
    kind = "judgement of a model" if finding.by else f"{finding.category}/{finding.rule}"
    yield (f"- **{_code(place)}** {_text(finding.message)} *({kind})*" if place else f"- {_text(finding.message)} *({kind})*")
    if finding.snippet:
        yield f"  {_code(finding.snippet)}"
        yield ""
    if finding.suggestion:
        yield f"  → {_text(finding.suggestion)}"


def _checked(reviewed: Reviewed) -> Iterator[str]:
    yield from ("", "## What was checked", "")
    tools = ", ".join(f"{name} {version}" for name, version in reviewed.matter.tools.items())
    yield f"{_what(reviewed)}. On the added lines: {', '.join(reviewed.ran)}." + (f" Tools: {tools}." if tools else "")
    if reviewed.matter.guidelines.checked:
        yield from ("", "Guidelines that were checked:", "")
        yield from (f"- {_text(words)}" for words in reviewed.matter.guidelines.checked[:50])
    unchecked = [*reviewed.not_checked[:60], *(f"guideline: {words}" for words in reviewed.matter.guidelines.unchecked[:60])]
    if reviewed.matter.guidelines.cut:
        unchecked.append(f"{reviewed.matter.guidelines.cut} more lines of the guidelines")
    yield from ("", "## What was not checked", "")
    judged = reviewed.judgement
    if judged is not None and not judged.fault:
        dropped = f" {judged.dropped} more spoke of lines that are not in it, and were dropped." if judged.dropped else ""
        by = _text(judged.model) or "a model"
        yield f"Whether it does what it should was judged by {by}, which may be wrong; its findings are marked.{dropped}"
    else:
        yield "Whether it does what it should: that takes a reader."
    if unchecked:
        yield ""
        yield from (f"- {_text(clean(words))}" for words in unchecked)
    yield from _files(reviewed)


def _what(reviewed: Reviewed) -> str:
    words = _text(clean(reviewed.what)[:200])
    return words[:1].upper() + words[1:]


def _files(reviewed: Reviewed) -> Iterator[str]:
    yield from ("", "## Files", "", "| file | added | removed | applies |", "|---|---|---|---|")
    for file in reviewed.matter.files[:100]:
        counts = [sum(change.count(kind) for change in file.applied.changes) for kind in "+-"]
        state = file.applied.state if reviewed.matter.in_workspace else "as committed"
        yield f"| {_code(clean(file.path))} | {counts[0]} | {counts[1]} | {state} |"
    if len(reviewed.matter.files) > 100:
        yield f"| … {len(reviewed.matter.files) - 100} more | | | |"


def _code(text: str) -> str:
    """As code, whatever backticks it holds; one line."""
    text = " ".join(text.replace("|", "\\|").split()) if "\n" in text else text.replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _text(text: str) -> str:
    """Words of a diff must not become markup of ours: links and HTML are taken apart."""
    return " ".join(text.split()).replace("<", "&lt;").replace("](", "] (")
