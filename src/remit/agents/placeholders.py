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

_NEVER = "(?!)"
_SAFE = frozenset({"session_id"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


class _Interpreter(NamedTuple):
    """Options of a program that executes code, as patterns."""

    code: str = _NEVER
    """The operand is code."""
    valued: str = _NEVER
    """The next word belongs to the option."""
    from_input: str | None = _NEVER
    """It reads code from standard input with this option or without an operand; None: never."""
    file: str = _NEVER
    """The next word names a file with code, so there is no code operand."""
    operand_is_code: bool = False
    has_late_options: bool = False
    """It parses options after its code too, unless `--` precedes them."""


_INTERPRETERS = {
    r"r?bash|dash|ash|[zcmo]?k?sh|tcsh|fish": _Interpreter(
        r"[-+][A-Za-z]*c[A-Za-z]*|--command.*|-C|--init-command", r"[-+][A-Za-z]*[oO]|--rcfile|--init-file", r"-[A-Za-z]*s[A-Za-z]*"
    ),
    r"(?:python|pypy)[\d.]*": _Interpreter(r"-[bBdEiIOPqsSuvx]*[cm]", r"-[WX]|--check-hash-based-pycs", "-[bBdEiIOPqsSuvx]*i[A-Za-z]*"),
    r"node(?:js)?|bun|deno": _Interpreter(
        "-e|-p|-pe|--eval|--print|eval", "-r|--require|--import|--loader|-C|--conditions|--env-file", "-i", has_late_options=True
    ),
    r"(?:perl|ruby|php|luajit|lua|Rscript|osascript)[\d.]*": _Interpreter(
        r"-[A-Za-z0-9]*[eErRB]|--run", "-[cdztl]", "-[ai]", has_late_options=True
    ),
    r"pwsh|powershell": _Interpreter("(?i:-c|-command|-e|-encodedcommand)"),
    r"[gmn]?awk": _Interpreter(valued="-[Fv]|--assign", from_input=None, file="-f|--file", operand_is_code=True),
    r"g?sed": _Interpreter(
        "-[nErsuz]*e|--expression", from_input=None, file="-[nErsuz]*f|--file", operand_is_code=True, has_late_options=True
    ),
}
_REMOTE_SHELLS = ("ssh", "rsh", "watch", "eval")
_STARTERS = re.compile(
    r"env|nice|ionice|nohup|timeout|stdbuf|setsid|sudo|doas|time|chroot|busybox|command|exec|xargs|flock|unshare|nsenter|docker|podman"
)
"""Programs that start another program from their arguments."""


def code_fault(words: Sequence[str], *, prompt_is_input: bool) -> str | None:
    """Why a command would execute an inserted value; None if no such case is found."""
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
        interpreter = next((one for shape, one in _INTERPRETERS.items() if re.fullmatch(shape, name)), None)
        if interpreter is not None:
            fault = _call_fault(name, interpreter, rest, is_started=is_started, prompt_is_input=prompt_is_input)
            if fault is not None or is_started:
                return fault  # further words are arguments of its script
    return None


def _call_fault(name: str, called: _Interpreter, rest: Sequence[str], *, is_started: bool, prompt_is_input: bool) -> str | None:
    options: list[str] = []
    index, is_code, is_file, is_closed = 0, False, False, False
    while index < len(rest) and not is_closed:
        word = rest[index]
        is_closed, starts_code = word == "--", re.fullmatch(called.code, word) is not None
        if not is_closed and not starts_code and (word[:1] not in ("-", "+") or word in _INPUT):
            break
        names_file = re.fullmatch(called.file, word) is not None
        is_code, is_file, index = is_code or starts_code, is_file or names_file, index + 1
        options.append(word)
        if (names_file or re.fullmatch(called.valued, word)) and index < len(rest):
            options += [] if _VARIABLE.match(rest[index]) else [rest[index]]  # awk -v NAME=VALUE passes a value
            index += 1
    operand, arguments = (rest[index] if index < len(rest) else None), rest[index + 1 :]
    if operand is not None and (is_code or (called.operand_is_code and not is_file)):
        if _fills(operand) or (is_code and any(map(_fills, options))):
            return f"what is filled into the code of {name} would be executed"
        before = arguments[: arguments.index("--")] if "--" in arguments else arguments
        if called.has_late_options and any(map(_fills, before)):
            return f"{name} looks for options after its code too, and what is filled in there may become one; put -- before it"
    if not is_started:
        return None
    if any(map(_fills, options)):
        return f"the value would be among the options of {name}"
    if operand is not None and not is_code and _fills(operand) and not is_closed and (called.has_late_options or not is_file):
        return f"what is filled in where {name} looks for options may become one; put -- before it"
    if prompt_is_input and called.from_input is not None and not is_code:
        reads = operand is None or operand in _INPUT or any(re.fullmatch(called.from_input, option) for option in options)
        return f"{name} would execute the prompt, which is its standard input" if reads else None
    return None


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
