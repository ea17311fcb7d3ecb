"""`remit chat`: talk with the assistant at a terminal, or line by line through a pipe. Answers are shown as in `remit ask`."""

import asyncio
import contextlib
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import FrameType
from typing import Annotated

import typer
from rich.text import Text

from remit.app import Remit
from remit.builtin.assistant.conversations import Conversation, Conversations, CostLine
from remit.cli.ask import (
    Answer,
    Asides,
    Latest,
    Model,
    OneConversation,
    Plain,
    Stage,
    answer_to,
    closing_line,
    model_name,
    picked,
    print_ending,
    to_stdout,
)  # fmt: skip
from remit.cli.chat_prompt import PromptSetup, Reader, is_terminal, reader_for
from remit.cli.conversations import print_list
from remit.cli.events import Spent
from remit.cli.exits import Exit, exit_of_return
from remit.cli.live import Silence, report_dead_work
from remit.cli.project import Project
from remit.cli.render import advice_lines, console, harmless, json_text, one_line, report, say, say_aside, say_json_line
from remit.cli.tree import View, draw, forest
from remit.core.errors import Misused, RemitError, Unavailable

_COMMAND = re.compile(r"/([a-z]+|\?)(?:\s+(.*))?", re.DOTALL)
LISTED = 20


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
                    if talk.reader is None:
                        await report_dead_work(remit)
                    await Session(remit, talk).run()
        except (asyncio.CancelledError, OSError):
            # The terminal was closed. By now everything is stopped and recorded.
            if not was_hung_up():
                raise
            return Exit.INTERRUPTED
    return talk.exit


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


@dataclass(slots=True, kw_only=True)
class Talk:
    """State of the chat."""

    conversation: str | None
    """Conversation id; None: the next message starts a new one."""
    model: str | None
    """The model from --model or /model; None: that of the settings."""
    as_json: bool = False
    title: str = ""
    spent: Spent = field(default_factory=Spent)
    message: str = ""
    """The last message."""
    answer: Answer | None = None
    reader: Reader | None = None
    session: "Session | None" = None
    """The open session."""
    is_over: bool = False
    exit: Exit = Exit.OK
    """Exit code of a chat through a pipe: that of the first message without a good answer."""

    def status(self) -> str:
        """The line below the prompt."""
        model = model_name(self.session.remit) if self.session is not None else ""
        title = one_line(self.title, 40) if self.conversation else "new conversation"
        return " · ".join(part for part in (one_line(model, 40), self.spent.words(), title, "/help") if part)


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


class Session:
    def __init__(self, remit: Remit, talk: Talk) -> None:
        self.remit = remit
        self.talk = talk
        self.kept = Conversations(remit.root)
        self.is_terminal = is_terminal() and not talk.as_json and not console().is_dumb_terminal
        self.is_left = False
        """Whether the project must be opened again."""
        self._interrupts = Interrupts(is_ignored_when_idle=self.is_terminal)
        talk.session = self

    async def run(self) -> None:
        """Run until the chat ends or the project must be opened again."""
        talk = self.talk
        with self._interrupts:
            if talk.reader is None:
                self._greet()
                commands = {f"/{name}": command.meaning for name, command in COMMANDS.items()}
                talk.reader = reader_for(PromptSetup(folder=self.remit.folder, commands=commands, status=talk.status))
            while not self.is_left and not talk.is_over:
                self._interrupts.forget()
                message = await talk.reader.read()
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
            with self._interrupts.passed_to(asyncio.Event()) as stop:
                if talk.reader is not None and talk.reader.take_interrupt():
                    stop.set()
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
        """Record the exit code for scripts. At a terminal the person has seen the result."""
        if not self.is_terminal:
            self.talk.exit = self.talk.exit or ended

    def _stage(self) -> Stage:
        return Plain(Silence(), lambda _: None) if self.talk.as_json else Plain(Asides(), to_stdout)

    def _conclude(self, answer: Answer) -> None:
        if not answer.result.ok:
            go_on = "The conversation is kept: continue, or /retry." if answer.was_interrupted else ""
            print_ending(answer, self.remit.root, go_on, sys.stdout if self.is_terminal else sys.stderr)
        elif self.is_terminal:
            console().print(closing_line(self.remit, answer, with_conversation=False))
        if self.is_terminal:
            console().print()

    # ---- commands and conversations

    async def _carry_out(self, name: str, rest: str) -> None:
        try:
            command = COMMANDS.get(ALIASES.get(name, name))
            if command is None:
                close = get_close_matches(name, COMMANDS, n=1)
                advice = f"Did you mean /{close[0]}?" if close else "/help lists them; // sends a slash."
                raise Misused(f"There is no /{name}.", advice=advice)
            await command.act(self, rest)
        except RemitError as error:
            report(error, as_json=False)

    def begin(self, conversation: Conversation | None) -> None:
        """Continue this conversation; None starts a new one."""
        talk = self.talk
        talk.message, talk.answer, talk.spent = "", None, Spent()
        talk.conversation, talk.title = (conversation.conversation_id, conversation.title) if conversation is not None else (None, "")
        if conversation is None:
            return
        for line in conversation.lines:
            if isinstance(line, CostLine):
                talk.spent += Spent(tokens=line.tokens, cost=line.cost or 0.0, has_unknown=line.cost is None and line.tokens > 0)
        if not talk.as_json:
            say_aside(
                "\n".join(
                    [f"{conversation.conversation_id}  {conversation.title}", *(f"! {harmless(one)}" for one in conversation.notices)]
                )
            )

    def _greet(self) -> None:
        if self.is_terminal:
            line = Text("remit chat", style="bold").append(f" · {one_line(model_name(self.remit), 60)}", style="cyan")
            console().print(line.append(" · /help lists commands, Ctrl-D exits", style="dim"))
            try:
                self.remit.models.choice()  # before the first message, so that /model can name one
            except Unavailable as error:
                for words in (error.message, *advice_lines(error.advice)):
                    console().print(Text(words, style="yellow"))
            console().print()
        if self.talk.conversation is not None:
            self.begin(self.kept.open(self.talk.conversation))


@dataclass(frozen=True, slots=True)
class Command:
    takes: str
    meaning: str
    act: Callable[[Session, str], Awaitable[None]]


def command_in(message: str) -> tuple[str, str] | None:
    """The command name and its argument; None for a message, which may begin with a path."""
    found = _COMMAND.fullmatch(message)
    return (found[1], (found[2] or "").strip()) if found else None


async def _help(session: Session, rest: str) -> None:
    for name, command in COMMANDS.items():
        say(f"  {f'/{name} {command.takes}':14}  {command.meaning}")
    say("\n  Alt-Enter, or a backslash at the end, begins a new line. Ctrl-C stops what runs, or clears the line; Ctrl-D exits.")


async def _new(session: Session, rest: str) -> None:
    session.begin(None)
    say("A new conversation begins with your next message.")


async def _list(session: Session, rest: str) -> None:
    print_list(session.kept.list(limit=LISTED), current=session.talk.conversation)


async def _resume(session: Session, rest: str) -> None:
    session.begin(session.kept.open(rest or "latest"))


async def _model(session: Session, rest: str) -> None:
    from remit.models.client import Models
    from remit.system.settings_files import load_settings

    if not rest:
        say(", ".join(session.remit.settings.model) or "No model is configured. /model NAME takes one for this chat.")
        return
    Models(load_settings(session.remit.root, {"model": rest}, trust=session.remit.trust)).choice()  # raises if the model is not usable
    session.talk.model = rest
    session.is_left = True
    say(f"From now on {rest}.")


async def _tree(session: Session, rest: str) -> None:
    answer = session.talk.answer
    if answer is None:
        raise Misused("Nothing has been asked yet.", advice="/tree shows the delegations of the last message.")
    for root in forest(await session.remit.tree(answer.result.session_id)):
        console().print(draw(root, View(now=time.time())))


async def _retry(session: Session, rest: str) -> None:
    if not session.talk.message:
        raise Misused("Nothing has been asked yet.", advice="/retry asks the last message once more.")
    await session.ask(session.talk.message)


async def _quit(session: Session, rest: str) -> None:
    session.talk.is_over = True


COMMANDS: dict[str, Command] = {
    "help": Command("", "these commands", _help),
    "new": Command("", "start a new conversation", _new),
    "list": Command("", "the latest conversations", _list),
    "resume": Command("[ID]", "continue another conversation; without an id the latest", _resume),
    "model": Command("[NAME]", "use another model in this chat; without a name: show it", _model),
    "tree": Command("", "delegations of the last message; remit show ID has the result of one", _tree),
    "retry": Command("", "ask the last message once more", _retry),
    "quit": Command("", "exit; the conversation is kept", _quit),
}
ALIASES = {"exit": "quit", "q": "quit", "h": "help", "?": "help"}
