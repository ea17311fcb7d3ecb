"""Whether a file parses: Python, JSON, TOML and YAML by their own parsers, other languages by their tree-sitter grammar.

Hostile text can make a parser run for hours or crash, so files are parsed in a separate process, which is killed when its time is up.
A file that it did not reach counts as not tried."""

import ast
import asyncio
import json
import re
import resource
import signal
import sys
import tomllib
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from remit.core.languages import BY_EXTENSION

MAX_SECONDS = 15
MAX_MEMORY_BYTES = 4 << 30
MAX_CHARACTERS = 1_000_000
"""Of one file."""
_SPELLED = {"C++": "cpp", "C#": "csharp", "Vue": "html", "Svelte": "html"}
"""Languages with another name than in `core.languages`, ignoring case."""
_GRAMMARS = {name.lower(): name for name in ("JavaScript", "TypeScript", "TSX", "Go", "Rust", "Java")}
"""C and C++ are omitted: without their preprocessor, correct files have errors."""
EMPTY = "the file is empty"
OWN_PARSERS = frozenset({"python", "json", "toml", "yaml"})
"""Parsers that are never older than the language."""
_COMMENTED_JSON = ("tsconfig", "jsconfig", ".eslintrc", "devcontainer", "launch.json", "extensions.json", "settings.json")
_MAY_BE_EMPTY = ("__init__.py", "py.typed", ".gitkeep", ".keep", ".nojekyll")
_PLACE = re.compile(r" \(at line (\d{1,8}),.*")
_PROGRAM = (
    "import json, sys; job = json.load(sys.stdin); sys.path[:] = job['path'];"
    "from remit.builtin.coder.syntax import report_faults; report_faults(job['files'])"
)


@dataclass(frozen=True, slots=True)
class Fault:
    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


def language_of(path: str, text: str = "") -> str:
    """Empty where it is unknown."""
    stem, dot, ending = path.rpartition("/")[2].rpartition(".")
    language = BY_EXTENSION.get(f".{ending.lower()}", "") if dot and stem else ""
    known = _SPELLED.get(language, language.lower())
    if not known and text.startswith("#!"):
        first = text[:120].partition("\n")[0]
        return next((name for word, name in (("python", "python"), ("node", "javascript"), ("sh", "shell")) if word in first), "")
    return known


def _has_parser(path: str, text: str) -> bool:
    language, name = language_of(path, text), path.rpartition("/")[2]
    if language == "json":
        return not name.startswith(_COMMENTED_JSON)
    if language == "yaml":
        return "{{" not in text and "{%" not in text  # a template
    return not text.strip() or language in OWN_PARSERS or (language in _GRAMMARS and _parser(language) is not None)


def _parser(language: str) -> Any:
    """None where the grammar is not installed."""
    from remit.builtin.coder.analysis.grammars import load  # imported here: agents are listed without it

    try:
        return load(_GRAMMARS[language])[0]
    except ImportError:
        return None


def find_fault(path: str, text: str) -> Fault | None:
    """The first error of a file. Raises nothing."""
    if not text.strip():
        return None if path.endswith(_MAY_BE_EMPTY) else Fault(1, EMPTY)
    try:
        match language_of(path, text):
            case "python":
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ast.parse(text.encode("utf-8", "replace"))
            case "json":
                json.loads(text.removeprefix("\ufeff"))
            case "toml":
                tomllib.loads(text.replace("\r\n", "\n"))
            case "yaml":
                import yaml

                for _ in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
                    pass
            case language if language in _GRAMMARS:
                return _grammar_fault(language, text)
    except Exception as error:  # noqa: BLE001 - a parser raises anything for untrusted text
        mark, place = getattr(error, "problem_mark", None), _PLACE.search(str(error))
        line = getattr(error, "lineno", None) or (mark.line + 1 if mark else int(place[1]) if place else 1)
        said = getattr(error, "msg", None) or getattr(error, "problem", None) or _PLACE.sub("", str(error))
        return Fault(line, str(said)[:200] or "it cannot be parsed")
    return None


def _grammar_fault(language: str, text: str) -> Fault | None:
    stack = [_parser(language).parse(text.encode("utf-8", "replace")).root_node]
    while stack:  # no recursion: hostile files are deeply nested
        node = stack.pop()
        if node.type == "ERROR" or node.is_missing:
            return Fault(node.start_point[0] + 1, f"it does not parse as {language}")
        stack.extend(child for child in reversed(node.children) if child.has_error or child.is_missing)
    return None


async def parse_files(files: Mapping[str, str], seconds: float = MAX_SECONDS) -> dict[str, Fault | None]:
    """The first fault of each file that was read to its end. A file without a parser is missing."""
    tried = {path: text for path, text in files.items() if len(text) <= MAX_CHARACTERS and _has_parser(path, text)}
    job = json.dumps({"path": [entry for entry in sys.path if entry], "files": tried}).encode()
    pipes: dict[str, Any] = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.DEVNULL}
    found: dict[str, Fault | None] = {}
    if not tried:
        return found
    try:
        process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-c", _PROGRAM, **pipes, env={}, cwd="/", limit=1 << 20)
    except OSError:
        return found
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(TimeoutError, OSError, ValueError):
            async with asyncio.timeout(min(seconds, MAX_SECONDS)):
                process.stdin.write(job)
                await process.stdin.drain()
                process.stdin.close()
                async for line in process.stdout:
                    path, fault = json.loads(line)
                    found[path] = Fault(*fault) if fault is not None else None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return found


def report_faults(files: Mapping[str, str]) -> None:
    """Run in the child process: print one line per file, smallest first. Exits if its parent does not."""
    signal.alarm(MAX_SECONDS + 1)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for path in sorted(files, key=lambda path: len(files[path])):
        fault = find_fault(path, files[path])
        print(json.dumps([path, [fault.line, fault.message] if fault is not None else None]), flush=True)
