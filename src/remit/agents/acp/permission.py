"""What an agent that asks for permission is told: the allow-list of its definition, and no in every other case.

A pure function, so that another policy can take its place. Knows no protocol library and no process. Used by `acp.hearing`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

KINDS = frozenset({"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"})
OWN_TOOLS = ("other:mcp__remit__*", "other:remit_*", "other:remit.*", "other:remit: *")
"""How agents name the tools of our own server: given together with the server itself."""
_ACTING = frozenset({"edit", "delete", "move", "execute", "fetch", "switch_mode"})
"""Granted by their kind only: their title is what they do it to, a command or a path, and so the model's own words."""
_JOINING = frozenset(";&|<>$`()\n\r")
"""What makes two commands of one, or hides one in another."""
_GRANTS = ("allow_once", "allow_always")
"""In the order they are taken: what holds for ever is granted only where nothing less is offered."""
_REFUSALS = ("reject_once", "reject_always")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTool:
    kind: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """One of the answers the agent offers."""

    option_id: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    allowed: bool
    option_id: str | None
    """What to answer; None: the request is cancelled, because no answer that says this was offered."""
    because: str


def decide(allow: Sequence[str], tool: AskedTool, options: Sequence[Offered]) -> Decision:
    """Whether `tool` may be used, and which of `options` says so."""
    pattern = next((pattern for pattern in allow if _fits(pattern, tool)), None)
    if pattern is not None:
        granted = _first(options, _GRANTS)
        if granted is not None:
            return Decision(allowed=True, option_id=granted, because=f"allowed by {pattern!r}")
        return Decision(allowed=False, option_id=_first(options, _REFUSALS), because="it offered no answer that allows it")
    return Decision(allowed=False, option_id=_first(options, _REFUSALS), because="nothing in its allow-list fits")


def _fits(pattern: str, tool: AskedTool) -> bool:
    """The name of a kind stands for that kind alone: a command that calls itself "read" is no reading."""
    if pattern in KINDS:
        return pattern == tool.kind
    kind, colon, title = pattern.partition(":")
    if colon and kind in KINDS:
        return kind == tool.kind and _title_fits(title, tool)
    return fnmatchcase(tool.kind, pattern) or (tool.kind not in _ACTING and fnmatchcase(tool.title, pattern))


def _title_fits(pattern: str, tool: AskedTool) -> bool:
    """`execute:pytest *` is pytest and nothing after it: what joins commands must stand in the pattern itself."""
    title = tool.title.strip()
    if title.startswith("`") and title.endswith("`"):  # as some agents write a command
        title = title.strip("`").strip()
    if tool.kind == "execute" and pattern != "*" and not _JOINING & set(title) <= set(pattern):
        return False
    return fnmatchcase(title, pattern)


def _first(options: Sequence[Offered], kinds: Sequence[str]) -> str | None:
    return next((option.option_id for kind in kinds for option in options if option.kind == kind), None)
