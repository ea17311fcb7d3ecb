"""`remit task`: record a task, and what else is done to tasks without an agent (S6.9). Only asks for it: the work is `orchestrator`'s."""

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

from remit.cli.completing import some_languages, some_priorities, some_tasks
from remit.cli.declaring import argument, option
from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.board.board import Board
    from remit.board.task import Priority
    from remit.orchestrator.outcome import Outcome

USAGE = 'remit task "TEXT"'
_ONE = "Other things to do to tasks"
_NUMBERS = re.compile(r"[\d\s,;#.–-]+")


Text = Annotated[list[str] | None, argument(metavar="TEXT", help="What is to be done, in your words; or the number of a task to show.")]
Title = Annotated[str, option(help="Default: the first sentence of the text.", show_default=False)]
Urgency = Annotated[str, option(help="high, medium or low.", offering=some_priorities)]
Effort = Annotated[str, option(help="How much work it is, in your words: 3h, a day.", show_default=False)]
Language = Annotated[str, option(help="lean, python, …: decides which agents work on it.", show_default=False, offering=some_languages)]
Depends = Annotated[str, option(metavar="R", help="The tasks it waits for, like 3,5-7.", show_default=False, offering=some_tasks)]
Accept = Annotated[list[str] | None, option(metavar="CMD", help="A command that must succeed for it to count as done; repeatable.")]
Reason = Annotated[str, option(help="Why they are abandoned.", panel=_ONE, show_default=False)]
Sync = Annotated[bool, option("--sync", help="Read TODO.md back, finish what a crash left, tell what does not fit.", panel=_ONE)]
Force = Annotated[bool, option("--force", help="Skip the check of the status, with a warning.", panel=_ONE)]
DryRun = Annotated[bool, option("--dry-run", help="Check and tell, change nothing.")]


def _numbered(metavar: str, words: str) -> Any:
    """An option that names tasks."""
    return option(metavar=metavar, help=words, panel=_ONE, show_default=False, offering=some_tasks)


Recover = Annotated[str | None, _numbered("R", "Bring abandoned tasks back, like 337,343-345.")]
Abandon = Annotated[str | None, _numbered("R", "Give tasks up; needs --reason.")]
Divide = Annotated[str | None, _numbered("N", "Make 2 to 5 tasks of one: TEXT lists the parts, else its description or plan does.")]
Review = Annotated[str | None, _numbered("N", "Review what was done for a task.")]


def task(
    text: Text = None,
    title: Title = "",
    priority: Urgency = "medium",
    effort: Effort = "",
    language: Language = "",
    depends: Depends = "",
    accept: Accept = None,
    recover: Recover = None,
    abandon: Abandon = None,
    reason: Reason = "",
    divide: Divide = None,
    sync: Sync = False,
    review: Review = None,
    force: Force = False,
    dry_run: DryRun = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Record a task: nothing is carried out, whatever its text says. Or abandon, recover, divide, sync, review tasks."""
    from remit.board.board import Board
    from remit.cli.project import find_root

    words = _words(text or [])
    asked = {"--recover": recover, "--abandon": abandon, "--divide": divide, "--sync": sync or None, "--review": review}
    what, which, words = _only_one({name: str(value) for name, value in asked.items() if value is not None}, words)
    given: dict[str, object] = {"--title": title, "--effort": effort, "--language": language, "--depends": depends, "--accept": accept}
    given["--priority"] = priority if priority != "medium" else ""
    is_number = what == "" and words.isascii() and words.lstrip("#").isdigit()
    _fit(f"the number of a task: {words} shows it" if is_number else what, reason, given)
    folder = find_root(root)
    board = Board(folder)
    if is_number:
        from remit.cli.task_page import show_task

        return show_task(board, words, as_json=as_json)
    if what == "--review":
        from remit.cli.review import review_one

        return review_one(folder, which, dry_run=dry_run, as_json=as_json)
    done = _done(board, what, words, which, reason, force=force, dry_run=dry_run)
    outcome = done or _recorded(board, words, title, _priority(priority), (effort, language, depends), accept or [], dry_run=dry_run)
    from remit.cli.outcomes import answer

    return answer(outcome, as_json=as_json)


def _done(board: "Board", what: str, words: str, which: str, reason: str, *, force: bool, dry_run: bool) -> "Outcome | None":
    """What the flags ask for; None: none does, a task is to be recorded."""
    from remit.cli.numbers import number_of, numbers_of

    if what == "--sync":
        from remit.orchestrator.maintenance import sync

        return sync(board, dry_run=dry_run)
    if what == "--divide":
        from remit.orchestrator.tasks import divide

        return divide(board, number_of(which, "remit task --divide N [PROMPT]"), words, force=force, dry_run=dry_run)
    if what in ("--abandon", "--recover"):
        from remit.orchestrator.tasks import abandon, recover

        numbers = numbers_of(which, f"remit task {what} R" + (" --reason 'why'" if what == "--abandon" else ""))
        if what == "--recover":
            return recover(board, numbers, dry_run=dry_run)
        return abandon(board, numbers, reason, force=force, dry_run=dry_run)
    return None


def _recorded(
    board: "Board", words: str, title: str, priority: "Priority", more: tuple[str, str, str], accept: list[str], *, dry_run: bool
) -> "Outcome":
    from remit.cli.numbers import numbers_of
    from remit.core.errors import Misused
    from remit.orchestrator.tasks import Wanted, record

    effort, language, depends = more
    if not words and not title.strip():
        raise Misused(f"A task needs a text. Usage: {USAGE}", advice="`remit task --help` shows what else can be done to tasks.")
    wanted = Wanted(
        text=words or title,
        title=title,
        priority=priority,
        effort=effort,
        language=language or None,
        dependencies=tuple(numbers_of(depends)) if depends.strip() else (),
        accept=tuple(accept),
    )
    return record(board, wanted, dry_run=dry_run)


def _words(text: list[str]) -> str:
    """Joined by blanks, so that quotes can be left out; `-` reads them from stdin."""
    if text == ["-"]:
        return sys.stdin.read().strip()
    return " ".join(text).strip()


def _only_one(asked: dict[str, str], words: str) -> tuple[str, str, str]:
    """The one flag, its value, and the text. Flags exclude one another, and a text to record excludes them; only `--divide` takes one.

    `--abandon 337, 343-345` comes from the shell in two words: the rest of the list is told from a text by having nothing but numbers.
    """
    from remit.core.errors import Misused

    if len(asked) > 1:
        raise Misused(f"{' and '.join(asked)} exclude one another.", advice="Do one after the other.")
    what, which = next(iter(asked.items()), ("", ""))
    if words and what in ("--abandon", "--recover") and _NUMBERS.fullmatch(words):
        return what, f"{which} {words}", ""
    if words and what not in ("", "--divide"):
        raise Misused(f"{what} takes no text: {words[:60]!r}.", advice="`remit task --help` shows what goes together.")
    return what, which, words


def _fit(what: str, reason: str, given: dict[str, object]) -> None:
    """Options of recording have no meaning beside the flags, and `--reason` only beside `--abandon`."""
    from remit.core.errors import Misused

    if reason and what != "--abandon":
        raise Misused("--reason goes with --abandon.", advice="remit task --abandon R --reason 'why'")
    idle = [name for name, value in given.items() if value]
    if what and idle:
        raise Misused(f"{idle[0]} is for recording a task and has no meaning beside {what}.", advice="Leave it out.")


def _priority(text: str) -> "Priority":
    from remit.board.task import Priority
    from remit.core.errors import Misused

    try:
        return Priority(text.strip().lower())
    except ValueError:
        raise Misused(f"Unknown priority {text!r}.", advice="Use high, medium or low.") from None
