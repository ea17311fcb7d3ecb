"""Where a command's words go: answers and JSON to stdout, progress and errors to stderr; and how every command ends.

Knows no command. `answering` wraps each of them: errors of our own tree become one clear line, never a traceback.
"""

import functools
import io
import os
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from remit.cli.declaring import for_typer
from remit.cli.exits import Exit, exit_of_error
from remit.cli.words import wrapped
from remit.core.errors import Misused, RemitError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PIPE_COLUMNS = 160
"""Width of tables when nobody's terminal sets one: wide enough that lines can be searched."""
ROOMY_COLUMNS = 100
"""From that width on session ids are shown whole; else by their end, which is enough to name them."""


def answering(command: Callable[..., Exit]) -> Callable[..., None]:
    """A command that returns its exit code, as typer wants it. Set REMIT_DEBUG=1 to see the traceback of an error."""

    @functools.wraps(command)
    def wrapped_command(**given: Any) -> None:
        from typer import Exit as Ended

        raise Ended(int(answered(command, given)))

    return for_typer(wrapped_command)


def answered(command: Callable[..., Exit], given: dict[str, Any]) -> Exit:
    """The command called, its errors told: how it ended."""
    if given.get("as_json"):
        _stdout.claim()
    try:
        return command(**given)
    except RemitError as error:
        if os.environ.get("REMIT_DEBUG"):
            raise
        return report(error, as_json=bool(given.get("as_json")))


def report(error: RemitError, *, as_json: bool) -> Exit:
    """Say what went wrong and what to do; the exit code that goes with it."""
    if as_json:
        say_json({"error": {"code": error.code, "message": error.message, "advice": error.advice}})
    else:
        stop = "" if error.message.endswith((".", "!", "?", ":")) or not error.advice else "."
        say_aside(f"Error: {error.message}{stop}" + (f" {error.advice}" if error.advice else ""))
    return exit_of_error(error)


def report_usage(message: str) -> Exit:
    """Of a command line that could not be understood, for a reader of JSON."""
    _stdout.claim()
    return report(Misused(message, advice="See `remit --help`."), as_json=True)


class _Stdout:
    """Under `--json` stdout holds the document and nothing else.

    What agents, C code below them or processes they start print goes to stderr, to the end of this process: a thread that was
    abandoned may print at any time.
    """

    def __init__(self) -> None:
        self._kept: int | None = None

    def claim(self) -> None:
        if self._kept is not None:
            return
        try:
            number, other = sys.stdout.fileno(), sys.stderr.fileno()
        except (AttributeError, OSError, ValueError):  # closed, or not a file: then nobody else can write there either
            return
        sys.stdout.flush()
        self._kept = os.dup(number)
        os.dup2(other, number)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # as stderr is: a word that is printed is not lost with the process

    @property
    def kept(self) -> int:
        """Where the document goes."""
        return sys.stdout.fileno() if self._kept is None else self._kept

    def write(self, text: str) -> None:
        if self._kept is None:
            print(text, flush=True)
            return
        data = memoryview(f"{text}\n".encode(errors="replace"))
        while data:
            data = data[os.write(self._kept, data) :]


_stdout = _Stdout()


def claim_stdout() -> int:
    """The descriptor of stdout, for a command that speaks a protocol there: whatever else is printed goes to stderr from now on."""
    _stdout.claim()
    return _stdout.kept


def say_json(document: Any) -> None:
    """The one JSON document of a command."""
    _stdout.write(json_text(document, indent=2))


def say_json_line(line: str) -> None:
    """A piece of a document that is written as it grows."""
    _stdout.write(line)


def json_text(document: Any, *, indent: int | None = None) -> str:
    from pydantic_core import to_json

    return to_json(document, indent=indent, inf_nan_mode="null", fallback=str).decode()


def say(text: str = "") -> None:
    """Words of the answer: wrapped where a terminal shows them, left as they are where a program reads them."""
    print(fitting(text), flush=True)


def say_aside(text: str) -> None:
    """To stderr: not part of the answer."""
    print(fitting(text, sys.stderr), file=sys.stderr, flush=True)


def fitting(text: str, stream: Any = None, *, less: int = 0) -> str:
    """Wrapped to the width of the terminal that shows it (stdout, if no other is named), less some columns."""
    stream = stream if stream is not None else sys.stdout
    if stream is None or not stream.isatty():
        return text
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # a terminal that has no size, or a stream that only stands for one
        columns = 0
    return wrapped(text, (columns or 80) - less)


def put(console: "Console", body: "Text | str", label: "Text | str" = "") -> None:
    """A line behind a label: wrapped between words and below itself on a terminal, whole where a program reads it."""
    from rich.table import Table
    from rich.text import Text

    label, body = (Text(part) if isinstance(part, str) else part for part in (label, body))
    if not console.is_terminal:
        console.print(label.append_text(body), soft_wrap=True)
    elif not label:
        console.print(body)
    else:
        grid = Table.grid()
        grid.add_column(no_wrap=True, width=label.cell_len)
        grid.add_column(overflow="fold")
        grid.add_row(label, body)
        console.print(grid)


def program() -> str:
    """How this program is called from here: by its name where the shell finds that, else by its place."""
    if shutil.which("remit"):
        return "remit"
    beside = os.path.join(os.path.dirname(sys.executable), "remit")
    if not os.access(beside, os.X_OK):
        return f"{sys.executable} -I -m remit"
    relative = os.path.relpath(beside)
    return beside if relative.startswith("..") else relative


@functools.cache
def console() -> "Console":
    """For the answer."""
    return _console(sys.stdout)


@functools.cache
def error_console() -> "Console":
    """For progress and asides."""
    return _console(sys.stderr)


def _console(stream: Any) -> "Console":
    from rich.console import Console

    is_terminal = stream.isatty()
    width = None if is_terminal or os.environ.get("COLUMNS") else PIPE_COLUMNS
    # No markup and no highlighting: most of what is shown are other people's words.
    return Console(file=stream, markup=False, highlight=False, emoji=False, width=width)
