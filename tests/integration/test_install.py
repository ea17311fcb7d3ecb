"""`remit install`: it writes one entry into the user's file and changes nothing else there."""

import json
import os
import sys
import tomllib
from pathlib import Path

import pytest
from cli_project import remit, remit_json

from remit import Misused, Unavailable
from remit.cli.install import TOOLS, Tool, plan_install

CLAUDE, CODEX, OPENCODE = TOOLS.values()
ENTRY = CLAUDE.entry(("remit",))
COMMENTED = '{\n  // which model\n  "model": "local/small",\n  "mcp": {\n    "other": {"type": "local", "command": ["x"]},\n  },\n}\n'
TOML = """# mine
model = "gpt-5"   # the good one

[mcp_servers.other]
command = "x"

# about the profile
[profiles.a]
model = "o3"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project folder; its own `remit.toml` keeps any project above it out."""
    folder = tmp_path / "project"
    folder.mkdir(parents=True)
    (folder / "remit.toml").touch()
    return folder


def files_of(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name != "remit.toml")


def write(root: Path, tool: Tool, text: str) -> Path:
    file = root / tool.files[0]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text.encode())
    return file


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_entry_is_shown_written_once_and_undone(project: Path, tool: Tool) -> None:
    refused = remit(project, "install", tool.name)
    assert (refused.returncode, files_of(project)) == (4, [])
    assert f"+++ {tool.files[0]}" in refused.stdout
    assert "--yes" in refused.stderr
    first = remit_json(project, "install", tool.name, "--yes")
    assert (first["is_made"], first["file"]) == (True, tool.files[0])
    again = remit_json(project, "install", tool.name, "--yes")
    assert (again["diff"], again["is_made"]) == ("", False)
    undone = remit(project, "install", tool.name, "--undo", "--yes")
    assert (undone.returncode, files_of(project)) == (0, [])
    assert f"--- {tool.files[0]}" in undone.stdout
    assert remit(project, "install", tool.name, "--undo", "--yes").stdout.startswith("Nothing to do")


def test_entry_starts_the_remit_that_wrote_it(project: Path) -> None:
    """The entry has the bare name only if a shell finds this installation under it."""
    beside = Path(sys.executable).parent / "remit"
    for path, expected in ((str(project / "empty"), str(beside)), (f"{beside.parent}:{os.environ['PATH']}", "remit")):
        remit(project, "install", "claude", "--yes", env={**os.environ, "PATH": path})
        assert json.loads((project / ".mcp.json").read_text())["mcpServers"]["remit"] == {"command": expected, "args": ["mcp"]}


def test_entry_of_codex_keeps_comments_and_can_approve_its_tools(project: Path) -> None:
    file = write(project, CODEX, TOML)
    for options, mode in (((), None), (("--approve",), "approve")):
        assert remit(project, "install", "codex", "--yes", *options).returncode == 0
        entry = tomllib.loads(file.read_text())["mcp_servers"]["remit"]
        assert (entry["required"], entry["startup_timeout_sec"] > 10, entry.get("default_tools_approval_mode")) == (True, True, mode)
    assert [line for line in TOML.splitlines() if line not in file.read_text().splitlines()] == [], "comments and order are kept"
    assert remit(project, "install", "codex", "--undo", "--yes").returncode == 0
    assert file.read_text().split() == TOML.split()


def test_json_with_comments_is_not_edited_and_the_entry_is_printed(project: Path) -> None:
    file = project / "opencode.jsonc"
    file.write_text(COMMENTED)
    done = remit(project, "install", "opencode", "--yes")
    assert (done.returncode, file.read_text(), files_of(project)) == (4, COMMENTED, ["opencode.jsonc"])
    pasted = done.stdout.partition('Paste this into "mcp" of opencode.jsonc:\n\n')[2].strip()
    assert json.loads(f"{{{pasted}}}")["remit"]["command"][-1] == "mcp"
    undone = remit(project, "install", "opencode", "--undo", "--yes")
    assert (undone.returncode, "Remove mcp.remit from opencode.jsonc." in undone.stdout) == (4, True)


def test_undo_removes_the_entry_and_keeps_everything_else(project: Path) -> None:
    file = write(project, CLAUDE, '{"mcpServers": {"remit": {"command": "mine"}, "b": {"command": "b"}}}')
    assert '-{"mcpServers": {"remit": {"command": "mine"}' in remit(project, "install", "claude", "--yes").stdout
    assert json.loads(file.read_text())["mcpServers"].keys() == {"remit", "b"}
    assert remit(project, "install", "claude", "--undo", "--yes").returncode == 0
    assert json.loads(file.read_text()) == {"mcpServers": {"b": {"command": "b"}}}


@pytest.mark.parametrize(
    ("tool", "text", "message"),
    [
        (CLAUDE, "[]", "must be a table"),
        (CLAUDE, '{"mcpServers": 3}', "mcpServers must be a table"),
        (CODEX, "a = 1\nb = tru", "line 2"),
        (CODEX, "mcp_servers = 3", "mcp_servers must be a table"),
    ],
)
def test_file_that_cannot_be_edited_safely_is_refused(tmp_path: Path, tool: Tool, text: str, message: str) -> None:
    file = write(tmp_path, tool, text)
    with pytest.raises(Misused, match=message):
        plan_install(tool, tmp_path, ENTRY)
    assert file.read_text() == text


def test_outside_link_pipe_concurrent_change_and_unknown_tool_are_refused(project: Path) -> None:
    file = project / ".mcp.json"
    (project.parent / "elsewhere.json").write_text("{}")
    file.symlink_to(project.parent / "elsewhere.json")
    with pytest.raises(Misused, match="leads out of the project"):
        plan_install(CLAUDE, project, ENTRY)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(Misused, match="is not a file"):
        plan_install(CLAUDE, project, ENTRY)
    file.unlink()
    change = plan_install(CLAUDE, project, ENTRY)
    assert change is not None
    file.write_text('{"now": 1}')
    with pytest.raises(Unavailable, match="changed meanwhile"):
        change.make()
    assert file.read_text() == '{"now": 1}'
    assert remit_json(project, "install", "emacs", "--yes", code=2)["error"]["advice"] == "Name one of claude, codex, opencode."
