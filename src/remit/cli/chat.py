"""`remit chat`: talking with the assistant at a terminal, or line by line through a pipe.

Here are the command, the project opened again for another model, and the ways out. A chat itself is `chat_session`'s.
"""

import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.ask import Latest, Model, OneConversation
from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def chat(
    model: Model = None,
    conversation: OneConversation = None,
    latest: Latest = False,
    new: Annotated[bool, typer.Option("--new", help="Begin a new conversation; so it is also without any of these.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Talk with the assistant: it streams its words, shows what it hands on, and keeps the conversation. /help lists its commands."""
    import asyncio

    from remit.cli.chat_picking import picked
    from remit.cli.project import find_root

    folder = find_root(root)
    chosen = picked(folder, conversation, latest=latest, new=new)
    return asyncio.run(_chat(folder, chosen, model, as_json))


async def _chat(folder: Path, conversation: str | None, model: str | None, as_json: bool) -> Exit:
    import asyncio

    from remit.app import Remit
    from remit.cli.approving import person_here
    from remit.cli.chat_session import Session, Talk
    from remit.cli.living import mind_the_dead

    talk = Talk(conversation=conversation, model=model, as_json=as_json)
    with _hanging_up() as was_hung_up:
        try:
            while not talk.is_over:
                settings = {} if talk.model is None else {"model": talk.model}
                async with Remit.open(folder, recover=False, settings=settings, approver=person_here()) as remit:
                    if not talk.is_greeted:
                        await mind_the_dead(remit)
                    await Session(remit, talk).run()
        except (asyncio.CancelledError, OSError):
            # Whoever was at the terminal has gone, and so may the terminal: everything has been stopped and recorded on the way here.
            if not was_hung_up():
                raise
            return Exit.INTERRUPTED
    return talk.exit


@contextlib.contextmanager
def _hanging_up() -> "Iterator[Callable[[], bool]]":
    """A closed terminal, or SIGTERM, ends the chat as Ctrl-D does, and what it is at with it; whether that was so."""
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    heard: list[signal.Signals] = []

    def leave(number: signal.Signals) -> None:
        if not heard and task is not None:
            task.cancel()
        heard.append(number)

    signals = [one for one in (signal.SIGHUP, signal.SIGTERM) if signal.getsignal(one) is not signal.SIG_IGN]
    for number in signals:
        loop.add_signal_handler(number, leave, number)
    try:
        yield lambda: bool(heard)
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
