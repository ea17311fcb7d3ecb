"""The report a person reads first: what this is, where one starts, what is risky, tangled, untested. Short; the whole is in the data.

Pure: text out. Whatever comes from the repository goes through `wording`.
"""

import posixpath
import re
import time
from collections import defaultdict

from remit.agents.builtin.coder.analysis.findings import Findings, entries, folder_groups, left_out_of_picture, most
from remit.agents.builtin.coder.analysis.graph import by_folder, components
from remit.agents.builtin.coder.analysis.languages import BY_NAME, PROGRAMMING
from remit.agents.builtin.coder.analysis.reading import HARD
from remit.agents.builtin.coder.analysis.survey import Function, Member, Tally
from remit.agents.builtin.coder.analysis.wording import code, listed, many, prose, table

MORE = "<!-- more -->"
"""Up to here it is what is shown of the report at a glance."""
_ROWS = 10
_URGENCY = {"FIXME": 0, "XXX": 1, "HACK": 2, "TODO": 3}
_FOLDERS = 40
_FOLDERS_SHOWN = 18


def write_report(findings: Findings) -> str:
    sections = [
        _opening,
        _in_short,
        _mark,
        _where_to_start,
        _how_it_is_built,
        _risky,
        _tangled,
        _untested,
        _open_ends,
        _languages,
        _left_out,
    ]
    text = "\n\n".join(filter(None, (section(findings) for section in sections))) + "\n"
    return re.sub(f"`{re.escape(code(findings.path).strip('`'))}/(?=[^`])", "`", text) if findings.path else text


def _mark(_: Findings) -> str:
    return MORE


def title(findings: Findings) -> str:
    return findings.manifests.name or posixpath.basename(findings.path) or findings.folder


def _opening(findings: Findings) -> str:
    about = f"\n\n{prose(findings.manifests.about)}" if findings.manifests.about else ""
    partial = ""
    if findings.is_partial:
        missing = many(findings.left, "file")
        partial = f"\n\n**Not complete:** there was no time for {missing}. What was read is kept; ask again to go on from here."
    where = f"\n\nPaths are below {code(findings.path)}." if findings.path else ""
    return f"# {prose(title(findings))}{about}\n\n{composition(findings)}{where}{partial}"


def composition(findings: Findings) -> str:
    parsed = {name: tally for name, tally in findings.survey.tallies.items() if name in BY_NAME}
    total = sum(tally.code for tally in parsed.values())
    if not total:
        return f"{many(findings.survey.files, 'file')}, none of them in a language that is read here."
    shares = sorted(parsed.items(), key=lambda item: -item[1].code)
    first, rest = shares[0], [f"{name} ({_percent(t.code, total)})" for name, t in shares[1:4] if t.code * 100 >= total]
    others = f", with {listed(rest)}" if rest else ""
    tests = findings.tests
    tested = f"; {_percent(tests.test_code, total)} of it tests" if tests.tests else "; no tests in it" if not findings.left else ""
    size = f"{many(total, 'line')} of code in {many(len(findings.survey.members), 'file')}"
    return f"{size}: {first[0]} ({_percent(first[1].code, total)}){others}{tested}."


def _percent(part: int, whole: int) -> str:
    share = 100 * part / whole if whole else 0
    return "less than 1 %" if 0 < share < 1 else f"{share:.0f} %"


def _in_short(findings: Findings) -> str:
    points = [*_starting_points(findings), *_risk_points(findings), _tangle_point(findings), _test_point(findings)]
    return "## In short\n\n" + "\n".join(f"- {point}" for point in filter(None, points))


def _starting_points(findings: Findings) -> list[str]:
    points = []
    if begins := entries(findings):
        names = list(dict.fromkeys(code(e.what.partition(" = ")[0].removeprefix("command ") if not e.line else e.path) for e in begins))
        more = f" and {many(len(names) - 3, 'more place')}" if len(names) > 3 else ""
        points.append(f"**It starts** at {listed(names[:3]) if not more else ', '.join(names[:3])}{more}.")
    if top := most(findings.imported_by, 3):
        points.append(f"**At its heart**: {listed([f'{code(node)} (imported by {count:,})' for node, count in top])}.")
    return points


def _risk_points(findings: Findings) -> list[str]:
    points = []
    if findings.hot_spots:
        spot = findings.hot_spots[0]
        points.append(
            f"**Most likely to break**: {code(spot.member.path)}, changed in {spot.churn.commits} of the last "
            f"{many(findings.history.commits, 'commit')}, with a complexity of {spot.member.complexity:,}"
            f"{', and no test reaches it' if spot.is_untested else ''}."
        )
    hard = sum(member.hard for member in findings.survey.members)
    functions = sum(member.functions for member in findings.survey.members)
    if worst := findings.survey.most_complex(1):
        where = f"{code(worst[0].name)} in {code(worst[0].path)} ({worst[0].complexity})"
        said = (
            f"{hard:,} of {many(functions, 'function')} {'has' if hard == 1 else 'have'} a complexity above {HARD}; the worst is {where}."
            if hard
            else ""
        )
        points.append(f"**Hard to follow**: {said}" if said else f"No function has a complexity above {HARD}; the highest is {where}.")
    return points


def _tangle_point(findings: Findings) -> str:
    if not findings.edges.internal:
        return ""
    if not findings.knots:
        lazy = " (only imports inside of functions or for types close any)" if findings.lazy_knots else ""
        return f"**Not tangled**: no modules import one another in a circle{lazy}.{_tied_folders(findings)}"
    largest = many(len(findings.knots[0].members), "module")
    return f"**Tangled**: {many(len(findings.knots), 'group')} of modules import one another in a circle; the largest has {largest}."


def _tied_folders(findings: Findings) -> str:
    """What the picture shows in red though no modules are tangled."""
    knots = components(folder_groups(findings).edges)
    if not knots:
        return ""
    more = " and others" if len(knots) > 1 or len(knots[0]) > 4 else ""
    names = [code(one) for one in knots[0][:4]]
    told = f"{', '.join(names)}{more}" if more else listed(names)
    return f" Folders do: {told} import one another, each by other modules; the picture shows them in red."


def _test_point(findings: Findings) -> str:
    tests = findings.tests
    if not tests.tests and not tests.test_files:
        return "**Untested**: there are no tests in it." if findings.survey.members and not findings.left else ""
    count = len(tests.untouched)
    of = tests.direct + tests.indirect + count
    said = (
        f"{many(count, 'file')} of {of:,} with functions {'is' if count == 1 else 'are'} reached by no test"
        if count
        else "tests reach every file with functions"
    )
    size = f"{many(tests.tests, 'test')} in {many(tests.test_files, 'file')}"
    return f"**Tests**: {size}, {tests.ratio:.1f} lines for each line of code; {said}."


def _where_to_start(findings: Findings) -> str:
    lines = []
    abouts = {member.path: member.about for member in findings.survey.members}
    if findings.manifests.readme:
        lines.append(f"1. {code(findings.manifests.readme)}")
    for entry in entries(findings)[:6]:
        where = code(entry.path) + (f":{entry.line}" if entry.line else "")
        lines.append(f"1. {where}, {code(entry.what)}{_said(abouts.get(entry.path, ''))}")
    hearts = [(node, count) for node, count in most(findings.imported_by, 30) if not _is_index(node)][:6]
    lines += [f"1. {code(node)}, imported by {many(count, 'module')}{_said(abouts.get(node, ''))}" for node, count in hearts]
    if not lines:
        return ""
    return "## Where to start\n\nIn this order: what the project says, where it begins, and what most of it rests on.\n\n" + "\n".join(
        lines
    )


def _said(about: str) -> str:
    return f": {prose(about)}" if about else ""


def _is_index(node: str) -> bool:
    return any(posixpath.basename(node) in language.index_names for language in BY_NAME.values())


def _how_it_is_built(findings: Findings) -> str:
    rows = _folders(findings)
    if not rows:
        return ""
    outside = most(findings.edges.outside, 12)
    rests = (
        f"\n\nIt rests on {listed([f'{code(name)} ({count:,})' for name, count in outside])}, by the number of files that import them."
        if outside
        else ""
    )
    head = ("Folder", "Files", "Code", "Complexity", "What it says of itself")
    left_out = left_out_of_picture(findings)
    picture = "![Which parts import which](imports.svg)\n\n" if findings.edges.internal else ""
    picture += f"The picture leaves out {left_out}.\n\n" if picture and left_out else ""
    return f"## How it is built\n\n{picture}{table(head, rows)}{rests}"


def _folders(findings: Findings) -> list[tuple[str, ...]]:
    """The folders that tell parts from one another, the larger ones opened; tests are one part for each folder at the top."""
    by_path = {member.path: member for member in findings.survey.members}
    parts: dict[str, list[Member]] = defaultdict(list)
    for path, folder in by_folder(sorted(path for path, member in by_path.items() if not member.is_test), _FOLDERS).items():
        parts[folder].append(by_path[path])
    tests: dict[str, list[Member]] = defaultdict(list)
    for member in findings.survey.members:
        if member.is_test:
            inner = member.path[len(findings.path) + 1 if findings.path else 0 :]
            tests[posixpath.join(findings.path, inner.partition("/")[0]) + "/" if "/" in inner else "./"].append(member)
    rows = [(folder, inside, _folder_about(folder, inside)) for folder, inside in parts.items()]
    rows += [(folder, inside, "its tests") for folder, inside in tests.items()]
    rows.sort(key=lambda row: -sum(member.code for member in row[1]))
    lines: list[tuple[str, ...]] = [
        (
            code(folder if folder != findings.path + "/" else "./"),
            f"{len(inside):,}",
            f"{sum(m.code for m in inside):,}",
            f"{sum(m.complexity for m in inside):,}",
            prose(about),
        )
        for folder, inside, about in rows[:_FOLDERS_SHOWN]
    ]
    rest = [member for _, inside, _ in rows[_FOLDERS_SHOWN:] for member in inside]
    if rest:
        lines.append((f"{len(rows) - _FOLDERS_SHOWN} smaller ones", f"{len(rest):,}", f"{sum(m.code for m in rest):,}", "", ""))
    return lines


def _folder_about(folder: str, inside: list[Member]) -> str:
    return next((m.about for m in inside if m.about and _is_index(m.path) and posixpath.dirname(m.path) == folder.rstrip("/")), "")


def _risky(findings: Findings) -> str:
    parts = [_hot_spots(findings)]
    survey = findings.survey
    if functions := survey.most_complex(_ROWS):
        parts.append("The functions with the most decisions:\n\n" + _function_table(functions))
    long = [f for f in survey.longest(5) if f.lines > 80]
    deep = [f for f in survey.most_nested(5) if f.nesting > 4]
    if long:
        parts.append("Longest: " + "; ".join(f"{code(f.name)} ({f.lines:,} lines, {code(f.path)}:{f.line})" for f in long) + ".")
    if deep:
        parts.append("Deepest: " + "; ".join(f"{code(f.name)} ({f.nesting} levels, {code(f.path)}:{f.line})" for f in deep) + ".")
    parts = list(filter(None, parts))
    return "\n\n".join(["## What is risky", *parts]) if parts else ""


def _hot_spots(findings: Findings) -> str:
    history = findings.history
    if not findings.hot_spots:
        return f"Where work goes on is not known: {prose(history.why_not)}" if history.why_not else ""
    rows = [
        (
            code(spot.member.path), f"{spot.churn.commits}", f"{spot.churn.lines:,}", f"{len(spot.churn.authors)}",
            f"{spot.member.complexity:,}", "none" if spot.is_untested else "",
        )
        for spot in findings.hot_spots[:_ROWS]
    ]  # fmt: skip
    since = time.strftime("%Y-%m-%d", time.gmtime(history.since))
    said = f"Files that are complex *and* change often, over {many(history.commits, 'commit')} since {since}: faults gather here."
    return f"{said}\n\n" + table(("File", "Commits", "Lines changed", "Authors", "Complexity", "Tests"), rows)


def _function_table(functions: list[Function]) -> str:
    rows = [(code(f.name), f"{code(f.path)}:{f.line}", f"{f.complexity}", f"{f.lines:,}", f"{f.nesting}") for f in functions]
    return table(("Function", "Where", "Complexity", "Lines", "Nesting"), rows)


def _tangled(findings: Findings) -> str:
    if not findings.knots:
        return ""
    lines = []
    for knot in findings.knots[:_ROWS]:
        ring = " → ".join(code(node) for node in (*knot.ring[:8], *(["…"] if len(knot.ring) > 8 else []), knot.ring[0]))
        size = f" (one way round; {len(knot.members)} modules reach one another)" if len(knot.members) > len(knot.ring) else ""
        lines.append(f"- {ring}{size}")
    more = f"\n- and {many(len(findings.knots) - _ROWS, 'more group')}" if len(findings.knots) > _ROWS else ""
    return (
        "## What is tangled\n\nModules that import one another in a circle cannot be understood, tested or moved alone. "
        "Imports inside of functions or only for types are not counted.\n\n" + "\n".join(lines) + more
    )


def _untested(findings: Findings) -> str:
    tests = findings.tests
    if not tests.untouched or not (tests.tests or tests.test_files):
        return ""
    rows = [(code(m.path), f"{m.code:,}", f"{m.functions:,}", f"{m.complexity:,}") for m in tests.untouched[:_ROWS]]
    more = f"\n\nand {many(len(tests.untouched) - _ROWS, 'more file')}, in the data." if len(tests.untouched) > _ROWS else ""
    reached = (
        f"{tests.direct:,} files are imported by a test or have one named after them, {tests.indirect:,} are reached only through others"
    )
    return (
        f"## What is untested\n\nJudged by imports and names, not by running anything: {reached}, and {len(tests.untouched):,} not at all, "
        "those with the most decisions first:\n\n" + table(("File", "Code", "Functions", "Complexity"), rows) + more
    )


def _open_ends(findings: Findings) -> str:
    tags = findings.survey.todo_tags
    if not tags:
        return ""
    counts = listed([f"{count:,} {tag}" for tag, count in tags.most_common()])
    tests = {member.path for member in findings.survey.members if member.is_test}
    urgent = sorted(findings.survey.todos, key=lambda t: (t.path in tests, _URGENCY.get(t.tag, 9), t.path, t.line))
    lines = [f"- {code(t.path)}:{t.line} {prose(t.text[:140])}" for t in urgent[:_ROWS]]
    more = f"\n- and {sum(tags.values()) - _ROWS:,} more" if sum(tags.values()) > _ROWS else ""
    return f"## Left open\n\nComments say {counts}:\n\n" + "\n".join(lines) + more


def _languages(findings: Findings) -> str:
    ordered = sorted(findings.survey.tallies.items(), key=lambda item: (item[0] not in BY_NAME, -item[1].code))
    rows = [_language_row(name, tally) for name, tally in ordered if tally.code][:14]
    if not rows:
        return ""
    largest = [member for member in findings.survey.largest() if not member.is_test][:5]
    said = "; ".join(f"{code(m.path)} ({m.code:,})" for m in largest)
    tail = f"\n\nLargest files, by lines of code: {said}." if largest else ""
    return "## Languages and sizes\n\n" + table(("Language", "Files", "Code", "Comments", "Blank", "Read"), rows) + tail


def _language_row(name: str, tally: Tally) -> tuple[str, ...]:
    read = "parsed" if name in BY_NAME else "lines counted"
    comments = f"{tally.comments:,}" if name in BY_NAME else ""
    return prose(name), f"{tally.files:,}", f"{tally.code:,}", comments, f"{tally.blank:,}", read


def _foreign(findings: Findings) -> str:
    names = sorted(findings.survey.skipped_folders)
    more = f" and {many(len(names) - 5, 'more folder')}" if len(names) > 5 else ""
    return f" (in {', '.join(map(code, names[:5])) if more else listed([code(name) for name in names])}{more})" if names else ""


def _left_out(findings: Findings) -> str:
    survey = findings.survey
    lines = [
        f"- {prose(reason)}: {count:,}{_foreign(findings) if 'people' in reason else ''}" for reason, count in survey.skipped.most_common()
    ]
    unread = [(name, t) for name, t in survey.tallies.items() if name in PROGRAMMING and t.code >= 200]
    lines += [
        f"- {t.code:,} lines of {prose(name)}: counted, but not parsed" for name, t in sorted(unread, key=lambda item: -item[1].code)[:5]
    ]
    if survey.broken:
        lines.append(
            f"- {many(survey.broken, 'file')} with parts that the grammar could not make sense of: facts about them may be incomplete"
        )
    lines += [f"- {code(path)}: {prose(why)}" for path, why in survey.troubles[:5]]
    if len(survey.troubles) > 5:
        lines.append(f"- and {many(len(survey.troubles) - 5, 'more file')} that could not be read")
    lines += [f"- {prose(note)}" for note in findings.notes]
    return "## What was not looked at\n\n" + "\n".join(lines) if lines else ""
