"""The agents of the demo that do the work: survey (depth 1) hands groups of files to inspect (2), which hands portions to measure (3)."""

import asyncio
from pathlib import Path
from typing import Any

from remit.agents.blocking import BlockingContext
from remit.agents.function import agent
from remit.cli.demo.files import Finds, find_files, groups_of, portions_of
from remit.cli.demo.measuring import Measure, total
from remit.cli.demo.promises import circle, prose, stuck
from remit.cli.demo.report import Chapter, report_text
from remit.cli.words import count
from remit.core.result import Return
from remit.flow.context import Context
from remit.flow.request import call
from remit.system.files import atomic_write

REPORT = ".remit/demo/report.md"
SAY_EVERY = 25


@agent("demo.survey", timeout=40, workspace="none", requires_artifacts=True, description="Surveys a folder and writes a report.")
async def survey(ctx: Context, folder: str = ".") -> dict[str, Any]:
    base = (ctx.root / folder).resolve()
    ctx.progress("looking for files", 0.0)
    finds = await asyncio.to_thread(find_files, base)
    groups = groups_of(finds.files)
    ctx.progress(f"{count(finds.seen, 'file')} in {count(len(groups), 'group')}; delegating", 0.1)
    working = [call("demo.inspect", group=name, folder=str(base), files=files) for name, files in groups.items()]
    misbehaving = [call("demo.stuck"), call("demo.prose", files=finds.seen), call("demo.circle")]
    returns = await ctx.gather(*misbehaving, *working)
    ctx.progress("writing the report", 0.9)
    chapters = [_chapter(name, done) for name, done in zip(groups, returns[len(misbehaving) :], strict=True)]
    await asyncio.to_thread(_write_report, ctx.root, base, finds, chapters, returns[: len(misbehaving)])
    ctx.artifact(REPORT, "report", f"What is in {base.name or base}, measured.")
    return _answer(_survey_summary(chapters), _figures(finds, chapters))


@agent("demo.inspect", timeout=30, workspace="none", description="Has the files of one group measured, several portions at once.")
async def inspect(ctx: Context, group: str, folder: str, files: list[str]) -> dict[str, Any]:
    portions = portions_of(files)
    ctx.progress(f"{count(len(files), 'file')} in {count(len(portions), 'portion')}", 0.1)
    returns = await ctx.gather(*(call("demo.measure", portion=name, folder=folder, files=paths) for name, paths in portions.items()))
    measured = [done.data["measure"] for done in returns if done.ok]
    whole = total(measured)
    summary = f"{_gist(whole)}. Measured in {count(len(returns), 'portion')}."
    return _answer(summary, {"measure": whole.to_dict(), "unmeasured": len(returns) - len(measured)})


@agent("demo.measure", timeout=20, workspace="none", description="Counts lines, sizes and TODOs of some files.")
def measure(ctx: BlockingContext, portion: str, folder: str, files: list[str]) -> dict[str, Any]:
    found = Measure()
    skipped = 0
    for place, path in enumerate(files):
        if ctx.hand_in:  # the soft deadline: hand in what there is
            skipped = len(files) - place
            break
        if place % SAY_EVERY == 0:
            ctx.progress(path, place / len(files))
        found.add_file(Path(folder), path)
    longest = f"The longest is {found.longest[0][1]}" if found.longest else "There was nothing to read"
    return _answer(f"{_gist(found)}. {longest[:200]}.", {"measure": found.to_dict(), "skipped": skipped})


AGENTS = (survey, inspect, measure, stuck, prose, circle)


def _answer(summary: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"status": "completed", "summary": summary, "data": data}


def _gist(measure: Measure) -> str:
    todos = sum(measure.marks.values())
    return f"{count(measure.files, 'file')}, {count(measure.lines, 'line')}" + (f", {count(todos, 'TODO')}" if todos else "")


def _survey_summary(chapters: list[Chapter]) -> str:
    whole = total(chapter.measure.to_dict() for chapter in chapters)
    groups = count(len(chapters), "group")
    return f"Measured {count(whole.files, 'file')} with {count(whole.lines, 'line')} in {groups}. The report is written."


def _chapter(name: str, done: Return) -> Chapter:
    measured = Measure(**done.data["measure"]) if done.ok else Measure()
    return Chapter(name=name, measure=measured, session_id=done.session_id, seconds=done.metadata.duration_seconds, is_whole=done.ok)


def _write_report(root: Path, base: Path, finds: Finds, chapters: list[Chapter], misbehaved: list[Return]) -> None:
    path = root / REPORT
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, report_text(base, finds, chapters, misbehaved).encode())


def _figures(finds: Finds, chapters: list[Chapter]) -> dict[str, Any]:
    whole = total(chapter.measure.to_dict() for chapter in chapters)
    return {
        "files": finds.seen,
        "measured": whole.files,
        "lines": whole.lines,
        "bytes": whole.size,
        "groups": {chapter.name: chapter.measure.files for chapter in chapters},
        "marks": whole.marks,
        "report": REPORT,
    }
