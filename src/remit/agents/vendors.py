"""Agent files of the vendors, as tables of ours: what Claude Code and OpenCode write into them, and what our own hold beside it.

One function per vendor, from a page to what it declares. None of them reads a file or knows who will carry it out.
"""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from remit.agents.definition import COMMA, Declared, DefinitionTable
from remit.agents.function import agent_name
from remit.agents.pages import Page
from remit.core.errors import Misused

OURS = "remit"
_SHARED = frozenset({"name", "description", "model", "tools"})
_TURNS = ("maxTurns", "steps", "maxSteps")
"""How the vendors call what is `requests` here."""
_OURS_READS = frozenset({*_SHARED, "disallowedTools", *_TURNS, OURS})
_CLAUDE_READS = frozenset({*_SHARED, "disallowedTools", *_TURNS, OURS})
_OPENCODE_READS = frozenset({"description", "model", "permission", "tools", "disable", "temperature", *_TURNS, OURS})
_NOT_OURS = frozenset(
    {"mode", "name", "color", "temperature", "top_p", "hidden", "prompt", "isolation", "permissionMode", "skills", "hooks"}
)
"""Keys of the vendors that are no misspelling of any that is read."""
_NOT_A_GUESTS = frozenset(
    {
        "kind",
        "grpc",
        "a2a",
        "remote",
        "token_variable",
        "ca_file",
        "command",
        "options",
        "environment",
        "pass_environment",
        "allow",
        "delegates",
        "merge",
        "isolation",
        "built_in",
        "operations",
        "retries",
    }
)
"""Keys of ours that would give an agent more than its carrier has. The folders of other tools come along with any clone, and are read
without anybody's having looked at them; our own folder holds Python code anyway."""
Reader = Callable[[Page], Declared | None]


def ours(page: Page) -> Declared | None:
    """`.remit/agents/NAME.md`: its name may be left to the file. Keys of ours stand under `remit:`."""
    misplaced = sorted((set(DefinitionTable.model_fields) - _SHARED) & set(page.head))
    if misplaced:
        raise Misused(f"line {page.lines.get(misplaced[0], 2)}: {misplaced[0]} belongs under {OURS}:.")
    name = _name(page, page.head.get("name", page.path.stem))
    return _declared(page, name, _tools(page, "tools"), _tools(page, "disallowedTools") or (), reads=_OURS_READS)


def claude(page: Page) -> Declared | None:
    """`.claude/agents/**/*.md`: what has no name is none; `tools` names what it may use, or it may use everything."""
    if "name" not in page.head:
        if page.head.keys() & {"description", "tools", "model"}:
            raise Misused("line 1: it has no name, so it is no agent. Write name: … into its head.")
        return None
    be_modest(page)
    name = _name(page, page.head["name"])
    return _declared(page, name, _tools(page, "tools"), _tools(page, "disallowedTools") or (), reads=_CLAUDE_READS, is_guest=True)


def opencode(page: Page) -> Declared | None:
    """`.opencode/agent(s)/**/*.md`: named by its file; `permission` and (older) `tools` say what it may not use."""
    if page.head.get("disable") is True:
        return None
    be_modest(page)
    without = (*_switched_off(page), *_denied(page))
    return _declared(page, _name(page, page.path.stem), None, without, reads=_OPENCODE_READS, is_guest=True)


def _declared(
    page: Page, name: str, tools: tuple[str, ...] | None, without: tuple[str, ...], *, reads: frozenset[str], is_guest: bool = False
) -> Declared:
    own = page.head.get(OURS)
    if own is None:
        own = {}
    if not isinstance(own, dict):
        raise Misused(f"line {page.lines.get(OURS, 2)}: {OURS} must hold keys and values.")
    if tools is not None and "tools" in own:
        raise Misused(f"line {page.lines.get('tools', 2)}: tools stands in the head and under {OURS}: once more; keep one of them.")
    said = {key: page.head[key] for key in ("description", "model") if page.head.get(key) is not None}
    limits, lines, notes = _limits(page, is_guest)
    warmth = page.head.get("temperature") if "temperature" in reads else None
    if isinstance(warmth, int | float) and not isinstance(warmth, bool) and 0 <= warmth <= 2:
        limits["temperature"] = warmth
    elif warmth is not None:
        notes.append(f"temperature: {str(warmth)[:40]!r} is not understood, so nothing is done with it")
    table = {**said, **limits, **{str(key): value for key, value in own.items()}}
    if page.body:
        table["instructions"] = page.body
    return Declared(
        name=name, table=table, source=str(page.path), tools=tools, without=without, lines={**lines, **page.lines}, is_guest=is_guest,
        notes=(*_unread(page, reads), *notes),
    )  # fmt: skip


def _limits(page: Page, is_guest: bool) -> tuple[dict[str, Any], dict[str, int], list[str]]:
    """How often a model is asked, as the vendors call it, and where it stands; a guest that says it in a way unknown here is let be."""
    key = next((key for key in _TURNS if page.head.get(key) is not None), None)
    if key is None:
        return {}, {}, []
    value = page.head[key]
    is_count = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10_000
    if is_guest and not is_count:
        return {}, {}, [f"{key}: {str(value)[:40]!r} is not understood, so nothing is done with it"]
    return {"requests": value}, {"requests": page.lines.get(key, 2)}, []


def _unread(page: Page, reads: frozenset[str]) -> list[str]:
    """Keys that nothing is done with, a note for each that may be misspelt and one for the others."""
    unread = [key for key in page.head if key not in reads]
    meant = {key: close[0] for key in unread if key not in _NOT_OURS and (close := get_close_matches(key, reads - {key}, n=1, cutoff=0.8))}
    rest = [key[:60] for key in unread if key not in meant]
    notes = [f"{key[:60]}: nothing is done with it; did you mean {other}?" for key, other in meant.items()]
    return [*notes, f"{', '.join(rest[:20])}: nothing is done with {'it' if len(rest) == 1 else 'them'} here"] if rest else notes


def be_modest(page: Page) -> None:
    """A file of another tool's cannot widen what its carrier may do. Raises `Misused`."""
    own = page.head.get(OURS)
    keys = {str(key): value for key, value in own.items()} if isinstance(own, dict) else {}
    wide = sorted(_NOT_A_GUESTS & keys.keys()) or (["workspace"] if keys.get("workspace") == "shared" else [])
    if wide:
        raise Misused(
            f"line {page.lines.get(wide[0], 2)}: {wide[0]} would give it more than its carrier has, which a file in this folder cannot: "
            "say it in remit.toml or in .remit/agents."
        )


def _name(page: Page, name: Any) -> str:
    if not isinstance(name, str):
        raise Misused(f"line {page.lines.get('name', 2)}: name must be text, not a {type(name).__name__}.")
    try:
        return agent_name(name.strip())
    except Misused as error:
        raise Misused(f"line {page.lines.get('name', 1)}: {error}") from None


def _tools(page: Page, key: str) -> tuple[str, ...] | None:
    """`Read, Bash(git *)` or a list of them; nothing, or * among the tools that it has, is all."""
    said = page.head.get(key)
    if isinstance(said, str):
        said = [one.strip() for one in COMMA.split(said)]
    if said is None or (said == ["*"] and key == "tools"):
        return None
    if not isinstance(said, list) or not all(isinstance(one, str) for one in said):
        raise Misused(f"line {page.lines.get(key, 2)}: {key} must be names with commas between them, or a list of names.")
    return tuple(one.strip() for one in said if one.strip())


def _switched_off(page: Page) -> tuple[str, ...]:
    said = page.head.get("tools")
    return tuple(str(name) for name, is_on in said.items() if is_on is False) if isinstance(said, dict) else ()


def _denied(page: Page) -> tuple[str, ...]:
    """`edit: deny`, or by use: `bash: {"git push": deny}`. To be asked means that the carrier's own list decides."""
    said = page.head.get("permission")
    if said is None:
        return ()
    if isinstance(said, str):
        return ("*",) if said == "deny" else ()
    if not isinstance(said, dict):
        raise Misused(f"line {page.lines.get('permission', 2)}: permission must name tools and allow, ask or deny for each.")
    denied: list[str] = []
    for tool, answer in said.items():
        if isinstance(answer, dict):
            denied += [str(tool) if use == "*" else f"{tool}({use})" for use, one in answer.items() if one == "deny"]
        elif answer == "deny":
            denied.append(str(tool))
    return tuple(denied)
