"""Checks a plan that an agent wrote before it is filed: phases, files, acceptance commands.

Reads the project, runs nothing. `verdicts` uses it; `research_plan` returns the faults to the agent once."""

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from remit.board.plans import Plan, read_plan
from remit.core.text import one_line

MAX_FAULTS = 20
SHOWN_CHARACTERS = 200
_SHELL_WORDS = """
    . : [ alias bg break case cd command continue echo eval exec exit export false fg for getopts hash if jobs kill printf pwd read readonly
    return set shift test times trap true type ulimit umask unset until wait while {
"""
BUILTINS = frozenset(_SHELL_WORDS.split())
"""Commands and reserved words that can start a command of sh."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PUNCTUATION = frozenset("();<>|&")


def plan_faults(root: Path, text: str, old: str = "") -> tuple[str, ...]:
    """Faults, one sentence each, at most `MAX_FAULTS`. `old`: the revised plan, whose own faults do not count. Blocking."""
    plan, inherited = read_plan(text), frozenset(read_plan(old).faults)
    faults = [fault for fault in plan.faults if fault not in inherited]
    if not plan.phases:
        faults.insert(0, "No phase can be read: write `### Phase 1: Name [NOT STARTED]`.")
    faults += [f"Phase {phase.number} has no goal." for phase in plan.open_phases if not phase.goal]
    faults += [*_file_faults(root, plan), *_command_faults(root, plan)]
    return tuple(one_line(fault, 2 * SHOWN_CHARACTERS) for fault in faults[:MAX_FAULTS])


def _new_files(plan: Plan) -> set[str]:
    return {os.path.normpath(path) for phase in plan.phases for path in phase.new_files}


def _file_faults(root: Path, plan: Plan) -> Iterator[str]:
    new = _new_files(plan)
    for phase in plan.open_phases:
        for path in phase.files:
            where, name = os.path.normpath(path), one_line(path, SHOWN_CHARACTERS)
            if os.path.isabs(where) or where.split(os.sep)[0] == "..":
                yield f"Phase {phase.number} names the file `{name}`, which is not a path inside the project."
            elif where not in new and not _exists(root, where):
                yield f"Phase {phase.number} names the file `{name}`, which does not exist: correct it, or mark it with (new) behind it."


def _exists(root: Path, path: str) -> bool:
    """For a pattern, checks the folder before its first asterisk."""
    try:
        return (root / path.partition("*")[0].rpartition("/")[0] if "*" in path else root / path).exists()
    except OSError:  # too long
        return False


def _command_faults(root: Path, plan: Plan) -> Iterator[str]:
    new = _new_files(plan)
    commands = [(f"Phase {phase.number}", one) for phase in plan.open_phases for one in phase.accept]
    for where, command in (*commands, *(("The plan", one) for one in plan.accept)):
        shown = one_line(command, SHOWN_CHARACTERS)
        try:
            program = _program(command)
        except ValueError as error:
            yield f"{where}: the acceptance command `{shown}` cannot be parsed: {error}."
            continue
        if not program:
            yield f"{where}: the acceptance command `{shown}` runs no program."
        elif not _is_known(root, program, new):
            yield (
                f"{where}: the program `{one_line(program, SHOWN_CHARACTERS)}` of the acceptance command `{shown}` is neither on PATH "
                "nor in the project."
            )


def _program(command: str) -> str:
    """The first program that it runs; empty: none. Raises `ValueError`."""
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    return next((word for word in list(words) if word != "!" and not _ASSIGNMENT.match(word) and not _PUNCTUATION.issuperset(word)), "")


def _is_known(root: Path, program: str, new: set[str]) -> bool:
    if program in BUILTINS or program[0] in "$`~":  # only the shell knows
        return True
    if "/" not in program:
        return shutil.which(program) is not None
    return os.path.normpath(program) in new or shutil.which(os.path.join(root, program)) is not None
