"""The text of a command file with its arguments filled in: once, literally, by nobody's shell. Pure.

What stands in the arguments is never looked at again: `$ARGUMENTS` or `@path` in them stays the text that the user typed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_MARK = re.compile(
    r"\\(?P<escaped>\$(?:ARGUMENTS\b|[1-9](?!\d)))"
    r"|(?<![\w./@])@(?P<named>\$ARGUMENTS\b|\$[1-9](?!\d)|(?:\./)?[\w.-]*\w(?:/[\w.-]*\w)*)"
    r"|\$(?P<which>ARGUMENTS\b|[1-9](?!\d))"
)
_SHELL = re.compile(r"(?:^|(?<=\s))!`[^`\n]*`", re.MULTILINE)
MOST_FILES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    text: str
    files: tuple[str, ...] = ()
    """Paths that the file names by `@path`, as they stand there: to be handed along where they can be read."""
    warnings: tuple[str, ...] = ()


def filled(body: str, arguments: Sequence[str]) -> Filled:
    """`$ARGUMENTS` is all of them, `$1` to `$9` one each, nothing where there are fewer; `\\$1` stays `$1`.

    Arguments that the text does not ask for are put at its end: what the user says always reaches the agent.
    """
    asked: list[str] = []
    files: list[str] = []

    def put(match: "re.Match[str]") -> str:
        if match["escaped"]:
            return match["escaped"]
        mark = match["which"] or (match["named"] or "")[1:]
        value = ""
        if match["which"] or match["named"].startswith("$"):
            asked.append(mark)
            value = " ".join(arguments) if mark == "ARGUMENTS" else _one(arguments, int(mark))
        if match["which"]:
            return value
        named = value if match["named"].startswith("$") else match["named"]
        if named:
            files.append(named)
        return f"@{named}"

    text = _MARK.sub(put, body)
    rest = _not_asked_for(arguments, asked)
    if rest:
        text = f"{text.rstrip()}\n\n{'More arguments' if asked else 'Arguments'}: {' '.join(rest)}"
    return Filled(text=text, files=tuple(dict.fromkeys(files)), warnings=tuple(_warnings(body, arguments, asked)))


def _one(arguments: Sequence[str], number: int) -> str:
    return arguments[number - 1] if number <= len(arguments) else ""


def _not_asked_for(arguments: Sequence[str], asked: Sequence[str]) -> Sequence[str]:
    if "ARGUMENTS" in asked:
        return ()
    return [one for number, one in enumerate(arguments, start=1) if str(number) not in asked]


def _warnings(body: str, arguments: Sequence[str], asked: Sequence[str]) -> list[str]:
    said: list[str] = []
    shell = _SHELL.findall(body)
    if shell:
        more = f" (and {len(shell) - 1} more)" if len(shell) > 1 else ""
        said.append(f"No command of a command file is run by a shell: {shell[0][:80]}{more} stays text, which the agent may act upon.")
    missing = sorted({mark for mark in asked if mark != "ARGUMENTS" and int(mark) > len(arguments)})
    if missing:
        said.append(f"Nothing was given for {', '.join(f'${mark}' for mark in missing)}.")
    elif "ARGUMENTS" in asked and not arguments:
        said.append("No arguments were given: $ARGUMENTS is empty.")
    return said
