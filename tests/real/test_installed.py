"""The real claude, codex and opencode read the entry that `remit install` writes, and start its command."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from real_harness import as_if_installed

from support.tools import PROGRAMS as TOOLS

QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
}


def _trust_for_claude(home: Path, project: Path) -> None:
    """Approve the MCP servers of the project, as the user does in Claude Code."""
    (home / ".claude").mkdir()
    (home / ".claude" / "settings.json").write_text(json.dumps({"enableAllProjectMcpServers": True}))
    folder = {"hasTrustDialogAccepted": True, "enabledMcpjsonServers": ["remit"]}
    (home / ".claude" / ".claude.json").write_text(json.dumps({"projects": {str(project): folder}}))


def _trust_for_codex(home: Path, project: Path) -> None:
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(f'[projects."{project}"]\ntrust_level = "trusted"\n')


TRUST: dict[str, Callable[[Path, Path], None]] = {
    "claude": _trust_for_claude,
    "codex": _trust_for_codex,
    "opencode": lambda home, project: as_if_installed(home / ".config" / "opencode"),
}
USED: dict[str, tuple[str, str]] = {
    "claude": (".mcp.json", '{\n  "mcpServers": {\n    "other": {\n      "command": "true"\n    }\n  }\n}\n'),
    "codex": (".codex/config.toml", '# mine\nmodel = "gpt-5"\n'),
    "opencode": ("opencode.jsonc", '{\n  "share": "disabled"\n}\n'),
}
SCHEMA = '  "$schema": "https://opencode.ai/config.json",\n'
"""Line that opencode adds to its configuration file. The undo keeps it."""
CONNECTED = {"claude": "Connected", "codex": "enabled", "opencode": "connected"}
"""How each tool reports a working entry. Codex lists servers without starting them."""


def run(command: list[str], project: Path, home: Path) -> str:
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{TOOLS}:{os.environ['PATH']}",
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "CODEX_HOME": str(home / ".codex"),
        **QUIET,
    }
    done = subprocess.run(
        command, cwd=project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("tool", TRUST)
def test_coding_agent_sees_the_entry_until_undo(tmp_path: Path, tool: str) -> None:
    if not (TOOLS / tool).exists():
        pytest.skip(f"{tool} not installed in .tools: `make tools` needs npm and a network")
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir(parents=True)
    (project / "remit.toml").touch()
    home.mkdir()
    TRUST[tool](home, project)
    name, text = USED[tool]
    file = project / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    run(["remit", "install", tool, "--yes"], project, home)
    listed = run([tool, "mcp", "list"], project, home)
    line = next((line for line in listed.splitlines() if "remit" in line), listed)
    assert CONNECTED[tool] in line
    run(["remit", "install", tool, "--undo", "--yes"], project, home)
    assert file.read_text().replace(SCHEMA, "").split() == text.split()
    assert "remit" not in run([tool, "mcp", "list"], project, home).replace(str(project), "")
