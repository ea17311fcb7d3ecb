"""The report for people, from the bounded data, with the imports as a Mermaid chart. Text of the repository is escaped."""

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from remit.core.text import MORE, code_span, markdown_line, one_line, plural

_ROWS = 10
BOXES_AT_MOST = 40
ARROWS_AT_MOST = 70


def composition(data: dict[str, Any]) -> str:
    parsed = [one for one in data["languages"] if one["isParsed"]]
    total = sum(one["code"] for one in parsed)
    if not total:
        return f"{plural(data['files'], 'file')}, none of them in a language that is parsed."
    ordered = sorted(parsed, key=lambda one: -int(one["code"]))[:4]
    shares = ", ".join(f"{one['language']} ({100 * one['code'] / total:.0f} %)" for one in ordered if one["code"] * 100 >= total)
    tests = f"{100 * data['tests']['codeLines'] / total:.0f} % of it tests" if data["tests"]["files"] else "no tests in it"
    return f"{plural(total, 'line')} of code in {plural(data['parsedFiles'], 'file')}: {shares}; {tests}."


def summary(data: dict[str, Any]) -> str:
    parts = [f"Not complete: there was no time for {plural(data['notReached'], 'file')}."] if data["notReached"] else []
    parts.append(composition(data))
    if data["imports"]["cycleCount"]:
        parts.append(f"{plural(data['imports']['cycleCount'], 'group')} of modules import one another in a circle.")
    if data["hotSpots"]:
        parts.append(f"Hottest spot: {data['hotSpots'][0]['path'][-80:]}.")
    if data["tests"]["files"] and data["tests"]["untouched"]:
        parts.append(f"No test reaches {plural(data['tests']['untouched'], 'file')}.")
    return " ".join(" ".join(parts).split())[:400]


def import_chart(paths: Collection[str], edges: Mapping[str, Counter[str]]) -> str:
    """A Mermaid chart of these files, or of folders if there are too many; imports that run with the module."""
    group = {path: path for path in paths}
    for depth in (3, 2, 1):
        if len(set(group.values())) > BOXES_AT_MOST:
            group = {path: "/".join(posixpath.dirname(path).split("/")[:depth]) + "/" for path in paths}
    boxes = {name: f"n{number}" for number, (name, _) in enumerate(Counter(sorted(group.values())).most_common(BOXES_AT_MOST))}
    arrows = Counter(
        (group[path], group[target])
        for path, targets in edges.items()
        for target in targets
        if path in group and target in group and {group[path], group[target]} <= boxes.keys() and group[path] != group[target]
    )
    if not arrows:
        return ""
    lines = [f'  {key}["{_label(name)}"]' for name, key in boxes.items()]
    lines += [f"  {boxes[start]} --> {boxes[end]}" for (start, end), _ in arrows.most_common(ARROWS_AT_MOST)]
    return "\n".join(["```mermaid", "flowchart LR", *lines, "```", "", "Arrows lead from what imports to what is imported."])


def _label(text: str) -> str:
    """Mermaid reads `#35;` as an entity; quotes, brackets and line breaks would end the label."""
    return "".join(sign if sign.isalnum() or sign in " ./_-" else f"#{ord(sign)};" for sign in one_line(text))


def write_report(data: dict[str, Any], chart: str, title: str) -> str:
    partial = f"\n\n**Not complete:** there was no time to read {plural(data['notReached'], 'file')}." if data["notReached"] else ""
    tests = data["tests"]
    cycles = [
        " → ".join(map(code_span, (*one["ring"][:8], *(["…"] if len(one["ring"]) > 8 else []), one["ring"][0])))
        for one in data["imports"]["cycles"]
    ]
    starts = [f"{code_span(one['path'])}:{one['line']}, {code_span(one['what'])}" for one in data["entryPoints"]]
    sections = [
        f"# {markdown_line(title)}\n\n{composition(data)}{partial}",
        _bullets("Where to start", starts),
        _table("Files that are complex and change often", ["path", "commits", "complexity"], data["hotSpots"]),
        f"No history: {markdown_line(data['history']['whyNot'])}" if data["history"]["whyNot"] else "",
        _table("The most complex functions", ["name", "path", "line", "complexity"], data["complexFunctions"]),
        MORE,
        f"## How it is built\n\n{chart}" if chart else "",
        _table("Most imported", ["path", "importedBy"], data["imports"]["mostImported"]),
        _bullets("Cycles and tangles", cycles),
        _table("What no test reaches", ["path", "code", "complexity"], tests["untouchedFiles"] if tests["files"] else []),
        _table("Languages", ["language", "files", "lines", "code"], data["languages"]),
        _bullets("Not read", _left_out(data)),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _bullets(heading: str, lines: Sequence[str]) -> str:
    return f"## {heading}\n\n" + "\n".join(f"- {line}" for line in lines[:_ROWS]) if lines else ""


def _table(heading: str, keys: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    lines = [[re.sub(r"([A-Z])", r" \1", key).lower() for key in keys], ["---"] * len(keys)]
    lines += [[f"{row[key]:,}" if isinstance(row[key], int) else code_span(row[key]) for key in keys] for row in list(rows)[:_ROWS]]
    drawn = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"## {heading}\n\n{drawn}" if len(lines) > 2 else ""


def _left_out(data: dict[str, Any]) -> list[str]:
    lines = [f"{markdown_line(reason)}: {count:,}" for reason, count in data["skipped"].items()]
    lines += [f"other people's code: {', '.join(map(code_span, data['skippedFolders']))}"] if data["skippedFolders"] else []
    lines += [f"{plural(data['partlyParsed'], 'file')} with parts that could not be parsed"] if data["partlyParsed"] else []
    return lines + [f"{code_span(one['path'])}: {markdown_line(one['why'])}" for one in data["unreadable"]]
