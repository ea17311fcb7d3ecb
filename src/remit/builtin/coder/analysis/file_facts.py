"""Facts about files: symbols, imports, size, complexity and entry points.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, NamedTuple

from remit.builtin.coder.analysis.grammars import GRAMMARS, TEST_FILE, load
from remit.builtin.coder.source_files import SourceFile, language_of, read_bytes
from remit.system.beneath import Root

NAME_CHARACTERS = 200
IMPORT_CHARACTERS = 4_000
"""A Rust `use` can name many modules."""
FUNCTIONS = frozenset({"function", "method"})
_TYPES = frozenset({"class", "struct", "interface", "enum", "trait", "scope"})
_BLANK = re.compile(rb"^[ \t\r\f\v]*$", re.MULTILINE)
_SPACE = re.compile(r"\s+")
_PARTS = frozenset({"name", "receiver", "what", "word"})
"""Captures inside another one."""
Facts = dict[str, Any]


class _Scope(NamedTuple):
    end: int
    parent: str = ""
    kind: str = ""
    function: Facts | None = None
    is_lazy: bool = False


def read_source(source: bytes, language: str, path: str) -> Facts:
    """All facts as plain data. Only the name of `path` is used."""
    body = source.removesuffix(b"\n")
    lines = body.count(b"\n") + 1 if source else 0
    blank = sum(1 for _ in _BLANK.finditer(body)) if source else 0
    facts: Facts = {"language": language, "lines": lines, "code": lines - blank, "isTest": bool(TEST_FILE.search(f"/{path}"))}
    if language in GRAMMARS:
        facts |= _parse(source, language, path)
    elif (lizard := importlib.import_module("lizard")).get_reader_for(path) is not None:
        facts |= _count(lizard, source, path)
    return facts


def _parse(source: bytes, language: str, path: str) -> Facts:
    import tree_sitter

    parser, query = load(language)
    tree = parser.parse(source)
    spans: dict[tuple[int, int, str], tuple[str, dict[str, list[Any]]]] = {}
    names: dict[int, list[str]] = {}
    for _, captures in tree_sitter.QueryCursor(query).matches(tree.root_node):
        for capture in captures.keys() - _PARTS:
            node = captures[capture][0]
            key = (node.start_byte, -node.end_byte, capture.partition(".")[0])
            if key not in spans or spans[key][0] == "def.type":  # a more exact kind replaces it
                spans[key] = (capture, captures)
        if "what" in captures:
            names.setdefault(captures["import"][0].start_byte, []).append(_text(captures["what"][0]))
    symbols, imports, loose = _sweep(spans, names)
    what = 'if __name__ == "__main__"' if language == "Python" else "function main"
    entries = [[_row(captures["entry"][0]), what] for capture, captures in spans.values() if capture == "entry"]
    if source.startswith(b"#!"):
        entries.append([1, source.split(b"\n", 1)[0][:80].decode("utf-8", "replace")])
    return {
        "complexity": loose + sum(one.get("complexity", 0) for one in symbols),
        "imports": imports,
        "entries": entries or ([[1, "python -m"]] if path.endswith("__main__.py") else []),
        "hasErrors": bool(tree.root_node.has_error),
        "symbols": symbols,
    }


def _sweep(spans: dict[tuple[int, int, str], Any], names: dict[int, list[str]]) -> tuple[list[Facts], list[Any], int]:
    """One pass in text order: nesting by ranges. Returns symbols, imports, and decisions outside all functions."""
    symbols: list[Facts] = []
    imports: list[list[Any]] = []
    loose = 0
    stack = [_Scope(1 << 62)]
    for (start, end, kind), (capture, captures) in sorted(spans.items(), key=lambda item: item[0][:2]):
        while stack[-1].end <= start:
            stack.pop()
        top = stack[-1]
        if kind == "decision" and top.function is not None:
            top.function["complexity"] += 1
        elif kind == "decision":
            loose += 1
        elif kind == "lazy":
            stack.append(top._replace(end=-end, is_lazy=True))
        elif kind == "import":
            node = captures["import"][0]
            imports.append([_text(node, IMPORT_CHARACTERS).strip("\"'`"), names.get(start, []), _row(node), top.is_lazy])
        elif kind in ("def", "scope"):
            stack.append(_define(capture.removeprefix("def."), captures, top, -end, symbols))
    return symbols, imports, loose


def _define(kind: str, captures: dict[str, list[Any]], top: _Scope, end: int, symbols: list[dict[str, Any]]) -> _Scope:
    name, parent = _text(captures["name"][0]), top.parent
    if kind == "scope":
        return top._replace(end=end, parent=name, kind=kind)
    if "receiver" in captures:
        parent = _text(captures["receiver"][0]).lstrip("*").partition("[")[0]
    elif "::" in name and kind == "function":
        parent, _, name = name.rpartition("::")
    if kind == "function" and parent and (parent != top.parent or top.kind in _TYPES):
        kind = "method"
    node = next(nodes[0] for capture, nodes in captures.items() if capture.startswith("def."))
    symbol = {"kind": kind, "name": name, "line": _row(node), "endLine": node.end_point[0] + 1, "parent": parent}
    symbols.append(symbol)
    whole = f"{parent}.{name}" if parent else name
    if kind not in FUNCTIONS:
        return top._replace(end=end, parent=whole, kind=kind)
    symbol["complexity"] = 1
    return _Scope(end, whole, kind, symbol, is_lazy=True)


def _text(node: Any, at_most: int = NAME_CHARACTERS) -> str:
    return _SPACE.sub(" ", (node.text or b"")[: at_most * 4].decode("utf-8", "replace")).strip()[:at_most]


def _row(node: Any) -> int:
    return int(node.start_point[0]) + 1


def _count(lizard: Any, source: bytes, path: str) -> Facts:
    found = lizard.analyze_file.analyze_source_code(path, source.decode("utf-8", "replace"))
    symbols = [
        {
            "kind": "function",
            "name": _SPACE.sub(" ", one.name)[:NAME_CHARACTERS],
            "line": one.start_line,
            "endLine": one.end_line,
            "parent": "",
            "complexity": one.cyclomatic_complexity,
        }
        for one in found.function_list
    ]
    return {"complexity": sum(one["complexity"] for one in symbols), "symbols": symbols}


# ---- processes

FILE_SECONDS = 10.0
MEMORY_BYTES = 4 << 30
_FILES_PER_WORKER = 150
"""For fewer files, another process costs more than it saves."""
_MAX_WORKERS = 16
_MAX_DESCRIPTORS = 65_536


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
    """Parses files in forked processes. One that dies, or takes too long for a file, loses that file and is replaced."""

    def __init__(self, workspace: Path, files: Sequence[SourceFile]) -> None:
        self._workspace = workspace
        self._files = files
        self._workers: dict[Connection, tuple[ForkProcess, deque[SourceFile]]] = {}
        """Each with the files that it has not answered yet."""

    def run(self, is_over: Callable[[], bool]) -> Iterator[tuple[SourceFile, Facts]]:
        """Yield facts until all files are read or `is_over`. No process is left at the end."""
        count = max(1, min(len(os.sched_getaffinity(0)), _MAX_WORKERS, len(self._files) // _FILES_PER_WORKER))
        try:
            for number in range(count):
                self._start(deque(self._files[number::count]))
            while self._workers and not is_over():
                for connection in wait(list(self._workers), timeout=0.5):
                    assert isinstance(connection, Connection)
                    yield self._receive(connection)
        finally:
            for connection in list(self._workers):
                self._stop(connection)

    def _start(self, files: deque[SourceFile]) -> None:
        if not files:
            return
        fork = multiprocessing.get_context("fork")
        ours, theirs = fork.Pipe(duplex=False)
        process = fork.Process(target=self._work, args=(theirs, files), daemon=True)
        process.start()
        theirs.close()
        self._workers[ours] = process, files

    def _receive(self, connection: Connection) -> tuple[SourceFile, Facts]:
        _, files = self._workers[connection]
        file = files.popleft()
        try:
            facts: Facts = json.loads(connection.recv_bytes())
        except (EOFError, OSError, ValueError, RecursionError):
            is_slow = self._stop(connection) == -signal.SIGALRM
            self._start(files)
            return file, {"trouble": f"the parser {f'took longer than {FILE_SECONDS:g} s' if is_slow else 'crashed'}"}
        if not files:
            self._stop(connection)
        return file, facts

    def _stop(self, connection: Connection) -> int | None:
        """Its exit code. A worker that still runs is killed."""
        process, _ = self._workers.pop(connection)
        connection.close()
        process.kill()
        process.join()
        return process.exitcode

    def _work(self, connection: Connection, files: Iterable[SourceFile]) -> None:
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
            for file in files:
                signal.setitimer(signal.ITIMER_REAL, FILE_SECONDS)
                text = json.dumps(read_file(root, file), separators=(",", ":"))
                signal.setitimer(signal.ITIMER_REAL, 0)
                connection.send_bytes(text.encode())
