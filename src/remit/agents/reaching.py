"""Whom a language model may delegate to, as files say it: names of agents and operations, and the tools of Claude Code and OpenCode.

A vendor's tool stands for the operation that does the same here. A file can only narrow what its carrier could reach, and where it allows
some uses of a tool only (`Bash(git *)`), which nobody here could hold to, that tool is left out. Pure; used by `agents.modelling`. Whether
an agent of the project that is named exists is judged when all are known (`agents.directory`).
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from remit.core.agents import COME_WITH_REMIT
from remit.core.errors import Misused

OPERATIONS = (
    "worker.read_file", "worker.list_files", "worker.search_files", "worker.write_file", "worker.delete_file", "worker.web_fetch",
    "worker.web_search", "researcher.deep_research", "researcher.synthesize_sources", "coder.analyze_code", "coder.generate_code",
    "coder.review_code", "coder.execute_code",
)  # fmt: skip
"""What comes with remit, written down so that a file can be judged without loading it; a test compares."""
_READ, _LIST, _SEARCH, _WRITE = "worker.read_file", "worker.list_files", "worker.search_files", "worker.write_file"
_FETCH, _ASK_WEB, _RUN = "worker.web_fetch", "worker.web_search", "coder.execute_code"
_RESEARCH = ("researcher.deep_research", "researcher.synthesize_sources")
_SUBAGENTS_HERE = tuple(one for one in OPERATIONS if not one.startswith("worker."))

GIVES: dict[str, tuple[str, ...]] = {
    "read": (_READ,), "notebookread": (_READ,), "view": (_READ,),
    "write": (_WRITE, _READ), "edit": (_WRITE, _READ), "multiedit": (_WRITE, _READ), "notebookedit": (_WRITE, _READ),
    "patch": (_WRITE, _READ), "apply_patch": (_WRITE, _READ),
    "glob": (_LIST,), "ls": (_LIST,), "list": (_LIST,), "grep": (_SEARCH,), "search": (_SEARCH, _LIST),
    "webfetch": (_FETCH,), "fetch": (_FETCH, _ASK_WEB), "websearch": (_ASK_WEB,),
    "bash": (_RUN,), "shell": (_RUN,), "execute": (_RUN,),
    "task": _SUBAGENTS_HERE, "agent": _SUBAGENTS_HERE, "delete": ("worker.delete_file",),
}  # fmt: skip
"""What a vendor's tool, or one of our kinds of tools, is here. By its name in small letters."""
_EDITING = (_WRITE, "worker.delete_file", "coder.generate_code")
_READING = (_READ, _SEARCH, *_RESEARCH, "coder.analyze_code", "coder.review_code")
_WEB = (_FETCH, *_RESEARCH)
TAKES: dict[str, tuple[str, ...]] = {
    **GIVES,
    **dict.fromkeys(("write", "edit", "multiedit", "notebookedit", "patch", "apply_patch"), _EDITING),
    **dict.fromkeys(("read", "notebookread", "view"), _READING),
    "grep": (_SEARCH,), "search": (_SEARCH, _LIST), "webfetch": _WEB, "fetch": (*_WEB, _ASK_WEB), "websearch": (_ASK_WEB, *_RESEARCH),
    "bash": (_RUN,),
}  # fmt: skip
"""What is gone when it is denied: also what would do the same in a roundabout way."""
NOTHING_HERE = frozenset({
    "todowrite", "todoread", "skill", "exitplanmode", "enterplanmode", "askuserquestion", "question", "bashoutput", "killshell", "killbash",
    "slashcommand", "think", "move", "other", "lsp", "codesearch", "taskoutput", "taskstop", "listmcpresources", "readmcpresource",
    "external_directory", "doom_loop", "toolsearch",
})  # fmt: skip
"""Tools of the vendors that have no like here."""
_SCOPED = re.compile(r"([^():]+)\((.*)\)", re.DOTALL)
_SUBAGENTS = ("task", "agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    tools: tuple[str, ...] | None
    """None: everything that comes with remit."""
    notes: tuple[str, ...] = ()
    """What was named and is not reached, and why."""


def reach_of(tools: Sequence[str] | None, without: Iterable[str] = (), *, is_guest: bool = False) -> Reach:
    """Whom a file's `tools` and `disallowedTools` leave. Raises `Misused` for an operation of ours that does not exist."""
    notes: list[str] = []
    reached = None if tools is None or "*" in tools else _named(tools, is_guest, notes)
    if reached is None and is_guest:
        reached = OPERATIONS
    for name in without:
        before = COME_WITH_REMIT if reached is None else reached
        reached = _less(before, name)
        if reached == before and _is_own_name(name):
            notes.append(f"disallowedTools: {name}: it could not reach that anyway")
    return Reach(tools=reached, notes=tuple(notes))


def is_reached(name: str, tools: Iterable[str] | None) -> bool:
    """Whether an agent is among them: `worker` stands for all of its operations."""
    among = COME_WITH_REMIT if tools is None else tools
    return any(name == one or name.startswith(f"{one}.") for one in among)


def unreached(tools: Iterable[str], known: Collection[str], offered: Collection[str]) -> list[str]:
    """What there is no agent for, in words; `offered`: targets that come with remit and are not loaded yet."""
    faults = []
    for tool in tools:
        target = tool.partition(".")[0]
        if tool in known or target in offered or any(name.startswith(f"{tool}.") for name in known):
            continue
        close = get_close_matches(tool, [*known, *OPERATIONS, *offered], n=1)
        faults.append(f"there is no agent {tool!r:.100}" + (f" (did you mean {close[0]}?)" if close else "") + ".")
    return faults


def _named(tools: Sequence[str], is_guest: bool, notes: list[str]) -> tuple[str, ...]:
    found: list[str] = []
    for tool in tools:
        found += _one(tool.strip(), is_guest, notes)
    return tuple(dict.fromkeys(found))


def _one(tool: str, is_guest: bool, notes: list[str]) -> tuple[str, ...]:
    scoped = _SCOPED.fullmatch(tool)
    name = (scoped[1] if scoped else tool).strip()
    low = name.lower()
    if scoped and low in _SUBAGENTS:
        return _kept_out(tool, notes) if is_guest else tuple(one.strip() for one in scoped[2].split(",") if one.strip())
    if scoped:
        notes.append(f"tools: {tool}: some uses of it only are allowed, which cannot be held to here, so it is left out")
        return ()
    if low in GIVES:
        return GIVES[low]
    if low in NOTHING_HERE or low.startswith(("mcp__", "mcp_")):
        notes.append(f"tools: {tool}: there is nothing like it here")
        return ()
    if "*" in name or "?" in name:
        return _pattern(name, notes)
    target, dot, _ = name.partition(".")
    if target in COME_WITH_REMIT and dot and name not in OPERATIONS:
        raise _no_operation("tools", target, name)
    if not is_guest:
        return (name,)
    return _operations(name) if target in COME_WITH_REMIT else _kept_out(tool, notes)


def _operations(name: str) -> tuple[str, ...]:
    """Spelled out: a role of the board may have the name of a target, and may be carried out by anybody."""
    return tuple(one for one in OPERATIONS if is_reached(one, (name,)))


def _pattern(name: str, notes: list[str]) -> tuple[str, ...]:
    found = tuple(one for one in OPERATIONS if fnmatchcase(one, name))
    if not found:
        notes.append(f"tools: {name}: it fits no operation that comes with remit")
    return found


def _kept_out(tool: str, notes: list[str]) -> tuple[str, ...]:
    notes.append(f"tools: {tool}: a file in this folder reaches only what comes with remit; say it in remit.toml or in .remit/agents")
    return ()


def _less(tools: Sequence[str], denied: str) -> tuple[str, ...]:
    """What is left, a target spelled out where a part of it is gone. Raises `Misused` for what is denied and cannot be taken away."""
    gone = set(_taken(denied))
    pattern = denied.strip().casefold()
    left: list[str] = []
    for tool in tools:
        parts = [one for one in OPERATIONS if one.startswith(f"{tool}.")]
        if is_reached(tool, gone) or fnmatchcase(tool.casefold(), pattern):
            continue
        left += [one for one in parts if not is_reached(one, gone)] if any(one in gone for one in parts) else [tool]
        if tool not in COME_WITH_REMIT and any(one.startswith(f"{tool}.") for one in (*gone, pattern)):
            raise Misused(f"disallowedTools: {denied!r:.100} is one operation of {tool}: name in tools those that it may use instead.")
    return tuple(dict.fromkeys(left))


def _taken(denied: str) -> tuple[str, ...]:
    """To deny some uses of a tool denies it whole: nothing is risked. Raises `Misused` for an operation of ours that does not exist."""
    scoped = _SCOPED.fullmatch(denied.strip())
    name = (scoped[1] if scoped else denied).strip()
    low = name.lower()
    if low in TAKES:
        return TAKES[low]
    if "*" in low or "?" in low:
        vendors = [one for tool in TAKES if fnmatchcase(tool, low) for one in TAKES[tool]]
        return tuple(dict.fromkeys([*vendors, *(one for one in OPERATIONS if fnmatchcase(one, low))]))
    target, dot, _ = low.partition(".")
    if target in COME_WITH_REMIT:
        if dot and low not in OPERATIONS:
            raise _no_operation("disallowedTools", target, name)
        return (low,)
    return (name,)


def _is_own_name(denied: str) -> bool:
    """Whether it is neither a tool of the vendors nor a pattern, so that whoever wrote it meant an agent of ours."""
    name = denied.partition("(")[0].strip().lower()
    return not (name in TAKES or name in NOTHING_HERE or name.startswith(("mcp__", "mcp_")) or "*" in name or "?" in name)


def _no_operation(key: str, target: str, name: str) -> Misused:
    close = get_close_matches(name, OPERATIONS, n=1, cutoff=0.4)
    return Misused(f"{key}: {target} has no operation {name!r:.100}" + (f" (did you mean {close[0]}?)" if close else "") + ".")
