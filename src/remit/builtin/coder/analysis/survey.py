"""One analysis from end to end (`analyse`): lists and parses files, combines their facts with the import graph and the history, writes.

Blocking, and independent of a delegation's context. The data is bounded."""

import contextlib
import heapq
import importlib
import json
import os
import posixpath
import re
import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from remit.builtin.coder.analysis.file_facts import FUNCTIONS, ParserPool
from remit.builtin.coder.analysis.grammars import GRAMMARS, load
from remit.builtin.coder.analysis.imports import Import, ImportGraph, Module
from remit.builtin.coder.analysis.report import import_chart, summary, write_report
from remit.builtin.coder.source_files import Listing, SourceFile, list_files, permitted_paths, read_bytes
from remit.builtin.worker.workspace import error_dict
from remit.core.cycles import cyclic_components, shortest_cycle
from remit.core.errors import RemitError
from remit.system.beneath import Root
from remit.system.git import Git

LISTED = 20
CYCLE_MEMBERS = 30
COMMITS_AT_MOST = 3_000
FILES_IN_COMMIT = 200
"""Larger commits are moves and reformatting, which do not show activity."""
GIT_SECONDS = 15.0
_FUNCTIONS_KEPT = 20_000
_MEASURES = ("line", "endLine", "complexity", "nesting")
_MANIFEST_BYTES = 512 * 1024
_TEST_AFFIX = re.compile(r"^tests?[_-]|^Test(?=[A-Z])|[_.-]?(unit)?(tests?|spec)$|(Tests?|IT|TestCase)$")
_ASIDE = re.compile(r"(^|/)(docs?|examples?|samples|demos?|scripts|tools|bench(marks)?|tests?|fixtures)/")
_LOG = shlex.split(
    "--no-pager log --relative --name-only -z --format=%x01 --no-renames --no-ext-diff --no-textconv --no-show-signature"
    " --no-notes --no-color --no-mailmap --no-merges --ignore-submodules=all"
)
_OVERRIDES = (("log.showSignature", "false"), ("core.pager", "cat"), ("gpg.program", "false"), ("diff.external", ""))
"""The repository is untrusted: no hook, diff driver, text conversion or signature check of its configuration may run."""


def analyse(
    workspace: Path,
    out: Path,
    below: str = "",
    patterns: Sequence[str] = (),
    *,
    progress: Callable[[str, float], None] = lambda message, fraction: None,
    permitted: Callable[[Sequence[str]], Sequence[str]] = lambda paths: paths,
    is_over: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """A return in the shape of the contract.

    `out`: where `analysis.md` and `analysis.json` are written; `below`: a folder or file of the workspace, empty for all of it;
    `permitted`: filters files that the policy lets the caller read; `is_over`: when to stop reading and report the result so far."""
    progress("Listing files.", 0.0)
    survey = Survey(workspace, below)
    listing = list_files(workspace, below, patterns, is_over)
    survey.skipped.update(listing.skipped)
    may_read = permitted_paths((one.path for one in listing.files), permitted)
    if withheld := len(listing.files) - len(may_read):
        survey.skipped["not to be read by the policy"] += withheld
        listing.files = [one for one in listing.files if one.path in may_read]
    with (out / "analysis.json").open("w", encoding="utf-8") as whole:
        left = _parse(listing, survey, whole.write, progress, is_over)
        progress("Building the report.", 0.95)
        data, graph = survey.finish(one.path for one in listing.files)
        data |= {"notReached": left, "skippedFolders": sorted(listing.foreign)[:LISTED]}
        edges = [
            {"from": start, "to": end, "count": count, "isLazy": is_lazy}
            for found, is_lazy in ((graph.eager, False), (graph.lazy, True))
            for start, targets in sorted(found.items())
            for end, count in sorted(targets.items())
        ]
        whole.write(f'"imports":{json.dumps(edges)},\n"summary":{json.dumps(data)}\n}}\n')
    tests = {file.path for file in survey.code_files if file.is_test}
    chart = import_chart({module.node for module in survey.modules if module.path not in tests}, graph, len(tests))
    title = os.path.basename(below) or workspace.resolve().name
    (out / "analysis.md").write_text(write_report(data, chart, title), encoding="utf-8", errors="replace")
    reply: dict[str, Any] = {"status": "completed", "summary": summary(data), "data": data}
    if left or listing.is_cut:
        message = f"There was no time to read {left:,} of the files." if left else "There was no time to list all files."
        error = error_dict("timeout", "TIMEOUT", message, "Allow more time, or name a part with path or patterns.")
        reply |= {"status": "partial", "errors": [error]}
    return reply


def _parse(
    listing: Listing, survey: "Survey", write: Callable[[str], object], progress: Callable[[str, float], None], is_over: Callable[[], bool]
) -> int:
    """Writes facts as they come: those of a large project need not fit into memory. Returns how many files were not read."""
    for language in {one.kind for one in listing.files} & GRAMMARS.keys():
        load(language)  # before the fork, once for all workers
    if any(one.kind not in GRAMMARS for one in listing.files):
        importlib.import_module("lizard")
    write('{"files":[')
    done, comma, last = 0, "\n", time.monotonic()
    for file, facts, text in ParserPool(survey.workspace, listing.files).run(is_over):
        done += 1
        if survey.add(file, facts):
            write(f'{comma}{{"path":{json.dumps(file.path)},{text[1:]}')
            comma = ",\n"
        if time.monotonic() - last > 1:
            last = time.monotonic()
            progress(f"Parsed {done:,} of {len(listing.files):,} files.", 0.9 * done / len(listing.files))
    write("\n],\n")
    return len(listing.files) - done


class CodeFile(NamedTuple):
    """A file with functions: parsed, or counted by lizard."""

    path: str
    language: str
    code: int
    complexity: int
    functions: int
    tests: int
    is_test: bool


@dataclass(slots=True)
class Survey:
    workspace: Path
    path: str = ""
    """Below the workspace, empty for all of it."""
    files: int = 0
    code_files: list[CodeFile] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)
    languages: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    skipped: Counter[str] = field(default_factory=Counter)
    unreadable: list[dict[str, str]] = field(default_factory=list)
    functions: list[dict[str, Any]] = field(default_factory=list)
    """Candidates for the lists, not all."""
    entries: list[dict[str, Any]] = field(default_factory=list)
    broken: int = 0
    """Files with parts that the grammar could not parse."""

    def add(self, file: SourceFile, facts: dict[str, Any]) -> bool:
        """Add the facts of one file. False if it was skipped or is unreadable."""
        if "skipped" in facts:
            self.skipped[facts["skipped"]] += 1
            return False
        if "trouble" in facts:
            self.unreadable.append({"path": file.path, "why": facts["trouble"]})
            return False
        path, language, is_test = file.path, facts["language"], facts["isTest"]
        counts = {key: facts[key] for key in ("lines", "code", "comments", "blank")}
        functions = [
            {"path": path, "name": f"{one['parent']}.{one['name']}".strip("."), **{key: one[key] for key in _MEASURES}}
            for one in facts.get("symbols", ())
            if one["kind"] in FUNCTIONS
        ]
        if "complexity" in facts:
            numbers = counts["code"], facts["complexity"], len(functions), facts.get("tests", 0)
            self.code_files.append(CodeFile(path, language, *numbers, is_test))
        if "imports" in facts:
            self.modules.append(Module(path, language, [Import(*one) for one in facts["imports"]]))
            self.broken += facts["hasErrors"]
            entries = [] if is_test else facts["entries"][:1]
            self.entries += [{"path": path, "line": line, "what": what} for line, what in entries]
        self.files += 1
        for key, count in (counts | {"files": 1, "sizeBytes": file.size}).items():
            self.languages[language][key] += count
        self.functions += [] if is_test else functions
        if len(self.functions) > _FUNCTIONS_KEPT:
            self.functions = self._complex_functions()
        return True

    def _complex_functions(self) -> list[dict[str, Any]]:
        return heapq.nlargest(LISTED, self.functions, key=lambda one: (one["complexity"], one["path"], one["line"]))

    def finish(self, paths: Iterable[str]) -> tuple[dict[str, Any], ImportGraph]:
        """Bounded data, and the graph. Reads the history, and go.mod among these paths."""
        self.code_files.sort()
        graph = ImportGraph(sorted(self.modules), read_go_modules(self.workspace, paths))
        both = graph.both()
        tests = {file.path for file in self.code_files if file.is_test}
        code_nodes = {module.node for module in self.modules if module.path not in tests}
        cycles = sorted((one for one in cyclic_components(graph.eager) if one & code_nodes), key=lambda one: (-len(one), min(one)))
        imported_by = Counter(target for node in both if node in code_nodes for target in both[node])
        most_imported = heapq.nsmallest(LISTED, imported_by.items(), key=lambda item: (-item[1], item[0]))
        test_data, untested = self._test_data(both)
        churn, history = read_history(self.workspace, self.path)
        entries = sorted(self.entries, key=lambda one: (bool(_ASIDE.search(one["path"])), one["path"].count("/"), one["path"]))
        parsed = {file.language for file in self.code_files}
        ordered = sorted(self.languages.items(), key=lambda item: (item[0] not in GRAMMARS, -item[1]["code"], item[0]))
        data = {
            "path": self.path or ".",
            "files": self.files,
            "parsedFiles": len(self.code_files),
            "languages": [{"language": name, **counts, "isParsed": name in parsed} for name, counts in ordered[: 2 * LISTED]],
            "entryPoints": entries[:LISTED],
            "complexFunctions": self._complex_functions(),
            "imports": {
                "edges": sum(map(len, graph.eager.values())),
                "lazyEdges": sum(map(len, graph.lazy.values())),
                "cycleCount": len(cycles),
                "cycles": [_cycle(one, graph.eager) for one in cycles[:LISTED]],
                "mostImported": [{"path": path, "importedBy": count} for path, count in most_imported],
            },
            "tests": test_data,
            "hotSpots": self._hot_spots(churn, untested),
            "history": history,
            "skipped": dict(self.skipped),
            "unreadable": self.unreadable[:LISTED],
            "partlyParsed": self.broken,
        }
        return data, graph

    def _test_data(self, both: Mapping[str, Iterable[str]]) -> tuple[dict[str, Any], set[str]]:
        """Which files tests reach, by imports and names: `test_words.py` tests the only `words.py`. Runs nothing."""
        tests = [file for file in self.code_files if file.is_test]
        code = [file for file in self.code_files if not file.is_test]
        nodes = {module.path: module.node for module in self.modules}
        stems = Counter(_stem(file.path) for file in code)
        named = {_TEST_AFFIX.sub("", _TEST_AFFIX.sub("", _stem(file.path))) for file in tests}
        direct = {target for file in tests for node in [nodes.get(file.path, file.path)] for target in (node, *both.get(node, ()))}
        direct |= {file.path for file in code if file.tests or (_stem(file.path) in named and stems[_stem(file.path)] == 1)}
        reached, queue = set(direct), list(direct)
        while queue:
            found = set(both.get(queue.pop(), ())) - reached
            reached |= found
            queue += found
        judged = [file for file in code if file.functions and not file.path.endswith((".pyi", ".d.ts"))]
        untested = [file for file in judged if reached.isdisjoint((file.path, nodes.get(file.path, file.path)))]
        untested.sort(key=lambda file: (-file.complexity, -file.code, file.path))
        test_code, other_code = sum(file.code for file in tests), sum(file.code for file in code)
        return {
            "files": sum(file.tests > 0 for file in tests),
            "functions": sum(file.tests for file in self.code_files),
            "codeLines": test_code,
            "ratio": round(test_code / other_code, 2) if other_code else 0.0,
            "untouched": len(untested),
            "untouchedFiles": [
                {key: getattr(file, key) for key in ("path", "code", "functions", "complexity")} for file in untested[:LISTED]
            ],
        }, {file.path for file in untested}

    def _hot_spots(self, churn: Counter[str], untested: set[str]) -> list[dict[str, Any]]:
        """Files that are complex and change often."""
        spots = [
            {
                "path": file.path,
                "commits": churn[file.path],
                "complexity": file.complexity,
                "score": churn[file.path] * file.complexity,
                "isUntested": file.path in untested,
            }
            for file in self.code_files
            if not file.is_test and file.complexity > 1 and churn[file.path] > 1
        ]
        return heapq.nlargest(LISTED, spots, key=lambda spot: (spot["score"], spot["path"]))


def read_go_modules(workspace: Path, paths: Iterable[str]) -> dict[str, str]:
    """Folders by the module path in their go.mod."""
    found = {}
    with Root(workspace) as root:
        for path in paths:
            folder, _, name = path.rpartition("/")
            with contextlib.suppress(OSError):
                text = read_bytes(root, path, _MANIFEST_BYTES).decode("utf-8", "replace") if name == "go.mod" else ""
                if match := re.search(r"^module\s+(\S+)", text, flags=re.MULTILINE):
                    found[match[1].strip('"`')] = folder
    return found


def read_history(workspace: Path, below: str) -> tuple[Counter[str], dict[str, Any]]:
    """How often each file changed, and how many commits there are, or why they cannot be read."""
    churn = Counter[str]()
    git = Git(folder=workspace, stop_at=time.monotonic() + GIT_SECONDS, may_fetch=False, overrides=_OVERRIDES)
    try:
        output = git.run(*_LOG, f"--max-count={COMMITS_AT_MOST}", "--", f":(literal){below}" if below else ".")
    except RemitError as error:
        return churn, {"commits": 0, "whyNot": error.message.splitlines()[0][:200]}
    commits = output.split(b"\1")[1:]
    for commit in commits:
        changed = [path for one in commit.split(b"\0")[1:] if (path := one.lstrip(b"\n"))]
        churn.update(map(os.fsdecode, changed if len(changed) <= FILES_IN_COMMIT else ()))
    return churn, {"commits": len(commits), "whyNot": ""}


def _cycle(members: set[str], edges: Mapping[str, Counter[str]]) -> dict[str, Any]:
    users = Counter(target for one in members for target in edges[one] if target in members)
    busiest = min(members, key=lambda node: (-users[node], node))
    shown = {"files": sorted(members), "ring": shortest_cycle(busiest, edges, members)}
    return {"size": len(members), **{key: paths[:CYCLE_MEMBERS] for key, paths in shown.items()}}


def _stem(path: str) -> str:
    return posixpath.basename(path).partition(".")[0]
