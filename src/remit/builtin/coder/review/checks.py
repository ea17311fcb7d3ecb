"""The checks of a review, on the lines that a change adds: ruff for Python, detect-secrets, parsers, and facts about the files.

ruff gets copies of the files under other names, without the project's configuration, with bounded time, memory and output. A secret is
never shown whole: `SecretMask` is applied to all output."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

from remit.builtin.coder.analysis.grammars import TEST_FILE
from remit.builtin.coder.review.change import TIME_WAS_UP, Change, ChangedFile
from remit.builtin.coder.review.report import Finding, Review, Severity, sort_findings
from remit.builtin.coder.source_files import FOREIGN, GENERATED_NAME
from remit.builtin.coder.syntax import EMPTY, OWN_PARSERS, parse_files
from remit.core.protected_paths import Protection, protection_of
from remit.core.redaction import REDACTED, redact_formats
from remit.system.files import temporary_folder
from remit.system.interpreter import listed_environment

LONGEST_LINE = 20_000
RUFF_SECONDS = 30.0
RUFF_MEMORY_KB = 4_000_000
RUFF_OUTPUT_BLOCKS = 32_000
"""In blocks of 512 bytes."""
LINE_LIMIT = 600
"""Characters of a line searched for secrets at once: some patterns of detect-secrets are quadratic."""
_RUFF = ("check", "--isolated", "--no-cache", "--no-fix", "--exit-zero", "--ignore-noqa", "--quiet", "--output-format", "json-lines")
_SELECTED = "S,B,F,E711,E712,E721,E722,E9,ASYNC,PLE,PLW0120,PLW1508,PLW1509,SIM115,RUF006,BLE001,T10,T20"
_IGNORED = "S4,S603,S606,S607,B008,B028,B904,B905,F403,F405"
_PASSWORDS = ("S105", "S106", "S107")
_SEVERITIES = {
    Severity.INFO: ("T20",),
    Severity.LOW: ("S101", "S104", "S108", "S110", "S112", "S113", "S311", "S701"),
    Severity.HIGH: ("S102", "S307", "S501", "S506", "S602", "S604", "S605", "S608", "S609", "S61", "T100"),
    Severity.MEDIUM: ("S", "ASYNC", "B006", "B012", "BLE001", "E722", "E9", "F50", "F63", "F70", "F811", "F821", "F823", "PLE"),
}
"""The first with a prefix of the code decides."""
_CATEGORIES = (("S", "security"), ("T", "leftovers"), ("E9", "correctness"), ("B", "correctness"), ("PLE", "correctness"))
_LOCKED = re.compile(r"(^|/)([\w.-]+[.-]lock(\.\w+)?|npm-shrinkwrap\.json|go\.sum)$")
_DOCUMENT = re.compile(r"\.(md|rst|txt|adoc|svg|csv|tsv|ipynb|po|tex)$|(^|/)(LICENSE|NOTICE|CHANGELOG)$")


# ---- secrets


@dataclass(frozen=True, slots=True)
class Secret:
    kind: str
    value: str
    is_sure: bool
    """By its format, not by the name it is assigned to."""


class SecretMask:
    """Finds secrets, and masks all found ones in any output. Verifies nothing: no request is sent."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self.plugins: list[Any] = []
        """Empty if detect-secrets is not installed."""
        try:
            from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
            from detect_secrets.filters import heuristic
        except ImportError:
            return
        kinds: Mapping[str, Any] = get_mapping_from_secret_type_to_class()
        self.plugins = [plugin() for kind, plugin in kinds.items() if kind not in ("Public IP (ipv4)", "Hex High Entropy String")]
        self._is_plain: tuple[Callable[[str], bool], ...] = (
            heuristic.is_sequential_string, heuristic.is_potential_uuid, heuristic.is_templated_secret,
            heuristic.is_prefixed_with_dollar_sign, heuristic.is_not_alphanumeric_string,
        )  # fmt: skip
        self._is_reference = heuristic.is_indirect_reference

    def find(self, path: str, line: str) -> Secret | None:
        """The surest one."""
        found: dict[str, Secret] = {}
        for start in range(0, max(1, len(line)), LINE_LIMIT):
            part = line[start : start + LINE_LIMIT + 200]
            for plugin in self.plugins:
                for one in plugin.analyze_line(filename=path, line=part, line_number=1):
                    value, is_sure = one.secret_value or "", one.type not in _GUESSED
                    if value and (is_sure or not (self._is_reference(part) or any(is_plain(value) for is_plain in self._is_plain))):
                        found.setdefault(value, Secret(one.type, value, is_sure))
        known = redact_formats(line.encode("utf-8", "replace")).decode("utf-8", "replace")
        if all("Entropy" in one.kind for one in found.values()) and known.count(REDACTED) > line.count(REDACTED):
            found[""] = Secret("a known format", "", True)
        self._values.update(value for value in found if len(value) >= 4 and not value.startswith("BEGIN"))
        return min(found.values(), key=lambda one: not one.is_sure, default=None)

    def learn_literals(self, line: str) -> None:
        """For a line whose strings are secret by the name they are assigned to."""
        self._values.update(re.findall(r"[\"']([^\"']{4,300})[\"']", line[:LONGEST_LINE]))

    def strike(self, text: str) -> str:
        for line in text.split("\n"):
            self.find("x.py", line)
        text = redact_formats(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, REDACTED)
        return text


_GUESSED = ("Secret Keyword", "Base64 High Entropy String", "Basic Auth Credentials")


# ---- all checks in order


@dataclass(kw_only=True)
class Checks:
    change: Change
    masking: SecretMask
    is_late: Callable[[], bool]
    stop_at: float
    unchecked: list[str] = field(default_factory=list)
    tools: dict[str, str] = field(default_factory=dict)

    def run(self, guidelines: Sequence[str], progress: Callable[[str, float], None]) -> Review:
        """Most important first: if time runs out, the last ones are missing and named."""
        checks = {
            "whether it applies": self.patch, "secrets": self.secrets, "conflict markers and links": self.facts,
            "Python (ruff)": self.python, "syntax": self.syntax,
        }  # fmt: skip
        found: list[Finding] = []
        ran: list[str] = []
        for number, (name, check) in enumerate(checks.items()):
            if self.is_late():
                self.unchecked.append(f"{name}: time was up")
                continue
            progress(f"Checking {name}", number / len(checks))
            found += check()
            ran.append(name)
        kept, left_out = sort_findings(found)
        is_late = len(ran) < len(checks) or self.is_late() or any(file.note == TIME_WAS_UP for file in self.change.files)
        return Review(
            change=self.change, findings=[one.printable(self.masking.strike) for one in kept], left_out=left_out, ran=ran,
            unchecked=self.unchecked, tools=self.tools, guidelines=guidelines, is_late=is_late,
        )  # fmt: skip

    def patch(self) -> Iterator[Finding]:
        for file in self.change.files:
            if file.note and not file.kind:
                advice = "Have a person who may read it review it."
                yield _finding(file, Severity.MEDIUM, "patch", "not-read", f"Whether it applies is not known: {file.note}.", advice)
            for fault in file.faults:
                severity, rule = (Severity.CRITICAL, "path") if fault.leads_out else (Severity.HIGH, "does-not-apply")
                advice = "Do not apply it: no honest change has such a path." if fault.leads_out else "Make the diff again from the files."
                yield replace(_finding(file, severity, "patch", rule, fault.message, advice), line=fault.line)

    def secrets(self) -> Iterator[Finding]:
        if self.masking.plugins:
            self.tools["detect-secrets"] = version("detect-secrets")
        else:
            self.unchecked.append("secrets but for known formats: detect-secrets is not installed (pip install 'remit[code]')")
        for file in self.change.files:
            if file.is_new and protection_of(file.path) is Protection.SECRET:
                message, advice = "A file of a kind that contains secrets is added.", "Leave it out (.gitignore), and add a template."
                yield _finding(file, Severity.HIGH, "secrets", "secret-file", message, advice)
            for number, line in file.added.items() if not _LOCKED.search(file.path) else ():  # these are full of digests
                if self.is_late():
                    self.unchecked.append(f"secrets from {file.path}, line {number} on: time was up")
                    return
                if (secret := self.masking.find(file.path, line[:LONGEST_LINE])) is not None:
                    yield _secret_finding(file, number, secret)

    def facts(self) -> Iterator[Finding]:
        for file in self.change.files:
            if any(line.startswith(">>>>>>>") for line in file.added.values()):
                for number in [number for number, line in file.added.items() if line.startswith("<<<<<<<")]:
                    message, advice = "A merge conflict was left in the file.", "Resolve it and remove the markers."
                    yield _finding(file, Severity.CRITICAL, "correctness", "conflict-marker", message, advice, number)
            if file.kind == "a symbolic link" and not file.is_gone:
                is_outside = next(iter(file.added.values()), "").startswith(("/", ".."))
                message = f"A symbolic link{' that may lead out of the repository' if is_outside else ''} is added or changed."
                yield _finding(file, Severity.HIGH if is_outside else Severity.LOW, "files", "link", message, "See where the link leads.")

    def syntax(self) -> Iterator[Finding]:
        """Files that no longer parse. A grammar may be older than its language: in a new file, the finding has a lower severity."""
        files = {file.path: file for file in self._sources() if file.language != "python" or "ruff" not in self.tools}
        seconds = max(0.5, min(15.0, (self.stop_at - time.monotonic()) / 2))
        after = asyncio.run(parse_files({path: file.after or "" for path, file in files.items()}, seconds))
        before = asyncio.run(parse_files({path: files[path].before or "" for path, fault in after.items() if fault}, seconds))
        for path, fault in after.items():
            file = files[path]
            if fault is None or fault.message == EMPTY or (file.before and before.get(path)):
                continue
            line = fault.line if fault.line in file.added else None
            is_mild = file.is_new or _is_test(path)
            severity = Severity.HIGH if file.language in OWN_PARSERS else Severity.LOW if is_mild else Severity.MEDIUM
            message = f"The file does not parse: {fault.message} (line {fault.line})."
            yield _finding(file, severity, "correctness", "syntax", message, "Fix it.", line)

    def _sources(self) -> list[ChangedFile]:
        return [file for file in self.change.files if file.after and file.added and not _is_generated(file.path)]

    def python(self) -> Iterator[Finding]:
        files = [file for file in self._sources() if file.language == "python"]
        beside = Path(sys.executable).parent / "ruff"
        ruff = str(beside) if os.access(beside, os.X_OK) else shutil.which("ruff")
        if files and ruff is None:
            self.unchecked.append("Python with ruff: it is not installed (pip install 'remit[code]')")
        if not files or ruff is None:
            return
        self.tools["ruff"] = next((one.version for one in distributions(name="ruff")), "unknown")
        with temporary_folder("remit-ruff-") as folder:
            for file, one in self._run_ruff(ruff, folder, files):
                finding = _ruff_finding(file, one)
                if finding is not None and finding.rule in _PASSWORDS:
                    self.masking.learn_literals(finding.snippet)
                if finding is not None:
                    yield finding

    def _run_ruff(self, ruff: str, folder: Path, files: Sequence[ChangedFile]) -> Iterator[tuple[ChangedFile, Mapping[str, Any]]]:
        for number, file in enumerate(files):
            name = "__init__.py" if file.path.endswith("__init__.py") else "module.pyi" if file.path.endswith(".pyi") else "module.py"
            (folder / str(number)).mkdir()
            (folder / str(number) / name).write_bytes((file.after or "").encode("utf-8", "surrogateescape"))
        limits = f'ulimit -v {RUFF_MEMORY_KB}; ulimit -f {RUFF_OUTPUT_BLOCKS}; exec "$@"'
        command = ["/bin/sh", "-c", limits, "sh", ruff, *_RUFF, "--select", _SELECTED, "--ignore", _IGNORED, "."]
        seconds = min(RUFF_SECONDS, max(0.1, self.stop_at - time.monotonic()))
        environment = listed_environment(("PATH", "LANG", "LC_ALL", "TMPDIR"))
        with open(folder / "found.jsonl", "w+b") as output:
            try:
                subprocess.run(
                    command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL,
                    timeout=seconds, check=True,
                )  # fmt: skip
            except (OSError, subprocess.SubprocessError):
                self.unchecked.append("Python with ruff: it did not come to its end")
            output.seek(0)
            for line in output:
                try:
                    one = json.loads(line)
                    yield files[int(Path(one["filename"]).parent.name)], one
                except (ValueError, KeyError, IndexError, TypeError):
                    continue


def _finding(
    file: ChangedFile, severity: Severity, category: str, rule: str, message: str, suggestion: str, line: int | None = None
) -> Finding:
    return Finding(
        severity=severity, category=category, rule=rule, message=message, suggestion=suggestion, file=file.path, line=line,
        snippet=file.added.get(line or 0, ""),
    )  # fmt: skip


def _secret_finding(file: ChangedFile, number: int, secret: Secret) -> Finding:
    severity = Severity.CRITICAL if secret.is_sure else Severity.MEDIUM if "Entropy" in secret.kind else Severity.HIGH
    if _is_test(file.path) or _DOCUMENT.search(file.path):
        severity = Severity.HIGH if secret.is_sure else Severity.LOW
    advice = "Remove it and read it from the environment or a secret store. If it was ever shared, revoke it: history keeps it."
    return _finding(file, severity, "secrets", "secret", f"The line seems to contain a secret: {secret.kind}.", advice, number)


def _ruff_finding(file: ChangedFile, one: Mapping[str, Any]) -> Finding | None:
    """On the first line that the change added; None if it added none."""
    start, end = (one.get(name) or {} for name in ("location", "end_location"))
    row = start.get("row", 0)
    last = end.get("row", row) - (end.get("row", row) > row and end.get("column") == 1)
    code, message = str(one.get("code") or "invalid-syntax"), str(one.get("message", "")).rstrip(".")
    if code == "invalid-syntax":
        nearest = min(file.added, key=lambda number: abs(number - row))
        return _finding(file, Severity.HIGH, "correctness", "syntax", f"{message}.", "Fix it.", nearest)
    line = min((number for number in file.added if row <= number <= last), default=None)
    if line is None:
        return None
    column = start.get("column") if line == row else None
    is_test = _is_test(file.path)
    if is_test and code.startswith(("S101", "T20", *_PASSWORDS)):
        return None
    is_mild = is_test or "seems safe" in message
    severity = next((one for one, prefixes in _SEVERITIES.items() if code.startswith(prefixes) and not is_mild), Severity.LOW)
    category = next((name for prefix, name in _CATEGORIES if code.startswith(prefix)), "lint")
    fix = (one.get("fix") or {}).get("message")
    advice = f"{fix}." if fix else f"See {one.get('url', 'the rule')}."
    return replace(_finding(file, severity, category, code, f"{message} (ruff {code}).", advice, line), column=column)


def _is_test(path: str) -> bool:
    return TEST_FILE.search(f"/{path}") is not None


def _is_generated(path: str) -> bool:
    return not FOREIGN.isdisjoint(path.split("/")) or any(one.search(path) for one in (GENERATED_NAME, _LOCKED))
