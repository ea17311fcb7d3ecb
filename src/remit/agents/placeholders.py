"""Placeholders of a declared command: `{path}` stands for the parameter of that name, `{scratch}` and a few others for what remit tells.

Text only: which names stand in a command, and the command with values in their places. No shell is involved: a value is an argument or
a part of one, whatever signs it holds. What may not be filled in, because a program would read it as code, is said by `agents.scripts`.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

TOLD = frozenset({"prompt", "prompt_file", "session_id", "scratch", "return_file", "workspace"})
"""What remit fills in by itself; every other name is a parameter of the delegation."""
_PIECE = re.compile(r"\$\{[^{}]*\}|\{(?P<escaped>\{[A-Za-z_][A-Za-z0-9_]*\})\}|\{\{|\}\}|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}")
"""`${NAME}` is a shell's variable and stays as it is."""
_DOUBLED = {"{{": "{", "}}": "}"}


@dataclass(frozen=True, slots=True)
class Place:
    name: str


@lru_cache(maxsize=1000)
def pieces_of(word: str) -> tuple[str | Place, ...]:
    """A word of a command: text, and the places to fill in. `{{` and `}}` are braces, and `{{name}}` is the text `{name}`.

    Where braces stand singly as well, in JSON or a script, doubled ones are two: nobody doubled them.
    """
    is_script = re.search(r"[{}]", _PIECE.sub("", word)) is not None
    found: list[str | Place] = []
    end = 0
    for match in _PIECE.finditer(word):
        found.append(word[end : match.start()])
        end = match.end()
        if match["name"]:
            found.append(Place(match["name"]))
        else:
            found.append(match["escaped"] or (match[0] if is_script else _DOUBLED.get(match[0], match[0])))
    return tuple(piece for piece in (*found, word[end:]) if piece)


def places_in(words: Iterable[str]) -> tuple[str, ...]:
    """The names that stand in a command, each once, in their order."""
    return tuple(dict.fromkeys(piece.name for word in words for piece in pieces_of(word) if isinstance(piece, Place)))


def parameters_in(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in places_in(words) if name not in TOLD)


def filled(words: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """The command with its places filled in. A list that is a word of its own becomes as many words as it has items."""
    argv: list[str] = []
    for word in words:
        pieces = pieces_of(word)
        value = values[pieces[0].name] if len(pieces) == 1 and isinstance(pieces[0], Place) else None
        if isinstance(value, list | tuple):
            argv += [text_of(one) for one in value]
        else:
            argv.append("".join(text_of(values[piece.name]) if isinstance(piece, Place) else piece for piece in pieces))
    return argv


def text_of(value: Any) -> str:
    """Text as it stands, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
