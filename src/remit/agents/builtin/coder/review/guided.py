"""Guidelines carried out: limits, docstrings, types, and regular expressions of the caller's, on what the change touches.

Regular expressions that others wrote can be made to run for ever: they run in a process of their own, which is killed when its time is up.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from remit.agents.builtin.coder.review.findings import Finding, Severity, higher
from remit.agents.builtin.coder.review.languages import is_dependencies, is_document, is_generated, is_test
from remit.agents.builtin.coder.review.matter import ChangedFile, Matter
from remit.agents.builtin.coder.review.symbols import Symbol, python_symbols

REGEX_SECONDS = 5.0
_MATCHER = """
import json, re, sys
asked = json.load(sys.stdin)
found = []
for index, pattern in enumerate(asked["patterns"]):
    expression = re.compile(pattern)
    for which, text in asked["texts"][index]:
        hit = expression.search(text)
        if hit is not None:
            found.append([index, which, hit.start()])
json.dump(found, sys.stdout)
"""


def check(matter: Matter) -> Iterator[Finding]:
    for file in matter.files:
        if is_generated(file.path) or not file.added:
            continue
        yield from _lines(matter, file)
        if file.is_code and file.after is not None:
            yield from _sizes(matter, file)
        if matter.guidelines.no_dependencies and is_dependencies(file.path):
            yield _told(
                file,
                None,
                "no-dependencies",
                Severity.MEDIUM,
                "A list of dependencies changes, and the guidelines want no new ones.",
                "Do without, or say why not.",
            )
    yield from _patterns(matter)


def weighed(matter: Matter, findings: Iterable[Finding]) -> Iterator[Finding]:
    """What the guidelines ask for by name weighs more."""
    guidelines = matter.guidelines
    for finding in findings:
        asked = guidelines.raised_rules.get(finding.rule)
        if asked is not None:
            worst = finding.severity if finding.severity in (Severity.CRITICAL, Severity.HIGH) else Severity.MEDIUM
            yield replace(finding, severity=worst, message=f"{finding.message} The guidelines ask for it: {asked}.")
        elif finding.category in guidelines.raised and finding.severity in (Severity.MEDIUM, Severity.LOW):
            yield replace(finding, severity=higher(finding.severity))
        else:
            yield finding


def _told(file: ChangedFile, line: int | None, rule: str, severity: Severity, message: str, suggestion: str) -> Finding:
    return Finding(
        severity=severity,
        category="guidelines",
        rule=rule,
        file=file.path,
        line=line,
        message=message,
        suggestion=suggestion,
        snippet=file.added.get(line or 0, ""),
    )


def _lines(matter: Matter, file: ChangedFile) -> Iterator[Finding]:
    guidelines = matter.guidelines
    for number, line in file.added.items():
        if guidelines.line_length and len(line) > guidelines.line_length and not is_document(file.path):
            yield _told(
                file,
                number,
                "line-length",
                Severity.LOW,
                f"The line has {len(line)} characters; the limit is {guidelines.line_length}.",
                "Break it.",
            )
        if guidelines.no_tabs and line.startswith("\t") and file.language not in ("go", ""):
            yield _told(file, number, "tabs", Severity.LOW, "The line is indented with a tab.", "Use spaces.")
        if guidelines.no_trailing and line != line.rstrip() and not is_document(file.path):
            yield _told(file, number, "trailing-space", Severity.LOW, "The line ends in white space.", "Take it away.")
        if guidelines.no_star_imports and re.match(r"\s{0,40}from\s[\w.]{1,200}\simport\s\*", line[:400]):
            yield _told(file, number, "star-import", Severity.MEDIUM, "It imports everything.", "Name what is used.")


def _sizes(matter: Matter, file: ChangedFile) -> Iterator[Finding]:
    guidelines, text = matter.guidelines, file.after or ""
    count = text.count("\n") + 1
    if guidelines.file_lines and count > guidelines.file_lines:
        yield _told(
            file, None, "file-lines", Severity.LOW, f"The file has {count} lines; the limit is {guidelines.file_lines}.", "Split it."
        )
    if file.language != "python":
        return
    for symbol in python_symbols(text):
        line = file.first_changed(symbol.start, symbol.end)
        if line is not None and symbol.kind == "function":
            yield from _function(matter, file, symbol, line)
        if (
            line is not None
            and guidelines.docstrings
            and symbol.is_public
            and not symbol.has_docstring
            and not is_test(file.path)
            and symbol.start in file.added
        ):
            yield _told(
                file,
                symbol.start,
                "docstring",
                Severity.LOW,
                f"{symbol.name} is public and has no docstring.",
                "Say in a line what it does.",
            )


def _function(matter: Matter, file: ChangedFile, symbol: Symbol, line: int) -> Iterator[Finding]:
    guidelines, length = matter.guidelines, symbol.end - symbol.start + 1
    if guidelines.function_lines and length > guidelines.function_lines:
        yield _told(
            file,
            line,
            "function-lines",
            Severity.LOW,
            f"{symbol.name} has {length} lines; the limit is {guidelines.function_lines}.",
            "Split it by its steps.",
        )
    count = len([name for name in symbol.accepted if name not in ("self", "cls")])
    if guidelines.parameters and count > guidelines.parameters and symbol.start in file.added:
        yield _told(
            file,
            symbol.start,
            "parameters",
            Severity.LOW,
            f"{symbol.name} takes {count} parameters; the limit is {guidelines.parameters}.",
            "Make a value of those that go together.",
        )
    if guidelines.type_hints and symbol.is_public and not symbol.is_typed and not is_test(file.path) and symbol.start in file.added:
        yield _told(
            file,
            symbol.start,
            "type-hints",
            Severity.LOW,
            f"{symbol.name} is public and not fully annotated.",
            "Annotate its parameters and what it returns.",
        )


def _patterns(matter: Matter) -> Iterator[Finding]:
    patterns = matter.guidelines.patterns
    texts: list[list[tuple[str, str]]] = []
    for pattern in patterns:
        chosen = [
            file
            for file in matter.files
            if not pattern.glob or fnmatchcase(file.path, pattern.glob) or fnmatchcase(file.path.rpartition("/")[2], pattern.glob)
        ]
        if pattern.kind == "forbid":
            texts.append([(f"{number}:{file.path}", line[:4000]) for file in chosen for number, line in file.added.items()])
        else:
            texts.append([(f"0:{file.path}", file.after[:500_000]) for file in chosen if file.after is not None])
    if not patterns:
        return
    found = _matched([pattern.regex for pattern in patterns], texts, min(REGEX_SECONDS, matter.seconds_left()))
    if found is None:
        matter.unchecked += [f"the guideline {pattern.words!r}: matching took too long" for pattern in patterns]
        return
    by_path = {file.path: file for file in matter.files}
    for index, pattern in enumerate(patterns):
        hits = {which for number, which in found if number == index}
        for which, _ in texts[index]:
            number, _, path = which.partition(":")
            if pattern.kind == "forbid" and which in hits:
                yield _told(
                    by_path[path],
                    int(number),
                    "forbidden",
                    Severity.MEDIUM,
                    f"The guidelines forbid this ({pattern.words}).",
                    "Take it out.",
                )
            elif pattern.kind == "require" and which not in hits:
                yield _told(
                    by_path[path],
                    None,
                    "required",
                    Severity.MEDIUM,
                    f"The guidelines require what is not there ({pattern.words}).",
                    "Add it.",
                )


def _matched(patterns: list[str], texts: list[list[tuple[str, str]]], seconds: float) -> set[tuple[int, str]] | None:
    asked = json.dumps({"patterns": patterns, "texts": texts})
    try:
        ran = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _MATCHER],
            input=asked.encode(),
            capture_output=True,
            timeout=max(0.2, seconds),
            check=True,
            env={},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return {(index, which) for index, which, _ in json.loads(ran.stdout)}
