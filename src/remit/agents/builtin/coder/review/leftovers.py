"""What was left behind: conflict markers, debugger calls, tests that run alone, prints, notes to do. On added lines only."""

import re
from collections.abc import Iterator

from remit.agents.builtin.coder.review.findings import Finding, Severity
from remit.agents.builtin.coder.review.languages import is_document, is_generated, is_script, is_test
from remit.agents.builtin.coder.review.matter import ChangedFile, Matter
from remit.agents.builtin.coder.review.risky import LINE_LIMIT, views_of

_OPEN, _CLOSE = re.compile(r"^<{7}(?: |$)"), re.compile(r"^>{7}(?: |$)")
_TODO = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
_JS = frozenset({"javascript", "typescript", "tsx", "html"})
_DEBUGGERS = {
    "python": re.compile(r"(?<![.\w])breakpoint\s?\(|\b(?:pdb|ipdb|pudb)\.set_trace\s?\(|^\s{0,80}import (?:ipdb|pudb|pdb)\b"),
    "ruby": re.compile(r"\bbinding\.(?:pry|irb)\b|^\s{0,80}byebug\b"),
    "rust": re.compile(r"\bdbg!\s?\("),
    "php": re.compile(r"(?<![\w>:])(?:var_dump|dd)\s?\("),
    **dict.fromkeys(_JS, re.compile(r"(?:^|[;{\s])debugger\s?(?:;|$)")),
}
_ALONE = re.compile(r"\b(?:describe|it|test|context|suite)\.only\s?\(|(?<![.\w])(?:fdescribe|fit)\s?\(")
_PRINTS = {
    "python": re.compile(r"(?<![.\w])print\s?\("),
    "java": re.compile(r"\bSystem\.(?:out|err)\.print"),
    **dict.fromkeys(_JS, re.compile(r"\bconsole\.(?:log|debug|trace)\s?\(")),
}


def check(matter: Matter) -> Iterator[Finding]:
    for file in matter.files:
        yield from _markers(file)
        if is_generated(file.path):
            continue
        if not is_document(file.path):
            yield from _notes(file)
        if file.is_code or file.language in _JS:
            yield from _calls(file)


def _markers(file: ChangedFile) -> Iterator[Finding]:
    opened = [number for number, line in file.added.items() if _OPEN.match(line)]
    if opened and any(_CLOSE.match(line) for line in file.added.values()):
        for number in opened:
            yield _finding(
                file,
                number,
                Severity.CRITICAL,
                "conflict-marker",
                "A merge conflict was left in the file.",
                "Settle it, and take the markers out.",
            )


def _notes(file: ChangedFile) -> Iterator[Finding]:
    for number, line in file.added.items():
        found = _TODO.search(line[:LINE_LIMIT])
        if found and re.search(r"#|//|/\*|\*|--|<!--", line[: found.start()]):
            yield _finding(file, number, Severity.INFO, "todo", f"{found[1]} is added.", "Do it now, or name the issue that will.")


def _calls(file: ChangedFile) -> Iterator[Finding]:
    debugger, prints = _DEBUGGERS.get(file.language), _PRINTS.get(file.language)
    if debugger is None and prints is None:
        return
    may_print = (
        is_script(file.path) or is_test(file.path) or (file.after is not None and ("__main__" in file.after or file.after.startswith("#!")))
    )
    for number, view in views_of(file).items():
        code = view.code[:LINE_LIMIT]
        if debugger is not None and debugger.search(code):
            yield _finding(file, number, Severity.HIGH, "breakpoint", "A debugger call was left in.", "Take it out.")
        if file.language in _JS and is_test(file.path) and _ALONE.search(code):
            yield _finding(file, number, Severity.HIGH, "only", "With .only, all other tests are skipped.", "Take .only out.")
        if prints is not None and not may_print and prints.search(code):
            yield _finding(
                file, number, Severity.INFO, "print", "It prints from library code.", "Use the project's logger, or take it out."
            )


def _finding(file: ChangedFile, number: int, severity: Severity, rule: str, message: str, suggestion: str) -> Finding:
    category = "correctness" if rule == "conflict-marker" else "leftovers"
    return Finding(
        severity=severity,
        category=category,
        rule=rule,
        file=file.path,
        line=number,
        message=message,
        suggestion=suggestion,
        snippet=file.added[number],
    )
