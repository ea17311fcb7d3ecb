"""Projects with external MCP servers: real ones, and one that misbehaves."""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from support.processes import all_pids, descendants
from support.tools import MODULES

HOSTILE = Path(__file__).with_name("hostile_mcp_server.py")


def node_server(name: str, *arguments: str) -> list[str]:
    """A server of @modelcontextprotocol, installed by `make tools`."""
    place = MODULES / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    if not place.exists():
        pytest.skip(f"server-{name} is not installed in .tools: `make tools` needs npm and a network")
    return ["node", str(place), *arguments]


def hostile(folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    return [sys.executable, "-I", str(HOSTILE), str(folder)]


def write_settings(root: Path, *, describe_seconds: float = 30.0, **servers: dict[str, Any]) -> None:
    """Settings `[agents.NAME]` of each server. `describe_seconds` is generous for busy machines."""
    lines = [f"describe_seconds = {describe_seconds}"]
    for name, table in servers.items():
        lines.append(f"[agents.{name}]")
        lines += [f"{key} = {_toml(value)}" for key, value in table.items()]
    (root / "remit.toml").write_text("\n".join(lines) + "\n")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)


def started(folder: Path) -> int:
    """How often the hostile server was started."""
    log = folder / "started"
    return len(log.read_text().splitlines()) if log.exists() else 0


def own_processes_with(text: str) -> list[int]:
    """Those below this process: other tests start the same programs at the same time."""
    return processes_with(text, descendants(os.getpid()))


def processes_with(text: str, among: Iterable[int] | None = None) -> list[int]:
    """Processes whose command line contains this word."""
    found = []
    for pid in all_pids() if among is None else among:
        try:
            data = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if text.encode() in data.split(b"\0"):
            found.append(pid)
    return found
