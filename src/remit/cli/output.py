"""Where a command's words go: answers and JSON to stdout, progress and errors to stderr; and how every command ends.

Knows no command. `answering` wraps each of them: errors of our own tree become one clear line, never a traceback.
"""

import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from remit.cli.exits import Exit, exit_of_error
from remit.core.errors import RemitError

if TYPE_CHECKING:
    from rich.console import Console

PIPE_COLUMNS = 160
"""Width of tables when nobody's terminal sets one: wide enough that lines can be searched."""


def answering(command: Callable[..., Exit]) -> Callable[..., None]:
    """A command that returns its exit code, as typer wants it. Set REMIT_DEBUG=1 to see the traceback of an error."""

    @functools.wraps(command)
    def answered(**given: Any) -> None:
        try:
            code = command(**given)
        except RemitError as error:
            if os.environ.get("REMIT_DEBUG"):
                raise
            code = report(error, as_json=bool(given.get("as_json")))
        raise typer.Exit(int(code))

    return answered


def report(error: RemitError, *, as_json: bool) -> Exit:
    """Say what went wrong and what to do; the exit code that goes with it."""
    if as_json:
        say_json({"error": {"code": error.code, "message": error.message, "advice": error.advice}})
    else:
        print(f"Error: {error.message}" + (f" {error.advice}" if error.advice else ""), file=sys.stderr)
    return exit_of_error(error)


def say_json(document: Any) -> None:
    """The one JSON document of a command."""
    print(json_text(document, indent=2), flush=True)


def json_text(document: Any, *, indent: int | None = None) -> str:
    from pydantic_core import to_json

    return to_json(document, indent=indent, inf_nan_mode="null", fallback=str).decode()


def say(text: str = "") -> None:
    print(text, flush=True)


def say_aside(text: str) -> None:
    """To stderr: not part of the answer."""
    print(text, file=sys.stderr, flush=True)


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
