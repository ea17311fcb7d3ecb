"""The built-in planner: a task, its reports and the code turned into a plan of phases by rule, and said to be a skeleton.

Gathers (reports, names of files, the code analysis, the test command) and hands on to `phasing` and `drafting`. Where a part cannot be
looked at it goes on without, and the plan says so.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from remit.agents.builtin.roles.answering import Words, answered, description_of, plain_list, put, read, shortly, title_of
from remit.agents.builtin.roles.phasing import Item, effort_in, items_of, phases_of
from remit.agents.builtin.roles.places import command_of_tests, likely_files
from remit.agents.function import FunctionAgent, agent
from remit.core.result import Status
from remit.flow.context import Context
from remit.settings import Settings
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.agents.builtin.roles.drafting import Known

ANALYSIS_SECONDS = 60.0
MOST_FINDINGS = 6
FINDING_LENGTH = 260
_TELLING = re.compile(r"^#{1,4}\s.*\b(?:answer|findings?|results?|conclusions?|summary|recommend\w*|next steps)\b", re.IGNORECASE)
_ADVISING = re.compile(r"^#{1,4}\s.*\b(?:recommend\w*|next steps|approach|proposal)\b", re.IGNORECASE)
_BULLET = re.compile(r"^\s{0,3}(?:[-*+]|\d{1,2}[.)])\s+(?P<words>\S.*)$")


@dataclass(slots=True)
class Gathered:
    findings: list[str] = field(default_factory=list)
    advised: list[Item] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def planner(settings: Settings) -> FunctionAgent:
    """The agent; how long the analysis may take is also the settings' to say."""
    analysis_seconds = min(ANALYSIS_SECONDS, settings.limits_for("coder").maximum_seconds)

    @agent("planner", effects=("read", "write"), acts_on={"write_to": "path"}, requires_artifacts=True)
    async def plan(
        ctx: Context,
        task: Words,
        focus: str = "",
        reason: str = "",
        reports: list[str] | str | None = None,
        plan: str = "",
        version: int = 1,
        mode: str = "",
        write_to: str | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Turn a task, its reports and the code into a skeleton of a plan, in phases."""
        named = plain_list(reports)
        gathered = await _gather(ctx, named, min(analysis_seconds, max(1.0, ctx.remaining / 3)))
        known = await _known(ctx, task, focus or reason, named, gathered)
        wanted = mode or str((ctx.task.extra if ctx.task is not None else {}).get("mode", ""))
        if wanted == "revision" and plan:
            return await _revised(ctx, known, plan, version, write_to)
        return await _new(ctx, known, gathered, write_to, version)

    return plan


async def _new(ctx: Context, known: "Known", gathered: Gathered, write_to: str | None, version: int) -> dict[str, Any]:
    from remit.agents.builtin.roles.drafting import new_plan

    known = replace(known, version=max(1, version))
    asked = f"{known.description}\n{known.reason}" if known.reason else known.description
    items = items_of(asked) or gathered.advised
    drafts = phases_of(known.title, items, effort=known.effort, has_tests=bool(known.command))
    accept = (known.command,) if known.command else ()
    drafts = [
        replace(
            draft,
            files=tuple(likely_files(draft.about, gathered.paths, 3)) if draft.about else (),
            accept=() if draft.ends_red else accept,
        )
        for draft in drafts
    ]
    path = await put(ctx, new_plan(replace(known, reason=""), drafts), write_to, "plan.md", "plan", f"{len(drafts)} phases, a skeleton.")
    hours = sum(draft.hours for draft in drafts)
    words = (
        f"A plan skeleton of {len(drafts)} phases, about {hours:g} hours by rule of thumb. It was made by rule, not by judgement: read it."
    )
    data = {"plan": path, "phases": [draft.name for draft in drafts], "is_skeleton": True, "accept": list(accept), "notes": gathered.notes}
    return answered("completed", f"{words} {_missing(gathered)}", data=data, next_steps=f"Read and change {path} before it is implemented.")


async def _revised(ctx: Context, known: "Known", plan: str, version: int, write_to: str | None) -> dict[str, Any]:
    from remit.agents.builtin.roles.drafting import revised_plan
    from remit.board.plans import read_plan

    old = await read(ctx, plan)
    earlier = read_plan(old)
    if not earlier.phases or earlier.doubled:
        why = "has no phases that could be kept" if not earlier.phases else "has two phases of one number"
        known = replace(known, notes=(*known.notes, f"The plan before, {plan}, {why}: this one was made anew."))
        gathered = Gathered(paths=list(known.files), notes=list(known.notes))
        return await _new(ctx, known, gathered, write_to, max(2, version))
    known = replace(known, version=max(version, 2))
    text, kept, added = revised_plan(known, old, earlier)
    path = await put(ctx, text, write_to, "plan.md", "plan", f"Version {known.version}, a skeleton.")
    phases = [phase.name for phase in read_plan(text).phases]
    done = f"{kept} finished phase{'s' * (kept != 1)} kept" if kept else "No phase was finished"
    took = "the reason became a phase of its own" if added else "no reason was given, so no phase was added"
    words = f"Version {known.version} of the plan, still a skeleton made by rule. {done}; {took}. Read it before it is implemented."
    data = {"plan": path, "phases": phases, "version": known.version, "kept": kept, "added": added, "is_skeleton": True}
    return answered("completed", words, data=data, next_steps=f"Read and change {path} before it is implemented.")


def _missing(gathered: Gathered) -> str:
    return "Some of what it looks at could not be read; the plan says what." if any(" without " in n for n in gathered.notes) else ""


async def _known(ctx: Context, task: str, focus: str, reports: Sequence[str], gathered: Gathered) -> "Known":
    from remit.agents.builtin.roles.drafting import Known

    title, description = title_of(ctx, task), description_of(ctx, task)
    command, why = await off_loop(command_of_tests, ctx.workspace)
    return Known(
        title=title,
        description=description or title,
        number=ctx.task.task_number if ctx.task is not None else None,
        reason=focus,
        reports=tuple(reports),
        findings=tuple(gathered.findings[:MOST_FINDINGS]),
        files=tuple(likely_files(f"{title}\n{description}\n{focus}", gathered.paths)),
        notes=tuple(gathered.notes),
        command=command,
        why_command=why,
        effort=effort_in(task),
    )


async def _gather(ctx: Context, reports: Sequence[str], seconds: float) -> Gathered:
    gathered = Gathered()
    for path in reports:
        text = await read(ctx, path)
        if text:
            gathered.findings += findings_in(text)
            gathered.advised = [Item(words=words) for words in findings_in(text, _ADVISING)] or gathered.advised
        else:
            gathered.notes.append(f"Planned without the report {path}, which could not be read.")
    gathered.advised = gathered.advised if len(gathered.advised) >= 2 else []
    ctx.progress("Looking at the code")
    await _list_files(ctx, gathered)
    await _analyse(ctx, gathered, seconds)
    return gathered


async def _list_files(ctx: Context, gathered: Gathered) -> None:
    listed = await ctx.delegate("worker.list_files", path=".")
    entries = listed.data.get("entries", []) if isinstance(listed.data, dict) else []
    gathered.paths = [str(entry["path"]) for entry in entries if isinstance(entry, dict) and entry.get("type") == "file"]
    if not gathered.paths and listed.status is not Status.COMPLETED:
        gathered.notes.append(f"Planned without the names of files: {shortly(_why(listed), 160)}")


async def _analyse(ctx: Context, gathered: Gathered, seconds: float) -> None:
    found = await ctx.delegate("coder.analyze_code", path=".", timeout=seconds)
    if not isinstance(found.data, dict) or "files" not in found.data:
        gathered.notes.append(f"Planned without an analysis of the code: {shortly(_why(found), 160)}")
        return
    gathered.notes += notes_of(found.data)


def _why(returned: Any) -> str:
    return str(returned.errors[0].message) if returned.errors else str(returned.summary)


def notes_of(data: dict[str, Any]) -> list[str]:
    """What of an analysis helps whoever changes the code: where it starts, what most depends on, what breaks most easily."""
    notes = []
    if starts := [f"`{one['path']}`" for one in data.get("entryPoints") or []][:3]:
        notes.append(f"It starts at {', '.join(dict.fromkeys(starts))}.")
    if heart := [f"`{one['path']}` ({one['importedBy']})" for one in (data.get("imports") or {}).get("mostImported") or []][:3]:
        notes.append(f"Most imported, so changed with most care: {', '.join(heart)}.")
    if hot := [f"`{one['path']}`" for one in data.get("hotSpots") or [] if one.get("path")][:3]:
        notes.append(f"Changed often and complex: {', '.join(hot)}.")
    return notes


def findings_in(report: str, telling: re.Pattern[str] = _TELLING) -> list[str]:
    """The points under the headings of a report that say what was found; of one without such headings, none."""
    found: list[str] = []
    is_telling = False
    for line in report.splitlines():
        if line.startswith("#"):
            is_telling = telling.match(line) is not None
        elif is_telling and (bullet := _BULLET.match(line)):
            found.append(shortly(_bare(bullet["words"].strip()), FINDING_LENGTH))
    return list(dict.fromkeys(found))


def _bare(words: str) -> str:
    """Without the marks of a quotation that is all of it; one with its source behind it keeps them."""
    inner = words[1:-1]
    is_quoted = len(words) > 1 and words[0] in '“"' and words[-1] in '”"' and not any(mark in inner for mark in '“”"')
    return inner if is_quoted else words
