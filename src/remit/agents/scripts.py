"""Where a command takes code: what is filled in there a program would carry out, so a definition that does it is refused.

`sh -c SCRIPT`, `python -c`, `node -e`, `perl -e` and their like, also below `env` or `timeout`, and a shell that reads the prompt as
its script. Pure, and no proof of harmlessness: a program that makes code of its arguments by itself is beyond it. Used by
`agents.definition`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from remit.agents.placeholders import Place, pieces_of

_NEVER = "(?!)"
_HARMLESS = frozenset({"session_id"})
"""Of our own making, and nothing but letters, digits and underscores."""
_NAMED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """How a program that takes code is called: its options, as patterns."""

    code: str = _NEVER
    """The next word is code."""
    file: str = _NEVER
    """The next word names a file with code, so that no operand is any."""
    valued: str = _NEVER
    """The next word belongs to the option."""
    reads_input: str | None = None
    """It reads code from its standard input where it is given no other, or with such an option; None: never."""
    operand_is_code: bool = False
    """Without an option its first operand is code; else that is a file with code."""
    reads_on: bool = False
    """It looks for options after its code too: a value that begins with a dash would be one, unless `--` stands before it."""


_READERS = {
    r"(?:r?bash|dash|ash|[zcmo]?k?sh|tcsh|fish)": _Reader(
        code=r"[-+][A-Za-z]*c[A-Za-z]*|--command|-C|--init-command",
        valued=r"[-+][A-Za-z]*[oO]|--rcfile|--init-file",
        reads_input=r"-[A-Za-z]*s[A-Za-z]*",
    ),
    r"(?:python|pypy)[\d.]*": _Reader(
        code=r"-[bBdEiIOPqsSuvx]*[cm]", valued=r"-[WX]|--check-hash-based-pycs", reads_input="-[bBdEiIOPqsSuvx]*i[A-Za-z]*"
    ),
    r"(?:node(?:js)?|bun|deno)": _Reader(
        code=r"-e|-p|-pe|--eval|--print|eval",
        valued=r"-r|--require|--import|--loader|-C|--conditions|--env-file",
        reads_input="-i|--interactive",
        reads_on=True,
    ),
    r"(?:perl|ruby)[\d.]*": _Reader(code=r"-[A-Za-z0-9]*[eE]", reads_input=_NEVER, reads_on=True),
    r"php[\d.]*": _Reader(code=r"-[rBRE]|--run", valued=r"-[cdzt]", reads_input="-a", reads_on=True),
    r"(?:luajit|lua[\d.]*)": _Reader(code="-e", valued="-l", reads_input="-i", reads_on=True),
    r"(?:Rscript|osascript)": _Reader(code="-e", reads_input=_NEVER, reads_on=True),
    r"(?:pwsh|powershell)": _Reader(code="(?i:-c|-command|-e|-encodedcommand)", reads_input=_NEVER),
    r"[gmn]?awk": _Reader(file="-f|--file", valued="-[Fv]|--assign", operand_is_code=True),
    r"g?sed": _Reader(code="-[nErsuz]*e|--expression", file="-[nErsuz]*f|--file", operand_is_code=True, reads_on=True),
}
_WHOLLY = re.compile(r"ssh|rsh|watch|eval")
"""All that they are given is handed to a shell."""
_STARTERS = re.compile(
    r"env|nice|ionice|nohup|timeout|stdbuf|setsid|sudo|doas|time|chroot|busybox|command|exec|xargs|flock|unshare|nsenter|docker|podman"
)
"""They start another program, which stands among their arguments."""
_SPLITTING = re.compile(r"-[A-Za-z0]*S.*|--split-string.*", re.DOTALL)


def code_filled_in(words: Sequence[str], *, prompt_is_input: bool) -> str | None:
    """What is wrong with a command that would carry out what it is given; None: nothing that can be seen."""
    first = _name(words[0])
    if _fills(words[0]):
        return f"{words[0]!r} is filled in, and so would choose the program that is started"
    if first == "env" and (fault := _below_env(words[1:])) is not None:
        return fault
    is_starter = _STARTERS.fullmatch(first) is not None
    for index, word in enumerate(words):
        name, rest, is_sure = _name(word), words[index + 1 :], index == 0 or is_starter
        if is_sure and _WHOLLY.fullmatch(name) and any(map(_fills, rest)):
            return f"{name} hands whatever it is given to a shell"
        reader = next((reader for shape, reader in _READERS.items() if re.fullmatch(shape, name)), None)
        if reader is None:
            continue
        fault = _taken_apart(reader, rest).fault(name, prompt_is_input) if is_sure else _taken_apart(reader, rest).fault_of_code(name)
        if fault is not None or is_sure:
            return fault  # what stands further on are arguments of its script
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """The words after a program that takes code, by what they are to it."""

    reader: _Reader
    options: tuple[str, ...]
    """With the words that belong to them."""
    is_code: bool
    """An option says that the operand is code."""
    is_file: bool
    operand: str | None
    is_closed: bool
    """`--` stands before the operand."""
    arguments: Sequence[str]

    def fault(self, name: str, prompt_is_input: bool) -> str | None:
        """Of a program that is certainly started."""
        reader, operand = self.reader, self.operand
        if (fault := self.fault_of_code(name)) is not None:
            return fault
        if any(map(_fills, self.options)):
            return f"what is filled in stands among the options of {name}"
        if operand is not None and not self.is_code and _fills(operand) and not self.is_closed and (reader.reads_on or not self.is_file):
            return f"what is filled in where {name} looks for options may become one; put -- before it"
        if not prompt_is_input or reader.reads_input is None or self.is_code:
            return None
        is_told = any(re.fullmatch(reader.reads_input, option) for option in self.options)
        if operand is None or operand in _INPUT or is_told:
            return f"{name} would carry out the prompt, which is its standard input"
        return None

    def fault_of_code(self, name: str) -> str | None:
        is_code = self.is_code or (self.reader.operand_is_code and not self.is_file)
        if self.operand is None or not is_code:
            return None
        if _fills(self.operand) or (self.is_code and any(map(_fills, self.options))):
            return f"what is filled into the code of {name} would be carried out"
        if self.reader.reads_on:
            before = self.arguments[: self.arguments.index("--")] if "--" in self.arguments else self.arguments
            if any(map(_fills, before)):
                return f"{name} looks for options after its code too, and what is filled in there may become one; put -- before it"
        return None


def _taken_apart(reader: _Reader, rest: Sequence[str]) -> _Call:
    options: list[str] = []
    is_code = is_file = is_closed = False
    index = 0
    while index < len(rest) and not is_closed:
        word = rest[index]
        is_closed, starts_code = word == "--", re.fullmatch(reader.code, word) is not None
        if not is_closed and not starts_code and (word[:1] not in ("-", "+") or word in _INPUT):
            break
        names_file = re.fullmatch(reader.file, word) is not None
        is_code, is_file = is_code or starts_code, is_file or names_file
        options.append(word)
        index += 1
        if (names_file or re.fullmatch(reader.valued, word)) and index < len(rest):
            if not _NAMED.match(rest[index]):  # awk -v NAME=VALUE is a way to pass a value
                options.append(rest[index])
            index += 1
    return _Call(
        reader=reader,
        options=tuple(options),
        is_code=is_code,
        is_file=is_file,
        operand=rest[index] if index < len(rest) else None,
        is_closed=is_closed,
        arguments=rest[index + 1 :],
    )


def _below_env(words: Sequence[str]) -> str | None:
    """Before its program `env` takes variables: what is filled in must be the value of one, not its name nor the program."""
    for word in words:
        if _SPLITTING.fullmatch(word):
            return "env -S takes what is filled in apart into words" if any(map(_fills, words)) else None
        is_variable = _NAMED.match(word) is not None
        if _fills(word) and not is_variable:
            return f"{word!r} is filled in where env takes options, variables and the program"
        if not word.startswith("-") and not is_variable:
            return None
    return None


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _fills(word: str) -> bool:
    return any(isinstance(piece, Place) and piece.name not in _HARMLESS for piece in pieces_of(word))
