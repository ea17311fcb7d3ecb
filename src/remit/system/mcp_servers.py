"""External MCP servers in a project's settings: entries adopted from `.mcp.json`, and their last known tools.

Tool lists are kept outside projects, by the server's declaration. A list is data: a person approves its text (`system.trust`), and agents
are created only from approved entries. Later output of a server is compared with them, and never shown to a model."""

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from remit.core.errors import RemitError
from remit.system.artifact_files import read_bounded
from remit.system.files import private_folder, read_private, state_folder, write_private

ADOPTED_FILE = ".mcp.json"
LARGEST_FILE = 1024 * 1024
LARGEST_LIST = 4 * 1024 * 1024
MOST_TOOLS = 500
FAULT_KEPT_SECONDS = 60.0
"""Time after which a server that could not be described is started again."""
_SHOWN = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""Parts of a tool that people and models read, and that calls are validated against."""
_IDENTITY = ("mcp", "environment", "folder")
"""Keys of a declaration that decide which server is started."""


# ---- entries of .mcp.json


def with_adopted(table: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
    """The settings with `mcp = "NAME"` replaced by its entry. A name without an entry stays, and is refused later."""
    agents = table.get("agents")
    named = {
        name: entry
        for name, agent in (agents.items() if isinstance(agents, Mapping) else ())
        if isinstance(agent, Mapping) and isinstance(entry := agent.get("mcp"), str)
    }
    if not named:
        return table
    entries = _entries(root)
    adopted = {name: {**table["agents"][name], "mcp": _adopted(entry, entries[entry])} for name, entry in named.items() if entry in entries}
    return {**table, "agents": {**table["agents"], **adopted}}


def _entries(root: Path) -> Mapping[str, Mapping[str, Any]]:
    data = read_bounded(root / ADOPTED_FILE, LARGEST_FILE) or b""
    try:
        found: Any = json.loads(data).get("mcpServers") if len(data) <= LARGEST_FILE else {}
    except (ValueError, AttributeError, RecursionError):
        return {}
    return {name: entry for name, entry in found.items() if isinstance(entry, Mapping)} if isinstance(found, Mapping) else {}


def _adopted(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """In remit's own form. Unreadable parts are left for the validation of the declaration."""
    mcp: dict[str, Any] = {"adopted": name}
    if entry.get("type", "stdio") == "sse":
        return {**mcp, "type": "sse"}
    if "command" in entry:
        arguments = entry.get("args", [])
        mcp["command"] = [entry["command"], *(arguments if isinstance(arguments, list) else [arguments])]
    for key, ours in (("url", "url"), ("headers", "headers"), ("env", "environment")):
        if entry.get(key):
            mcp[ours] = entry[key]
    return mcp


# ---- lists of tools


class SeenTools(NamedTuple):
    """The last known tools of a server, or why they are unknown."""

    text: str = ""
    fault: str = ""


def tool_list_text(tools: Iterable[Mapping[str, Any]]) -> str:
    """The list in a canonical form that a person can read and compare line by line."""
    entries = sorted(
        ({key: tool[key] for key in _SHOWN if tool.get(key) is not None} for tool in tools), key=lambda tool: str(tool["name"])
    )
    return f"{json.dumps(entries, indent=1, sort_keys=True, ensure_ascii=False)}\n".encode("utf-8", "replace").decode()


def tools_in(text: str) -> dict[str, dict[str, Any]]:
    """The entries of a list by name; empty if unreadable."""
    try:
        found = json.loads(text)
        return {tool["name"]: tool for tool in found if isinstance(tool["name"], str)}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}


def tool_digest(tool: Mapping[str, Any]) -> str:
    return hashlib.sha256(tool_list_text([tool]).encode()).hexdigest()


def is_server(table: object) -> bool:
    """Whether the table of an agent declares an MCP server."""
    return isinstance(table, Mapping) and "mcp" in table


def server_key(root: Path, name: str, table: Mapping[str, Any]) -> str:
    """Identifies the list of a server: changes with anything that decides which server is started."""
    parts = [str(root), name, {key: table[key] for key in _IDENTITY if key in table}]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def seen_tools(key: str) -> SeenTools | None:
    """None: it was never asked, or not for long after a fault."""
    try:
        found = json.loads(read_private(_folder() / f"{key}.json") or b"null")
        seen = SeenTools(text=str(found["text"]), fault=str(found["fault"]))
    except (RemitError, ValueError, TypeError, KeyError):
        return None
    return None if seen.fault and time.time() - found.get("at", 0.0) > FAULT_KEPT_SECONDS else seen


def note_tools(key: str, seen: SeenTools) -> None:
    """Store a server's tools. If the folder is not writable, the server is started again next time."""
    with contextlib.suppress(OSError, RemitError):
        folder = private_folder(_folder())
        document = {"text": seen.text, "fault": seen.fault, "at": time.time()}
        write_private(folder / f"{key}.json", json.dumps(document).encode(), fsync=False)


def _folder() -> Path:
    return state_folder() / "mcp-tools"
