"""`remit task`: record a task, and what else is done to tasks without an agent (S6.9). The work is `orchestrator.tasks`'s."""

from typing import Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root


def task(
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="What is to be done, in your words.", show_default=False)] = None,
    priority: Annotated[str, typer.Option(help="high, medium or low.")] = "medium",
    effort: Annotated[str, typer.Option(help="How much work it is, in your words.", show_default=False)] = "",
    language: Annotated[str, typer.Option(help="lean, python, …: which agents work on it.", show_default=False)] = "",
    depends: Annotated[str, typer.Option(metavar="R", help="Tasks it waits for, like 3,5-7.", show_default=False)] = "",
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Record a task; nothing is carried out."""
    from remit.board.book import Board
    from remit.board.task import Priority
    from remit.cli.numbers import numbers_of
    from remit.cli.output import say, say_aside, say_json
    from remit.cli.project import find_root
    from remit.orchestrator.tasks import Wanted, record

    wanted = Wanted(
        text=text or "",
        priority=Priority(priority),
        effort=effort,
        language=language or None,
        dependencies=tuple(numbers_of(depends)) if depends else (),
    )
    outcome = record(Board(find_root(root)), wanted)
    if as_json:
        say_json(outcome.to_dict())
        return Exit.OK
    say(outcome.summary)
    for warning in outcome.warnings:
        say_aside(warning)
    say(f"  next  {outcome.next_steps}")
    return Exit.OK
