"""Facts about files: functions, imports, size, complexity, entry points and tests.

A language with a grammar is parsed by tree-sitter, others by lizard. Complexity is McCabe's: one plus the number of decisions. Parsers run
in forked processes (`ParserPool`), because a hostile file can crash or hang a C parser."""

import importlib
import json
import multiprocessing
import os
import re
import resource
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, NamedTuple

from remit.builtin.coder.analysis.files import SourceFile, language_of, read_bytes
from remit.builtin.coder.analysis.grammars import GRAMMARS, TEST_FILE, TEST_NAME, load
from remit.system.beneath import Root

NAME_CHARACTERS = 200
IMPORT_CHARACTERS = 4_000
"""A Rust `use` can name many modules."""
IMPORTS_KEPT = 2_000
FUNCTIONS_KEPT = 20_000
_BLANK = re.compile(rb"^[ \t\r\f\v]*$", re.MULTILINE)
_SPACE = re.compile(r"\s+")


class _Scope(NamedTuple):
    end: int
    name: str = ""
    function: dict[str, Any] | None = None
    depth: int = 0
    is_lazy: bool = False


def read_source(source: bytes, language: str, path: str) -> dict[str, Any]:
    """All facts as plain data. Only the name of `path` is used. Code lines are those that are not blank."""
    lines = source.count(b"\n") + (not source.endswith(b"\n")) if source else 0
    code = lines - (sum(1 for _ in _BLANK.finditer(source.removesuffix(b"\n"))) if source else 0)
    facts: dict[str, Any] = {"language": language, "lines": lines, "code": code, "isTest": bool(TEST_FILE.search(f"/{path}"))}
    if language in GRAMMARS:
        facts |= _parse(source, language, path, is_test=facts["isTest"])
    elif (counted := load_lizard()).get_reader_for(path) is not None:
        facts |= _count(counted, source, path, is_test=facts["isTest"])
    return facts


def _parse(source: bytes, language: str, path: str, *, is_test: bool) -> dict[str, Any]:
    import tree_sitter

    parser, query = load(language)
    tree = parser.parse(source)
    spans: dict[tuple[int, int, str], dict[str, list[Any]]] = {}
    elifs, tests = set(), 0
    names: dict[int, list[str]] = {}
    for _, captures in tree_sitter.QueryCursor(query).matches(tree.root_node):
        for capture, nodes in captures.items():
            node = nodes[0]
            if capture == "elif":
                elifs.add(node.start_byte)
            elif capture == "test":
                tests += 1
            elif capture == "what":
                names.setdefault(captures["import"][0].start_byte, []).append(_text(node))
            elif capture not in ("name", "word"):
                spans[node.start_byte, -node.end_byte, capture] = captures
    functions, imports, loose = _sweep(spans, elifs, names)
    entries = [[_row(captures["entry"][0]), 'if __name__ == "__main__"'] for (_, _, kind), captures in spans.items() if kind == "entry"]
    if source.startswith(b"#!"):
        entries.append([1, source.split(b"\n", 1)[0][:80].decode("utf-8", "replace")])
    return {
        "complexity": loose + sum(one["complexity"] for one in functions),
        "tests": (tests or _count_tests(functions)) if is_test else 0,
        "imports": imports[:IMPORTS_KEPT],
        "entries": entries[:5] or ([[1, "python -m"]] if path.endswith("__main__.py") else []),
        "hasErrors": bool(tree.root_node.has_error),
        "functions": functions[:FUNCTIONS_KEPT],
    }


def _count_tests(functions: Sequence[dict[str, Any]]) -> int:
    return sum(bool(TEST_NAME.match(re.split(r"\.|::", one["name"])[-1])) for one in functions)


def _sweep(spans: dict[tuple[int, int, str], Any], elifs: set[int], names: dict[int, list[str]]) -> tuple[list[Any], list[Any], int]:
    """One pass in text order: nesting by ranges. Returns functions, imports, and decisions outside all functions."""
    functions: list[dict[str, Any]] = []
    imports: list[list[Any]] = []
    loose = 0
    stack = [_Scope(1 << 62)]
    for (start, end, kind), captures in sorted(spans.items(), key=lambda item: item[0][:2]):
        while stack[-1].end <= start:
            stack.pop()
        top = stack[-1]
        if kind in ("branch", "decision"):
            loose += top.function is None
            if top.function is not None:
                top.function["complexity"] += 1
        if kind in ("branch", "nest"):
            depth = top.depth + (start not in elifs)
            if top.function is not None:
                top.function["nesting"] = max(top.function["nesting"], depth)
            stack.append(top._replace(end=-end, depth=depth))
        elif kind == "lazy":
            stack.append(top._replace(end=-end, is_lazy=True))
        elif kind == "import":
            node = captures["import"][0]
            imports.append([_text(node, IMPORT_CHARACTERS).strip("\"'`"), names.get(start, []), top.is_lazy])
        elif kind in ("function", "scope"):
            name = _text(captures["name"][0])
            top = top._replace(end=-end, name=f"{top.name}.{name}" if top.name else name)
            if kind == "function":
                node = captures["function"][0]
                functions.append({"name": top.name, "line": _row(node), "endLine": node.end_point[0] + 1, "complexity": 1, "nesting": 0})
                top = _Scope(-end, top.name, functions[-1], 0, True)
            stack.append(top)
    return functions, imports, loose


def _text(node: Any, at_most: int = NAME_CHARACTERS) -> str:
    return _SPACE.sub(" ", (node.text or b"")[: at_most * 4].decode("utf-8", "replace")).strip()[:at_most]


def _row(node: Any) -> int:
    return int(node.start_point[0]) + 1


@cache
def load_lizard() -> Any:
    return importlib.import_module("lizard")


def _count(lizard: Any, source: bytes, path: str, *, is_test: bool) -> dict[str, Any]:
    found = lizard.FileAnalyzer(lizard.get_extensions(["nd"])).analyze_source_code(path, source.decode("utf-8", "replace"))
    functions = [
        {
            "name": _SPACE.sub(" ", one.name)[:NAME_CHARACTERS],
            "line": one.start_line,
            "endLine": one.end_line,
            "complexity": one.cyclomatic_complexity,
            "nesting": one.max_nesting_depth,
        }
        for one in found.function_list[:FUNCTIONS_KEPT]
    ]
    complexity = sum(one["complexity"] for one in functions)
    return {"complexity": complexity, "functions": functions, "tests": _count_tests(functions) if is_test else 0}


# ---- processes

FILE_SECONDS = 10.0
MEMORY_BYTES = 4 << 30
_BATCH = 64
_FILES_PER_WORKER = 150
"""For fewer files, another process costs more than it saves."""
_MAX_WORKERS = 16
_MAX_DESCRIPTORS = 65_536
Facts = dict[str, Any]


class ParsedFile(NamedTuple):
    file: SourceFile
    facts: Facts


def read_file(root: Root, file: SourceFile) -> Facts:
    """Facts of one file; `skipped` or `trouble` if there are none."""
    try:
        source = read_bytes(root, file.path)
    except OSError as error:
        return {"trouble": f"unreadable: {error}"}
    language = language_of(source, file.kind)
    if language.startswith("("):
        return {"skipped": language.strip("()")}
    try:
        return read_source(source, language, file.path)
    except Exception as error:  # noqa: BLE001 - lizard's readers are not robust against hostile text
        return {"trouble": f"the parser failed: {type(error).__name__}"}


class ParserPool:
    """Parses files in forked processes. A process that dies or takes too long loses its current file; another
    reads the rest of its batch."""

    def __init__(
        self,
        workspace: Path,
        files: Sequence[SourceFile],
        read: Callable[[Root, SourceFile], Facts] = read_file,
        file_seconds: float = FILE_SECONDS,
    ) -> None:
        self._workspace, self._files, self._read, self._file_seconds = workspace, files, read, file_seconds
        self._todo = deque(deque(range(start, min(start + _BATCH, len(files)))) for start in range(0, len(files), _BATCH))
        self._workers: dict[Connection, tuple[ForkProcess, deque[int]]] = {}

    def run(self, is_over: Callable[[], bool]) -> Iterator[ParsedFile]:
        """Yield facts until all files are read or `is_over`. No process is left at the end."""
        count = max(1, min(len(os.sched_getaffinity(0)), _MAX_WORKERS, len(self._files) // _FILES_PER_WORKER))
        try:
            for _ in range(count):
                self._start()
            while self._workers and not is_over():
                for connection in wait(list(self._workers), timeout=0.5):
                    assert isinstance(connection, Connection)
                    yield self._receive(connection)
        finally:
            for connection in list(self._workers):
                self._stop(connection)

    def _start(self) -> None:
        if not self._todo:
            return
        fork = multiprocessing.get_context("fork")
        ours, theirs = fork.Pipe()
        batch = self._todo.popleft()
        process = fork.Process(target=self._work, args=(theirs, batch), daemon=True)
        process.start()
        theirs.close()
        self._workers[ours] = process, batch

    def _receive(self, connection: Connection) -> ParsedFile:
        _, batch = self._workers[connection]
        file = self._files[batch[0]]
        try:
            facts = json.loads(connection.recv_bytes())
        except (EOFError, OSError, ValueError, RecursionError):
            facts = None
        batch.popleft()
        if facts is None or not batch:
            if batch:
                self._todo.appendleft(batch)
            is_slow = self._stop(connection) == -signal.SIGALRM
            self._start()
            if facts is None:
                return ParsedFile(file, {"trouble": f"the parser {f'took longer than {self._file_seconds:g} s' if is_slow else 'crashed'}"})
        return ParsedFile(file, facts) if isinstance(facts, dict) else ParsedFile(file, {"trouble": "the parser returned no facts"})

    def _stop(self, connection: Connection) -> int | None:
        """Its exit code. A worker that still runs is killed."""
        process, _ = self._workers.pop(connection)
        connection.close()
        process.kill()
        process.join()
        return process.exitcode

    def _work(self, connection: Connection, batch: Sequence[int]) -> None:
        """In the child: SIGALRM ends it when a file takes too long."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.closerange(3, connection.fileno())  # left open here, they would keep others waiting for the parent's end
        os.closerange(connection.fileno() + 1, _MAX_DESCRIPTORS)
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard), hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with Root(self._workspace) as root:
            for index in batch:
                signal.setitimer(signal.ITIMER_REAL, self._file_seconds)
                connection.send_bytes(json.dumps(self._read(root, self._files[index]), separators=(",", ":")).encode())
        signal.setitimer(signal.ITIMER_REAL, 0)
