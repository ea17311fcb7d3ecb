"""The quick way in: command lines that need no more than names and texts, read without the library that reads all others.

Typer takes a tenth of a second to read any command line, since it checks values with pydantic. Commands of the board are typed often and
answer at once, so the plain cases are read here, from the same declarations. Whatever is not plain (help, an unknown option, a missing
value, a wrong one) is left to typer, which says what is wrong: this way in never refuses anything.
"""

import inspect
import os
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from typer.models import ArgumentInfo, OptionInfo

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
    kind, info, *_ = get_args(parameter.annotation)
    kind, is_many = _plain(kind)
    if kind is None or not isinstance(info, ArgumentInfo | OptionInfo) or info.callback or info.parser or info.envvar or info.is_eager:
        return None
    # Within `Annotated`, typer takes what is given first for a name and not for a default.
    named = (*((info.default,) if isinstance(info.default, str) else ()), *(info.param_decls or ()))
    names = () if isinstance(info, ArgumentInfo) else named or (f"--{name.replace('_', '-')}",)
    if any("/" in typed for typed in names) or (kind is bool and (not named or parameter.default is not False)):
        return None
    if kind is Path and (info.exists or info.resolve_path or info.readable is not True):
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
