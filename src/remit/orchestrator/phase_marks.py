"""The plan of a task while it is carried out: read without trusting the file, its phases marked, what an agent did to it set back or told.

An agent works beside its plan and can do anything to it: remove it, put a link or a pipe there, empty it, mark phases that are not its own.
What its phases are is what they were when the phase began. Blocking; used by `phases` and those around it.
"""

import os
import re
from dataclasses import dataclass

from remit.board.board import Board, Draft
from remit.board.plans import Plan, read_plan, with_phase
from remit.board.statuses import PhaseStatus
from remit.board.task import Task
from remit.core.errors import Misused, Refused
from remit.flow.artifacts import read_bounded

PLAN_BYTES = 8 << 20
"""A plan beyond it is none."""
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1b\x7f\ud800-\udfff]")
"""Neither in JSON nor on a command line; and what would steer a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """What became of the plan's marker when a phase ended."""

    number: int = 0
    """Of the phase."""
    warnings: tuple[str, ...] = ()
    is_whole: bool = True
    """The plan is a file with all the phases it had: it can be committed and gone on with."""
    vanished: tuple[int, ...] = ()
    """Phases that were open when this one began, and are in the plan no more."""


def plan_text(board: Board, task: Task) -> str:
    """Raises `Refused` when the plan that the board names cannot be read."""
    path = board.root / task.plan_path
    try:
        real = path.resolve()
        if not real.is_relative_to(board.root.resolve()):
            raise OSError("it leads out of the project")
        real.stat()  # says why, where there is nothing
        data = read_bounded(real, PLAN_BYTES)
        if data is None or len(data) > PLAN_BYTES:
            raise OSError("it is no file that can be read" if data is None else f"it has more than {PLAN_BYTES >> 20} MiB")
        return data.decode("utf-8", "surrogateescape")
    except (OSError, RuntimeError) as error:
        raise Refused(
            f"The plan of task {task.number} cannot be read: {task.plan_path} ({getattr(error, 'strerror', None) or error}).",
            code="FILE_NOT_FOUND",
            advice=f"Bring it back (git log -- {task.plan_path}), or make a new one: remit plan {task.number} --force",
        ) from None


def plan_as_read(text: str) -> Plan:
    """The plan with what is no text in it shown as such: its words go into JSON and onto screens."""
    return read_plan(_NO_TEXT.sub("\ufffd", text))


def mark_begun(board: Board, draft: Draft, task: Task, number: int) -> str:
    """The phase is IN PROGRESS before anybody works on it; the plan as it then is."""
    text = with_phase(plan_text(board, task), number, PhaseStatus.IN_PROGRESS)
    draft.files[task.plan_path] = _to_bytes(text)
    return text


def mark_ended(board: Board, draft: Draft, task: Task, plan: Plan, number: int, status: PhaseStatus, begun: str) -> Marked:
    """`plan` and `begun`: as it was when the phase began, read and as text (empty where another process began it)."""
    warnings: list[str] = []
    vanished: tuple[int, ...] = ()
    try:
        if begun and task.plan_path and not os.path.lexists(board.root / task.plan_path):
            text = begun
            warnings.append(f"{task.plan_path} was gone after phase {number}: it was put back as it stood.")
        else:
            text = plan_text(board, task)
        now = {phase.number: phase.status for phase in plan_as_read(text).phases}
        vanished = tuple(phase.number for phase in plan.open_phases if phase.number not in now)
        for phase in plan.phases:
            if phase.number != number and phase.is_open and now.get(phase.number) is PhaseStatus.COMPLETED:
                text = with_phase(text, phase.number, phase.status)
                warnings.append(f"Phase {phase.number} was marked [COMPLETED] while phase {number} was carried out; it was set back.")
        draft.files[task.plan_path] = _to_bytes(with_phase(text, number, status))
    except (Refused, Misused) as error:
        warnings.append(f"The plan was changed meanwhile, so that phase {number} could not be marked: {error.message}")
        return Marked(number=number, warnings=tuple(warnings), is_whole=False, vanished=vanished)
    return Marked(number=number, warnings=tuple(warnings), is_whole=not vanished, vanished=vanished)


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
