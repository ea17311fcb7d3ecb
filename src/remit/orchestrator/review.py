"""`review [PATH|N]`: have a path or a task looked over, file the report, and make tasks of what was found when asked (S6.9).

Statuses of tasks are left alone. `review_filing` files what comes of it, `record_check` looks whether the board is right about a task.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

from remit.app import Remit
from remit.board import claims
from remit.board.board import Board
from remit.board.task import Task
from remit.core.deadline import allowed_timeout
from remit.core.errors import Misused
from remit.core.result import StopReason
from remit.flow.route import GENERAL, route
from remit.orchestrator.changing import found as found_tasks
from remit.orchestrator.outcome import Outcome, Waiting, plainly
from remit.orchestrator.record_check import check_record
from remit.orchestrator.review_filing import Asked, Reviewed, file_review
from remit.orchestrator.review_words import words_of
from remit.orchestrator.working import hand_over
from remit.settings import Settings
from remit.system.threads import off_loop

__all__ = ["Asked", "check", "rehearsed", "review", "review_task"]

FOLDER = "specs/reviews"
ACCEPT_SECONDS = 600.0
"""For the acceptance commands of a task together."""


async def review(remit: Remit, board: Board, asked: Asked, *, waiting: Waiting = plainly) -> Outcome:
    """Raises `Misused` where there is nothing of that name."""
    task, warnings = await off_loop(check, board, remit.settings, asked)
    with _reserved(board, task) as write_to:
        await off_loop(_make_folder, board, write_to)
        parameters = await off_loop(_parameters, board, asked, task, write_to)
        extra = {"write_to": write_to} if task is not None else {"write_to": write_to, "language": GENERAL, "title": f"Review {asked.what}"}
        result = await hand_over(remit, "review", task=task, parameters=parameters, extra=extra, timeout=asked.timeout, waiting=waiting)
        record = None
        if task is not None and result.stop_reason not in (StopReason.CANCELLED, StopReason.REFUSED):
            record = await check_record(board, task, besides=write_to, seconds=ACCEPT_SECONDS, accept_env=remit.settings.accept_env)
        done = Reviewed(asked=asked, task=task, write_to=write_to, result=result, record=record, warnings=warnings)
        return await off_loop(file_review, board, done, remit.settings.languages)


async def review_task(
    remit: Remit, board: Board, number: int, *, make_tasks: bool = False, timeout: float | None = None, waiting: Waiting = plainly
) -> Outcome:
    """`task --review N`."""
    return await review(remit, board, Asked(number=number, make_tasks=make_tasks, timeout=timeout), waiting=waiting)


def rehearsed(board: Board, settings: Settings, asked: Asked) -> Outcome:
    """`--dry-run`: what would be looked at and where the report would go. Blocking; touches nothing."""
    task, warnings = check(board, settings, asked)
    language = (task.language or GENERAL) if task is not None else GENERAL
    line = route("review", language, task is not None and task.has_plan, settings.routing).log_line
    write_to = _next_path(board, task, set())
    return Outcome(
        command="review",
        status="completed",
        summary=f"Would review {asked.what} and file the report as {write_to}.",
        task_number=asked.number,
        task_status=task.status.marker if task is not None else "",
        warnings=warnings,
        data={"dry_run": True, "route": line, "write_to": write_to, "tasks": asked.make_tasks},
    )


def check(board: Board, settings: Settings, asked: Asked) -> tuple[Task | None, tuple[str, ...]]:
    """The task, if one is asked for; what the user should know first. Raises `Misused`. Blocking; touches nothing."""
    if asked.timeout is not None:
        allowed_timeout(asked.timeout, settings.limits_for("review"))
    if asked.number is None:
        real, top = os.path.realpath(board.root / (asked.path or ".")), os.path.realpath(board.root)
        if real != top and not real.startswith(f"{top.rstrip('/')}/"):
            raise Misused(f"{asked.path} is outside of the project.", advice="Name a folder or file inside of it.")
        if not os.path.exists(real):
            raise Misused(f"There is no {asked.path} in the project.", advice="Name a folder, a file or a task's number.")
        return None, ()
    seen = board.look()
    task = found_tasks(board, seen.state, [asked.number])[0]
    holder = claims.holder_of(board, asked.number)
    busy = (f"Task {asked.number} is being worked on (`remit {holder.command}`): it was reviewed as it stands.",) if holder else ()
    return task, (*seen.notices, *busy)


# ---- where the report goes


@contextlib.contextmanager
def _reserved(board: Board, task: Task | None) -> Iterator[str]:
    """A path that no other review uses meanwhile."""
    folder = board.folder / "reviews"
    folder.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    while True:
        path = _next_path(board, task, taken)
        mark = folder / path.replace("/", "%")
        try:
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
            break
        except FileExistsError:
            taken.add(path)
    try:
        yield path
    finally:
        mark.unlink(missing_ok=True)


def _next_path(board: Board, task: Task | None, taken: set[str]) -> str:
    folder = f"{task.folder}/reports" if task is not None else FOLDER
    place = board.root / folder
    names = [one.name for one in place.iterdir()] if place.is_dir() else []
    linked = [one.path for one in task.artifacts] if task is not None else []
    names += [path.rpartition("/")[2] for path in (*taken, *linked)]
    number = 1 + max((int(found[1]) for name in names if (found := re.match(r"review-(\d+)\.", name))), default=0)
    return f"{folder}/review-{number:03d}.md"


def _make_folder(board: Board, write_to: str) -> None:
    place = (board.root / write_to).parent
    if not place.resolve().is_relative_to(board.root.resolve()):
        raise Misused(f"{write_to} leads out of the project by a symlink.", advice="Take the link away.")
    place.mkdir(parents=True, exist_ok=True)


def _parameters(board: Board, asked: Asked, task: Task | None, write_to: str) -> dict[str, Any]:
    more = {"path": asked.path, "number": asked.number, "base": asked.base, "focus": asked.focus}
    words = words_of(board.root, asked.what, task, write_to, focus=asked.focus, base=asked.base)
    return {"task": words, "write_to": write_to, **{name: value for name, value in more.items() if value not in ("", None)}}
