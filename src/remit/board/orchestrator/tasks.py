"""Tasks recorded, abandoned, recovered and divided: `remit task`. Nothing here runs an agent or carries out what a task says.

Light to import. All tasks of one command are checked before any is changed.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from remit.board.archive import archived_tasks, bring_back
from remit.board.board import Board, Draft
from remit.board.claims import holders
from remit.board.graph import CLOSED, closing
from remit.board.orchestrator.changes import (
    archived_statuses,
    change_board,
    committed,
    find_tasks,
    name_tasks,
    one_line,
    replace_tasks,
    spell_numbers,
)
from remit.board.orchestrator.outcome import Outcome
from remit.board.plans import list_items, read_plan
from remit.board.statuses import Status, check_move
from remit.board.task import Priority, State, Task, slug_of
from remit.core.errors import Misused, Refused

TITLE_LENGTH = 80
GIVEN_TITLE_LENGTH = 200
MAX_TEXT = 100_000
MIN_PARTS, MAX_PARTS = 2, 5
MAX_NAMED = 10
ROUTING_LINE = "Routing /task to atomic-task-numberer (in_process)"
"""As every command logs where it goes. `flow.route` takes longer to import than a task to record."""
_SENTENCE = re.compile(r"(.+?(?:(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\bcf)(?<!\s\d)\.|[!?]))(?:\s|$)")
_LANGUAGE = re.compile(r"[\w.+#-]{1,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A task to record. What is not given is left open; nothing is guessed from the text."""

    text: str
    title: str = ""
    """Empty: the first sentence of the text."""
    priority: Priority = Priority.MEDIUM
    effort: str = ""
    language: str | None = None
    dependencies: tuple[int, ...] = ()
    accept: tuple[str, ...] = ()
    type: str = "feature"
    source: str = ""
    parent: int | None = None


def record(board: Board, wanted: Wanted, *, dry_run: bool = False) -> Outcome:
    """Give the task the next number and write it down: all that `task` does. A project without a board gets one."""
    if wanted.language and not _LANGUAGE.fullmatch(wanted.language):
        raise Misused(
            f"{one_line(wanted.language)!r} is not a language.", advice="Use one word, like lean or python; it decides the route."
        )
    is_first = not board.state_path.exists()

    def step(draft: Draft) -> tuple[Task, tuple[str, ...]]:
        task = number_task(board, draft.state, wanted, at=draft.at)
        warnings = tuple(_same_title(draft.state, task))
        draft.state = draft.state.with_task(task).noting(draft.at, f"Task {task.number} created: {task.title}", task_number=task.number)
        return task, warnings

    (task, warnings), draft, debt = change_board(board, step, lambda made: f"task {made[0].number}: create", dry_run=dry_run, make=True)
    _log_route()
    made = "\nThe project had no board: specs/TODO.md and specs/state.json are it from now on." if is_first and not dry_run else ""
    outcome = Outcome(
        command="task",
        status="completed",
        summary=f"Task {task.number} {'would be' if dry_run else 'is'} recorded: {task.title}{made}",
        task_number=task.number,
        task_status=task.status.marker,
        next_steps=f"remit research {task.number}",
        warnings=(*draft.notices, *warnings),
        data={"title": task.title, "route": ROUTING_LINE, "dry_run": dry_run},
    )
    return committed(board, outcome, debt)


def _log_route() -> None:
    import logging  # only here: most that is taken from this module logs nothing

    logging.getLogger(__name__).info(ROUTING_LINE)


def number_task(board: Board, state: State, wanted: Wanted, *, at: str) -> Task:
    """The task with its number, checked and not yet on the board. Raises `Misused`."""
    text, title = wanted.text.strip(), one_line(wanted.title)[:GIVEN_TITLE_LENGTH] or title_of(wanted.text)
    if not title:
        raise Misused("There is no text to record.", advice='Say what is to be done: remit task "Fix the parser".')
    if len(text) > MAX_TEXT:
        raise Misused(f"The text has {len(text):,} characters.", advice=f"At most {MAX_TEXT:,}: put the rest into a file and name it.")
    number = state.next_number
    _check_dependencies(board, state, number, wanted.dependencies)
    return Task(
        number=number,
        title=title,
        slug=slug_of(title),
        type=wanted.type,
        priority=wanted.priority,
        language=one_line(wanted.language or "") or None,
        description=text,
        effort=one_line(wanted.effort),
        dependencies=tuple(dict.fromkeys(wanted.dependencies)),
        created=at,
        last_updated=at,
        accept=tuple(one_line(command) for command in wanted.accept if command.strip()),
        parent=wanted.parent,
        source=wanted.source,
    )


def _check_dependencies(board: Board, state: State, number: int, dependencies: Sequence[int]) -> None:
    """They exist, on the board or in the archive, and close no circle."""
    circle = closing(state.tasks, number, dependencies)
    if circle:
        words = f"Task {number} would wait for itself: {' → '.join(map(str, (*circle, circle[0])))}."
        raise Refused(words, code="CYCLE_DETECTED", advice="Leave out one of these dependencies.")
    known = {task.number for task in state.tasks} if dependencies else set()
    missing = [one for one in dependencies if one not in known]
    archived = archived_statuses(board) if missing else {}
    unknown = [one for one in missing if one not in archived]
    if unknown:
        raise Misused(f"Task {unknown[0]} not found", advice="A task can depend on tasks of the board and of the archive only.")


def title_of(text: str) -> str:
    """The first sentence of the first line, at most 80 characters, cut between words."""
    first = next((one_line(line) for line in text.splitlines() if one_line(line)), "").lstrip("#").strip()
    sentence = _SENTENCE.match(first)
    title = sentence[1] if sentence and len(sentence[1]) > 3 else first
    title = title if title.endswith("..") else title.removesuffix(".").removesuffix(":")
    if len(title) > TITLE_LENGTH:
        cut = title[:TITLE_LENGTH].rpartition(" ")[0]
        title = (cut if len(cut) > TITLE_LENGTH // 2 else title[: TITLE_LENGTH - 1]).rstrip(" ,;:-") + "…"
    return title


def _same_title(state: State, task: Task) -> Iterator[str]:
    title = task.title.casefold()
    same = [one for one in state.tasks if one.status not in CLOSED and one.title.casefold() == title]
    if same:
        undo = f"`remit task --abandon {task.number} --reason …` if it is one too many."
        yield f"Task {same[0].number} has the same title and is [{same[0].status.marker}]: {undo}"


# ---- abandon and recover


def abandon(board: Board, numbers: Sequence[int], reason: str, *, force: bool = False, dry_run: bool = False) -> Outcome:
    why = one_line(reason)
    if not why:
        raise Misused("[ABANDONED] needs a reason.", advice=f"remit task --abandon {spell_numbers(numbers)} --reason 'why'")

    def step(draft: Draft) -> list[str]:
        tasks = find_tasks(board, draft.state, numbers)
        working = holders(board)
        warnings = [warning for task in tasks for warning in _check_abandon(task, why, is_claimed=task.number in working, force=force)]
        moved = [task.moved(Status.ABANDONED, at=draft.at, reason=why) for task in tasks]
        draft.state = _noting(replace_tasks(draft.state, moved), draft.at, f"abandoned: {why}", numbers)
        gone = set(numbers)
        waiting = [task.number for task in draft.state.tasks if task.status not in CLOSED and gone.intersection(task.dependencies)]
        if waiting:
            more = f" and {len(waiting) - MAX_NAMED} more" if len(waiting) > MAX_NAMED else ""
            warnings.append(f"Still waiting for what is abandoned: {name_tasks(waiting[:MAX_NAMED])}{more}.")
        return warnings

    warnings, draft, debt = change_board(board, step, lambda _: _subject("abandon", numbers), dry_run=dry_run)
    it = "it" if len(numbers) == 1 else "them"
    after = f"`remit task --recover {spell_numbers(numbers)}` brings {it} back, `remit todo` archives {it}"
    return committed(board, _moved_outcome(draft, numbers, "abandoned", warnings, after, dry_run=dry_run), debt)


def recover(board: Board, numbers: Sequence[int], *, dry_run: bool = False) -> Outcome:
    """[ABANDONED] → [NOT STARTED], those in the archive too."""

    def step(draft: Draft) -> None:
        there = {task.number for task in draft.state.tasks}
        shelved = {task.number: task for task in archived_tasks(board)} if not there.issuperset(numbers) else {}
        away = [number for number in numbers if number not in there and number in shelved]
        for number in away:
            _must_be_abandoned(shelved[number])
        if away:
            bring_back(board, draft, away)
        tasks = [_must_be_abandoned(task) for task in find_tasks(board, draft.state, numbers)]
        moved = [task.moved(Status.NOT_STARTED, at=draft.at) for task in tasks]
        draft.state = _noting(replace_tasks(draft.state, moved), draft.at, "recovered", numbers)

    _, draft, debt = change_board(board, step, lambda _: _subject("recover", numbers), dry_run=dry_run)
    return committed(board, _moved_outcome(draft, numbers, "recovered", [], f"remit research {numbers[0]}", dry_run=dry_run), debt)


def _check_abandon(task: Task, reason: str, *, is_claimed: bool, force: bool) -> Iterator[str]:
    if is_claimed and not force:
        stop = f"Stop it first (`remit cancel {task.session_id or 'SESSION'}`), or use --force."
        raise Refused(f"Task {task.number} is being worked on now.", advice=stop)
    if is_claimed:
        yield f"Task {task.number} is being worked on: its result is kept, and its status stays as you set it."
    yield from _check_move(task, Status.ABANDONED, reason=reason, force=force)


def _check_move(task: Task, status: Status, *, reason: str = "", force: bool) -> Iterator[str]:
    try:
        check_move(task.number, task.status, status, reason=reason)
    except Refused as refused:
        if not force or task.status is status:
            raise
        yield f"The status check was skipped (--force): {refused.message}"


def _must_be_abandoned(task: Task) -> Task:
    if task.status is Status.ABANDONED:
        return task
    words = f"Task {task.number} is [{task.status.marker}]: only [ABANDONED] tasks are recovered."
    advice = "It is on the board as it is." if task.status not in CLOSED else ""
    raise Refused(words, code="INVALID_STATUS_TRANSITION", advice=advice)


def _noting(state: State, at: str, words: str, numbers: Sequence[int]) -> State:
    more = {"task_number": numbers[0]} if len(numbers) == 1 else {"task_numbers": list(numbers)}
    return state.noting(at, f"{name_tasks(numbers)} {words}", **more)


def _subject(verb: str, numbers: Sequence[int]) -> str:
    subject = f"task {spell_numbers(numbers)}: {verb}"
    return subject if len(subject) <= 72 else f"task: {verb} {len(numbers)} tasks"


def _moved_outcome(draft: Draft, numbers: Sequence[int], verb: str, warnings: Sequence[str], after: str, *, dry_run: bool) -> Outcome:
    are = ("would be" if dry_run else "is" if len(numbers) == 1 else "are") + f" {verb}"
    return Outcome(
        command="task",
        status="completed",
        summary=f"{name_tasks(numbers)} {are}.",
        task_number=numbers[0] if len(numbers) == 1 else None,
        task_status=draft.state.task(numbers[0]).status.marker if len(numbers) == 1 else "",
        next_steps=after,
        warnings=(*draft.notices, *warnings),
        data={"task_numbers": list(numbers), "dry_run": dry_run},
    )


# ---- divide


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a task as they are written: in the prompt, in the description, or as phases of its plan."""

    texts: tuple[str, ...] = ()
    in_turn: bool = False
    """Each depends on the one before it: a numbered list, or phases."""
    source: str = ""


def divide(board: Board, number: int, prompt: str = "", *, force: bool = False, dry_run: bool = False) -> Outcome:
    """Make two to five tasks of one. Nothing is made up: without parts in writing it is refused."""

    def step(draft: Draft) -> tuple[list[Task], Parts, list[str]]:
        (task,) = find_tasks(board, draft.state, [number])
        if number in holders(board):
            advice = "Divide it when that has ended, or stop it with `remit cancel`."
            raise Refused(f"Task {number} is being worked on now.", advice=advice)
        warnings = list(_check_move(task, Status.EXPANDED, force=force))
        parts = _parts_of(board, task, prompt)
        if task.accept and not parts.in_turn:
            warnings.append(f"Acceptance commands of task {number} hold for no part of it: add them where they belong.")
        return _divided(board, draft, task, parts), parts, warnings

    def subject(made: tuple[list[Task], Parts, list[str]]) -> str:
        return f"task {number}: divide into {spell_numbers([task.number for task in made[0]])}"

    (made, parts, warnings), draft, debt = change_board(board, step, subject, dry_run=dry_run)
    numbers = [task.number for task in made]
    order = "each after the one before it" if parts.in_turn else "in any order"
    outcome = Outcome(
        command="task",
        status="completed",
        summary=f"Task {number} {'would be' if dry_run else 'is'} divided into {len(made)} tasks, {order}: {spell_numbers(numbers)}\n"
        + "\n".join(f"  {task.number}. {task.title}" for task in made),
        task_number=number,
        task_status=Status.EXPANDED.marker,
        next_steps=f"remit research {numbers[0]}",
        warnings=(*draft.notices, *warnings),
        data={"created": numbers, "in_turn": parts.in_turn, "taken_from": parts.source, "dry_run": dry_run},
    )
    return committed(board, outcome, debt)


def _parts_of(board: Board, task: Task, prompt: str) -> Parts:
    """Raises `Misused` where there are not two to five."""
    parts = _listed(prompt, "the prompt") if prompt.strip() else _listed(task.description, "its description")
    if prompt.strip() and not parts.texts:
        parts = Parts(texts=tuple(line.strip() for line in prompt.splitlines() if line.strip()), source="the prompt")
    if not prompt.strip() and not parts.texts and task.plan_path:
        try:
            phases = read_plan((board.root / task.plan_path).read_text(errors="replace")).phases
        except OSError:
            phases = ()
        texts = tuple(f"{phase.name}\n\n{phase.text}" for phase in phases)
        parts = Parts(texts=texts, in_turn=True, source="the phases of its plan")
    if MIN_PARTS <= len(parts.texts) <= MAX_PARTS:
        return parts
    many = f"{len(parts.texts)} {'was' if len(parts.texts) == 1 else 'were'} found in {parts.source}" if parts.texts else "none was found"
    example = f'remit task --divide {task.number} "1. first part\n2. second part"'
    raise Misused(
        f"A task is divided into {MIN_PARTS} to {MAX_PARTS} parts; {many}.",
        advice=f"Write the parts as a list, numbered when they are to be done in turn: {example}",
    )


def _listed(text: str, source: str) -> Parts:
    items = list_items(text)
    texts = tuple("\n".join((item.text, *(f"- {part}" for part in item.parts))) for item in items)
    return Parts(texts=texts, in_turn=bool(items) and all(item.is_numbered for item in items), source=source)


def _divided(board: Board, draft: Draft, task: Task, parts: Parts) -> list[Task]:
    made: list[Task] = []
    for place, text in enumerate(parts.texts, start=1):
        wanted = Wanted(
            text=f"{text}\n\nPart {place} of {len(parts.texts)} of task {task.number}: {task.title}",
            title=title_of(text),
            priority=task.priority,
            language=task.language,
            type=task.type,
            dependencies=(made[-1].number,) if parts.in_turn and made else task.dependencies,
            accept=task.accept if parts.in_turn and place == len(parts.texts) else (),
            parent=task.number,
            source=task.source,
        )
        made.append(number_task(board, draft.state, wanted, at=draft.at))
        draft.state = draft.state.with_task(made[-1])
    words = f"Task {task.number} divided into {spell_numbers([one.number for one in made])}"
    moved = replace_tasks(draft.state, [task.moved(Status.EXPANDED, at=draft.at)])
    draft.state = moved.noting(draft.at, words, task_number=task.number)
    return made
