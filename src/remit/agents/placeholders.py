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
_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_SCRIPTED = r"node(?:js)?|bun|deno|(?:perl|ruby|php|luajit|lua|Rscript|osascript)[\d.]*"
_INTERPRETERS = re.compile(
    rf"r?bash|dash|ash|[zcmo]?k?sh|tcsh|fish|pwsh|powershell|(?:python|pypy)[\d.]*|{_SCRIPTED}|[gmn]?awk|g?sed", re.IGNORECASE
)
_FILTERS = re.compile(r"[gmn]?awk|g?sed")
"""Their first operand is code, and they never read it from their input."""
_WITH_LATE_OPTIONS = re.compile(rf"{_SCRIPTED}|g?sed")
"""They parse options after their code too, unless `--` precedes them."""
_CODE = re.compile(
    r"[-+][A-Za-z0-9]*[ceEpmrRB]|-C|-(?i:command|encodedcommand)|--(?:command|init-command|eval|print|run|expression).*|eval"
)
"""The operand is code."""
_VALUED = re.compile(r"[-+][A-Za-z]*[oO]|-[WXFvf]|--(?:rcfile|init-file|require|import|loader|conditions|env-file|assign|file)")
"""The next word belongs to the option."""
_REMOTE_SHELLS = ("ssh", "rsh", "watch", "eval")
_STARTERS = re.compile(
    r"env|nice|ionice|nohup|timeout|stdbuf|setsid|sudo|doas|time|chroot|busybox|command|exec|xargs|flock|unshare|nsenter|docker|podman"
)
"""Programs that start another program from their arguments."""


def code_fault(words: Sequence[str], *, prompt_is_input: bool) -> str | None:
    """Why a command would execute an inserted value; None if no such case is found. Values are safe behind a fixed script or program."""
    first = _name(words[0])
    is_starter = _STARTERS.fullmatch(first) is not None
    chosen = next((number for number, word in enumerate(words) if number and word[:1] != "-" and not _VARIABLE.match(word)), len(words))
    for word in (words[0], *(one for one in words[1 : chosen + 1] if not _VARIABLE.match(one))) if is_starter else words[:1]:
        if _fills(word):
            return f"{word!r} is filled in, and so would choose the program that is started"
    for index, word in enumerate(words):
        name, rest, is_started = _name(word), words[index + 1 :], index == 0 or is_starter
        if is_started and name in _REMOTE_SHELLS and any(map(_fills, rest)):
            return f"{name} hands whatever it is given to a shell"
        if _INTERPRETERS.fullmatch(name) and (is_started or (rest[:1] and rest[0].startswith("-"))):
            fault = _call_fault(name, rest, prompt_is_input=prompt_is_input and is_started)
            if fault is not None or is_started:
                return fault  # further words are arguments of its script
    return None


def _call_fault(name: str, rest: Sequence[str], *, prompt_is_input: bool) -> str | None:
    words = list(rest)
    is_filter = _FILTERS.fullmatch(name) is not None
    is_code, operand = is_filter, None
    while words and operand is None:
        word = words.pop(0)
        if _CODE.fullmatch(word) and not _fills(word):
            is_code = True
        elif word[:1] not in ("-", "+") or word in _INPUT:
            operand = word
        elif _fills(word):
            return f"the value would be among the options of {name}"
        elif _VALUED.fullmatch(word) and words:
            value = words.pop(0)
            if word in ("-f", "--file") and is_filter:
                operand = value
            if _fills(value) and not (word in ("-v", "--assign") and _VARIABLE.match(value)):
                return f"the value would be among the options of {name}"
    if operand is not None and _fills(operand):
        return f"what is filled in as the code or script of {name} would be executed"
    before = words[: words.index("--")] if "--" in words else words
    if is_code and _WITH_LATE_OPTIONS.fullmatch(name) and any(map(_fills, before)):
        return f"{name} looks for options after its code too, and what is filled in there may become one; put -- before it"
    if prompt_is_input and not is_filter and (operand is None or operand in _INPUT):
        return f"{name} would execute the prompt, which is its standard input"
    return None


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _fills(word: str) -> bool:
    return any(isinstance(piece, Placeholder) and piece.name not in _SAFE for piece in pieces_of(word))
