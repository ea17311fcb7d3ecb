"""The quick way in: command lines that need no more than names and texts, read without the library that reads all others.

Typer takes a tenth of a second to read any command line, since it checks values with pydantic. Commands of the board are typed often and
answer at once, so the plain cases are read here, from the same declarations, and typer is not even imported. Whatever is not plain (help,
an unknown option, a missing value, a wrong one) is left to typer, which says what is wrong: this way in never refuses anything.
"""

import gc
import importlib
import inspect
import os
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from remit.cli.declaring import Declaration
from remit.cli.exits import Exit
from remit.cli.output import answered

QUICK = {"task": "task:task", "todo": "todo:todo", "board": "board:draw", "board N": "board:show"}
"""Commands that run no agent and answer at once: where the functions are that need not wait for typer."""
KINDS: dict[Any, Callable[[str], Any]] = {str: str, Path: Path}
Given = dict[str, Any]


@dataclass(slots=True)
class Declared:
    """One parameter of a command, as far as it is plain."""

    name: str
    default: Any
    names: tuple[str, ...]
    """As it is typed; empty for an argument."""
    kind: Any
    """str, Path, or bool for a flag."""
    is_many: bool


def run(arguments: Sequence[str]) -> int | None:
    """The exit code of a command that can be read without typer; None: it has not been run."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    place = QUICK.get(f"{name} N" if rest and rest[0].isdigit() else name, QUICK.get(name))
    if place is None or is_completing():
        return None
    command = found_at(place)
    given = read(command, rest)
    if given is None:
        return None
    gc.disable()  # thousands of tasks are read, none of them is garbage until the end
    try:
        return answered(command, given)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:  # whoever read us has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    except OSError as error:  # of the board's own files it is told with advice before it comes here
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"What was to be shown could not be written: {error.strerror or error}.", file=sys.stderr)
        return Exit.FAILED
    finally:
        gc.enable()


def found_at(place: str) -> Any:
    """What stands at `module:name` below `remit.cli`, imported now."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(f"remit.cli.{module}"), attribute)


def steady_streams() -> None:
    """A terminal without our marks shows a question mark, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def leave(code: int) -> None:
    """The end of a process that has started nothing: no thread, no process, no loop. To take thousands of tasks apart, one by one, just
    before the end takes as long as to read them."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # whoever read us is gone
        code = code or Exit.FAILED
    os._exit(code)


def read(command: Callable[..., Any], arguments: Sequence[str]) -> Given | None:
    """What the command is to be called with; None: typer must see to it."""
    declared = _declared(command)
    if declared is None:
        return None
    by_name = {typed: one for one in declared for typed in one.names}
    given: Given = {one.name: [] if one.is_many else one.default for one in declared}
    seen: set[str] = set()
    words = list(arguments)
    plain: list[str] = []
    while words:
        word = words.pop(0)
        if word == "--":
            plain += words
            break
        if word.startswith("-") and word[1:2].strip():  # `-` stands for stdin, and "- first part" is somebody's list
            if not _option(word, words, by_name, given, seen):
                return None
        else:
            plain.append(word)
    if not _arguments(plain, [one for one in declared if not one.names], given):
        return None
    return {one.name: (given[one.name] or one.default) if one.is_many else given[one.name] for one in declared}


def _option(word: str, words: list[str], by_name: dict[str, Declared], given: Given, seen: set[str]) -> bool:
    name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
    one = by_name.get(name)
    if one is None or (one.name in seen and not one.is_many):
        return False
    seen.add(one.name)
    if one.kind is bool:
        given[one.name] = True
        return not equals
    if not equals:
        if not words or words[0].startswith("-"):
            return False
        value = words.pop(0)
    if one.is_many:
        given[one.name].append(KINDS[one.kind](value))
    else:
        given[one.name] = KINDS[one.kind](value)
    return True


def _arguments(plain: list[str], declared: list[Declared], given: Given) -> bool:
    for one in declared:
        if one.is_many:
            given[one.name], plain = [KINDS[one.kind](word) for word in plain], []
        elif plain:
            given[one.name] = KINDS[one.kind](plain.pop(0))
        elif one.default is inspect.Parameter.empty:
            return False
    return not plain


def _declared(command: Callable[..., Any]) -> list[Declared] | None:
    found = []
    for name, parameter in inspect.signature(command).parameters.items():
        one = _one(name, parameter)
        if one is None:
            return None
        found.append(one)
    return found


def _one(name: str, parameter: inspect.Parameter) -> Declared | None:
    """None: there is more to it than names and texts."""
    if get_origin(parameter.annotation) is not Annotated:
        return None
    kind, said, *_ = get_args(parameter.annotation)
    kind, is_many = _plain(kind)
    if kind is None or not isinstance(said, Declaration):
        return None
    names = () if said.is_argument else said.names or (f"--{name.replace('_', '-')}",)
    if any("/" in typed for typed in names) or (kind is bool and (not said.names or parameter.default is not False)):
        return None
    return Declared(name, parameter.default, names, kind, is_many)


def _plain(kind: Any) -> tuple[Any, bool]:
    """The kind without `None`, and whether there may be many; (None, False) for what is not plain."""
    if get_origin(kind) in (Union, types.UnionType):
        parts = [part for part in get_args(kind) if part is not type(None)]
        kind = parts[0] if len(parts) == 1 else None
    is_many = get_origin(kind) is list
    kind = get_args(kind)[0] if is_many else kind
    return (kind, is_many) if kind in KINDS or (kind is bool and not is_many) else (None, False)


def is_completing() -> bool:
    """The shell asks what could come next: typer answers that."""
    return any(name.endswith("_COMPLETE") and name.startswith("_") for name in os.environ)
