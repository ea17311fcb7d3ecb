"""One task made into two to five: `remit task --divide N [PROMPT]` (S6.9).

The parts are what is written: items or lines of the prompt, else of the description, else the phases of its plan. Nothing is thought up
here; where there is nothing to go by, the person is told what to write. A numbered list, and phases, are done in turn: each waits for the
one before it. Bullets and lines stand on their own.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from remit.board.board import Board, Draft
from remit.board.claims import holders
from remit.board.plans import read_plan
from remit.board.statuses import Status, check_move
from remit.board.task import Task
from remit.core.errors import Misused, Refused
from remit.orchestrator.changing import changing, found, kept, replaced, spelled
from remit.orchestrator.outcome import Outcome
from remit.orchestrator.tasks import Wanted, numbered, title_of

FEWEST, MOST = 2, 5
_BULLET = re.compile(r"^[ \t]{0,3}[-*+•][ \t]+(?:\[[ xX]\][ \t]+)?(?P<words>\S.*)$")
_NUMBERED = re.compile(r"^[ \t]{0,3}\(?\d{1,3}[.):][ \t]+(?P<words>\S.*)$")
_INLINE = re.compile(r"(?:^|\s)\(?(\d)[.)]\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    texts: tuple[str, ...] = ()
    in_turn: bool = False
    """Each is to be done after the one before it."""
    source: str = ""
    """Where they were found, for the person."""


def divide(board: Board, number: int, prompt: str = "", *, force: bool = False, is_rehearsal: bool = False) -> Outcome:
    def step(draft: Draft) -> tuple[list[Task], Parts, list[str]]:
        (task,) = found(board, draft.state, [number])
        warnings = _check(board, task, force=force)
        parts = _must_fit(task, parts_of(board, task, prompt))
        made = _divided(board, draft, task, parts)
        warnings += (
            [f"Acceptance commands of task {number} hold for no part of it: add them where they belong."] if _loses(task, parts) else []
        )
        return made, parts, warnings

    def subject(made: tuple[list[Task], Parts, list[str]]) -> str:
        return f"task {number}: divide into {spelled([task.number for task in made[0]])}"

    (made, parts, warnings), draft, debt = changing(board, step, subject, is_rehearsal=is_rehearsal)
    numbers = [task.number for task in made]
    order = "each after the one before it" if parts.in_turn else "in any order"
    outcome = Outcome(
        command="task",
        status="completed",
        summary=f"Task {number} {'would be' if is_rehearsal else 'is'} divided into {len(made)} tasks, {order}: {spelled(numbers)}\n"
        + "\n".join(f"  {task.number}. {task.title}" for task in made),
        task_number=number,
        task_status=Status.EXPANDED.marker,
        next_steps=f"remit research {numbers[0]}",
        warnings=(*draft.notices, *warnings),
        data={"created": numbers, "in_turn": parts.in_turn, "taken_from": parts.source, "dry_run": is_rehearsal},
    )
    return kept(board, outcome, debt)


def parts_of(board: Board, task: Task, prompt: str) -> Parts:
    """The parts as they are written: in the prompt when there is one, else in the description, else in the plan."""
    if prompt.strip():
        return _listed(prompt, "the prompt", lines_count=True)
    listed = _listed(task.description, "its description", lines_count=False)
    if listed.texts or not task.plan_path:
        return listed
    try:
        plan = read_plan((board.root / task.plan_path).read_text(errors="replace"))
    except OSError:
        return listed
    texts = tuple(f"{phase.name}\n\n{phase.text}" for phase in plan.phases)
    return Parts(texts=texts, in_turn=True, source="the phases of its plan")


def _listed(text: str, source: str, *, lines_count: bool) -> Parts:
    """List items; where there are none, and that is wanted, lines, or what stands between semicolons."""
    lines = [line for line in text.splitlines() if line.strip()]
    inline = [part for one in _INLINE.split(text)[2::2] if (part := one.strip(" ;,.\n"))] if len(lines) == 1 else []
    if len(inline) > 1:
        return Parts(texts=tuple(inline), in_turn=True, source=source)
    for pattern, in_turn in ((_NUMBERED, True), (_BULLET, False)):
        items = _items(lines, pattern)
        if items:
            return Parts(texts=tuple(items), in_turn=in_turn, source=source)
    if not lines_count:
        return Parts(source=source)
    parts = lines if len(lines) > 1 else [part for part in text.split(";") if part.strip()]
    return Parts(texts=tuple(part.strip() for part in parts), source=source)


def _items(lines: Sequence[str], pattern: re.Pattern[str]) -> list[str]:
    """Each with the lines that follow it and are set in."""
    items: list[str] = []
    for line in lines:
        matched = pattern.match(line)
        if matched:
            items.append(matched["words"].strip())
        elif items and line.startswith((" ", "\t")):
            items[-1] += "\n" + line.strip()
    return items


def _check(board: Board, task: Task, *, force: bool) -> list[str]:
    if task.number in holders(board):
        raise Refused(
            f"Task {task.number} is being worked on now.", advice="Divide it when that has ended, or stop it with `remit cancel`."
        )
    try:
        check_move(task.number, task.status, Status.EXPANDED)
    except Refused as refused:
        if not force or task.status is Status.EXPANDED:
            raise
        return [f"The status check was skipped (--force): {refused.message}"]
    return []


def _must_fit(task: Task, parts: Parts) -> Parts:
    if FEWEST <= len(parts.texts) <= MOST:
        return parts
    example = f'remit task --divide {task.number} "1. first part\n2. second part"'
    many = f"{len(parts.texts)} {'was' if len(parts.texts) == 1 else 'were'} found in {parts.source}" if parts.texts else "none was found"
    raise Misused(
        f"A task is divided into {FEWEST} to {MOST} parts; {many}.",
        advice=f"Write the parts as a list, numbered when they are to be done in turn: {example}",
    )


def _divided(board: Board, draft: Draft, task: Task, parts: Parts) -> list[Task]:
    made: list[Task] = []
    for place, text in enumerate(parts.texts, start=1):
        before = (made[-1].number,) if parts.in_turn and made else task.dependencies
        wanted = Wanted(
            text=f"{text}\n\nPart {place} of {len(parts.texts)} of task {task.number}: {task.title}",
            title=title_of(text),
            priority=task.priority,
            language=task.language,
            type=task.type,
            dependencies=before,
            accept=task.accept if parts.in_turn and place == len(parts.texts) else (),
            parent=task.number,
            source=task.source,
        )
        made.append(numbered(board, draft.state, wanted, at=draft.at))
        draft.state = draft.state.with_task(made[-1])
    parent = replace(task.moved(Status.EXPANDED, at=draft.at))
    numbers = spelled([one.number for one in made])
    draft.state = replaced(draft.state, [parent]).noting(draft.at, f"Task {task.number} divided into {numbers}", task_number=task.number)
    return made


def _loses(task: Task, parts: Parts) -> bool:
    return bool(task.accept) and not parts.in_turn
