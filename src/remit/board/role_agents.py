"""The built-in agents of the board's roles: planner, researchers, task-executor, and the numbering of tasks.

None of them uses a model. The planner fills a template, the researchers compose a question for `researcher.deep_research` and file its
report; the others do one step by the rules of the board. `agents.roles` lists them; `reviewer` is a separate module."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from remit.agents.function import FunctionAgent, agent
from remit.board.plans import list_items, read_plan
from remit.board.task import PhaseStatus
from remit.core.context import Context
from remit.core.errors import Failed, Misused
from remit.core.result import Status
from remit.core.text import one_line, plural
from remit.system.artifact_files import read_inside
from remit.system.beneath import resolve_inside
from remit.system.files import atomic_write
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.core.settings import Settings


Words = Annotated[str, Field(min_length=1, description="The task, in words.")]
SUMMARY_LENGTH = 400
READ_BYTES = 512 * 1024
"""Maximum size of a report or plan that is read."""


def complete(summary: str, **more: Any) -> dict[str, Any]:
    """A completed return."""
    return {"status": "completed", "summary": one_line(summary, SUMMARY_LENGTH, at_word=True), "artifacts": [], **more}


async def put(ctx: Context, text: str, wanted: str | None, name: str, type_: str, summary: str) -> str:
    """Write the work to `wanted`, else into the delegation's own folder, and declare it as an artifact. Returns its path from the root.

    An existing report or plan is never overwritten."""
    place = resolve_inside(ctx.workspace, wanted) if wanted else ctx.scratch / name

    def write() -> None:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if wanted and place.exists() and place.stat().st_size:
                raise Failed(f"{wanted} already exists and is not overwritten.", advice="Name a file that does not exist yet.")
            atomic_write(place, text.encode("utf-8", "replace"))
        except OSError as error:
            raise Failed(f"{wanted or name} could not be written: {error.strerror or error}.", advice="Check the folder.") from None

    await off_loop(write)
    ctx.artifact(place, type_, summary)
    return str(place.relative_to(ctx.root)) if place.is_relative_to(ctx.root) else str(place)


async def read(ctx: Context, path: str) -> str:
    """The text of a project file; empty if unreadable or private."""
    data = await off_loop(read_inside, ctx.workspace, path, READ_BYTES)
    return (data or b"").decode("utf-8", "replace").replace("\r\n", "\n")


def title_of(ctx: Context, task: str) -> str:
    """The title of the board's task, else the first line of the request."""
    if ctx.task is not None and ctx.task.title.strip():
        return one_line(ctx.task.title, 200, at_word=True)
    return one_line(task.strip().partition("\n")[0], 120, at_word=True) or "Task"


def description_of(ctx: Context, task: str) -> str:
    """The description of the board's task, else the request itself."""
    if ctx.task is not None and (ctx.task.title.strip() or ctx.task.description.strip()):
        return ctx.task.description.strip()
    return task.strip()


def _listed(value: list[str] | str | None) -> list[str]:
    """A list, or text with commas."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value or []


# ---- planner


NAME_LENGTH = 60
GOAL_LENGTH = 4_000
DESCRIPTION_LINES = 200
TEMPLATE = "This plan is a template: its phases are copied from the task. Edit them before you implement it."


@agent("planner", effects=("read", "write"), acts_on={"write_to": "path"}, requires_artifacts=True)
async def planner(
    ctx: Context,
    task: Words,
    focus: str = "",
    reports: list[str] | str | None = None,
    plan: str = "",
    version: int = 1,
    mode: str = "",
    write_to: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Write a plan template: one phase per list item of the task. Makes no decisions."""
    mode = mode or str((ctx.task.extra if ctx.task is not None else {}).get("mode", ""))
    old = await read(ctx, plan) if mode == "revision" and plan else ""
    phases = read_plan(old)
    if phases.phases and not phases.doubled:
        text, source = carry_over(old, version, focus), f"The phases of {plan} are carried over"
    else:
        text = plan_template(title_of(ctx, task), description_of(ctx, task), version=version, reason=focus, reports=_listed(reports))
        source = "Its phases are copied from the task"
    names = [phase.name for phase in read_plan(text).phases]
    path = await put(ctx, text, write_to, "plan.md", "plan", f"Template with {plural(len(names), 'phase')}.")
    summary = f"Plan template with {plural(len(names), 'phase')}. {source}; no agent or model has worked on it."
    data = {"plan": path, "phases": names, "version": version, "is_template": True}
    return complete(summary, data=data, next_steps=f"Edit {path} before it is implemented.")


PLANNER: FunctionAgent = planner


def plan_template(title: str, description: str, *, version: int = 1, reason: str = "", reports: Sequence[str] = ()) -> str:
    phases = [_phase(number, item.text, item.parts) for number, item in enumerate(list_items(description), start=1)]
    facts = "\n".join((f"- **Version**: {version}", *(f"- **Research**: {path}" for path in reports)))
    changes = [f"## Changes in version {version}", _quoted(reason)] if reason.strip() else []
    head = [f"# Implementation plan: {_name(title, 150)}", facts, TEMPLATE, *changes, "## Task", _quoted(description or title), "## Phases"]
    return "\n\n".join((*head, *(phases or [_phase(1, description or title, (), name=title)]))) + "\n"


def carry_over(old: str, version: int, reason: str) -> str:
    """The old plan with the reason for the new version below its title."""
    quoted = _quoted(reason) if reason.strip() else "No reason was given."
    section = f"## Changes in version {version}\n\n{quoted}\n\nAll phases are carried over. Edit them before you implement them."
    title, newline, rest = old.partition("\n")
    return f"{title}{newline}\n{section}\n\n{rest.lstrip()}" if title.startswith("# ") else f"{section}\n\n{old}"


def _phase(number: int, goal: str, steps: Sequence[str], name: str = "") -> str:
    lines = [f"### Phase {number}: {_name(name or goal, NAME_LENGTH)} [{PhaseStatus.NOT_STARTED}]", ""]
    lines.append(f"- **Goal**: {one_line(goal, GOAL_LENGTH, at_word=True)}")
    lines += ["- **Tasks**:", *(f"  - [ ] {one_line(step, GOAL_LENGTH, at_word=True)}" for step in steps)] if steps else []
    lines.append("- **Timing**: not estimated")
    return "\n".join(lines)


def _name(words: str, most: int) -> str:
    """A heading: one line without brackets, which would read as a marker."""
    return one_line(words.replace("[", "(").replace("]", ")"), most, at_word=True).strip(" .,;:#") or "Task"


def _quoted(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()][:DESCRIPTION_LINES]
    return "\n".join(f"> {one_line(line, GOAL_LENGTH, at_word=True)}" for line in lines)


# ---- researchers


QUESTION_LENGTH = 1_500
_DECLARED: dict[str, Any] = {
    "effects": ("read", "write"),
    "acts_on": {"write_to": "path"},
    "requires_artifacts": True,
    "workspace": "shared",
}
Sources = Annotated[list[str] | str | None, Field(description="files, docs, web, a path or an address.")]


def _researcher(name: str, description: str, sources_by_default: list[str], **declared: Any) -> FunctionAgent:
    async def study(
        ctx: Context,
        task: Words,
        focus: str = "",
        reports: list[str] | str | None = None,
        write_to: str | None = None,
        sources: Sources = None,
        max_depth: int = 2,
        **more: Any,
    ) -> dict[str, Any]:
        return await _study(ctx, task, focus, _listed(reports), write_to, _listed(sources) or sources_by_default, max_depth)

    study.__doc__ = description
    made: FunctionAgent = agent(name, **{**_DECLARED, **declared})(study)
    return made


RESEARCHER = _researcher("researcher", "Study a task in the project's files, and on the web where it asks for that.", [])
LEAN_RESEARCHER = _researcher("lean-research-agent", "Study a task of a Lean project in its sources and documents.", ["files"])
WEB_RESEARCHER = _researcher("web-research-specialist", "Study a task on the web.", ["web"], effects=("read", "write", "network"))


async def _study(
    ctx: Context, task: str, focus: str, reports: list[str], write_to: str | None, sources: list[str], max_depth: int
) -> dict[str, Any]:
    title = title_of(ctx, task)
    question = question_of(title, description_of(ctx, task), focus)
    if not question:
        raise Misused("The task names nothing to look for.", code="INVALID_PARAMETERS", advice="Say in words what is to be found out.")
    ctx.progress(f"Looking for: {one_line(question, 120, at_word=True)}")
    # The board's own files repeat the task: otherwise they would be quoted as the answer to it.
    asked = {"query": question, "max_depth": min(5, max(1, max_depth)), "sources": [*sources, "!specs"]}
    found = await ctx.delegate("researcher.deep_research", parameters=asked)
    report = next((one for one in found.artifacts if one.path.endswith(".md")), None)
    text = await read(ctx, report.path) if report is not None else ""
    begun = "The study is not complete." if found.status is Status.PARTIAL else "The study could not be made."
    unfinished = {**found.forwarded(), "artifacts": [], "summary": one_line(f"{begun} {found.summary}", SUMMARY_LENGTH, at_word=True)}
    if not text:
        return unfinished
    first, _, rest = text.partition("\n")  # its own title repeats the question
    facts = {"Asked for in particular": one_line(focus, 400, at_word=True), "Question": question, "Earlier reports": ", ".join(reports)}
    head = "\n".join((f"# Research: {title}", "", *(f"- **{name}**: {value}" for name, value in facts.items() if value)))
    body = rest.lstrip("\n") if first.startswith("# ") else text
    path = await put(ctx, f"{head}\n\n{body}", write_to, "report.md", "report", "Findings, quoted with their sources.")
    data = {**(found.data if isinstance(found.data, dict) else {}), "report": path, "session_id": found.session_id}
    # A search without results is a finished study; one that ran out of time is not.
    is_empty = found.status is Status.PARTIAL and [error.code for error in found.errors] == ["NOT_FOUND"]
    if not is_empty and found.status is not Status.COMPLETED:
        return {**unfinished, "data": data}
    words = "The study is done, and nothing that was searched answers it. The report says what was searched and what came nearest."
    advice = "Name other sources, add a focus, or bind the role researcher to a language model ([roles])."
    next_steps = found.next_steps or (advice if is_empty else "")
    return complete(words if is_empty else found.summary, data={**data, "found": not is_empty}, next_steps=next_steps)


def question_of(title: str, description: str, focus: str) -> str:
    """The focus first, then the title, unless the description begins with it, and the description."""
    is_within = description.strip().startswith(title.strip().rstrip("\u2026. "))
    parts = (focus, "" if is_within else title, *description.splitlines())
    asked = [f"{part.strip().rstrip(' .?!;:,')}?" for part in parts if part.strip(" .?!;:,-*+")]
    return one_line(" ".join(asked), QUESTION_LENGTH, at_word=True)


# ---- single steps


TITLE_LENGTH = 120
IMPLEMENTER = "implementer"


@agent("atomic-task-numberer", effects=("write",))
async def numberer(
    ctx: Context,
    task: Annotated[str, Field(description="The task, in words: it becomes the description, and is not carried out.")] = "",
    title: Annotated[str, Field(description="Of the task; the first line of what is to be done unless given.")] = "",
    description: str = "",
    priority: Literal["high", "medium", "low"] = "medium",
    language: str | None = None,
    effort: str = "",
    **more: Any,
) -> dict[str, Any]:
    """Record a new task on the board under the next free number, and do nothing else."""
    from remit.board.board import Board
    from remit.board.task import Priority
    from remit.board.task_commands import NewTask, record

    level, name = Priority(priority), one_line(title, TITLE_LENGTH)
    new = NewTask(text=description or task, title=name, priority=level, language=language, effort=effort)
    made = await off_loop(record, Board(ctx.root), new)
    data = {"number": made.task_number, "title": made.data["title"], "status": "not_started"}
    summary = f"{made.summary.partition(chr(10))[0].rstrip('.')}. Nothing of it was carried out."
    return complete(summary, data=data, task_number=made.task_number)


NUMBERER: FunctionAgent = numberer


def task_executor(settings: "Settings") -> FunctionAgent:
    """The agent that hands one phase of a plan to the role `implementer` and returns its answer. It writes nothing itself."""
    longest = settings.limits_for(IMPLEMENTER).maximum_seconds

    @agent("task-executor", effects=("read", "write"))
    async def execute(ctx: Context, task: Words, **more: Any) -> dict[str, Any]:
        """Have the implementer carry out one phase of a plan."""
        ctx.progress("Handed to the implementer")
        # All of its time: the implementer's default may be less than this phase was given.
        returned = await ctx.delegate(IMPLEMENTER, parameters=dict(ctx.parameters), timeout=min(max(1.0, ctx.remaining), longest))
        return returned.forwarded()

    return execute
