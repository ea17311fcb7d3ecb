"""The linters that are here: ruff for Python, shellcheck for shell scripts. Text goes in by a pipe, findings on added lines come out.

The project's own settings hold (ruff finds them by the file's path); neither tool runs code of the project. Linters that would (eslint with
the project's plugins, mypy with its own) are not started: the report says so.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remit.agents.builtin.coder.review.findings import Finding, Severity
from remit.agents.builtin.coder.review.languages import is_generated
from remit.agents.builtin.coder.review.matter import ChangedFile, Matter

SECONDS_EACH = 10.0
FILES_LIMIT = 200
ANSWER_LIMIT_BYTES = 8_000_000
MEMORY_LIMIT_KB = 4_000_000
_RUFF = ("check", "--no-cache", "--no-fix", "--force-exclude", "--exit-zero", "--output-format", "json", "--quiet")
_CAREFUL = ("--isolated", "--select", "E7,E9,F,B,PLE", "--ignore", "B008,B904,B905,B028,E701,E702,E731,E741,F403,F405")
"""Where the project says nothing of ruff: what is hardly ever a matter of taste."""
_GRAVE = ("F821", "F811", "F823", "F70", "E9", "F50", "F63", "B006", "B008", "B012", "PLE")
_SECURITY = ("S1", "S2", "S3", "S4", "S5", "S6", "S7")


def check(matter: Matter) -> Iterator[Finding]:
    yield from _with(matter, "python", "ruff", "pip install 'remit[code]'", _ruff)
    yield from _with(matter, "shell", "shellcheck", "install shellcheck", _shellcheck)
    _say_what_is_not_run(matter)


def find_tool(name: str) -> str | None:
    """Beside this interpreter, else on the path."""
    beside = Path(sys.executable).parent / name
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)


def _with(matter: Matter, language: str, name: str, advice: str, lint: Any) -> Iterator[Finding]:
    files = [file for file in matter.whole if file.language == language and file.added and not is_generated(file.path)]
    if not files:
        return
    tool = find_tool(name)
    if tool is None:
        matter.unchecked.append(f"{language} with {name}: it is not installed ({advice})")
        return
    matter.tools[name] = _version(tool)
    for position, file in enumerate(files):
        if matter.is_late() or position >= FILES_LIMIT:
            why = "time was up" if matter.is_late() else f"only {FILES_LIMIT} files are looked at"
            matter.unchecked.append(f"{name} on {len(files) - position} of {len(files)} files: {why}")
            return
        yield from lint(matter, tool, file)


def _version(tool: str) -> str:
    said, _ = _run([tool, "--version"], "", Path(tool).parent, 5.0)
    words = said.decode("utf-8", "replace").split()
    return next((word for word in words if word[:1].isdigit()), "unknown")


def _run(command: list[str], text: str, folder: Path, seconds: float) -> tuple[bytes, bool]:
    """What it printed, and whether it went well."""
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    try:
        ran = subprocess.run(
            [
                "/bin/sh",
                "-c",
                f'ulimit -v {MEMORY_LIMIT_KB}; exec "$@"',
                "sh",
                *command,
            ],  # settings of the project may name a file without end
            input=text.encode("utf-8", "surrogateescape"),
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=max(0.1, seconds),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return b"", False
    return ran.stdout[:ANSWER_LIMIT_BYTES], ran.returncode in (0, 1)


def _listed(said: bytes) -> list[dict[str, Any]] | None:
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        return None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else None


def _ruff(matter: Matter, tool: str, file: ChangedFile) -> Iterator[Finding]:
    command = [tool, *_RUFF, "--stdin-filename", str(matter.workspace / file.path)]
    said, is_well = b"", False
    if has_settings(matter.workspace / file.path):
        said, is_well = _run([*command, "-"], file.after or "", matter.workspace, min(SECONDS_EACH, matter.seconds_left()))
        if not is_well and _UNUSABLE not in matter.unchecked:
            matter.unchecked.append(_UNUSABLE)
    if not is_well:
        said, is_well = _run([*command, *_CAREFUL, "-"], file.after or "", matter.workspace, min(SECONDS_EACH, matter.seconds_left()))
    found = _listed(said) if is_well else None
    if found is None:
        matter.unchecked.append(f"{file.path} with ruff: it gave no answer")
    yield from filter(None, (_of_ruff(file, one) for one in found or ()))


_UNUSABLE = "the project's settings for ruff could not be used; a careful choice of its rules was"


def has_settings(path: Path) -> bool:
    """Whether ruff would find settings for this file, here or further up."""
    return any(_speaks_of_ruff(str(folder)) for folder in path.parents)


@functools.lru_cache(maxsize=1000)
def _speaks_of_ruff(folder: str) -> bool:
    if any(os.path.isfile(os.path.join(folder, name)) for name in ("ruff.toml", ".ruff.toml")):
        return True
    path = os.path.join(folder, "pyproject.toml")
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > 1_000_000:
            return False
        with open(path, "rb") as file:
            return b"[tool.ruff" in file.read()
    except OSError:
        return False


def _of_ruff(file: ChangedFile, one: dict[str, Any]) -> Finding | None:
    start, end = (one.get(name) or {} for name in ("location", "end_location"))
    row = start.get("row")
    if not isinstance(row, int):
        return None
    last = end.get("row", row)
    line = file.first_changed(row, last - 1 if last > row and end.get("column") == 1 else last)
    if line is None:
        return None
    code = one.get("code") or "syntax"
    if code in ("syntax", "invalid-syntax"):
        return Finding(
            severity=Severity.HIGH,
            category="correctness",
            rule="syntax",
            file=file.path,
            line=line,
            column=start.get("column"),
            message=f"{str(one.get('message', '')).rstrip('.')}.",
            suggestion="Put it right.",
            snippet=file.added[line],
        )
    fix = (one.get("fix") or {}).get("message")
    severity = Severity.MEDIUM if str(code).startswith((*_GRAVE, *_SECURITY)) else Severity.LOW
    return Finding(
        severity=severity,
        category="lint",
        rule=str(code),
        file=file.path,
        line=line,
        column=start.get("column") if line == row else None,
        message=f"{str(one.get('message', '')).rstrip('.')} (ruff {code}).",
        suggestion=f"{fix}." if fix else "",
        snippet=file.added[line],
    )


_SHELL_SEVERITY = {"error": Severity.MEDIUM, "warning": Severity.LOW, "info": Severity.INFO, "style": Severity.INFO}


def _shellcheck(matter: Matter, tool: str, file: ChangedFile) -> Iterator[Finding]:
    said, is_well = _run(
        [tool, "--norc", "--format=json", "-"], file.after or "", matter.workspace, min(SECONDS_EACH, matter.seconds_left())
    )
    found = _listed(said) if is_well else None
    if found is None:
        matter.unchecked.append(f"{file.path} with shellcheck: it gave no answer")
    for one in found or ():
        line = one.get("line")
        if isinstance(line, int) and line in file.added:
            yield Finding(
                severity=_SHELL_SEVERITY.get(str(one.get("level")), Severity.INFO),
                category="lint",
                rule=f"SC{one.get('code')}",
                file=file.path,
                line=line,
                column=one.get("column"),
                message=f"{str(one.get('message', '')).rstrip('.')} (shellcheck).",
                snippet=file.added[line],
            )


_NOT_RUN = {
    "javascript": "JavaScript and TypeScript by a linter: eslint runs code of the project, so it is not started here",
    "go": "Go by go vet: it builds the project, so it is not started here",
    "rust": "Rust by clippy: it builds the project, so it is not started here",
    "java": "Java by a linter",
    "c": "C and C++ by a linter",
}


def _say_what_is_not_run(matter: Matter) -> None:
    same = {"typescript": "javascript", "tsx": "javascript", "cpp": "c"}
    changed = {same.get(file.language, file.language) for file in matter.whole if file.added and file.is_code}
    matter.unchecked += [words for language, words in _NOT_RUN.items() if language in changed]
    if "python" in changed:
        matter.unchecked.append("types of Python (no type checker is started)")
