"""Where a plan's work may belong: files whose names share words with a task, and the command by which the project tests itself.

Looks at names only; what a file holds is the analysis' concern. Used by `planning`.
"""

import json
import re
import shutil
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

MOST_FILES = 8
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^\W\d_]+")
_STOP = frozenset(
    re.findall(
        r"\w+",
        """about after also always another because been before being both cannot could does done each every first from have into make
        more most must need never next only other over should some such than that their them then there these they this those through
        under until using very want were what when where which while will with without would your add adds new task file files code
        project test tests the and for not all can use has are but its was one two out our readme index main init""",
    )
)
"""Words that many tasks and many paths hold, and that tell nothing of where one belongs to the other."""
_ASIDE = ("specs/", ".remit/", ".git/", "node_modules/", ".venv/")
_LOCKED = (".lock", ".svg", ".png", ".jpg", ".gif", ".ico", ".pdf", ".min.js", ".map", "-lock.json")


def likely_files(text: str, paths: Sequence[str], most: int = MOST_FILES) -> list[str]:
    """Those that the text names, then those whose names share its rarest words."""
    words = {_stem(word) for word in _words(text)} - {""}
    by_word: dict[str, list[str]] = defaultdict(list)
    named = []
    for path in paths:
        if path.startswith(_ASIDE) or path.endswith(_LOCKED):
            continue
        if _is_named(path, text):
            named.append(path)
        for word in {_stem(part) for part in _words(path)} & words:
            by_word[word].append(path)
    scores: dict[str, float] = defaultdict(float)
    for found in by_word.values():
        for path in found:
            scores[path] += 1 / len(found)
    ranked = sorted(scores, key=lambda path: (-scores[path], len(path), path))
    return list(dict.fromkeys([*named, *ranked]))[:most]


def _is_named(path: str, text: str) -> bool:
    name = path.rpartition("/")[2]
    return "." in name.strip(".") and len(name) > 4 and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) is not None


def _words(text: str) -> Iterable[str]:
    return (word.lower() for word in _WORD.findall(text) if len(word) > 2 and word.lower() not in _STOP)


def _stem(word: str) -> str:
    for ending in ("ings", "ing", "ers", "er", "ies", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending)
    return word if len(word) > 2 else ""


def command_of_tests(root: Path) -> tuple[str, str]:
    """The command by which the project tests itself, and what says so; the first is empty where none was found, or cannot be run here.

    Only files at the top are looked at: a command is proposed where the project itself says that it is the one.
    """
    for command, why in _commands(root):
        program = command.split()[0]
        if shutil.which(program) is not None:
            return command, why
        return "", f"{why} speaks for `{command}`, but there is no {program} on this machine"
    return "", "no test command was found in the project's own files"


def _commands(root: Path) -> Iterable[tuple[str, str]]:
    if re.search(r"^(?:test|check)\s*:(?!=)", makefile := _text(root / "Makefile"), re.MULTILINE):
        target = "test" if re.search(r"^test\s*:(?!=)", makefile, re.MULTILINE) else "check"
        yield f"make {target}", "Makefile"
    if _uses_pytest(root):
        yield "pytest -q", "its configuration of pytest"
    if _node_test(root):
        yield "npm test", "package.json"
    for file, command in (
        ("Cargo.toml", "cargo test"),
        ("go.mod", "go test ./..."),
        ("lakefile.lean", "lake build"),
        ("lakefile.toml", "lake build"),
        ("mix.exs", "mix test"),
        ("pom.xml", "mvn -q test"),
    ):
        if (root / file).is_file():
            yield command, file


def _uses_pytest(root: Path) -> bool:
    if (root / "pytest.ini").is_file() or "[tool:pytest]" in _text(root / "setup.cfg"):
        return True
    tool = _table(root / "pyproject.toml").get("tool")
    if isinstance(tool, Mapping) and "pytest" in tool:
        return True
    tests = root / "tests"
    try:
        return any(tests.glob("test_*.py")) or any(root.glob("test_*.py")) or (tests / "conftest.py").is_file()
    except OSError:
        return False


def _node_test(root: Path) -> bool:
    try:
        document = json.loads(_text(root / "package.json") or "null")
    except (ValueError, RecursionError):
        return False
    scripts = document.get("scripts") if isinstance(document, dict) else None
    command = scripts.get("test") if isinstance(scripts, dict) else None
    return isinstance(command, str) and bool(command.strip()) and "no test specified" not in command


def _table(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(_text(path))
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def _text(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            return opened.read(512 * 1024).decode("utf-8", "replace")
    except OSError:
        return ""
