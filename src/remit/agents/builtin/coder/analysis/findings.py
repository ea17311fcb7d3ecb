"""What was found, put together: the graph, tests, history and totals of one analysis, and all of it as bounded data (camelCase, S5.2)."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from remit.agents.builtin.coder.analysis.graph import Cycle, Groups, cycles, dependents, grouped
from remit.agents.builtin.coder.analysis.history import Churn, History
from remit.agents.builtin.coder.analysis.languages import BY_NAME
from remit.agents.builtin.coder.analysis.manifests import Manifests
from remit.agents.builtin.coder.analysis.picture import BOXES_AT_MOST
from remit.agents.builtin.coder.analysis.resolving import Edges, node_of, resolve
from remit.agents.builtin.coder.analysis.survey import Entry, Function, Member, Survey
from remit.agents.builtin.coder.analysis.touching import Touched, touched
from remit.agents.builtin.coder.analysis.wording import listed, many, printable

LISTED = 20
CYCLES_LISTED = 20
CYCLE_MEMBERS = 30
_PROGRAMS = frozenset({"__main__", "main", "Main", "cli", "app", "manage", "index", "server"})
"""Libraries have many modules that show what they do when they are run; these are run for their own sake."""
_ASIDE = frozenset(
    {
        "docs",
        "doc",
        "examples",
        "example",
        "samples",
        "demo",
        "demos",
        "scripts",
        "tools",
        "bench",
        "benchmarks",
        "test",
        "tests",
        "fixtures",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HotSpot:
    member: Member
    churn: Churn
    is_untested: bool

    @property
    def score(self) -> int:
        return self.churn.commits * self.member.complexity


@dataclass(slots=True, kw_only=True)
class Findings:
    path: str
    folder: str = "This folder"
    """What the workspace is called."""
    survey: Survey
    manifests: Manifests
    edges: Edges
    knots: list[Cycle]
    lazy_knots: int
    """Further groups that only imports inside of functions or for types close."""
    imported_by: dict[str, int]
    tests: Touched
    history: History
    hot_spots: list[HotSpot]
    parsed_now: int = 0
    from_cache: int = 0
    left: int = 0
    """Files that there was no time for."""
    notes: list[str] = field(default_factory=list)

    @property
    def is_partial(self) -> bool:
        return self.left > 0

    @property
    def code(self) -> int:
        return sum(member.code for member in self.survey.members)


def found(
    path: str, survey: Survey, manifests: Manifests, read_history: Callable[[], History], is_package: Callable[[str], bool]
) -> Findings:
    edges = resolve(survey.members, manifests, is_package)
    tests_only = {node_of(member) for member in survey.members if member.is_test} - {node_of(m) for m in survey.members if not m.is_test}
    knots = [knot for knot in cycles(edges.hard) if not tests_only.issuperset(knot.members)]
    both = {node: {**edges.lazy.get(node, {}), **edges.hard.get(node, {})} for node in {*edges.hard, *edges.lazy}}
    tied = {frozenset(knot.members) for knot in knots}
    lazy_knots = sum(frozenset(knot.members) not in tied and not tests_only.issuperset(knot.members) for knot in cycles(both))
    tests = touched(survey.members, edges)
    history = read_history()
    return Findings(
        path=path, survey=survey, manifests=manifests, edges=edges, knots=knots, lazy_knots=lazy_knots,
        imported_by=_imported_by(edges, tests_only), tests=tests, history=history, hot_spots=_hot_spots(survey, tests, history),
    )  # fmt: skip


def _imported_by(edges: Edges, tests_only: set[str]) -> dict[str, int]:
    """By code, not by tests: a test's imports say nothing about what the rest rests on."""
    graphs = [{node: targets for node, targets in graph.items() if node not in tests_only} for graph in (edges.hard, edges.lazy)]
    return dict(dependents(*graphs))


def _hot_spots(survey: Survey, tests: Touched, history: History) -> list[HotSpot]:
    untested = {member.path for member in tests.untouched}
    spots = [
        HotSpot(member=member, churn=history.files[member.path], is_untested=member.path in untested)
        for member in survey.members
        if not member.is_test and member.complexity > 1 and member.path in history.files
    ]
    return heapq.nlargest(LISTED, (spot for spot in spots if spot.churn.commits > 1), key=lambda spot: (spot.score, spot.member.path))


def as_data(findings: Findings) -> dict[str, Any]:
    survey = findings.survey
    return {
        "path": printable(findings.path or "."),
        "name": printable(findings.manifests.name),
        "about": printable(findings.manifests.about),
        "files": survey.files,
        "parsedFiles": len(survey.members),
        "parsedNow": findings.parsed_now,
        "fromCache": findings.from_cache,
        "notReached": findings.left,
        "languages": _languages(survey),
        "entryPoints": [{"path": printable(e.path), "line": e.line, "what": printable(e.what)} for e in entries(findings)[:LISTED]],
        "largestFiles": [_file(member) for member in survey.largest(LISTED)],
        "complexFunctions": [_function(f) for f in survey.most_complex(LISTED)],
        "longestFunctions": [_function(f) for f in survey.longest(LISTED)],
        "deepestFunctions": [_function(f) for f in survey.most_nested(LISTED)],
        "imports": _imports(findings),
        "todos": {
            "count": sum(survey.todo_tags.values()),
            "byTag": dict(survey.todo_tags),
            "items": [{"path": printable(t.path), "line": t.line, "tag": t.tag, "text": t.text} for t in survey.todos[:LISTED]],
        },
        "tests": _tests(findings.tests),
        "hotSpots": [_hot_spot(spot) for spot in findings.hot_spots],
        "history": {"commits": findings.history.commits, "isCut": findings.history.is_cut, "whyNot": findings.history.why_not},
        "skipped": dict(survey.skipped),
        "skippedFolders": _printed(sorted(survey.skipped_folders)[:LISTED]),
        "unreadable": [{"path": printable(path), "why": why} for path, why in survey.troubles[:LISTED]],
    }


def entries(findings: Findings) -> list[Entry]:
    """Commands first, then programs near the top, those that are called a program before others; what shows or measures something last."""
    declared = findings.manifests.entries
    first: dict[str, Entry] = {}
    for entry in findings.survey.entries:
        if entry.path not in first or first[entry.path].what.startswith("#!"):
            first[entry.path] = entry

    def rank(entry: Entry) -> tuple[bool, int, bool, str, int]:
        parts = entry.path.split("/")
        return not _ASIDE.isdisjoint(parts), len(parts), parts[-1].partition(".")[0] not in _PROGRAMS, entry.path, entry.line

    return declared + sorted(first.values(), key=rank)


def _languages(survey: Survey) -> list[dict[str, Any]]:
    return [
        {
            "language": printable(name), "files": t.files, "lines": t.lines, "code": t.code, "comments": t.comments, "blank": t.blank,
            "sizeBytes": t.size, "isParsed": name in BY_NAME,
        }
        for name, t in sorted(survey.tallies.items(), key=lambda item: (item[0] not in BY_NAME, -item[1].code, item[0]))[: 2 * LISTED]
    ]  # fmt: skip


def _imports(findings: Findings) -> dict[str, Any]:
    edges = findings.edges
    fans = {node: len({*edges.hard.get(node, ()), *edges.lazy.get(node, ())}) for node in {*edges.hard, *edges.lazy}}
    return {
        "edges": sum(map(len, edges.hard.values())),
        "lazyEdges": sum(map(len, edges.lazy.values())),
        "cycleCount": len(findings.knots),
        "lazyCycleCount": findings.lazy_knots,
        "cycles": [
            {"size": len(k.members), "files": _printed(k.members[:CYCLE_MEMBERS]), "ring": _printed(k.ring[:CYCLE_MEMBERS])}
            for k in findings.knots[:CYCLES_LISTED]
        ],
        "mostImported": [{"path": printable(node), "importedBy": count} for node, count in most(findings.imported_by)],
        "mostImporting": [{"path": printable(node), "imports": count} for node, count in most(fans)],
        "external": [{"name": printable(name), "files": count} for name, count in most(edges.outside)],
    }


def most(counts: "dict[str, int]", at_most: int = LISTED) -> list[tuple[str, int]]:
    return heapq.nsmallest(at_most, counts.items(), key=lambda item: (-item[1], item[0]))


def _printed(paths: Iterable[str]) -> list[str]:
    return [printable(path) for path in paths]


def _tests(tests: Touched) -> dict[str, Any]:
    return {
        "files": tests.test_files,
        "functions": tests.tests,
        "codeLines": tests.test_code,
        "ratio": round(tests.ratio, 2),
        "touchedDirectly": tests.direct,
        "touchedIndirectly": tests.indirect,
        "untouched": len(tests.untouched),
        "untouchedFiles": [_file(member) for member in tests.untouched[:LISTED]],
    }


def _file(member: Member) -> dict[str, Any]:
    return {
        "path": printable(member.path), "language": member.language, "code": member.code, "complexity": member.complexity,
        "functions": member.functions, "sizeBytes": member.size,
    }  # fmt: skip


def _function(function: Function) -> dict[str, Any]:
    return {
        "path": printable(function.path), "name": function.name, "line": function.line, "endLine": function.end_line,
        "complexity": function.complexity, "nesting": function.nesting,
    }  # fmt: skip


def _hot_spot(spot: HotSpot) -> dict[str, Any]:
    return {
        "path": printable(spot.member.path), "commits": spot.churn.commits, "linesChanged": spot.churn.lines,
        "authors": len(spot.churn.authors), "complexity": spot.member.complexity, "score": spot.score, "isUntested": spot.is_untested,
    }  # fmt: skip


def graph_nodes(findings: Findings) -> set[str]:
    """Files with code in them, as they stand in the graph; tests are left out, as they import everything and nothing imports them."""
    return {node_of(member) for member in findings.survey.members if not member.is_test and member.code}


def folder_groups(findings: Findings) -> Groups:
    """The boxes of the picture. Only imports that run with the module count, as for the cycles; a package of Go has all its files."""
    groups = grouped(graph_nodes(findings), findings.edges.hard, BOXES_AT_MOST)
    groups.sizes = Counter(groups.of[node_of(member)] for member in findings.survey.members if not member.is_test and member.code)
    return groups


def left_out_of_picture(findings: Findings) -> str:
    """Why the picture shows fewer files than were read; empty where it shows all."""
    tests = sum(member.is_test for member in findings.survey.members)
    empty = sum(not member.code and not member.is_test for member in findings.survey.members)
    return listed([*([many(tests, "test file")] if tests else []), *([many(empty, "file") + " without code"] if empty else [])])
