"""Placeholders of a declared command, and the check that no inserted value is executed as code."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

BUILT_IN = frozenset({"prompt", "prompt_file", "session_id", "scratch", "return_file", "workspace"})
"""Filled in by remit; every other name is a parameter of the delegation."""
_PIECE = re.compile(r"\$\{[^{}]*\}|\{(?P<escaped>\{[A-Za-z_][A-Za-z0-9_]*\})\}|\{\{|\}\}|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}")
"""`${NAME}` is a shell variable and is left unchanged."""
_DOUBLED = {"{{": "{", "}}": "}"}


class Placeholder(NamedTuple):
    name: str


@lru_cache(maxsize=1000)
def pieces_of(word: str) -> tuple[str | Placeholder, ...]:
    """Text and placeholders of one word. `{{` and `}}` are braces, and `{{name}}` is the text `{name}`.

    In a word with single braces as well (JSON, a script), doubled ones stay doubled."""
    is_script = re.search(r"[{}]", _PIECE.sub("", word)) is not None
    found: list[str | Placeholder] = []
    end = 0
    for match in _PIECE.finditer(word):
        found.append(word[end : match.start()])
        end = match.end()
        if match["name"]:
            found.append(Placeholder(match["name"]))
        else:
            found.append(match["escaped"] or (match[0] if is_script else _DOUBLED.get(match[0], match[0])))
    return tuple(piece for piece in (*found, word[end:]) if piece)


def places_in(words: Iterable[str]) -> tuple[str, ...]:
    """The placeholder names of a command, each once, in order."""
    return tuple(dict.fromkeys(piece.name for word in words for piece in pieces_of(word) if isinstance(piece, Placeholder)))


def parameters_in(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in places_in(words) if name not in BUILT_IN)


def filled(words: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """The command with its placeholders filled in. A list in a word of its own becomes one word per item."""
    argv: list[str] = []
    for word in words:
        pieces = pieces_of(word)
        value = values[pieces[0].name] if len(pieces) == 1 and isinstance(pieces[0], Placeholder) else None
        if isinstance(value, list | tuple):
            argv += [_text(one) for one in value]
        else:
            argv.append("".join(_text(values[piece.name]) if isinstance(piece, Placeholder) else piece for piece in pieces))
    return argv


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---- values that would be executed

_SAFE = frozenset({"session_id"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_INTERPRETER = re.compile(
    r"r?bash|dash|ash|[zcmo]?k?sh|tcsh|fish|(?:python|pypy|perl|ruby|php|lua|luajit)[\d.]*|node(?:js)?|bun|deno|Rscript|osascript|pwsh|powershell"
    r"|[gmn]?awk|g?sed"
)
_CODE = re.compile(r"-[A-Za-z]*[ceECr]|--(?:command|init-command|eval|print|run|expression)")
"""Options after which the first word that is not an option is code, or names a file of it."""
_VALUED = re.compile(r"[-+][A-Za-z]*o|-[WX]|-v")
"""Options whose next word is neither code nor a script."""
_REMOTE_SHELLS = ("ssh", "rsh", "watch", "eval")
_STARTERS = re.compile(
    r"env|nice|ionice|nohup|timeout|stdbuf|setsid|sudo|doas|time|chroot|busybox|command|exec|xargs|flock|unshare|nsenter|docker|podman"
)
"""Programs that start another program from their arguments."""


def code_fault(words: Sequence[str], *, prompt_is_input: bool) -> str | None:
    """Why a command would execute an inserted value; None if no such case is found. Values are arguments of a script or of given code."""
    if _fills(words[0]):
        return f"{words[0]!r} is filled in, and so would choose the program that is started"
    first = _name(words[0])
    if first == "env" and (fault := _env_fault(words[1:])):
        return fault
    is_starter = _STARTERS.fullmatch(first) is not None
    for index, word in enumerate(words):
        name, rest, is_started = _name(word), words[index + 1 :], index == 0 or is_starter
        if is_started and name in _REMOTE_SHELLS and any(map(_fills, rest)):
            return f"{name} hands whatever it is given to a shell"
        if _INTERPRETER.fullmatch(name) is not None:
            operand = _operand(rest)
            before = [word for word in rest[: operand + 1] if not _VARIABLE.match(word)]
            if any(map(_fills, before)) and (is_started or any(map(_CODE.fullmatch, before))):
                return f"what is filled into the code or the options of {name} would be executed"
            if is_started and prompt_is_input and (operand == len(rest) or rest[operand] == "-"):
                return f"{name} would execute the prompt, which is its standard input"
            if is_started:
                return None  # further words are arguments of its script
    return None


def _operand(words: Sequence[str]) -> int:
    """The position of the code or script: the first word that is neither an option nor the value of one."""
    for index, word in enumerate(words):
        if (word == "-" or word[:1] not in ("-", "+")) and not (index and _VALUED.fullmatch(words[index - 1])):
            return index
    return len(words)


def _env_fault(words: Sequence[str]) -> str | None:
    """`env` takes variables before its program: only their values may be placeholders."""
    for word in words:
        if re.fullmatch(r"-[A-Za-z0]*S.*|--split-string.*", word, re.DOTALL):
            return "env -S splits what is filled in into words" if any(map(_fills, words)) else None
        is_variable = _VARIABLE.match(word) is not None
        if _fills(word) and not is_variable:
            return f"{word!r} is filled in where env takes options, variables and the program"
        if not word.startswith("-") and not is_variable:
            return None
    return None


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _fills(word: str) -> bool:
    return any(isinstance(piece, Placeholder) and piece.name not in _SAFE for piece in pieces_of(word))
