"""Tasks recorded: `remit task "TEXT"` (S6.9). Nothing here runs an agent, and nothing carries out what a task says.

On the board alone, and light to import. `abandoning` gives tasks up and brings them back, `dividing` splits one, `tidying` archives and
mends.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from remit.board.board import Board, Draft
from remit.board.graph import CLOSED, closing
from remit.board.task import Priority, State, Task, slug_of
from remit.core.errors import Misused, Refused
from remit.orchestrator.changing import archived_statuses, changing, kept
from remit.orchestrator.outcome import Outcome

TITLE_LENGTH = 80
GIVEN_TITLE_LENGTH = 200
"""What a person or an agent chose is kept longer; beyond it nobody reads a title."""
TEXT_AT_MOST = 100_000
ROUTING_LINE = "Routing /task to atomic-task-numberer (in_process)"
"""As every command logs where it goes (S4.3). `flow.route` says it of all; it takes longer to import than a task to record."""
_SENTENCE = re.compile(r"(.+?(?:(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\bcf)(?<!\s\d)\.|[!?]))(?:\s|$)")
_LANGUAGE = re.compile(r"[\w.+#-]{1,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A task as it is to be recorded. What is not given is left open; nothing is guessed from the text (S4.2)."""

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


def record(board: Board, wanted: Wanted, *, is_rehearsal: bool = False) -> Outcome:
    """Give it the next number and write it down: all that `task` does. A project without a board gets one."""
    if wanted.language and not _LANGUAGE.fullmatch(wanted.language):
        raise Misused(
            f"{one_line(wanted.language)!r} is no language.",
            advice="It is one word, like lean or python, and routes exactly as it is written.",
        )
    is_first = not board.state_path.exists()

    def step(draft: Draft) -> tuple[Task, tuple[str, ...]]:
        task = numbered(board, draft.state, wanted, at=draft.at)
        doubts = tuple(_doubts(draft.state, task))
        draft.state = draft.state.with_task(task).noting(draft.at, f"Task {task.number} created: {task.title}", task_number=task.number)
        return task, doubts

    (task, doubts), draft, debt = changing(board, step, lambda made: f"task {made[0].number}: create", is_rehearsal=is_rehearsal, make=True)
    _log_route()
    made = "\nThe project had no board: specs/TODO.md and specs/state.json are it from now on." if is_first and not is_rehearsal else ""
    outcome = Outcome(
        command="task",
        status="completed",
        summary=f"Task {task.number} {'would be' if is_rehearsal else 'is'} recorded: {task.title}{made}",
        task_number=task.number,
        task_status=task.status.marker,
        next_steps=f"remit research {task.number}",
        warnings=(*draft.notices, *doubts),
        data={"title": task.title, "route": ROUTING_LINE, "dry_run": is_rehearsal},
    )
    return kept(board, outcome, debt)


def _log_route() -> None:
    import logging  # only here: most that is taken from this module logs nothing

    logging.getLogger(__name__).info(ROUTING_LINE)


def numbered(board: Board, state: State, wanted: Wanted, *, at: str) -> Task:
    """The task with its number, checked and not yet on the board: also for those that other commands make. Raises `Misused`."""
    text, title = wanted.text.strip(), one_line(wanted.title)[:GIVEN_TITLE_LENGTH] or title_of(wanted.text)
    if not title:
        raise Misused("There is no text to record.", advice='Say what is to be done: remit task "Fix the parser".')
    if len(text) > TEXT_AT_MOST:
        raise Misused(f"The text has {len(text):,} characters.", advice=f"At most {TEXT_AT_MOST:,}: put the rest into a file and name it.")
    number = state.next_number
    check_dependencies(board, state, number, wanted.dependencies)
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


def check_dependencies(board: Board, state: State, number: int, dependencies: Sequence[int]) -> None:
    """They exist, on the board or in the archive, and close no circle."""
    circle = closing(state.tasks, number, dependencies)
    if circle:
        raise Refused(
            f"Task {number} would wait for itself: {' → '.join(map(str, (*circle, circle[0])))}.",
            code="CYCLE_DETECTED",
            advice="Leave out one of these dependencies.",
        )
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
    title = title if title.endswith("..") else title.removesuffix(".")
    if len(title) > TITLE_LENGTH:
        cut = title[:TITLE_LENGTH].rpartition(" ")[0]
        title = (cut if len(cut) > TITLE_LENGTH // 2 else title[: TITLE_LENGTH - 1]).rstrip(" ,;:-") + "…"
    return title


def one_line(text: str) -> str:
    """Without line breaks and control characters: it stands in one line of TODO.md."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def _doubts(state: State, task: Task) -> Iterator[str]:
    title = task.title.casefold()
    same = [one for one in state.tasks if one.status not in CLOSED and one.title.casefold() == title]
    if same:
        double = f"Task {same[0].number} has the same title and is [{same[0].status.marker}]"
        yield f"{double}: `remit task --abandon {task.number} --reason …` if it is one too many."
