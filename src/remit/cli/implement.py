"""`remit implement N | N-M`: have tasks carried out, phase by phase, each phase committed (S6.7, S6.9). The work is `orchestrator`'s."""

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.completing import some_tasks
from remit.cli.errands import DryRun, Timeout
from remit.cli.exits import Exit, exit_of_ending
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.board.board import Board

USAGE = "remit implement N | N-M [focus]"


def implement(
    numbers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="N...",
            help="The task's number, or several like 3,5-7, done in turn; then what to mind in particular, in words.",
            show_default=False,
            autocompletion=some_tasks,
        ),
    ] = None,
    timeout: Timeout = None,
    force: Annotated[bool, typer.Option("--force", help="Skip the checks of status and dependencies, with a warning.")] = False,
    dry_run: DryRun = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Have a task carried out: the phases of its plan in turn, each committed; run again, it goes on where it stood."""
    import asyncio

    from remit.board.board import Board
    from remit.cli.numbers import numbers_of
    from remit.cli.project import find_root
    from remit.cli.values import seconds

    words = list(numbers or ())
    count = next((at for at, word in enumerate(words) if re.search(r"[^\d\s,;#.\u2013-]", word)), len(words))
    given, focus = numbers_of(" ".join(words[:count] or words[:1]), USAGE), " ".join(words[max(count, 1) :])
    limit = seconds(timeout, "--timeout")
    board = Board(find_root(root))
    if dry_run:
        return _rehearse(board, given, force=force, timeout=limit, as_json=as_json)
    return asyncio.run(_implement(board, given, focus, force=force, timeout=limit, as_json=as_json))


async def _implement(board: "Board", numbers: list[int], focus: str, *, force: bool, timeout: float | None, as_json: bool) -> Exit:
    from remit.app import Remit
    from remit.cli.approving import person_here
    from remit.cli.errands import wait_for_others
    from remit.cli.outcomes import Shown, answer, print_outcome
    from remit.cli.output import say, say_aside
    from remit.cli.words import printable
    from remit.core.result import Status, StopReason
    from remit.orchestrator.implement import implement as implemented
    from remit.orchestrator.implement import implement_each, order_tasks
    from remit.orchestrator.lifecycle import must_exist
    from remit.orchestrator.phases import tell_nobody

    must_exist(board, *numbers)  # before a record is opened, and so made
    if len(numbers) > 1:
        order_tasks(board, numbers, force)
    shown = Shown(as_json=as_json)
    telling = tell_nobody if as_json else lambda words: say_aside(printable(words))
    async with Remit.open(board.root, recover=False, approver=person_here()) as remit:
        if len(numbers) == 1:
            outcome = await implemented(remit, board, numbers[0], focus=focus, force=force, timeout=timeout, waiting=shown, telling=telling)
        else:
            each = None if as_json else print_outcome
            options: dict[str, Any] = {"force": force, "timeout": timeout, "focus": focus}
            outcome = await implement_each(remit, board, numbers, waiting=shown, telling=telling, each=each, **options)
        if as_json or len(numbers) == 1:
            code = answer(outcome, as_json=as_json, was_interrupted=shown.was_interrupted)
        else:  # what each came to has been said
            say(printable(outcome.summary))
            code = Exit.INTERRUPTED if shown.was_interrupted else exit_of_ending(Status(outcome.status), StopReason(outcome.stop_reason))
        await wait_for_others(remit, as_json=as_json)
    return code


def _rehearse(board: "Board", numbers: list[int], *, force: bool, timeout: float | None, as_json: bool) -> Exit:
    from remit.cli.outcomes import answer
    from remit.cli.project import open_directory, routed_settings
    from remit.orchestrator.dry_run import dry_run_implement

    directory = open_directory(board.root)
    outcome = dry_run_implement(routed_settings(board.root, directory), board, directory.find, numbers, force=force, timeout=timeout)
    return answer(outcome, as_json=as_json)
