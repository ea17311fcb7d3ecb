"""The built-in planner: a template of a plan, for projects that have no agent or model for the role.

One phase per list item of the task's description, otherwise one phase named by the task's title. The text of the task is copied, never
rephrased: whether a sentence asks for something is for a person or a model to decide. A revision carries the old plan over and quotes the
reason. All copied text stays on one line behind a field or `>`, so it cannot become a phase, a marker or an acceptance command.
"""

from dataclasses import dataclass
from typing import Any

from remit.agents.function import FunctionAgent, agent
from remit.board.plans import list_items, read_plan
from remit.board.roles.returns import Words, answered, description_of, plain_list, put, read, shorten, title_of
from remit.board.task import PhaseStatus
from remit.runtime.context import Context

NAME_LENGTH = 60
GOAL_LENGTH = 4_000
DESCRIPTION_LINES = 200
TEMPLATE = "This plan is a template: its phases are copied from the task. Edit them before you implement it."


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    title: str
    description: str = ""
    number: int | None = None
    version: int = 1
    reason: str = ""
    reports: tuple[str, ...] = ()


@agent("planner", effects=("read", "write"), acts_on={"write_to": "path"}, requires_artifacts=True)
async def planner(
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
    """Write a template of a plan: one phase per list item of the task. It makes no decisions."""
    request = PlanRequest(
        title=title_of(ctx, task),
        description=description_of(ctx, task),
        number=ctx.task.task_number if ctx.task is not None else None,
        version=max(1, version),
        reason=focus or reason,
        reports=tuple(plain_list(reports)),
    )
    mode = mode or str((ctx.task.extra if ctx.task is not None else {}).get("mode", ""))
    old = await read(ctx, plan) if mode == "revision" and plan else ""
    phases = read_plan(old)
    is_carried_over = bool(phases.phases) and not phases.doubled
    text = carry_over(request, old) if is_carried_over else plan_template(request)
    names = [phase.name for phase in read_plan(text).phases]
    path = await put(ctx, text, write_to, "plan.md", "plan", f"Template with {len(names)} phases.")
    source = f"The phases of {plan} are carried over" if is_carried_over else "Its phases are copied from the task"
    count = f"{len(names)} phase{'s' * (len(names) != 1)}"
    summary = f"Plan template with {count}. {source}; no agent or model has worked on it."
    data = {"plan": path, "phases": names, "version": request.version, "is_template": True}
    return answered("completed", summary, data=data, next_steps=f"Edit {path} before it is implemented.")


PLANNER: FunctionAgent = planner


def plan_template(request: PlanRequest) -> str:
    items = list_items(request.description)
    phases = [_phase(number, item.text, item.parts) for number, item in enumerate(items, start=1)]
    if not phases:
        phases = [_phase(1, request.description or request.title, (), name=request.title)]
    facts = [f"- **Task number**: {request.number}"] if request.number is not None else []
    facts += [f"- **Version**: {request.version}", *(f"- **Research**: {path}" for path in request.reports)]
    reason = [f"## Changes in version {request.version}", _quoted(request.reason)] if request.reason.strip() else []
    head = [f"# Implementation plan: {_name(request.title, 150)}", "\n".join(facts), TEMPLATE]
    return "\n\n".join([*head, *reason, "## Task", _quoted(request.description or request.title), "## Phases", *phases]) + "\n"


def carry_over(request: PlanRequest, old: str) -> str:
    """The old plan as it stands, with the reason for the new version quoted below its title."""
    quoted = _quoted(request.reason) if request.reason.strip() else "No reason was given."
    section = f"## Changes in version {request.version}\n\n{quoted}\n\nAll phases are carried over. Edit them before you implement them."
    title, newline, rest = old.partition("\n")
    if not title.startswith("# "):
        return f"{section}\n\n{old}"
    return f"{title}{newline}\n{section}\n\n{rest.lstrip()}"


def _phase(number: int, goal: str, steps: tuple[str, ...], name: str = "") -> str:
    lines = [f"### Phase {number}: {_name(name or goal, NAME_LENGTH)} [{PhaseStatus.NOT_STARTED}]", ""]
    lines.append(f"- **Goal**: {shorten(goal, GOAL_LENGTH)}")
    lines += ["- **Tasks**:", *(f"  - [ ] {shorten(step, GOAL_LENGTH)}" for step in steps)] if steps else []
    lines.append("- **Timing**: not estimated")
    return "\n".join(lines)


def _name(words: str, most: int) -> str:
    """A heading: one line, without brackets, which would read as a marker."""
    return shorten(words.replace("[", "(").replace("]", ")"), most).strip(" .,;:#") or "Task"


def _quoted(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()][:DESCRIPTION_LINES]
    return "\n".join(f"> {shorten(line, GOAL_LENGTH)}" for line in lines)
