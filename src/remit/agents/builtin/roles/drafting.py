"""The text of a plan, as `board.plans` reads it back (S6.5): drafted anew, or an older one revised.

Pure. What comes from a person stands behind `>`, what comes from a report in quotation marks: neither can turn into a phase, a marker or
an acceptance command of the plan.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from remit.agents.builtin.roles.phasing import Draft, Item, items_of, name_of, one_line, phases_of, timing_of
from remit.board.plans import Phase, Plan, read_plan, with_phase
from remit.board.statuses import PhaseStatus

SKELETON = (
    "This plan is a skeleton, made by rule from the task, its reports and the names in the code. "
    "Nobody has thought it through: read it, and change it where it is wrong, before you implement it."
)
_DESCRIPTION_LINES = 60
_PHASE_NUMBER = re.compile(r"(phase[ \t]+)\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a plan is made of."""

    title: str
    description: str = ""
    number: int | None = None
    version: int = 1
    reason: str = ""
    """Why it is revised."""
    reports: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What the analysis says, and what could not be looked at."""
    command: str = ""
    """By which the project tests itself."""
    why_command: str = ""
    effort: float | None = None


def new_plan(known: Known, drafts: Sequence[Draft]) -> str:
    phases = [_phase(place, draft) for place, draft in enumerate(drafts, start=1)]
    return _joined(known, phases, revision="")


def revised_plan(known: Known, old: str, earlier: Plan) -> tuple[str, int, int]:
    """The plan anew: what is done or given up stays as it is, the reason becomes a phase before the rest. How many were kept, and added."""
    open_ones = earlier.open_phases
    kept = [phase for phase in earlier.phases if not phase.is_open]
    drafts = _of_reason(known)
    number = max((phase.number for phase in kept), default=0)
    texts = [phase.text.strip() for phase in kept]
    for draft in drafts:
        number += 1
        texts.append(_phase(number, draft))
    for phase in open_ones:
        number += 1
        texts.append(_renumbered(old, phase, number))
    if not drafts and not open_ones:
        texts.append(_phase(number + 1, replace(_check(known), accept=_accepting(known))))
    return _joined(known, texts, revision=_revision(known, len(kept), len(drafts))), len(kept), len(drafts)


def _of_reason(known: Known) -> list[Draft]:
    if not known.reason.strip():
        return []
    items = items_of(known.reason) or [Item(words=known.reason)]
    draft = phases_of(known.title, items[:1], effort=None, has_tests=bool(known.command))[0]
    steps = (*(one_line(item.words) for item in items), *draft.steps[1:]) if len(items) > 1 else draft.steps
    return [replace(draft, name=name_of(known.reason, 60), steps=steps, files=known.files[:3], accept=_accepting(known))]


def _check(known: Known) -> Draft:
    return Draft(name="Check what was done", goal=f"It is sure that this is done: {known.title}", steps=("Run the tests",), hours=0.5)


def _accepting(known: Known) -> tuple[str, ...]:
    return (known.command,) if known.command else ()


def _renumbered(old: str, phase: Phase, number: int) -> str:
    """An open phase as it stands, under its new number, not begun."""
    block = read_plan(with_phase(old, phase.number, PhaseStatus.NOT_STARTED)).phase(phase.number).text.strip()
    head, newline, rest = block.partition("\n")
    return _PHASE_NUMBER.sub(rf"\g<1>{number}", head, count=1) + newline + rest


def _revision(known: Known, kept: int, added: int) -> str:
    done = f"{kept} finished phase{'s' * (kept != 1)} kept as {'they are' if kept != 1 else 'it is'}" if kept else "no phase was finished"
    took = "the reason became a phase of its own" if added else "no reason was given, so no phase was added"
    reason = f"> {one_line(known.reason)}\n\n" if known.reason.strip() else ""
    return f"## What changed in version {known.version}\n\n{reason}By rule: {done}; {took}; open phases follow as they were."


def _joined(known: Known, phases: Sequence[str], *, revision: str) -> str:
    sections = [
        f"# Implementation plan: {name_of(known.title, 150)}",
        "\n".join(_facts(known)),
        SKELETON,
        revision,
        _overview(known),
        _section("What the reports say", [f"- {finding}" if finding[:1] in '“"' else f"- “{finding}”" for finding in known.findings]),
        _section("Where in the code", [*(f"- `{path}`" for path in known.files), *(f"- {note}" for note in known.notes)]),
        "## Phases",
        *phases,
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _facts(known: Known) -> list[str]:
    return [
        *([f"- **Task number**: {known.number}"] if known.number is not None else []),
        f"- **Version**: {known.version}",
        "- **Made by**: the planner that comes with remit (a skeleton)",
        *(f"- **Research**: {path}" for path in known.reports),
        f"- **Tested by**: {f'`{known.command}`, as ' + known.why_command + ' says' if known.command else known.why_command}",
    ]


def _overview(known: Known) -> str:
    lines = [line for line in known.description.splitlines() if line.strip()][:_DESCRIPTION_LINES]
    return _section("What is asked for", [f"> {one_line(line)}" for line in lines or [known.title]])


def _section(head: str, lines: Sequence[str]) -> str:
    return f"## {head}\n\n" + "\n".join(lines) if lines else ""


def _phase(number: int, draft: Draft) -> str:
    looked_at = [f"Look at {', '.join(f'`{path}`' for path in draft.files)}"] if draft.files else []
    lines = [
        f"### Phase {number}: {draft.name} [{PhaseStatus.NOT_STARTED}]",
        "",
        f"- **Goal**: {draft.goal}",
        "- **Tasks**:",
        *(f"  - [ ] {step}" for step in (*looked_at, *draft.steps)),
        f"- **Timing**: {timing_of(draft.hours or 0.5)}",
        *(f"- **Accept**: `{command}`" for command in draft.accept),
    ]
    return "\n".join(lines)
