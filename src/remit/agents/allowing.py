"""Which tools an agent file leaves of those its carrier may use: it can narrow them, never widen them.

A file may come with a repository that was cloned a minute ago; what may be used is said by whoever configured the carrier. Names differ
between vendors (`Bash`, `bash`, `execute`): those that mean the same are compared as the same. Used by `agents.profiles` alone.
"""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

EVERYTHING = "*"
_FAMILIES = {
    "read": ("read", "notebookread"),
    "search": ("search", "grep", "glob", "ls", "list"),
    "edit": ("edit", "write", "multiedit", "notebookedit", "patch", "apply_patch"),
    "execute": ("execute", "bash", "shell"),
    "fetch": ("fetch", "webfetch", "websearch"),
    "delegate": ("task", "agent"),
    "plan": ("todowrite", "todoread"),
}
_FAMILY = {name: family for family, names in _FAMILIES.items() for name in names}
_ALL = tuple(name for names in _FAMILIES.values() for name in names)
_SPELLED = re.compile(r"([^()]+)(?:\((.*)\))?", re.DOTALL)


def narrowed(allow: Iterable[str], tools: Iterable[str] | None, without: Iterable[str] = ()) -> tuple[str, ...]:
    """What is left of `allow`: the part that `tools` names too (None: all of it), less everything in `without`."""
    kept = list(allow)
    if tools is not None:
        wanted = list(tools)
        kept = [both for one in kept for other in wanted if (both := _both(one, other))]
    denied = [_parts(one) for one in without]
    if denied and EVERYTHING in kept:
        kept = [name for one in kept for name in (_ALL if one == EVERYTHING else (one,))]
    return tuple(dict.fromkeys(one for one in kept if not any(_is_denied(one, *name) for name in denied)))


def _both(allowed: str, wanted: str) -> str | None:
    """The narrower of two, where one holds the other."""
    (name, scope), (other, other_scope) = _parts(allowed), _parts(wanted)
    if not _same(name, other):
        return None
    if (_is_pattern(name) and not _is_pattern(other)) or other.lower().startswith(f"{name.lower()}__"):
        name = other
    if scope is None or other_scope is None:
        scope = scope if other_scope is None else other_scope
    elif fnmatchcase(other_scope, scope):
        scope = other_scope
    elif not fnmatchcase(scope, other_scope):
        return None
    return name if scope is None else f"{name}({scope})"


def _same(name: str, other: str) -> bool:
    low, other_low = name.lower(), other.lower()
    if low == other_low or fnmatchcase(low, other_low) or fnmatchcase(other_low, low):
        return True
    if low.startswith("mcp__") or other_low.startswith("mcp__"):  # the name of a server stands for all of its tools
        return low.startswith(f"{other_low}__") or other_low.startswith(f"{low}__")
    if name[:1].isupper() and other[:1].isupper():  # both in one vendor's words: Edit is not Write there
        return False
    family = _FAMILY.get(low)
    return family is not None and family == _FAMILY.get(other_low)


def _is_denied(one: str, name: str, scope: str | None) -> bool:
    """To deny some uses of a tool denies it whole, unless what is allowed are other uses: what cannot be told apart is not risked."""
    mine, my_scope = _parts(one)
    low, denied = mine.lower(), name.lower()
    is_named = fnmatchcase(low, denied) or low.startswith(f"{denied}__") or _FAMILY.get(low, low) == _FAMILY.get(denied, denied)
    if not is_named or scope is None:
        return is_named
    return my_scope is None or fnmatchcase(my_scope, scope) or fnmatchcase(scope, my_scope)


def _parts(spelled: str) -> tuple[str, str | None]:
    """`Bash(git *)`: the tool, and which uses of it."""
    found = _SPELLED.fullmatch(spelled.strip())
    return (found[1].strip(), found[2]) if found else (spelled.strip(), None)


def _is_pattern(name: str) -> bool:
    return any(mark in name for mark in "*?[")
