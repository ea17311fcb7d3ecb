"""`remit task` and `remit todo`: record, abandon, recover, divide and archive tasks, and synchronise TODO.md and state.json.

Runs no agent and executes no task. All tasks of one command are checked before any is changed. Light to import."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remit.board.archive import archived_tasks, bring_back, put_away
from remit.board.board import Board, Draft, no_board
from remit.board.claims import holders
from remit.board.outcome import Outcome, name_tasks, spell_numbers
from remit.board.task import Priority, State, Status, Task, check_move, slug_of
from remit.board.write_set import read_or_none
from remit.core.cycles import shortest_cycle
from remit.core.errors import Misused, Refused
from remit.core.text import list_some, one_line, plural, shorten

if TYPE_CHECKING:
    from remit.board.plans import ListItem

TITLE_LENGTH = 80
GIVEN_TITLE_LENGTH = 200
MAX_TEXT = 100_000
MIN_PARTS, MAX_PARTS = 2, 5
ASK_ABOVE = 5
MAX_SHOWN = 20
"""Lines of one kind; `--json` has all."""
ROUTING_LINE = "Routing /task to atomic-task-numberer (in_process)"
"""As every command logs its route. Importing `core.routing` takes longer than recording a task."""
_LANGUAGE = re.compile(r"[\w.+#-]{1,40}")
_FOLDER = re.compile(r"(\d{1,9})_(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A task to record. Missing values stay open; nothing is guessed from the text."""

    text: str
    title: str = ""
    """Empty: the first line of the text up to a full stop."""
    priority: Priority = Priority.MEDIUM
    effort: str = ""
    language: str | None = None
    dependencies: tuple[int, ...] = ()
    accept: tuple[str, ...] = ()
    type: str = "feature"
    source: str = ""
    parent: int | None = None


def record(board: Board, new: NewTask) -> Outcome:
    """Record the task under the next number. A project without a board gets one."""
    if new.language and not _LANGUAGE.fullmatch(new.language):
        advice = "Use one word, like lean or python; it decides the route."
        raise Misused(f"{one_line(new.language)!r} is not a language.", advice=advice)
    with board.change(make=True) as draft:
        task = number_task(board, draft.state, new, at=draft.at)
        add_task(draft, task)
        board.commit_for(draft, f"task {task.number}: create", command="task", task_number=task.number)
    import logging  # imported here: most uses of this module log nothing

    logging.getLogger(__name__).info(ROUTING_LINE)
    return _outcome(
        draft,
        f"Task {task.number} is recorded: {task.title}",
        [task.number],
        next_steps=f"remit research {task.number}",
        data={"title": task.title, "route": ROUTING_LINE},
    )


def _outcome(draft: Draft, summary: str, numbers: Sequence[int], warnings: Iterable[str] = (), **more: Any) -> Outcome:
    number = numbers[0] if len(numbers) == 1 else None
    task = draft.state.find(number) if number is not None else None
    return Outcome(
        **{
            "command": "task",
            "status": "completed",
            "summary": summary,
            "task_number": number,
            "task_status": task.status.marker if task is not None else "",
            "warnings": (*draft.notices, *warnings, *([draft.commit_warning] if draft.commit_warning else [])),
            "commit": draft.commit_hash,
            **more,
        }
    )


def number_task(board: Board, state: State, new: NewTask, *, at: str) -> Task:
    """The numbered task, checked and not yet on the board. Raises `Misused`."""
    text, title = new.text.strip(), one_line(new.title)[:GIVEN_TITLE_LENGTH] or title_of(new.text)
    if not title:
        raise Misused("The text of the task is missing.", advice='Describe the task: remit task "Fix the parser".')
    if len(text) > MAX_TEXT:
        raise Misused(f"The text has {len(text):,} characters.", advice=f"At most {MAX_TEXT:,}: put the rest into a file and name it.")
    number = state.next_number
    _check_dependencies(board, state, number, new.dependencies)
    return Task(
        number=number,
        title=title,
        slug=slug_of(title),
        type=new.type,
        priority=new.priority,
        language=one_line(new.language or "") or None,
        description=text or title,
        effort=one_line(new.effort),
        dependencies=tuple(dict.fromkeys(new.dependencies)),
        created=at,
        last_updated=at,
        accept=tuple(one_line(command) for command in new.accept if command.strip()),
        parent=new.parent,
        source=new.source,
    )


def add_task(draft: Draft, task: Task) -> None:
    words = f"Task {task.number} created: {task.title}"
    draft.state = draft.state.with_task(task).noting(draft.at, words, task_number=task.number)


def _check_dependencies(board: Board, state: State, number: int, dependencies: Sequence[int]) -> None:
    """They exist, on the board or in the archive, and form no cycle."""
    after = {**{task.number: task.dependencies for task in state.tasks}, number: tuple(dependencies)}
    circle = shortest_cycle(number, after, after)
    if circle:
        words = f"Task {number} would wait for itself: {' → '.join(map(str, (*circle, circle[0])))}."
        raise Refused(words, code="CYCLE_DETECTED", advice="Leave out one of these dependencies.")
    missing = {one for one in dependencies if state.find(one) is None}
    unknown = missing - {task.number for task in archived_tasks(board)} if missing else missing
    if unknown:
        raise Misused(f"Task {min(unknown)} not found", advice="A task can depend on tasks of the board and of the archive only.")


def title_of(text: str) -> str:
    """The first line up to a full stop, at most 80 characters, cut between words."""
    first = next((one_line(line) for line in text.splitlines() if one_line(line)), "").lstrip("#").strip()
    return shorten(first.partition(". ")[0].removesuffix(".").removesuffix(":"), TITLE_LENGTH, at_word=True)


# ---- abandon and recover


def abandon(board: Board, numbers: Sequence[int], reason: str, *, force: bool = False) -> Outcome:
    why = one_line(reason)
    if not why:
        raise Misused("[ABANDONED] needs a reason.", advice=f"remit task --abandon {spell_numbers(numbers)} --reason 'why'")
    warnings: list[str] = []
    with board.change() as draft:
        tasks, working = [draft.state.task(number) for number in numbers], holders(board)
        for task in tasks:
            if task.number in working and not force:
                stop = f"Stop it first (`remit cancel {working[task.number].session_id or 'SESSION'}`), or use --force."
                raise Refused(f"Task {task.number} is being worked on now.", advice=stop)
            warnings += _check_move(task, Status.ABANDONED, reason=why, force=force)
        _move_all(board, draft, tasks, Status.ABANDONED, "abandon", f"abandoned: {why}", reason=why)
    it = "it" if len(numbers) == 1 else "them"
    after = f"`remit task --recover {spell_numbers(numbers)}` brings {it} back, `remit todo` archives {it}"
    return _moved_outcome(draft, numbers, "abandoned", warnings, after)


def recover(board: Board, numbers: Sequence[int]) -> Outcome:
    """[ABANDONED] → [NOT STARTED], also for archived tasks."""
    with board.change() as draft:
        if away := [number for number in numbers if draft.state.find(number) is None]:
            bring_back(board, draft, away)
        tasks = [draft.state.task(number) for number in numbers]
        for task in tasks:
            if task.status is not Status.ABANDONED:
                words = f"Task {task.number} is [{task.status.marker}]: only [ABANDONED] tasks are recovered."
                raise Refused(words, code="INVALID_STATUS_TRANSITION")
        _move_all(board, draft, tasks, Status.NOT_STARTED, "recover", "recovered")
    return _moved_outcome(draft, numbers, "recovered", [], f"remit research {numbers[0]}")


def _move_all(board: Board, draft: Draft, tasks: Sequence[Task], status: Status, verb: str, words: str, *, reason: str = "") -> None:
    numbers = [task.number for task in tasks]
    more = {"task_number": numbers[0]} if len(numbers) == 1 else {"task_numbers": numbers}
    moved = draft.state.with_tasks(task.moved(status, at=draft.at, reason=reason) for task in tasks)
    draft.state = moved.noting(draft.at, f"{name_tasks(numbers)} {words}", **more)
    subject = f"task {spell_numbers(numbers)}: {verb}"
    board.commit_for(draft, subject if len(subject) <= 72 else f"task: {verb} {len(numbers)} tasks", command="task")


def _check_move(task: Task, status: Status, *, reason: str = "", force: bool) -> Iterator[str]:
    try:
        check_move(task.number, task.status, status, reason=reason)
    except Refused as refused:
        if not force or task.status is status:
            raise
        yield f"The status check was skipped (--force): {refused.message}"


def _moved_outcome(draft: Draft, numbers: Sequence[int], verb: str, warnings: Sequence[str], after: str) -> Outcome:
    are = "is" if len(numbers) == 1 else "are"
    data = {"task_numbers": list(numbers)}
    return _outcome(draft, f"{name_tasks(numbers)} {are} {verb}.", numbers, warnings, next_steps=after, data=data)


# ---- divide


def divide(board: Board, number: int, prompt: str = "", *, force: bool = False) -> Outcome:
    """Divide a task into two to five, by the list in the prompt or its description. Refused without one: parts are not invented."""
    with board.change() as draft:
        task = draft.state.task(number)
        if number in holders(board):
            advice = "Divide it when that has ended, or stop it with `remit cancel`."
            raise Refused(f"Task {number} is being worked on now.", advice=advice)
        warnings = list(_check_move(task, Status.EXPANDED, force=force))
        made = _divided(board, draft, task, _parts_of(task, prompt))
        numbers = [one.number for one in made]
        board.commit_for(draft, f"task {number}: divide into {spell_numbers(numbers)}", command="task", task_number=number)
    return _outcome(
        draft,
        "\n".join([f"Task {number} is divided into {len(made)} tasks:", *(f"  {one.number}. {one.title}" for one in made)]),
        [number],
        warnings,
        next_steps=f"remit research {numbers[0]}",
        data={"created": numbers},
    )


def _parts_of(task: Task, prompt: str) -> "list[ListItem]":
    """Raises `Misused` unless there are two to five."""
    from remit.board.plans import list_items  # imported here: most commands read no list

    items = list_items(prompt if prompt.strip() else task.description)
    if MIN_PARTS <= len(items) <= MAX_PARTS:
        return items
    raise Misused(
        f"A task is divided into {MIN_PARTS} to {MAX_PARTS} parts; {plural(len(items), 'part')} found.",
        advice=f'Write them as a list, numbered when they are to be done in turn: remit task --divide {task.number} "1. this\n2. that"',
    )


def _divided(board: Board, draft: Draft, task: Task, items: "Sequence[ListItem]") -> list[Task]:
    """Those of a numbered list depend on one another in turn; the last of them has to pass what the task has to."""
    made: list[Task] = []
    for place, item in enumerate(items, start=1):
        text = "\n".join((item.text, *(f"- {part}" for part in item.parts)))
        new = NewTask(
            text=f"{text}\n\nPart {place} of {len(items)} of task {task.number}: {task.title}",
            title=title_of(text),
            priority=task.priority,
            language=task.language,
            type=task.type,
            dependencies=(made[-1].number,) if item.is_numbered and made else task.dependencies,
            accept=task.accept if place == len(items) else (),
            parent=task.number,
            source=task.source,
        )
        made.append(number_task(board, draft.state, new, at=draft.at))
        draft.state = draft.state.with_task(made[-1])
    words = f"Task {task.number} divided into {spell_numbers([one.number for one in made])}"
    draft.state = draft.state.with_task(task.moved(Status.EXPANDED, at=draft.at)).noting(draft.at, words, task_number=task.number)
    return made


# ---- todo


def todo(board: Board, *, agreed: Callable[[Sequence[Task]], bool], dry_run: bool = False) -> Outcome:
    """Archive completed and abandoned tasks. `agreed` is asked above five; only what it agreed to is archived."""
    look = board.look()
    if not look.exists:
        raise no_board()
    gone, claimed = archivable(board, look.state)
    draft = Draft(state=look.state, at=board.now(), notices=look.notices)
    if not dry_run:
        if len(gone) > ASK_ABOVE and not agreed(gone):
            how = "`remit todo --dry-run` shows them; `remit todo --yes` archives them."
            raise Refused(f"{len(gone)} tasks would be archived without confirmation: nothing was changed.", advice=how)
        wanted = {task.number for task in gone}
        with board.change() as draft:
            now, claimed = archivable(board, draft.state)
            gone = [task for task in now if task.number in wanted]
            if gone:
                numbers = [task.number for task in gone]
                put_away(board, draft, numbers)
                draft.state = draft.state.noting(draft.at, f"{name_tasks(numbers)} archived", task_numbers=numbers)
                board.commit_for(draft, f"todo: archive {plural(len(gone), 'task')}", command="todo")
    numbers, orphans = [task.number for task in gone], folders_without_task(board, draft.state, moved=frozenset(draft.moves))
    warnings = [f"Task {task.number} is still being worked on: it stays." for task in claimed]
    warnings += [f"Folders of no task: {list_some(orphans, MAX_SHOWN)}."] if orphans else []
    abandoned = [task.number for task in gone if task.status is Status.ABANDONED]
    back = f"`remit task --recover {spell_numbers(abandoned)}` brings back what was abandoned" if abandoned else ""
    data = {"would_archive" if dry_run else "archived": numbers, "dry_run": dry_run, "orphan_folders": list(orphans)}
    return _outcome(draft, _archived_summary(gone, dry_run=dry_run), [], warnings, command="todo", next_steps=back, data=data)


def archivable(board: Board, state: State) -> tuple[list[Task], list[Task]]:
    """What `todo` would archive now, and finished tasks that are still in progress."""
    working = holders(board)
    done = [task for task in state.tasks if task.status in (Status.COMPLETED, Status.ABANDONED)]
    return [task for task in done if task.number not in working], [task for task in done if task.number in working]


def _archived_summary(tasks: Sequence[Task], *, dry_run: bool) -> str:
    if not tasks:
        return "Nothing to archive: no task is completed or abandoned."
    are = "would be" if dry_run else "is" if len(tasks) == 1 else "are"
    lines = [f"{name_tasks([task.number for task in tasks])} {are} archived:"]
    lines += [f"  {task.number}. {task.title} [{task.status.marker}]" for task in tasks[:MAX_SHOWN]]
    lines += [f"  … and {len(tasks) - MAX_SHOWN} more"] if len(tasks) > MAX_SHOWN else []
    return "\n".join(lines)


# ---- sync


def sync(board: Board) -> Outcome:
    """Complete what a crash left, merge TODO.md and draw it again."""
    before = read_or_none(board.todo_path)
    with board.change() as draft:
        board.commit_for(draft, "task: sync TODO.md and state.json", command="task")
    is_changed = before != read_or_none(board.todo_path) or bool(draft.notices)
    done = "are brought together" if is_changed else "agree"
    return _outcome(
        draft,
        f"TODO.md and state.json {done}: {plural(len(draft.state.tasks), 'task')}.",
        [],
        data={"changed": is_changed},
    )


def folders_without_task(board: Board, state: State, *, moved: Collection[str] = ()) -> list[str]:
    """Folders in specs/ without a task. `moved`: folders that are being moved away."""
    numbers = {task.number for task in state.tasks}
    folders = sorted(entry.name for entry in os.scandir(board.specs) if entry.is_dir(follow_symlinks=False)) if board.specs.is_dir() else []
    named = [(name, found) for name in folders if (found := _FOLDER.fullmatch(name)) and f"{board.specs.name}/{name}" not in moved]
    return [f"{board.specs.name}/{name}" for name, found in named if int(found[1]) not in numbers]
