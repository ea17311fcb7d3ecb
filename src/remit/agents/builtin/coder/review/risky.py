"""Calls that are often a mistake, by pattern, on added lines: in languages other than Python, and in Python that does not parse.

Python that does is `risky_python`'s.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from remit.agents.builtin.coder.review import risky_python
from remit.agents.builtin.coder.review.code_view import View, rough, views
from remit.agents.builtin.coder.review.findings import Finding, lower
from remit.agents.builtin.coder.review.languages import is_test
from remit.agents.builtin.coder.review.matter import ChangedFile, Matter
from remit.agents.builtin.coder.review.risky_rules import RULES

LINE_LIMIT = 4_000


def check(matter: Matter) -> Iterator[Finding]:
    for file in matter.files:
        if matter.is_late():
            matter.unchecked.append(f"risky calls from {file.path} on: time was up")
            return
        if not file.added or (not file.is_code and file.language not in ("yaml", "sql", "docker", "html")):
            continue
        if file.language == "python" and file.after is not None:
            found = risky_python.findings(file)
            if found is not None:
                yield from _weighed(file, found)
                continue
            matter.unchecked.append(f"risky calls in {file.path}: it cannot be read as Python, so that only patterns were looked for")
        yield from _weighed(file, _by_pattern(file))


def _weighed(file: ChangedFile, found: Iterable[Finding]) -> Iterator[Finding]:
    """In tests much is meant that elsewhere is a mistake."""
    if not is_test(file.path):
        yield from found
        return
    for finding in found:
        if finding.rule != "assert":
            yield replace(finding, severity=lower(lower(finding.severity)))


def views_of(file: ChangedFile) -> dict[int, View]:
    """Of the added lines; of a file that the diff does not apply to, roughly."""
    if file.after is None or len(file.after) > 2_000_000:
        return {number: rough(line) for number, line in file.added.items()}
    seen = views(file.language, file.after)
    return {number: seen.get(number) or rough(line) for number, line in file.added.items()}


def _by_pattern(file: ChangedFile) -> Iterator[Finding]:
    rules = RULES.get(file.language, ())
    if file.language == "yaml" and ".github/workflows/" not in f"/{file.path}" and "action.y" not in file.path:
        return
    if not rules:
        return
    for number, view in views_of(file).items():
        for rule in rules:
            found = rule.pattern.search((view.told if rule.in_strings else view.code)[:LINE_LIMIT])
            if found is None or (rule.name == "unsafe" and _explained(file, number)):
                continue
            yield Finding(
                severity=rule.severity,
                category="security" if rule.name != "unfinished" else "leftovers",
                rule=rule.name,
                file=file.path,
                line=number,
                column=found.start() + 1,
                message=rule.message,
                suggestion=rule.suggestion,
                snippet=file.added[number],
            )


def _explained(file: ChangedFile, number: int) -> bool:
    lines = (file.after or "").split("\n")
    return any("SAFETY" in line for line in lines[max(0, number - 6) : number])
