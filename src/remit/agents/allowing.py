"""Which tools an agent file leaves of those its carrier may use: it can narrow them, never widen them.

A file may come with a repository that was cloned a minute ago; what may be used is said by whoever configured the carrier. An entry is
a kind of tool (`read`, `execute:git *`) or a vendor's own name (`Bash(git *)`); they are compared by what they mean. Pure; used by
`agents.profiles` alone. How each vendor is told is the adapters' concern.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase

EVERYTHING = "*"
_LOOKING = ("grep", "glob", "ls", "list", "search")
_KINDS = {
    "read": ("read", "notebookread", *_LOOKING),
    "search": _LOOKING,
    "edit": ("edit", "write", "multiedit", "notebookedit", "patch", "apply_patch"),
    "delete": ("delete",),
    "move": ("move",),
    "execute": ("execute", "bash", "shell"),
    "fetch": ("fetch", "webfetch", "websearch"),
    "think": ("think",),
    "other": ("other", "task", "agent", "todowrite", "todoread", "skill"),
}
"""The names that each kind stands for."""
_SPELLED = re.compile(r"([^():]+)(?:\((.*)\)|:(.*))?", re.DOTALL)


class Words(StrEnum):
    """In which words what is left is said."""

    KINDS = "kinds"
    """As the carrier's own list says it: an agent that is asked by kind understands no more."""
    NAMES = "names"
    """By the file's own names where they are narrower."""


def narrowed(allow: Iterable[str], tools: Iterable[str] | None, without: Iterable[str] = (), words: Words = Words.NAMES) -> tuple[str, ...]:
    """What is left of `allow`: the part that `tools` names too (None: all of it), less everything in `without`."""
    kept = list(allow)
    if tools is not None:
        wanted = list(tools)
        kept = [both for one in kept for other in wanted if (both := _both(one, other, words))]
    denied = [_parts(one) for one in without]
    if denied and EVERYTHING in kept:
        kept = [name for one in kept for name in (_KINDS if one == EVERYTHING else (one,))]
    return tuple(dict.fromkeys(one for one in kept if not any(_is_denied(one, *name) for name in denied)))


def _both(allowed: str, wanted: str, words: Words) -> str | None:
    """The narrower of two, where one holds the other."""
    (name, scope), (other, other_scope) = _parts(allowed), _parts(wanted)
    if _holds(name, other):
        if _is_pattern(name) or name.lower().startswith("mcp__") or (name in _KINDS and words is Words.NAMES):
            name = other
    elif not _holds(other, name):
        return None
    if scope is None or other_scope is None:
        scope = scope if other_scope is None else other_scope
    elif fnmatchcase(other_scope, scope):
        scope = other_scope
    elif not fnmatchcase(scope, other_scope):
        return None
    return _spelled(name, scope)


def _holds(name: str, other: str) -> bool:
    """Whether `other` is one of those that `name` stands for. A kind is spelled small: `Edit` is Claude's tool, `edit` all that edit."""
    low, other_low = name.lower(), other.lower()
    if low == other_low or fnmatchcase(other_low, low):
        return True
    if low.startswith("mcp__"):  # the name of a server stands for all of its tools
        return other_low.startswith(f"{low}__")
    return name in _KINDS and other_low in _KINDS[name]


def _is_denied(one: str, name: str, scope: str | None) -> bool:
    """To deny a part of a kind, or some uses of a tool, denies it whole, unless other uses are what is allowed: nothing is risked.

    And who may not edit may not write, who may not use `bash` has no `shell`: another name is no loophole.
    """
    mine, my_scope = _parts(one)
    is_named = _holds(name, mine) or _holds(mine, name) or _kind_of(mine) == _kind_of(name) in ("edit", "execute")
    if not is_named or scope is None:
        return is_named
    return my_scope is None or fnmatchcase(my_scope, scope) or fnmatchcase(scope, my_scope)


def _kind_of(name: str) -> str | None:
    return next((kind for kind, names in _KINDS.items() if name.lower() in names), None)


def _parts(spelled: str) -> tuple[str, str | None]:
    """`Bash(git *)` or `execute:git *`: the tool, and which uses of it."""
    found = _SPELLED.fullmatch(spelled.strip())
    if found is None:
        return spelled.strip(), None
    return found[1].strip(), (found[2] if found[2] is not None else found[3]) or None


def _spelled(name: str, scope: str | None) -> str:
    if scope is None:
        return name
    return f"{name}:{scope}" if name in _KINDS else f"{name}({scope})"


def _is_pattern(name: str) -> bool:
    return any(mark in name for mark in "*?[")
