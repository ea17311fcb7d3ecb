"""One analysis from end to end (`analyse`): lists and parses files, combines their facts with the import graph and the history, writes.

Blocking, and independent of a delegation's context. The data is bounded."""

import heapq
import importlib
import json
import os
import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remit.builtin.coder.analysis.file_facts import FUNCTIONS, Facts, ParserPool
from remit.builtin.coder.analysis.grammars import GRAMMARS, load
from remit.builtin.coder.analysis.imports import ImportGraph
from remit.builtin.coder.analysis.report import import_chart, summary, write_report
from remit.builtin.coder.source_files import Listing, list_files, permitted_paths
from remit.builtin.worker.workspace import error_dict
from remit.core.cycles import cyclic_components, shortest_cycle
from remit.core.errors import RemitError
from remit.system.git import Git

LISTED = 20
CYCLE_MEMBERS = 30
COMMITS_AT_MOST = 3_000
FILES_IN_COMMIT = 200
"""Larger commits are moves and reformatting, which do not show activity."""
GIT_SECONDS = 15.0
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
    listing = list_files(workspace, below, patterns, is_over)
    may_read = permitted_paths((one.path for one in listing.files), permitted)
    if withheld := len(listing.files) - len(may_read):
        listing.skipped["not to be read by the policy"] += withheld
        listing.files = [one for one in listing.files if one.path in may_read]
    files, unreadable, left = _parse(workspace, listing, progress, is_over)
    progress("Building the report.", 0.95)
    graph = ImportGraph(files)
    data = {
        "path": below or ".",
        **_describe_code(files, graph),
        **_describe_history(workspace, below, files),
        "skipped": dict(listing.skipped),
        "skippedFolders": sorted(listing.foreign)[:LISTED],
        "unreadable": unreadable[:LISTED],
        "partlyParsed": sum(one.get("hasErrors", False) for one in files),
        "notReached": left,
    }
    edges = [
        {"from": start, "to": end, "count": count, "isLazy": not graph.eager[start][end]}
        for start, targets in sorted(graph.all.items())
        for end, count in sorted(targets.items())
    ]
    (out / "analysis.json").write_text(json.dumps({"files": files, "imports": edges, "summary": data}), encoding="utf-8")
    chart = import_chart([one["path"] for one in files if "imports" in one and not one["isTest"]], graph.eager)
    title = os.path.basename(below) or workspace.resolve().name
    (out / "analysis.md").write_text(write_report(data, chart, title), encoding="utf-8", errors="replace")
    reply: dict[str, Any] = {"status": "completed", "summary": summary(data), "data": data}
    if left or listing.is_cut:
        message = f"There was no time to read {left:,} of the files." if left else "There was no time to list all files."
        error = error_dict("timeout", "TIMEOUT", message, "Allow more time, or name a part with path or patterns.")
        reply |= {"status": "partial", "errors": [error]}
    return reply


def _parse(
    workspace: Path, listing: Listing, progress: Callable[[str, float], None], is_over: Callable[[], bool]
) -> tuple[list[Facts], list[dict[str, str]], int]:
    """The facts of each file in the order of their paths, unreadable files, and how many were not reached."""
    for language in {one.kind for one in listing.files} & GRAMMARS.keys():
        load(language)  # before the fork, once for all workers
    if any(one.kind not in GRAMMARS for one in listing.files):
        importlib.import_module("lizard")
    files: list[Facts] = []
    unreadable: list[dict[str, str]] = []
    done, total = 0, len(listing.files)
    for file, facts in ParserPool(workspace, listing.files).run(is_over):
        done += 1
        if "skipped" in facts:
            listing.skipped[facts["skipped"]] += 1
        elif "trouble" in facts:
            unreadable.append({"path": file.path, "why": facts["trouble"]})
        else:
            files.append({"path": file.path, "sizeBytes": file.size, **facts})
        if done % 500 == 0:
            progress(f"Parsed {done:,} of {total:,} files.", 0.9 * done / total)
    return sorted(files, key=lambda one: str(one["path"])), unreadable, total - done


def _describe_code(files: Sequence[Facts], graph: ImportGraph) -> dict[str, Any]:
    languages: dict[str, Counter[str]] = defaultdict(Counter)
    for one in files:
        languages[one["language"]].update(files=1, **{key: one[key] for key in ("lines", "code", "sizeBytes")})
    parsed = [one for one in files if "complexity" in one]
    code, tests = ([one for one in parsed if one["isTest"] is is_test] for is_test in (False, True))
    ordered = sorted(languages.items(), key=lambda item: (item[0] not in GRAMMARS, -item[1]["code"], item[0]))
    names = {one["language"] for one in parsed}
    functions = (
        {"path": one["path"], **symbol, "name": f"{symbol['parent']}.{symbol['name']}".strip(".")}
        for one in code
        for symbol in one["symbols"]
        if symbol["kind"] in FUNCTIONS
    )
    entries = [{"path": one["path"], "line": line, "what": what} for one in code for line, what in one.get("entries", ())[:1]]
    paths = {one["path"] for one in code}
    cycles = sorted((one for one in cyclic_components(graph.eager) if one & paths), key=lambda one: (-len(one), min(one)))
    imported = Counter(target for path, targets in graph.all.items() if path in paths for target in targets)
    untested = _find_untested(code, tests, graph)
    return {
        "files": len(files),
        "parsedFiles": len(parsed),
        "languages": [{"language": name, **counts, "isParsed": name in names} for name, counts in ordered[: 2 * LISTED]],
        "entryPoints": sorted(entries, key=lambda one: (one["path"].count("/"), one["path"]))[:LISTED],
        "complexFunctions": heapq.nlargest(LISTED, functions, key=lambda one: (one["complexity"], one["path"], one["line"])),
        "imports": {
            "edges": sum(map(len, graph.all.values())),
            "cycleCount": len(cycles),
            "cycles": [_describe_cycle(one, graph.eager) for one in cycles[:LISTED]],
            "mostImported": [{"path": path, "importedBy": count} for path, count in imported.most_common(LISTED)],
        },
        "tests": {
            "files": len(tests),
            "codeLines": sum(one["code"] for one in tests),
            "untouched": len(untested),
            "untouchedFiles": [{key: one[key] for key in ("path", "code", "complexity")} for one in untested[:LISTED]],
        },
    }


def _find_untested(code: Sequence[Facts], tests: Sequence[Facts], graph: ImportGraph) -> list[Facts]:
    """Files with functions that no test imports, also not by other files; of languages whose imports are resolved. Runs nothing."""
    reached = {one["path"] for one in tests}
    queue = list(reached)
    while queue:
        found = set(graph.all.get(queue.pop(), ())) - reached
        reached |= found
        queue += found
    resolved = (one for one in code if one["language"] in GRAMMARS and GRAMMARS[one["language"]].family)
    judged = (one for one in resolved if any(symbol["kind"] in FUNCTIONS for symbol in one["symbols"]))
    return sorted((one for one in judged if one["path"] not in reached), key=lambda one: (-one["complexity"], one["path"]))


def _describe_history(workspace: Path, below: str, files: Sequence[Facts]) -> dict[str, Any]:
    """Files that are complex and change often."""
    churn, history = read_history(workspace, below)
    spots = [
        {"path": one["path"], "commits": churn[one["path"]], "complexity": one["complexity"]}
        for one in files
        if not one["isTest"] and one.get("complexity", 0) > 1 and churn[one["path"]] > 1
    ]
    return {
        "hotSpots": heapq.nlargest(LISTED, spots, key=lambda one: (one["commits"] * one["complexity"], one["path"])),
        "history": history,
    }


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


def _describe_cycle(members: set[str], edges: Mapping[str, Counter[str]]) -> dict[str, Any]:
    users = Counter(target for one in members for target in edges[one] if target in members)
    busiest = min(members, key=lambda node: (-users[node], node))
    shown = {"files": sorted(members), "ring": shortest_cycle(busiest, edges, members)}
    return {"size": len(members), **{key: paths[:CYCLE_MEMBERS] for key, paths in shown.items()}}
