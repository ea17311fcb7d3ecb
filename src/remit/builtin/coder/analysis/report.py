"""The report for people, from the bounded data, with the imports as a Mermaid chart. Text of the repository is escaped."""

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from remit.builtin.coder.analysis.imports import ImportGraph
from remit.core.cycles import cyclic_components
from remit.core.text import MORE, code_span, markdown_line, one_line, plural

BOXES_AT_MOST = 40
ARROWS_AT_MOST = 70
_ROWS = 10


def composition(data: dict[str, Any]) -> str:
    parsed = [one for one in data["languages"] if one["isParsed"]]
    total = sum(one["code"] for one in parsed)
    if not total:
        return f"{plural(data['files'], 'file')}, none of them in a language that is parsed."
    ordered = sorted(parsed, key=lambda one: -int(one["code"]))[:4]
    shares = ", ".join(f"{one['language']} ({100 * one['code'] / total:.0f} %)" for one in ordered if one["code"] * 100 >= total)
    none = "" if data["notReached"] else "; no tests in it"
    tests = f"; {100 * data['tests']['codeLines'] / total:.0f} % of it tests" if data["tests"]["functions"] else none
    return f"{plural(total, 'line')} of code in {plural(data['parsedFiles'], 'file')}: {shares}{tests}."


def summary(data: dict[str, Any]) -> str:
    parts = [f"Not complete: there was no time for {plural(data['notReached'], 'file')}."] if data["notReached"] else []
    parts.append(composition(data))
    if data["imports"]["cycleCount"]:
        parts.append(f"{plural(data['imports']['cycleCount'], 'group')} of modules import one another in a circle.")
    if data["hotSpots"]:
        parts.append(f"Hottest spot: {data['hotSpots'][0]['path'][-80:]}.")
    if data["tests"]["functions"] and data["tests"]["untouched"]:
        parts.append(f"No test reaches {plural(data['tests']['untouched'], 'file')}.")
    return " ".join(" ".join(parts).split())[:400]


def import_chart(nodes: Collection[str], graph: ImportGraph, tests: int) -> str:
    """A Mermaid chart of files, or of folders if there are too many files. Only imports that run with the module are drawn.

    `tests`: how many test files are left out."""
    group = {node: node for node in nodes} if len(nodes) <= BOXES_AT_MOST else group_by_folder(sorted(nodes))
    sizes = Counter(group.values())
    edges: dict[str, Counter[str]] = {key: Counter() for key in sizes}
    for node in graph.eager.keys() & group.keys():
        for target in graph.eager[node].keys() & group.keys():
            if group[node] != group[target]:
                edges[group[node]][group[target]] += graph.eager[node][target]
    knots = cyclic_components(edges)
    drawn = [(any({start, end} <= knot for knot in knots), count, start, end) for start, to in edges.items() for end, count in to.items()]
    if not drawn:
        return ""
    drawn.sort(key=lambda one: (not one[0], -one[1], one))
    names = {key: f"n{number}" for number, key in enumerate(sorted(sizes))}
    boxes = [f'  {names[key]}["{_label(key)}{f" ({sizes[key]} files)" if sizes[key] > 1 else ""}"]' for key in names]
    arrows = [f"  {names[start]} {'==>' if in_cycle else '-->'} {names[end]}" for in_cycle, _, start, end in drawn[:ARROWS_AT_MOST]]
    left = [plural(tests, "test file")] if tests else []
    left += [plural(len(drawn) - ARROWS_AT_MOST, "arrow") + " for few imports"] if len(drawn) > ARROWS_AT_MOST else []
    notes = "Arrows lead from what imports to what is imported." + (" Bold arrows are part of a cycle." if knots else "")
    notes += f" Left out: {' and '.join(left)}." if left else ""
    return "\n".join(["```mermaid", "flowchart LR", *boxes, *arrows, "```", "", notes])


def _label(text: str) -> str:
    """Mermaid reads `#35;` as an entity; quotes, brackets and line breaks would end the label."""
    return "".join(sign if sign.isalnum() or sign in " ./_-" else f"#{ord(sign)};" for sign in one_line(text))


def group_by_folder(paths: Sequence[str]) -> dict[str, str]:
    """Each path's folder, cut at the greatest depth that gives few enough folders; beyond that the smallest form one group."""
    folders = {path: posixpath.dirname(path.rstrip("/")).split("/") for path in paths}
    cuts = [{path: "/".join(parts[:depth]) + "/" for path, parts in folders.items()} for depth in range(1, 12)]
    chosen = next((cut for cut in reversed(cuts) if len(set(cut.values())) <= BOXES_AT_MOST), cuts[0])
    largest = {folder for folder, _ in Counter(chosen.values()).most_common(BOXES_AT_MOST - 1)}
    return {path: folder if folder in largest else "(other folders)" for path, folder in chosen.items()}


def write_report(data: dict[str, Any], chart: str, title: str) -> str:
    partial = f"\n\n**Not complete:** there was no time to read {plural(data['notReached'], 'file')}." if data["notReached"] else ""
    tests = data["tests"]
    cycles = [
        " → ".join(map(code_span, (*one["ring"][:8], *(["…"] if len(one["ring"]) > 8 else []), one["ring"][0])))
        for one in data["imports"]["cycles"]
    ]
    starts = [f"{code_span(one['path'])}:{one['line']}, {code_span(one['what'])}" for one in data["entryPoints"]]
    spot = ("path", "commits", "complexity", "isUntested")
    sections = [
        f"# {markdown_line(title)}\n\n{composition(data)}{partial}",
        _bullets("Where to start", starts),
        _table("Files that are complex and change often", spot, data["hotSpots"]),
        f"No history: {markdown_line(data['history']['whyNot'])}" if data["history"]["whyNot"] else "",
        _table("The most complex functions", ["name", "path", "line", "complexity", "nesting"], data["complexFunctions"]),
        MORE,
        f"## How it is built\n\n{chart}" if chart else "",
        _table("Most imported", ["path", "importedBy"], data["imports"]["mostImported"]),
        _bullets("Cycles and tangles", cycles),
        _table("What no test reaches", ["path", "code", "functions", "complexity"], tests["untouchedFiles"] if tests["functions"] else []),
        _table("Languages", ["language", "files", "code", "comments", "blank"], data["languages"]),
        _bullets("Not read", _left_out(data)),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _bullets(heading: str, lines: Sequence[str]) -> str:
    return f"## {heading}\n\n" + "\n".join(f"- {line}" for line in lines[:_ROWS]) if lines else ""


def _table(heading: str, keys: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    lines = [[re.sub(r"([A-Z])", r" \1", key).lower() for key in keys], ["---"] * len(keys)]
    lines += [[_cell(row[key]) for key in keys] for row in list(rows)[:_ROWS]]
    drawn = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"## {heading}\n\n{drawn}" if len(lines) > 2 else ""


def _cell(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:,}" if isinstance(value, int) else code_span(value)


def _left_out(data: dict[str, Any]) -> list[str]:
    lines = [f"{markdown_line(reason)}: {count:,}" for reason, count in data["skipped"].items()]
    lines += [f"other people's code: {', '.join(map(code_span, data['skippedFolders']))}"] if data["skippedFolders"] else []
    lines += [f"{plural(data['partlyParsed'], 'file')} with parts that could not be parsed"] if data["partlyParsed"] else []
    return lines + [f"{code_span(one['path'])}: {markdown_line(one['why'])}" for one in data["unreadable"]]
