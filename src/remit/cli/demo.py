"""`remit demo`: a tree of agents counts the files of this folder; three of them misbehave. Needs no key and no server.

It runs on the embedded engine like any other delegation. Its claims are checked against the record in the store."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from remit.agents.function import agent
from remit.cli.exits import Exit
from remit.cli.install import command_here
from remit.cli.live import await_result, best_show, report_dead_work
from remit.cli.project import Project
from remit.cli.render import count, duration, painted, put, say, say_aside, size
from remit.core.context import BlockingContext, Context
from remit.core.record import Record
from remit.core.request import call
from remit.core.result import Return, Status
from remit.runtime.harvest import search
from remit.system.files import atomic_write

REPORT = ".remit/demo/report.md"
HALF_FILE = "findings.md"
STUCK_SECONDS = 3.0
GRACE_SECONDS = 1.0
"""Longest delay of a return after its deadline."""
MOST_FILES, MOST_GROUPS, MOST_BYTES = 3_000, 8, 2_000_000
NEXT = """
Try next

  {remit} show last
  {remit} history

Your own agent: put this into .remit/agents/hello.py

  from remit import agent, Context

  @agent("hello", timeout=10)
  async def hello(ctx: Context, name: str) -> str:
      return f"Hello, {{name}}, from depth {{ctx.depth}}."

and call it: {remit} delegate hello name=Ada"""


# ---- agents that work


@agent("demo.survey", timeout=40, workspace="none", requires_artifacts=True, description="Counts a folder and writes a report.")
async def survey(ctx: Context, folder: str = ".") -> dict[str, Any]:
    base = (ctx.root / folder).resolve()
    found = await asyncio.to_thread(search, base, "", time.monotonic() + 3.0)
    paths = sorted((one.path for one in found.found), key=lambda path: (path.count("/"), path))[:MOST_FILES]
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(path.partition("/")[0] + "/" if "/" in path else "top level", []).append(path)
    largest = [name for name, _ in Counter({name: len(files) for name, files in groups.items()}).most_common(MOST_GROUPS)]
    ctx.progress(f"{count(len(paths), 'file')}; delegating", 0.1)
    bad = [call("demo.stuck"), call("demo.prose", files=len(paths)), call("demo.circle")]
    good = [call("demo.inspect", folder=str(base), files=groups[name]) for name in largest]
    returns = (await ctx.gather(*bad, *good))[len(bad) :]
    figures = {name: done.data for name, done in zip(largest, returns, strict=True) if done.ok}
    rows = [f"| {name.replace('|', ' ')} | {one['files']:,} | {one['lines']:,} | {size(one['bytes'])} |" for name, one in figures.items()]
    head = f"# Contents of {base.name or base}\n\n| folder | files | lines | size |\n|---|--:|--:|--:|\n"
    file = ctx.root / REPORT
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(file, (head + "\n".join(rows) + "\n").encode())
    ctx.artifact(REPORT, "report", f"Contents of {base.name or base}.")
    files, lines = (sum(one[key] for one in figures.values()) for key in ("files", "lines"))
    summary = f"Measured {count(files, 'file')} with {count(lines, 'line')}. The report is written."
    return {"status": "completed", "summary": summary, "data": {"files": len(paths), "measured": files, "lines": lines, "report": REPORT}}


@agent("demo.inspect", timeout=30, workspace="none", description="Has the files of one folder counted.")
async def inspect(ctx: Context, folder: str, files: list[str]) -> dict[str, Any]:
    done = await ctx.delegate("demo.measure", folder=folder, files=files)
    return {"status": "completed" if done.ok else "partial", "summary": done.summary, "data": done.data}


@agent("demo.measure", timeout=20, workspace="none", description="Counts the lines and bytes of some files.")
def measure(ctx: BlockingContext, folder: str, files: list[str]) -> dict[str, Any]:
    lines = total = 0
    for place, name in enumerate(files):
        if ctx.hand_in:  # the soft deadline: return the result so far
            files = files[:place]
            break
        file = Path(folder, name)
        try:
            length = 0 if file.is_symlink() or not file.is_file() else file.stat().st_size
            lines += file.read_bytes().count(b"\n") if 0 < length < MOST_BYTES else 0
        except OSError:
            continue
        total += length
    summary = f"{count(len(files), 'file')}, {count(lines, 'line')}, {size(total)}."
    return {"status": "completed", "summary": summary, "data": {"files": len(files), "lines": lines, "bytes": total}}


# ---- agents that misbehave


@agent("demo.stuck", isolation="process", workspace="scratch", timeout=STUCK_SECONDS, description="Writes half a file, then never ends.")
def stuck(ctx: BlockingContext) -> str:
    (ctx.scratch / HALF_FILE).write_text("# Findings\n\n1. This half was written before its author got stuck.\n2. The other half wa")
    ctx.progress("stuck in an endless loop", 0.5)
    while True:
        pass


@agent("demo.prose", answers="return", workspace="none", timeout=20, description="Answers in prose until the faults are named.")
async def prose(ctx: Context, files: int) -> str:
    """Like a language model that forgets the format: it is asked once more, with the exact faults."""
    if ctx.repair is None:
        return f"Sure! I counted {files} files. It all looks fine to me, let me know if you need more."
    ctx.progress(f"asked again: {ctx.repair.faults[0]}")
    known = {"session_id": ctx.session_id, "agent_type": "demo.prose", "delegation_depth": ctx.depth, "delegation_path": list(ctx.path)}
    answer = {"status": "completed", "summary": f"Counted {files} files.", "artifacts": [], "metadata": known, "errors": []}
    return f"My apologies, here it is:\n\n```json\n{json.dumps(answer, indent=2)}\n```\n"


@agent("demo.circle", workspace="none", timeout=20, description="Delegates back to the agent that called it.")
async def circle(ctx: Context) -> dict[str, Any]:
    refused = await ctx.delegate("demo.survey", folder=".")
    return {"status": "completed", "summary": f"Asked demo.survey, its own caller. The answer was {refused.errors[0].code}."}


AGENTS = (survey, inspect, measure, stuck, prose, circle)


# ---- what was shown


@dataclass(frozen=True, slots=True)
class Part:
    part: str
    ok: bool
    detail: str


def judged(root: Path, result: Return, records: Sequence[Record]) -> list[Part]:
    ended = {record.agent: record.result for record in records if record.result is not None and record.started_at is not None}
    report = next((one for one in result.artifacts if (root / one.path).is_file()), None)
    depth = max((record.depth for record in records), default=0)
    done = f"{result.summary} {count(len(records), 'delegation')}, {depth} deep; {REPORT} ({report.evidence if report else 'missing'})"
    hung, prose = ended.get("demo.stuck"), ended.get("demo.prose")
    half = next((one.path for one in hung.artifacts if one.path.endswith(HALF_FILE)), None) if hung else None
    seconds = hung.metadata.duration_seconds if hung else 0.0
    is_in_time = hung is not None and hung.status is Status.PARTIAL and seconds <= STUCK_SECONDS + GRACE_SECONDS
    is_repaired = prose is not None and prose.ok and any("repaired" in warning for warning in prose.warnings)
    refused = [r for r in records if r.agent == "demo.survey" and r.started_at is None and r.result and r.result.errors]
    return [
        Part("Work was done", result.ok and report is not None, done),
        Part("An agent hung", is_in_time and half is not None, f"partial at its deadline, after {duration(seconds)}, with {half}"),
        Part("An agent answered in prose", is_repaired, "asked again with the exact faults, it answered well"),
        Part("A cycle was refused", bool(refused), " → ".join(refused[0].path) + "; nothing ran" if refused else ""),
    ]


# ---- the command


def demo(project: Project) -> Exit:
    """Show what remit promises: a tree of agents counts the files of this folder, some of them misbehave. No key, no server."""
    here = project if project.is_named else Project(Path.cwd(), as_json=project.as_json)
    return asyncio.run(_demo(here))


async def _demo(project: Project) -> Exit:
    folder, as_json = project.root, project.as_json
    settings = {"max_depth": 3, "cycles": "agent", "slots_total": 256}  # independent of the settings of the project
    async with project.open(agents=AGENTS, settings=settings, approver=None) as remit:
        await report_dead_work(remit)
        some = search(folder, "", time.monotonic() + 1.0)
        counted = folder if some.found or not some.is_whole else Path(__file__).parents[1]
        if not as_json:
            say_aside(f"A tree of agents counts {counted}. Some of them misbehave.\n")
        handle = await remit.start("demo.survey", folder=str(counted))
        show = best_show(as_json=as_json)
        result, was_interrupted = await await_result(remit, lambda: [handle.session_id], handle.result(), show)
        records = await remit.tree(handle.session_id)
    parts = judged(folder, result, records)
    is_ok = all(part.ok for part in parts)
    document = {
        "ok": is_ok,
        "session_id": result.session_id,
        "parts": [asdict(part) for part in parts],
        "report": REPORT if result.ok else None,
        "return": result.to_dict(),
    }
    code = Exit.INTERRUPTED if was_interrupted else Exit.OK if is_ok else Exit.FAILED
    return project.answer(document, lambda: _print(parts, result), code)


def _print(parts: Sequence[Part], result: Return) -> None:
    say("What you saw")
    for part in parts:
        print(f"  {painted('✓', 'green') if part.ok else painted('✗', 'bold red')} {painted(part.part, 'bold')}")
        put(part.detail, "    ")
    say(f"\nSession {result.session_id}. The report: {REPORT if result.ok else '-'}")
    say(NEXT.format(remit=" ".join(command_here())))
