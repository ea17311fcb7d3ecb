"""`remit chat`: talk with the assistant at a terminal. Answers are shown as in `remit ask`; messages are typed in a line editor."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from remit.app import Remit
from remit.builtin.assistant.conversations import Conversations
from remit.cli.ask import (
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
from remit.cli.events import SpendingTotal
from remit.cli.exits import Exit
from remit.cli.live import Lines, report_dead_work
from remit.cli.project import Project
from remit.cli.render import advice_lines, harmless, report, say, say_aside
from remit.core.errors import Misused, RemitError, Unavailable
from remit.system.packages import need

HELP = """\
/new   start a new conversation; `remit conversations` lists the earlier ones
/quit  exit; Ctrl-D does the same
/help  print this list
Anything else is a message. Alt-Enter begins a new line, Ctrl-C stops what runs."""
PROMPT = "› "
MORE = "· "


def chat(
    project: Project,
    model: Model = None,
    conversation: OneConversation = None,
    latest: Latest = False,
) -> Exit:
    """Talk with the assistant: it streams its words and shows its delegations. `/help` lists commands, Ctrl-D exits."""
    if project.as_json or sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Misused("`remit chat` needs a terminal.", advice='In a script: remit ask --continue "…"')
    return asyncio.run(_chat(project, picked(project, conversation, latest=latest), model))


async def _chat(project: Project, conversation: str | None, model: str | None) -> Exit:
    with _hanging_up() as was_hung_up:
        try:
            async with project.open(settings={} if model is None else {"model": model}) as remit:
                await report_dead_work(remit)
                return await Chat(remit, conversation).run()
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

    def __init__(self) -> None:
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
        else:
            self._was_pressed = True


class Chat:
    def __init__(self, remit: Remit, conversation: str | None) -> None:
        """`conversation`: its id; None: the first message starts a new one."""
        self._remit = remit
        self._conversation = conversation
        self._spent = SpendingTotal()
        self._interrupts = Interrupts()

    async def run(self) -> Exit:
        with self._interrupts:
            self._greet()
            editor = Editor(self._status)
            while True:
                self._interrupts.forget()
                message = await editor.read()
                if message is None or message in ("/quit", "/exit"):
                    return Exit.OK
                if message == "/new":
                    self._conversation, self._spent = None, SpendingTotal()
                elif message == "/help":
                    say_aside(HELP)
                else:
                    await self._ask(message, was_interrupted=editor.take_interrupt)

    def _status(self) -> str:
        """The line below the prompt."""
        parts = (model_name(self._remit), self._spent.words(), self._conversation or "new conversation", "Ctrl-D exits")
        return " · ".join(filter(None, parts))

    async def _ask(self, message: str, was_interrupted: Callable[[], bool]) -> None:
        try:
            with self._interrupts.passed_to(asyncio.Event()) as stop:
                if was_interrupted():
                    stop.set()
                answer = await answer_to(self._remit, message, Plain(Lines(), to_stdout), conversation=self._conversation, stop=stop)
        except RemitError as error:
            report(error, as_json=False)
            return
        self._spent = self._spent.plus(answer.spent)
        self._conversation = answer.conversation or self._conversation
        if answer.result.ok:
            say(closing_line(self._remit, answer))
        else:
            go_on = "The conversation is kept: your next message continues it." if answer.was_interrupted else ""
            print_ending(answer, self._remit.root, go_on)
        say()

    def _greet(self) -> None:
        say(f"remit chat · {model_name(self._remit)} · Ctrl-C stops what runs, Ctrl-D exits")
        try:
            self._remit.models.choice()
        except Unavailable as error:
            say("\n".join((error.message, *advice_lines(error.advice))))
        if self._conversation is not None:
            found = Conversations(self._remit.root).open(self._conversation)
            say("\n".join([f"{found.conversation_id}  {found.title}", *(f"! {one}" for one in found.notices)]))
        say()


# ---- the line editor


class Editor:
    """A line editor with history. Enter sends; Alt-Enter, or a backslash before Enter, begins a new line."""

    def __init__(self, status: Callable[[], str]) -> None:
        need("prompt_toolkit", "models")
        from prompt_toolkit import PromptSession

        self._session: PromptSession[str] = PromptSession(
            [("fg:ansicyan", PROMPT)],
            multiline=True,
            prompt_continuation=MORE,
            key_bindings=_bindings(),
            bottom_toolbar=lambda: harmless(status()),
        )

    async def read(self) -> str | None:
        """The next message, never empty; None at the end of input."""
        while True:
            try:
                typed = await self._session.prompt_async(handle_sigint=False)  # keys are read raw; a signal comes after the editor
            except (EOFError, OSError):  # Ctrl-D, or the terminal was closed
                return None
            if message := typed.strip():
                return message

    def take_interrupt(self) -> bool:
        """Whether Ctrl-C was pressed right after the message, before it could raise a signal."""
        from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
        from prompt_toolkit.keys import Keys

        editor_input = self._session.app.input
        # Keys that came after the editor's last read and before the terminal was as before are still in the terminal's queue.
        typed = [*get_typeahead(editor_input), *editor_input.read_keys()]
        others = [press for press in typed if press.key != Keys.ControlC]
        store_typeahead(editor_input, others)
        return len(others) < len(typed)


def _bindings() -> Any:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: Any) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def begin_a_line(event: Any) -> None:
        event.current_buffer.newline(copy_margin=False)

    @keys.add("c-c")
    def clear(event: Any) -> None:
        event.current_buffer.reset()

    return keys
