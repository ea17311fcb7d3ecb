"""Where messages are typed: a line editor where prompt_toolkit is installed, else whole lines from the terminal or a pipe."""

import asyncio
import contextlib
import os
import sys
import termios
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from remit.cli.render import harmless
from remit.core.redaction import redact_text
from remit.system.beneath import open_regular

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.document import Document


PROMPT = "› "
MORE = "· "
HISTORY = "chat_history"
HISTORY_BYTES = 400_000
"""A larger one loses its older half."""
MISSING = "prompt_toolkit is not installed: line editing is limited. pip install 'remit[models]'"
_READ_BYTES = 65_536

Offers = Callable[[str], Iterable[tuple[str, str, str]]]
"""For the text before the cursor: completions of its last word, how each is shown, and its meaning."""


class Reader(Protocol):
    async def read(self) -> str | None:
        """The next message, never empty; None: there are no more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSetup:
    """What the editor shows and completes."""

    folder: Path
    """`.remit`"""
    offers: Offers
    status: Callable[[], str]


def reader_for(setup: PromptSetup) -> Reader:
    if not is_terminal():
        return LineReader("")
    try:
        import prompt_toolkit  # noqa: F401 - whether it is there
    except ImportError:
        from remit.cli.render import say_aside

        say_aside(MISSING)
        return LineReader(PROMPT)
    return Editor(setup)


def is_terminal() -> bool:
    """Whether stdin and stdout are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


class LineReader:
    """A line is a message; a backslash at its end continues it in the next line."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._kept = b""
        self._has_ended = False

    async def read(self) -> str | None:
        parts: list[str] = []
        while True:
            line = await self._line(self._prompt if not parts else MORE if self._prompt else "")
            if line is None:
                return "\n".join(parts).strip() or None
            parts.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                if message := "\n".join(parts).strip():
                    return message
                parts = []

    async def _line(self, prompt: str) -> str | None:
        if prompt:
            sys.stdout.write(prompt)
            sys.stdout.flush()
        while b"\n" not in self._kept and not self._has_ended:
            data = await _read_stdin()
            self._has_ended = not data
            self._kept += data
        if not self._kept:
            return None
        line, _, self._kept = self._kept.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")


async def _read_stdin() -> bytes:
    """Without a thread, which could not be stopped, and without blocking the loop."""
    descriptor = sys.stdin.fileno()
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:  # a regular file: always ready
        return os.read(descriptor, _READ_BYTES)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
    try:
        return os.read(descriptor, _READ_BYTES)
    except OSError:  # the terminal was closed
        return b""


class Editor:
    """A line editor with history and completion. Enter sends; Alt-Enter, or a backslash before Enter, begins a new line."""

    def __init__(self, setup: PromptSetup) -> None:
        self._setup = setup
        self._session: PromptSession[str] | None = None

    async def read(self) -> str | None:
        session = self._session = self._session or self._made()
        while True:
            try:
                typed = await session.prompt_async()
            except (EOFError, OSError):  # Ctrl-D, or the terminal has gone
                return None
            except KeyboardInterrupt:
                continue
            if message := typed.strip():
                return message

    def _made(self) -> "PromptSession[str]":
        from prompt_toolkit import PromptSession
        from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.styles import Style

        file = history_file(self._setup.folder)
        history = InMemoryHistory() if file is None else _history(file)
        style = Style.from_dict({"bottom-toolbar": "noreverse fg:ansibrightblack", "prompt": "bold fg:ansicyan"})
        session: PromptSession[str] = PromptSession(
            [("class:prompt", PROMPT)],
            multiline=True,
            prompt_continuation=lambda width, number, wrapped: [("fg:ansibrightblack", MORE)],
            history=history,
            auto_suggest=AutoSuggestFromHistory(),
            completer=_completer(self._setup.offers),
            complete_while_typing=Condition(lambda: session.default_buffer.text.startswith("/")),
            key_bindings=_bindings(),
            bottom_toolbar=lambda: [("class:bottom-toolbar", harmless(self._setup.status()))],
            style=style,
            reserve_space_for_menu=6,
        )
        return session


def _bindings() -> Any:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: Any) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # the first Enter takes what is offered
        elif buffer.document.text_before_cursor.endswith("\\"):
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


def _completer(offers: Offers) -> Any:
    from prompt_toolkit.completion import Completer, Completion

    class Offered(Completer):
        def get_completions(self, document: "Document", complete_event: Any) -> Iterable[Completion]:
            before = document.text_before_cursor
            begun = before.rpartition(" ")[2]
            for word, shown, meaning in offers(before):
                yield Completion(word, start_position=-len(begun), display=harmless(shown), display_meta=harmless(meaning))

    return Offered()


def _history(file: Path) -> Any:
    from prompt_toolkit.history import FileHistory

    from remit.builtin.assistant.stream import replace_surrogates

    class Kept(FileHistory):
        """Redacted like a record. A history that cannot be written (a full disk) is no error."""

        def store_string(self, string: str) -> None:
            with contextlib.suppress(OSError):
                super().store_string(redact_text(replace_surrogates(string)))

    return Kept(str(file))


def history_file(folder: Path) -> Path | None:
    """Readable by the user only; None if it cannot be kept."""
    path = folder / HISTORY
    try:
        os.close(open_regular(path, os.O_CREAT | os.O_WRONLY))
        text = path.read_text(errors="replace")
        if len(text) > HISTORY_BYTES:
            path.write_text("\n# " + text[len(text) // 2 :].partition("\n# ")[2])
    except OSError:
        return None
    return path


@contextlib.contextmanager
def no_echo() -> Iterator[None]:
    """Typing during an answer is not echoed into it; the text is there at the next prompt."""
    if not is_terminal():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    quiet = termios.tcgetattr(descriptor)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
