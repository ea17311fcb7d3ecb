"""`remit chat`: talk with the assistant at a terminal, or line by line through a pipe."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

import typer
from rich.text import Text

from remit.app import Remit
from remit.builtin.assistant.conversations import Conversation, Conversations, reply_of
from remit.cli.ask import Answer, Latest, Model, OneConversation, answer_to, picked, print_ending
from remit.cli.chat_commands import carry_out, command_in, offers
from remit.cli.chat_prompt import PromptSetup, Reader, is_terminal, no_echo, reader_for
from remit.cli.chat_screen import (
    Asides,
    Meter,
    Plain,
    Screen,
    Stage,
    closing_line,
    model_name,
    print_markdown,
    spent_in,
    to_stdout,
)  # fmt: skip
from remit.cli.events import Spent
from remit.cli.exits import Exit, exit_of_return
from remit.cli.live import Silence, report_dead_work
from remit.cli.project import Project
from remit.cli.render import advice_lines, console, count, error_console, harmless, json_text, one_line, report, say_aside, say_json_line
from remit.core.errors import RemitError, Unavailable
from remit.core.model_messages import Reply, UserMessage


def chat(
    project: Project,
    model: Model = None,
    conversation: OneConversation = None,
    latest: Latest = False,
    new: Annotated[bool, typer.Option("--new", help="Start a new conversation, which is the default.")] = False,
) -> Exit:
    """Talk with the assistant: it streams its words, shows its delegations, and keeps the conversation. /help lists its commands."""
    return asyncio.run(_chat(project, picked(project, conversation, latest=latest, new=new), model))


async def _chat(project: Project, conversation: str | None, model: str | None) -> Exit:
    talk = Talk(conversation=conversation, model=model, as_json=project.as_json)
    with _hanging_up() as was_hung_up:
        try:
            while not talk.is_over:
                async with project.open(settings={} if talk.model is None else {"model": talk.model}) as remit:
                    if not talk.is_greeted:
                        await report_dead_work(remit)
                    await Session(remit, talk).run()
        except (asyncio.CancelledError, OSError):
            # The terminal was closed: everything has been stopped and recorded on the way here.
            if not was_hung_up():
                raise
            return Exit.INTERRUPTED
    return talk.exit


@contextlib.contextmanager
def _hanging_up() -> "Iterator[Callable[[], bool]]":
    """A closed terminal, or SIGTERM, ends the chat and its running work; whether that happened."""
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


RECAP_LINES = 12


@dataclass(slots=True, kw_only=True)
class Talk:
    """State of the chat."""

    conversation: str | None
    """Its id; None: a new one begins with the next message."""
    model: str | None
    """Of --model or /model; None: that of the settings."""
    as_json: bool = False
    title: str = ""
    spent: Spent = field(default_factory=Spent)
    message: str = ""
    """The last one."""
    answer: Answer | None = None
    reader: Reader | None = None
    session: "Session | None" = None
    """The open one."""
    is_over: bool = False
    exit: Exit = Exit.OK
    """Of a chat through a pipe: that of the first message without a good answer."""

    @property
    def is_greeted(self) -> bool:
        return self.reader is not None

    def status(self) -> str:
        """The line below the prompt."""
        model = model_name(self.session.remit) if self.session is not None else ""
        title = one_line(self.title, 40) if self.conversation else "new conversation"
        return " · ".join(part for part in (one_line(model, 40), self.spent.words(), title, "/help") if part)


class Session:
    def __init__(self, remit: Remit, talk: Talk) -> None:
        self.remit = remit
        self.talk = talk
        self.kept = Conversations(remit.root)
        self.is_terminal = is_terminal() and not talk.as_json and not console().is_dumb_terminal
        self.is_left = False
        """The project must be opened again."""
        self.interrupts = Interrupts(is_terminal=self.is_terminal)
        talk.session = self

    async def run(self) -> None:
        """Until it is over, or the project must be opened again."""
        self.interrupts.rest()
        try:
            await self._run()
        finally:
            self.interrupts.close()

    async def _run(self) -> None:
        talk = self.talk
        if talk.reader is None:
            self._greet()
            talk.reader = reader_for(PromptSetup(folder=self.remit.folder, offers=lambda text: offers(talk, text), status=talk.status))
        while not self.is_left and not talk.is_over:
            message = await talk.reader.read()
            self.interrupts.rest()
            if message is None:
                talk.is_over = True
            elif (command := command_in(message)) is not None:
                await self._carry_out(*command)
            else:
                await self.ask(message.removeprefix("/") if message.startswith("//") else message)

    # ---- a message

    async def ask(self, message: str) -> None:
        talk = self.talk
        talk.message = message
        try:
            stop = asyncio.Event()
            with no_echo(), self.interrupts.heard_by(stop.set):
                answer = await answer_to(self.remit, message, self._stage(), conversation=talk.conversation, stop=stop)
        except RemitError as error:
            self._note(report(error, as_json=talk.as_json))
            return
        talk.answer = answer
        self._note(Exit.INTERRUPTED if answer.was_interrupted else exit_of_return(answer.result))
        talk.spent += answer.spent
        if answer.conversation and (answer.conversation != talk.conversation or not talk.title):
            talk.conversation = answer.conversation
            with contextlib.suppress(RemitError):
                talk.title = self.kept.open(answer.conversation).title
        if talk.as_json:
            say_json_line(json_text(answer.to_dict()))
        else:
            self._conclude(answer)

    def _note(self, ended: Exit) -> None:
        """For scripts; at a terminal a person has seen it."""
        if not self.is_terminal:
            self.talk.exit = self.talk.exit or ended

    def _stage(self) -> Stage:
        if self.is_terminal:
            return Screen(console(), Meter(self.remit).line)
        if self.talk.as_json:
            return Plain(Silence(), lambda _: None)
        return Plain(Asides(), to_stdout)

    def _conclude(self, answer: Answer) -> None:
        shown = console() if self.is_terminal else error_console()
        if not answer.result.ok:
            go_on = "The conversation is kept: continue, or /retry." if answer.was_interrupted else ""
            print_ending(answer, self.remit.root, go_on, sys.stdout if self.is_terminal else sys.stderr)
        elif self.is_terminal:
            shown.print(closing_line(self.remit, answer, with_conversation=False))
        if self.is_terminal:
            shown.print()

    # ---- commands

    async def _carry_out(self, name: str, rest: str) -> None:
        try:
            with self.interrupts.heard_by(lambda: None):  # it is for the program that has the terminal now, e.g. a pager
                await carry_out(self, name, rest)
        except RemitError as error:
            report(error, as_json=False)
        except OSError as error:  # a file to be exported to, say
            say_aside(f"Error: {error.strerror or error}: {error.filename or ''}")

    # ---- conversations

    def begin(self, conversation: Conversation | None) -> None:
        """Continue this one; None: a new one."""
        talk = self.talk
        talk.message, talk.answer = "", None
        if conversation is None:
            talk.conversation, talk.title, talk.spent = None, "", Spent()
            return
        talk.conversation, talk.title = conversation.conversation_id, conversation.title
        talk.spent = spent_in(conversation)
        self._recap(conversation)

    def _greet(self) -> None:
        if self.is_terminal:
            line = Text("remit chat", style="bold").append(f" · {one_line(model_name(self.remit), 60)}", style="cyan")
            console().print(line.append(" · /help lists commands, Ctrl-D leaves", style="dim"))
            self._warn_of_no_model()
            console().print()
        if self.talk.conversation is not None:
            self.begin(self.kept.open(self.talk.conversation))

    def _warn_of_no_model(self) -> None:
        """Before anything is typed, so that /model can name one."""
        try:
            self.remit.models.choice()
        except Unavailable as error:
            for line in (error.message, *advice_lines(error.advice)):
                console().print(Text(line, style="yellow"))

    def _recap(self, conversation: Conversation) -> None:
        """Print the last messages."""
        spoken = [line.message for line in conversation.spoken if not line.by and isinstance(line.message, UserMessage | Reply)]
        said = sum(isinstance(message, UserMessage) for message in spoken)
        line = Text(conversation.title, style="bold").append(f"  {conversation.conversation_id} · {count(said, 'message')}", style="dim")
        if not self.is_terminal:
            return
        console().print(line)
        for notice in conversation.notices:
            console().print(Text(f"! {harmless(notice)}", style="yellow"))
        if conversation.stopped is not None:
            spoken.append(reply_of(conversation.stopped))
        for message in [one for one in spoken if one.text.strip()][-2:]:
            lines = harmless(message.text).strip().split("\n")
            shown = "\n".join(lines[:RECAP_LINES]) + (
                f"\n\n… {count(len(lines) - RECAP_LINES, 'more line')}" if len(lines) > RECAP_LINES else ""
            )
            if isinstance(message, UserMessage):
                console().print(Text(f"› {shown}", style="dim"))
            else:
                print_markdown(shown, console(), "dim")
        console().print()


class Interrupts:
    def __init__(self, *, is_terminal: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_terminal = is_terminal

    def rest(self) -> None:
        """Nothing runs that could be stopped. Called again after another program, such as a line editor, had the signal."""
        if self._is_terminal:
            self._loop.add_signal_handler(signal.SIGINT, lambda: None)
        else:
            self.close()

    @contextlib.contextmanager
    def heard_by(self, act: Callable[[], object]) -> Iterator[None]:
        """Every time: a second Ctrl-C stops the running work again, not the conversation."""
        self._loop.add_signal_handler(signal.SIGINT, act)
        try:
            yield
        finally:
            self.rest()

    def close(self) -> None:
        self._loop.remove_signal_handler(signal.SIGINT)
