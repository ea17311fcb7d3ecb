"""Input of chat messages: a line editor (prompt_toolkit) at a terminal, else whole lines from a pipe."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from remit.cli.render import harmless
from remit.core.redaction import redact_text
from remit.system.beneath import open_regular
from remit.system.packages import need

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

PROMPT = "› "
MORE = "· "
HISTORY = "chat_history"
HISTORY_BYTES = 400_000
"""A larger history file loses its older half."""
_READ_BYTES = 65_536


class Reader(Protocol):
    async def read(self) -> str | None:
        """The next message, never empty; None at the end of input."""
        ...

    def take_interrupt(self) -> bool:
        """Whether Ctrl-C was pressed right after the message, before it could raise a signal."""
        ...


def reader_for(folder: Path, status: Callable[[], str]) -> Reader:
    """`folder`: `.remit`, which contains the history. `status`: the line below the prompt."""
    return Editor(folder, status) if is_terminal() else LineReader()


def is_terminal() -> bool:
    """Whether stdin and stdout are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


class LineReader:
    """Reads messages line by line. A backslash at the end of a line continues it on the next."""

    def __init__(self) -> None:
        self._kept = b""
        self._has_ended = False

    async def read(self) -> str | None:
        parts: list[str] = []
        while True:
            line = await self._line()
            if line is None:
                return "\n".join(parts).strip() or None
            parts.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                if message := "\n".join(parts).strip():
                    return message
                parts = []

    def take_interrupt(self) -> bool:
        return False

    async def _line(self) -> str | None:
        while b"\n" not in self._kept and not self._has_ended:
            data = await _read_stdin()
            self._has_ended = not data
            self._kept += data
        if not self._kept:
            return None
        line, _, self._kept = self._kept.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")


async def _read_stdin() -> bytes:
    """Read without a thread, which could not be stopped, and without blocking the loop."""
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
    return os.read(descriptor, _READ_BYTES)


class Editor:
    """A line editor with history. Enter sends; Alt-Enter, or a backslash before Enter, begins a new line."""

    def __init__(self, folder: Path, status: Callable[[], str]) -> None:
        need("prompt_toolkit", "models")
        self._session = _session(folder, status)

    async def read(self) -> str | None:
        while True:
            try:
                typed = await self._session.prompt_async(handle_sigint=False)  # keys are read raw; a signal comes after the editor
            except (EOFError, OSError):  # Ctrl-D, or the terminal was closed
                return None
            if message := typed.strip():
                return message

    def take_interrupt(self) -> bool:
        from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
        from prompt_toolkit.keys import Keys

        editor_input = self._session.app.input
        # Keys that came after the editor's last read and before the terminal was as before are still in the terminal's queue.
        typed = [*get_typeahead(editor_input), *editor_input.read_keys()]
        others = [press for press in typed if press.key != Keys.ControlC]
        store_typeahead(editor_input, others)
        return len(others) < len(typed)


def _session(folder: Path, status: Callable[[], str]) -> "PromptSession[str]":
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import InMemoryHistory
    from prompt_toolkit.styles import Style

    file = history_file(folder)
    return PromptSession(
        [("class:prompt", PROMPT)],
        multiline=True,
        prompt_continuation=lambda width, number, wrapped: [("fg:ansibrightblack", MORE)],
        history=InMemoryHistory() if file is None else _history(file),
        key_bindings=_bindings(),
        bottom_toolbar=lambda: [("class:bottom-toolbar", harmless(status()))],
        style=Style.from_dict({"bottom-toolbar": "noreverse fg:ansibrightblack", "prompt": "bold fg:ansicyan"}),
    )


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


def _history(file: Path) -> Any:
    from prompt_toolkit.history import FileHistory

    from remit.builtin.assistant.stream import replace_surrogates

    class Kept(FileHistory):
        """A history that is redacted like a record. A failed write (a full disk) is ignored."""

        def store_string(self, string: str) -> None:
            with contextlib.suppress(OSError):
                super().store_string(redact_text(replace_surrogates(string)))

    return Kept(str(file))


def history_file(folder: Path) -> Path | None:
    """The history file, readable by the user only; None if it cannot be written."""
    path = folder / HISTORY
    try:
        os.close(open_regular(path, os.O_CREAT | os.O_WRONLY))
        text = path.read_text(errors="replace")
        if len(text) > HISTORY_BYTES:
            path.write_text("\n# " + text[len(text) // 2 :].partition("\n# ")[2])
    except OSError:
        return None
    return path
