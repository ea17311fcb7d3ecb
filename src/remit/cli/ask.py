"""`remit ask`: one message to the assistant. Its words go to stdout as they come, what it hands on is shown on stderr."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.cli.chat_stage import Stage
    from remit.cli.chat_turn import Answer

Model = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="Ask this one: provider:name, or NAME of \\[models.NAME].", show_default=False),
]
OneConversation = Annotated[
    str | None,
    typer.Option("--conversation", metavar="ID", help="Go on with this one; the beginning or end of an id will do.", show_default=False),
]
Latest = Annotated[bool, typer.Option("--continue", help="Go on with the latest conversation.")]


def ask(
    message: Annotated[
        list[str] | None, typer.Argument(metavar="MESSAGE", help="What you want; `-` stands for what comes on stdin.", show_default=False)
    ] = None,
    model: Model = None,
    conversation: OneConversation = None,
    latest: Latest = False,
    timeout: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="When it is stopped; also 10s, 2m, 1h.", show_default=False)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the answer: nothing about what is handed on.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Ask the assistant: a language model that acts by delegating to the agents of the project."""
    import asyncio

    from remit.cli import values
    from remit.cli.chat_picking import picked
    from remit.cli.project import find_root

    words = _message(message)
    seconds = values.seconds(timeout, "--timeout")
    folder = find_root(root)
    chosen = picked(folder, conversation, latest=latest)
    return asyncio.run(_ask(folder, words, _Asked(model, chosen, seconds, quiet, as_json)))


class _Asked:
    """How it is asked."""

    def __init__(self, model: str | None, conversation: str | None, timeout: float | None, quiet: bool, as_json: bool) -> None:
        self.settings: dict[str, Any] = {} if model is None else {"model": model}
        if timeout is not None:
            self.settings["assistant"] = {"message_seconds": timeout}  # the time for a message is what was asked for
        self.conversation = conversation
        self.timeout = timeout
        self.quiet = quiet
        self.as_json = as_json


def _message(given: list[str] | None) -> str:
    """The words; `-` stands for what comes on stdin."""
    import sys

    from remit.core.errors import Misused

    words = given or []
    if "-" in words:
        read = sys.stdin.read().strip()
        words = [f"\n\n{read}\n\n" if word == "-" and len(words) > 1 else read if word == "-" else word for word in words]
    message = " ".join(words).strip()
    if not message:
        advice = 'remit ask "What is in README.md?", or `-` for what comes on stdin; `remit chat` to talk.'
        raise Misused("There is no message.", advice=advice)
    return message


async def _ask(folder: Path, message: str, asked: _Asked) -> Exit:
    from remit.app import Remit
    from remit.cli.approving import person_here
    from remit.cli.chat_turn import HANGING_UP, answer_to
    from remit.cli.exits import exit_of_return
    from remit.cli.living import mind_the_dead
    from remit.cli.output import say_json

    approver = None if asked.as_json else person_here()
    async with Remit.open(folder, recover=False, settings=asked.settings, approver=approver) as remit:
        if not asked.quiet:
            await mind_the_dead(remit)
        stage = _stage(remit, asked)
        answer = await answer_to(remit, message, stage, conversation=asked.conversation, timeout=asked.timeout, signals=HANGING_UP)
        if asked.as_json:
            say_json(answer.to_dict())
        else:
            _conclude(remit, answer, quiet=asked.quiet)
        return Exit.INTERRUPTED if answer.was_interrupted else exit_of_return(answer.result)


def _stage(remit: "Remit", asked: _Asked) -> "Stage":
    """Both streams at one terminal: the answer over the tree. Else each has its own."""
    import sys

    from remit.cli.chat_screen import Screen
    from remit.cli.chat_stage import Asides, Plain, to_stdout
    from remit.cli.chat_status import Meter
    from remit.cli.live import LiveTree, Silence
    from remit.cli.output import console, error_console

    if asked.as_json:
        return Plain(Silence(), lambda _: None)
    if console().is_terminal and not asked.quiet and error_console().is_terminal:
        return Screen(console(), Meter(remit).line)
    if asked.quiet:
        return Plain(Silence(), to_stdout)
    return Plain(LiveTree() if error_console().is_terminal and not sys.stdout.isatty() else Asides(), to_stdout)


def _conclude(remit: "Remit", answer: "Answer", *, quiet: bool) -> None:
    """How it ended, where that is not well, and how to go on; the words themselves have been shown."""
    from remit.cli.chat_status import closing_line
    from remit.cli.chat_turn import print_ending
    from remit.cli.output import error_console

    if not answer.result.ok:
        go_on = f"The conversation is kept: remit ask --conversation {answer.conversation} …" if answer.conversation else ""
        print_ending(answer, error_console(), remit.root, go_on)
    elif not quiet and error_console().is_terminal:
        error_console().print(closing_line(remit, answer))
