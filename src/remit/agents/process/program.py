"""What is to be started as a command: the program, its arguments, its whole environment and where it stands.

Data only; also how it travels to the process that starts it. Used by `pool`, and by every adapter of an agent that is a command.
"""

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.core.errors import Misused, RemitError, Unavailable

ARGUMENT_BYTES = 128 * 1024
"""What Linux takes as one argument (MAX_ARG_STRLEN)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """The whole of it: nothing is added but the mark by which its processes are found."""
    folder: Path
    takes_input: bool = False
    """Whether it is written to; its standard input is empty otherwise."""


def program_to_wire(program: Program, mark: Mapping[str, str]) -> dict[str, Any]:
    """Bytes as the kernel takes them, one character each: names and values need not be UTF-8. Raises `Misused`."""
    if not program.argv or not program.argv[0]:
        raise Misused("There is no command to start.", advice='Name the program: command = ["program", "argument"].')
    environment = {**program.environment, **mark}
    try:
        return {
            "argv": [_to_wire(word) for word in program.argv],
            "environment": {_name_to_wire(name): _to_wire(value) for name, value in environment.items()},
            "folder": _to_wire(str(program.folder)),
        }
    except ValueError as error:
        raise Misused(
            f"{program.argv[0]} cannot be started: {error}.",
            advice='Pass the prompt by standard input or file (prompt = "stdin" or "file"), where any text can stand.',
        ) from None


def _to_wire(text: str) -> str:
    held = os.fsencode(text)
    if b"\0" in held:
        raise ValueError("an argument or variable holds a NUL character")
    if len(held) >= ARGUMENT_BYTES:
        raise ValueError(f"an argument or variable has {len(held):,} bytes, and the system takes at most {ARGUMENT_BYTES - 1:,}")
    return held.decode("latin-1")


def _name_to_wire(name: str) -> str:
    if not name or "=" in name:
        raise ValueError(f"{name!r} is no name of a variable")
    return _to_wire(name)


def start_error(program: Program, fault: Mapping[str, Any]) -> RemitError:
    """Why it could not be started, for its caller."""
    name, folder = program.argv[0], program.folder
    number = int(fault.get("errno", 0))
    if fault.get("step") == "folder":
        return Unavailable(
            f"{name} cannot be started in {folder}: {os.strerror(number)}.", advice="Name a folder that is there, inside the workspace."
        )
    if number == errno.E2BIG:
        advice = 'Pass the prompt by standard input or file: prompt = "stdin" or "file".'
        return Misused(f"{name} cannot be started: its arguments and environment are too long.", advice=advice)
    if number == errno.ENOENT:
        return Unavailable(f"The command {name} was not found.", advice=_where_to_look(program))
    if number in (errno.EACCES, errno.ENOEXEC, errno.EISDIR):
        advice = f"Make it executable (chmod +x), and begin a script with its interpreter (#!/bin/sh). {_where_to_look(program)}"
        return Unavailable(f"The command {name} cannot be executed: {os.strerror(number)}.", advice=advice)
    return Unavailable(f"The command {name} could not be started: {os.strerror(number)}.", advice="Free processes or memory, try again.")


def _where_to_look(program: Program) -> str:
    name = program.argv[0]
    if os.sep in name:
        return f"It was looked for as {program.folder / name}; a script also needs the interpreter its first line names."
    return f"Install it, or write its whole path. It was looked for in PATH: {program.environment.get('PATH', os.defpath)}."
