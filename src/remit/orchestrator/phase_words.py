"""What an agent is told when it implements: the task, the phase as the plan has it, what was done before, what to hand back (S6.7, S6.11).

Words and the same as data beside them. Decides nothing; used by `phases`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.board.plans import Phase, Plan
from remit.board.statuses import PhaseStatus
from remit.board.task import State, Task
from remit.orchestrator.phase_records import PhaseRecord
from remit.orchestrator.prompts import Brief, about_task, depended_on, quoted

RETURNS = (
    "Name in `artifacts` every file that you wrote or changed, relative to the project's root, as type implementation: what you name is "
    'committed, what you do not name is not. Name files that you deleted in data as {"deleted": ["path"]}. Do not commit, and leave '
    "specs/state.json, specs/TODO.md and the markers of the plan alone: they are kept for you."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBrief:
    """What one delegation is to implement: a phase of a plan, or the whole task."""

    task: Task
    state: State
    plan: Plan | None = None
    phase: Phase | None = None
    """None: the task as a whole."""
    done: tuple[PhaseRecord, ...] = ()
    accept: tuple[str, ...] = ()

    @property
    def reports(self) -> tuple[str, ...]:
        return tuple(one.path for one in self.task.artifacts if one.type in ("research", "report"))


def parameters_of(brief: PhaseBrief, root: Path) -> dict[str, Any]:
    """`task`: the words; beside them the same as data, for agents that are programs."""
    known: dict[str, Any] = {"plan": brief.task.plan_path, "reports": list(brief.reports)}
    if brief.phase is not None and brief.plan is not None:
        known |= {
            "phase": brief.phase.number,
            "phase_name": brief.phase.name,
            "phase_text": brief.phase.text,
            "phase_count": len(brief.plan.phases),
            "done": [one.in_words for one in brief.done],
        }
    return {"task": words_of(brief, root), "number": brief.task.number, **{name: value for name, value in known.items() if value}}


def words_of(brief: PhaseBrief, root: Path) -> str:
    task = brief.task
    parts = about_task(task, "", "implement", depended_on(brief.state, task))
    if brief.phase is not None and brief.plan is not None:
        parts += _phase_words(brief.phase, brief.plan, brief.done)
    parts += [_proof(brief.accept)] if brief.accept else []
    parts.append(RETURNS)
    whole = Brief(command="implement", task=task, reports=brief.reports, plan="" if brief.phase else task.plan_path)
    return "\n\n".join((*parts, *quoted(whole, root)))


def _phase_words(phase: Phase, plan: Plan, done: Sequence[PhaseRecord]) -> list[str]:
    at = [one.number for one in plan.phases].index(phase.number) + 1
    parts = [f"Carry out phase {phase.number} of its plan ({at} of {len(plan.phases)}), and that phase only:\n\n<<<\n{phase.text}\n>>>"]
    later = [f"- Phase {one.number}: {one.name}" for one in plan.phases if one.number > phase.number]
    if later:
        parts.append("\n".join(("Later phases have their own turn:", *later)))
    if done:
        parts.append("\n".join(("Done before:", *(f"- {one.in_words}" for one in done))))
    if phase.status in (PhaseStatus.IN_PROGRESS, PhaseStatus.PARTIAL, PhaseStatus.BLOCKED):
        parts.append(
            "An earlier run began this phase and did not finish it. What it wrote may be in the project, uncommitted: look first, keep "
            "what is right, and name it in your artifacts too."
        )
    return parts


def _proof(accept: Sequence[str]) -> str:
    lines = (f"- `{command}`" for command in accept)
    return "\n".join(("It is done when each of these commands exits 0; they are run after you:", *lines))
