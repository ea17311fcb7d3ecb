"""The demo's report: what the survey found in a folder, as Markdown. Text only; written to disk by `agents`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from remit.cli.demo.files import Finds
from remit.cli.demo.measuring import Measure, total
from remit.cli.words import count, duration, moment, size
from remit.core.result import Return

NOTES_SHOWN = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A group of files and what was measured of it."""

    name: str
    measure: Measure
    session_id: str
    seconds: float
    is_whole: bool


def report_text(base: Path, finds: Finds, chapters: Sequence[Chapter], misbehaved: Sequence[Return]) -> str:
    whole = total(chapter.measure.to_dict() for chapter in chapters)
    parts = [
        f"# What is in {base.name or base}\n",
        _opening(base, finds, whole),
        _languages(whole),
        _groups(chapters),
        _listed("Longest files", "lines", [(f"{n:,}", path) for n, path in whole.longest if n]),
        _listed("Largest files", "size", [(size(n), path) for n, path in whole.largest if n]),
        _freshness(finds),
        _notes(whole),
        _making(chapters, misbehaved),
    ]
    return "\n".join(part for part in parts if part)


def _opening(base: Path, finds: Finds, whole: Measure) -> str:
    text = f"{count(whole.files, 'file')}, {count(whole.lines, 'line')}, {size(whole.size)} in `{base}`."
    if whole.unread:
        text += f" {count(whole.unread, 'file')} binary, very large or unreadable: counted by size alone."
    if finds.seen > whole.files:
        text += f" The folder holds {finds.seen:,} files; those nearest to the top were measured."
    if not finds.is_whole:
        text += " The walk stopped at its bounds, so there are more still."
    return text + " Folders that tools keep for themselves (.git, node_modules, caches, …) are left out.\n"


def _languages(whole: Measure) -> str:
    rows = sorted(whole.languages.items(), key=lambda item: (-item[1][1], -item[1][2]))
    lines = [f"| {name} | {files:,} | {lines:,} | {size(total_bytes)} |" for name, (files, lines, total_bytes) in rows[:15]]
    return _table("By language", "| language | files | lines | size |\n|---|--:|--:|--:|", lines)


def _groups(chapters: Sequence[Chapter]) -> str:
    lines = []
    for chapter in sorted(chapters, key=lambda one: -one.measure.lines):
        measure = chapter.measure
        marks = sum(measure.marks.values())
        note = "" if chapter.is_whole else " (not finished)"
        longest = f"`{_cell(measure.longest[0][1])}`" if measure.longest and measure.longest[0][0] else ""
        lines.append(
            f"| {_cell(chapter.name)}{note} | {measure.files:,} | {measure.lines:,} | {size(measure.size)} | {marks or ''} | {longest} |"
        )
    return _table("By group", "| group | files | lines | size | TODOs | longest file |\n|---|--:|--:|--:|--:|---|", lines)


def _listed(title: str, figure: str, rows: Sequence[tuple[str, str]]) -> str:
    return _table(title, f"| {figure} | file |\n|--:|---|", [f"| {number} | `{_cell(path)}` |" for number, path in rows])


def _freshness(finds: Finds) -> str:
    newest = sorted(finds.files, key=lambda found: -found.changed_at)[:5]
    return _table("Changed last", "| when | file |\n|---|---|", [f"| {moment(f.changed_at)} | `{_cell(f.path)}` |" for f in newest])


def _notes(whole: Measure) -> str:
    if not whole.marks:
        return ""
    tally = ", ".join(f"{number} × {mark}" for mark, number in sorted(whole.marks.items()))
    lines = [f"- `{_cell(path)}:{line}` {_cell(text)}" for path, line, text in whole.notes[:NOTES_SHOWN]]
    more = sum(whole.marks.values()) - len(lines)
    return f"## Left to do\n\n{tally}.\n\n" + "\n".join(lines) + (f"\n- … and {more} more" if more > 0 else "") + "\n"


def _making(chapters: Sequence[Chapter], misbehaved: Sequence[Return]) -> str:
    lines = [
        f"| demo.inspect {_cell(c.name)} | `{c.session_id}` | {'completed' if c.is_whole else 'not completed'} | {duration(c.seconds)} |"
        for c in chapters
    ]
    lines += [
        f"| {done.metadata.agent_type} | `{done.session_id}` | {done.status} | {duration(done.metadata.duration_seconds)} |"
        for done in misbehaved
    ]
    return _table("How this report was made", "| delegation | session | status | took |\n|---|---|---|--:|", lines)


def _table(title: str, head: str, lines: Sequence[str]) -> str:
    return f"## {title}\n\n{head}\n" + "\n".join(lines) + "\n" if lines else ""


def _cell(text: str) -> str:
    """Safe inside a table and inside backticks."""
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")
