"""The allow-list of a definition in the words of each vendor, so that one list serves whichever agent carries it out.

An entry is a kind of tool (`read`, `edit`, `execute`, `search`, `fetch`; `execute:git *` for some commands only: as agents of the Agent
Client Protocol name them), a vendor's own name (`Bash(git *)`, `webfetch`, `mcp__NAME__*`), or `*`. Pure; used by the dialects.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

EVERYTHING = "*"
_CLAUDE = {
    "read": ("Read", "Glob", "Grep"),
    "search": ("Glob", "Grep"),
    "edit": ("Edit", "Write", "NotebookEdit"),
    "delete": (),
    "move": (),
    "execute": ("Bash",),
    "fetch": ("WebFetch", "WebSearch"),
    "think": (),
    "switch_mode": (),
    "other": (),
}
_OPENCODE = {
    "read": ("read", "list"),
    "search": ("glob", "grep", "list"),
    "edit": ("edit",),
    "delete": ("edit",),
    "move": ("edit",),
    "execute": ("bash",),
    "fetch": ("webfetch", "websearch"),
    "think": (),
    "switch_mode": (),
    "other": (),
    "write": ("edit",),
    "multiedit": ("edit",),
    "notebookedit": ("edit",),
    "patch": ("edit",),
    "bash": ("bash",),
    "glob": ("glob",),
    "grep": ("grep",),
    "webfetch": ("webfetch",),
    "websearch": ("websearch",),
    "task": ("task",),
    "agent": ("task",),
    "todowrite": ("todowrite",),
    "skill": ("skill",),
}
_FREE = ("read", "glob", "grep", "list", "todowrite", "todoread", "skill")
"""What opencode does without being asked: nothing of it changes anything."""
_CHANGING = frozenset({"edit", "delete", "move", "execute", "bash", "write", "multiedit", "notebookedit", "patch"})
_ENTRY = re.compile(r"(?P<name>[\w*.-]+)(?:\((?P<inner>.*)\)|:(?P<outer>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    name: str
    only: str | None
    """For some uses of it alone: a pattern."""
    is_kind: bool
    original: str


def entries(allow: Sequence[str]) -> list[Entry]:
    found = []
    for one in allow:
        match = _ENTRY.fullmatch(one.strip())
        name = match["name"] if match else one.strip()
        only = (match["inner"] if match["inner"] is not None else match["outer"]) if match else None
        found.append(Entry(name=name, only=only or None, is_kind=name in _CLAUDE, original=one.strip()))
    return found


def for_claude(allow: Sequence[str]) -> list[str]:
    """Rules for `--allowedTools`."""
    rules: list[str] = []
    for entry in entries(allow):
        if entry.original == EVERYTHING:
            rules += [name for names in _CLAUDE.values() for name in names]
        elif not entry.is_kind:
            rules.append(entry.original)
        elif entry.only is not None and entry.name == "execute":
            rules.append(f"Bash({entry.only})")
        elif entry.only is None:
            rules += _CLAUDE[entry.name]
    return list(dict.fromkeys(rules))


def for_opencode(allow: Sequence[str], scratch_pattern: str) -> dict[str, object]:
    """The table `permission` of its configuration: the last rule that fits decides."""
    table: dict[str, object] = {"*": "deny", **dict.fromkeys(_FREE, "allow")}
    table["external_directory"] = {"*": "deny", scratch_pattern: "allow"}
    for entry in entries(allow):
        for tool in _OPENCODE.get(entry.name.lower(), (entry.name,)):
            rules = table.get(tool)
            if entry.only is None:
                table[tool] = "allow"
            elif rules != "allow":
                table[tool] = {**(rules if isinstance(rules, dict) else {"*": "deny"}), entry.only.replace(":*", " *"): "allow"}
    return table


def may_change(allow: Sequence[str]) -> bool:
    """For a vendor that knows no list but a sandbox: whether it may write in its workspace. An empty list leaves it at that."""
    return not allow or any(entry.name.lower() in (EVERYTHING, *_CHANGING) for entry in entries(allow))


def may_fetch(allow: Sequence[str]) -> bool:
    return any(entry.name.lower() in (EVERYTHING, "fetch", "webfetch") for entry in entries(allow))
