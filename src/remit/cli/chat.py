"""`remit chat`: talk with the assistant at a terminal, or line by line through a pipe. Answers are shown as in `remit ask`."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Annotated

import typer
from rich.text import Text

from remit.app import Remit
from remit.builtin.assistant.conversations import Conversations
from remit.cli.ask import (
    Answer,
    Asides,
    Latest,
    Model,
    OneConversation,
    Plain,
    answer_to,
    closing_line,
    model_name,
    picked,
    print_ending,
    to_stdout,
)  # fmt: skip
from remit.cli.chat_prompt import is_terminal, reader_for
from remit.cli.events import Spent
from remit.cli.exits import Exit, exit_of_return
from remit.cli.live import Silence, report_dead_work
from remit.cli.project import Project
from remit.cli.render import advice_lines, console, harmless, json_text, one_line, report, say_aside, say_json_line
from remit.core.errors import RemitError, Unavailable

HELP = """\
/new   start a new conversation; `remit conversations` lists the earlier ones
/quit  exit; Ctrl-D does the same
/help  print this list
Anything else is a message. Alt-Enter begins a new line, Ctrl-C stops what runs."""


def chat(
    project: Project,
    model: Model = None,
    conversation: OneConversation = None,
    latest: Latest = False,
    new: Annotated[bool, typer.Option("--new", help="Start a new conversation, which is the default.")] = False,
) -> Exit:
    """Talk with the assistant: it streams its words and shows its delegations. `/help` lists commands, Ctrl-D exits."""
    return asyncio.run(_chat(project, picked(project, conversation, latest=latest, new=new), model))


async def _chat(project: Project, conversation: str | None, model: str | None) -> Exit:
    with _hanging_up() as was_hung_up:
        try:
            async with project.open(settings={} if model is None else {"model": model}) as remit:
                await report_dead_work(remit)
                return await Chat(remit, conversation, as_json=project.as_json).run()
        except (asyncio.CancelledError, OSError):
            # The terminal was closed. By now everything is stopped and recorded.
            if not was_hung_up():
                raise
            return Exit.INTERRUPTED


@contextlib.contextmanager
def _hanging_up() -> "Iterator[Callable[[], bool]]":
    """Stop the chat and its running work on SIGTERM or a closed terminal. Yields a function that tells whether that happened."""
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


class Interrupts:
    """Ctrl-C of a chat: stops the answer that runs, also if it is pressed after the message and before the answer starts.

    One handler for the whole chat, called by the interpreter itself: a handler of the event loop runs a turn later, by which time
    another one may be in place. A second Ctrl-C stops the work again and does not end the chat."""

    def __init__(self, *, is_ignored_when_idle: bool) -> None:
        self._is_ignored_when_idle = is_ignored_when_idle
        self._loop = asyncio.get_running_loop()
        self._stop: asyncio.Event | None = None
        self._was_pressed = False

    def __enter__(self) -> None:
        self._earlier = signal.signal(signal.SIGINT, self._handle)

    def __exit__(self, *raised: object) -> None:
        signal.signal(signal.SIGINT, self._earlier)

    def forget(self) -> None:
        """Called before a message is read: an earlier Ctrl-C does not stop its answer."""
        self._was_pressed = False

    @contextlib.contextmanager
    def passed_to(self, stop: asyncio.Event) -> Iterator[asyncio.Event]:
        """Every Ctrl-C since the message was read, and in this block, sets `stop`."""
        self._stop = stop
        if self._was_pressed:
            stop.set()
        try:
            yield stop
        finally:
            self._stop = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        elif self._is_ignored_when_idle:
            self._was_pressed = True
        elif callable(self._earlier):
            self._earlier(number, frame)


class Chat:
    def __init__(self, remit: Remit, conversation: str | None, *, as_json: bool) -> None:
        """`conversation`: its id; None: the first message starts a new one."""
        self._remit = remit
        self._conversation = conversation
        self._as_json = as_json
        self._kept = Conversations(remit.root)
        self._title = ""
        self._spent = Spent()
        self._exit = Exit.OK
        """Through a pipe: that of the first message without a good answer."""
        self._is_terminal = is_terminal() and not as_json and not console().is_dumb_terminal
        self._interrupts = Interrupts(is_ignored_when_idle=self._is_terminal)

    async def run(self) -> Exit:
        with self._interrupts:
            self._greet()
            reader = reader_for(self._remit.folder, self._status)
            while True:
                self._interrupts.forget()
                message = await reader.read()
                if message is None or message.strip() in ("/quit", "/exit"):
                    return self._exit
                if message.strip() == "/new":
                    self._conversation, self._title, self._spent = None, "", Spent()
                elif message.strip() == "/help":
                    say_aside(HELP)
                else:
                    await self._ask(message, was_interrupted=reader.take_interrupt)

    def _status(self) -> str:
        """The line below the prompt."""
        title = one_line(self._title, 40) if self._conversation else "new conversation"
        return " · ".join(part for part in (one_line(model_name(self._remit), 40), self._spent.words(), title, "Ctrl-D exits") if part)

    async def _ask(self, message: str, was_interrupted: Callable[[], bool]) -> None:
        stage = Plain(Silence(), lambda _: None) if self._as_json else Plain(Asides(), to_stdout)
        try:
            with self._interrupts.passed_to(asyncio.Event()) as stop:
                if was_interrupted():
                    stop.set()
                answer = await answer_to(self._remit, message, stage, conversation=self._conversation, stop=stop)
        except RemitError as error:
            self._note(report(error, as_json=self._as_json))
            return
        self._note(Exit.INTERRUPTED if answer.was_interrupted else exit_of_return(answer.result))
        self._spent += answer.spent
        if answer.conversation and (answer.conversation != self._conversation or not self._title):
            self._conversation = answer.conversation
            with contextlib.suppress(RemitError):
                self._title = self._kept.open(answer.conversation).title
        if self._as_json:
            say_json_line(json_text(answer.to_dict()))
        else:
            self._conclude(answer)

    def _note(self, ended: Exit) -> None:
        """Record the exit code for scripts. At a terminal the person has seen the result."""
        if not self._is_terminal:
            self._exit = self._exit or ended

    def _conclude(self, answer: Answer) -> None:
        if not answer.result.ok:
            go_on = "The conversation is kept: your next message continues it." if answer.was_interrupted else ""
            print_ending(answer, self._remit.root, go_on, sys.stdout if self._is_terminal else sys.stderr)
        elif self._is_terminal:
            console().print(closing_line(self._remit, answer, with_conversation=False))
        if self._is_terminal:
            console().print()

    def _greet(self) -> None:
        if self._is_terminal:
            line = Text("remit chat", style="bold").append(f" · {one_line(model_name(self._remit), 60)}", style="cyan")
            console().print(line.append(" · Ctrl-C stops what runs, Ctrl-D exits", style="dim"))
            try:
                self._remit.models.choice()
            except Unavailable as error:
                for words in (error.message, *advice_lines(error.advice)):
                    console().print(Text(words, style="yellow"))
            console().print()
        if self._conversation is None:
            return
        found = self._kept.open(self._conversation)
        self._title = found.title
        if not self._as_json:
            say_aside("\n".join([f"{found.conversation_id}  {found.title}", *(f"! {harmless(one)}" for one in found.notices)]))
