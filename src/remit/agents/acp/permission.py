"""What an agent that asks for permission is told: yes, where both the allow-list of its definition and the policy say so.

The allow-list is a pure function; the policy is asked through `ctx.permit`, as `acp.edit`, `acp.execute` and so on, with the paths, the
command or the address that the agent names. Knows no protocol library and no process. Used by `acp.hearing`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from remit.core.errors import Refused
from remit.flow.context import Context

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


EFFECTS = {
    "read": "read",
    "search": "read",
    "edit": "write",
    "move": "write",
    "delete": "delete",
    "execute": "execute",
    "fetch": "network",
}
"""What a kind of tool does to the world, for rules of the policy."""
_PATHS = ("path", "file_path", "filePath", "filepath", "abs_path", "notebook_path")
_SEVERAL = ("paths", "files", "file_paths", "edits", "changes")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s`'\"<>]+")
_MOST_PATHS = 50


async def passed(ctx: Context, tool: AskedTool, call: Mapping[str, Any], options: Sequence[Offered], allowed: Decision) -> Decision:
    """What the allow-list granted, if the policy grants it too."""
    try:
        for facts in _facts(ctx, tool, call):
            await ctx.permit(f"acp.{tool.kind or 'other'}", effects=_effects(tool), tool=tool.title, **facts)
    except Refused as no:
        return replace(allowed, allowed=False, option_id=_first(options, _REFUSALS), because=f"the policy says no: {no.message}")
    return allowed


def _effects(tool: AskedTool) -> tuple[str, ...]:
    return (EFFECTS[tool.kind],) if tool.kind in EFFECTS else ()


def _facts(ctx: Context, tool: AskedTool, call: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Of its command; else of its address, and of each path that it names one. Its own scratch folder is not asked about."""
    given = call.get("rawInput")
    said: Mapping[str, Any] = given if isinstance(given, dict) else {}
    if tool.kind == "execute":
        command = said.get("command")
        yield {"command": command if isinstance(command, str | list) else tool.title.strip().strip("`")}
        return
    address = said.get("url") if isinstance(said.get("url"), str) else next(iter(_ADDRESS.findall(tool.title)), None)
    is_address = address is not None and (tool.kind == "fetch" or "url" in said)
    if is_address:
        yield {"url": address}
    paths = list(dict.fromkeys(_named(call, said)))
    if not paths and not is_address:
        yield {}
    if len(paths) > _MOST_PATHS:
        raise Refused(f"it names {len(paths)} files at once", code="POLICY_DENIED")
    yield from ({"path": path} for path in paths if not _is_below(path, ctx.scratch))


def _named(call: Mapping[str, Any], said: Mapping[str, Any]) -> Iterator[str]:
    for listed in (call.get("locations"), call.get("content")):
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, dict) and isinstance(one.get("path"), str):
                yield one["path"]
    for name in _PATHS:
        if isinstance(said.get(name), str):
            yield said[name]
    for name in _SEVERAL:  # a list of them or of what is done to each; or by their names
        several = said.get(name)
        for one in several if isinstance(several, list | dict) else ():
            yield from [one] if isinstance(one, str) else _named({}, one) if isinstance(one, dict) else ()


def _is_below(path: str, folder: Path) -> bool:
    return ".." not in Path(path).parts and Path(path).is_relative_to(folder)


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
