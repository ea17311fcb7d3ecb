"""The coding agents remit can be written into: which file of the project each reads, and what its entry says.

Looked up in what the tools themselves accept; the tests ask the real ones. Reads whether files exist, nothing of what is in them.
"""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.cli.installing.documents import Format, Json, Toml
from remit.core.errors import Misused
from remit.system.interpreter import remit_command

PASSED = (
    "REMIT_CALLER", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CONFIG_DIR",
    "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL",
)  # fmt: skip
"""What codex must hand on, since it hands on little by itself: whose child a delegation is, and what the agents behind remit need."""
CODEX_TOOL_SECONDS = 3600
OPENCODE_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    name: str
    files: tuple[str, ...]
    """Those it reads, of which the first that is there is changed; none there: the first is made."""
    path: tuple[str, ...]
    """Where in the file the entry stands."""
    format: Format
    entry: Callable[[tuple[str, ...]], dict[str, Any]]
    """What it says, given the command that starts remit."""
    then: str
    """What is left to do for whoever uses the tool."""

    def file_in(self, root: Path) -> Path:
        return next((root / name for name in self.files if os.path.lexists(root / name)), root / self.files[0])


TOOLS = {
    "claude": Tool(
        name="claude",
        files=(".mcp.json",),
        path=("mcpServers", "remit"),
        format=Json(with_comments=False),
        entry=lambda command: {"command": command[0], "args": [*command[1:], "mcp"]},
        then="Claude Code asks once whether the project's servers may be used: say yes there. Then: claude mcp list",
    ),
    "codex": Tool(
        name="codex",
        files=(".codex/config.toml",),
        path=("mcp_servers", "remit"),
        format=Toml(),
        entry=lambda command: {
            "command": command[0],
            "args": [*command[1:], "mcp"],
            "env_vars": list(PASSED),
            "tool_timeout_sec": CODEX_TOOL_SECONDS,
        },
        then="Codex reads a project's configuration only where the project is trusted: say yes when it asks. Then: codex mcp list",
    ),
    "opencode": Tool(
        name="opencode",
        files=("opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"),
        path=("mcp", "remit"),
        format=Json(with_comments=True, schema="https://opencode.ai/config.json"),
        entry=lambda command: {"type": "local", "command": [*command, "mcp"], "enabled": True, "timeout": OPENCODE_TIMEOUT_MS},
        then="Then: opencode mcp list",
    ),
}


def tool_named(name: str) -> Tool:
    if name not in TOOLS:
        raise Misused(f"There is no coding agent {name!r} that remit can be written into.", advice=f"Name one of {', '.join(TOOLS)}.")
    return TOOLS[name]


def is_found_here_only() -> bool:
    """Whether the name of this remit is found because a virtual environment is active: another terminal may not find it."""
    found = shutil.which("remit")
    return sys.prefix != sys.base_prefix and found is not None and os.path.dirname(found) == os.path.dirname(sys.executable)


def command_here() -> tuple[str, ...]:
    """How a tool starts this very remit: by its name where that is found and is this one, else by its place."""
    beside = Path(sys.executable).parent / "remit"
    found = shutil.which("remit")
    if found is not None and os.path.realpath(found) == os.path.realpath(beside):
        return ("remit",)
    return tuple(remit_command())
