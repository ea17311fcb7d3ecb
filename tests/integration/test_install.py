"""`remit install`: it writes one entry into the user's file and changes nothing else there."""

import json
import os
import pty
import sys
import tomllib
from pathlib import Path

import pytest
from cli_project import remit, remit_json

from remit import Misused, Unavailable
from remit.cli.install import TOOLS, Does, Tool, plan_install, plan_undo
from support.cli import start

COMMAND = ("remit",)
CLAUDE, CODEX, OPENCODE = TOOLS.values()
each_tool = pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)

COMMENTED = """{
  // which model
  "model": "local/small", /* the small one */
  "mcp": {
    "other": {"type": "local", "command": ["x"],},  // keep
  },
}
"""
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


def install(root: Path, tool: Tool, command: tuple[str, ...] = COMMAND) -> Does:
    change = plan_install(tool, root, command)
    if change.does is not Does.NOTHING:
        change.make()
    return change.does


def undo(root: Path, tool: Tool) -> Does:
    change = plan_undo(tool, root)
    if change.does is not Does.NOTHING:
        change.make()
    return change.does


@each_tool
def test_without_a_terminal_the_diff_is_printed_and_nothing_is_written(project: Path, tool: Tool) -> None:
    done = remit(project, "install", tool.name)
    assert done.returncode == 4
    assert f"+++ {tool.files[0]}" in done.stdout
    assert "--yes" in done.stderr
    assert files_of(project) == []


@each_tool
def test_yes_writes_the_entry_once_and_undo_removes_it(project: Path, tool: Tool) -> None:
    first = remit_json(project, "install", tool.name, "--yes")
    assert (first["does"], first["is_made"], first["file"]) == ("make", True, tool.files[0])
    assert (project / tool.files[0]).exists()
    again = remit_json(project, "install", tool.name, "--yes")
    assert (again["does"], again["is_made"]) == ("nothing", False)
    undone = remit(project, "install", tool.name, "--undo", "--yes")
    assert undone.returncode == 0
    assert f"--- {tool.files[0]}" in undone.stdout
    assert files_of(project) == []
    assert remit(project, "install", tool.name, "--undo", "--yes").stdout.startswith("Nothing to do")


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 6), ("\x04", 130)], ids=["yes", "no", "no answer"])
def test_terminal_user_is_asked_before_writing(project: Path, answer: str, code: int) -> None:
    ours, theirs = pty.openpty()
    process = start("install", "claude", cwd=project, stdin=theirs)
    os.write(ours, answer.encode())
    _, error = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert (process.returncode, "Nothing was changed" in error) == (code, code == 130)
    assert (project / ".mcp.json").exists() == (code == 0)


def test_entry_starts_the_remit_that_wrote_it(project: Path) -> None:
    """The entry has the bare name only if a shell finds this installation under it."""
    beside = Path(sys.executable).parent / "remit"
    plain = {**os.environ, "PATH": str(project / "empty")}
    done = remit(project, "install", "claude", "--yes", env=plain)
    assert json.loads((project / ".mcp.json").read_text())["mcpServers"]["remit"]["command"] == str(beside)
    assert "this machine only" in done.stderr
    found = {**os.environ, "PATH": f"{beside.parent}:{os.environ['PATH']}"}
    remit(project, "install", "claude", "--yes", env=found)
    assert json.loads((project / ".mcp.json").read_text())["mcpServers"]["remit"] == {"command": "remit", "args": ["mcp"]}


def test_unknown_tool_and_invalid_file_are_refused(project: Path) -> None:
    assert remit_json(project, "install", "emacs", "--yes", code=2)["error"]["advice"] == "Name one of claude, codex, opencode."
    (project / ".mcp.json").write_text('{\n  "mcpServers": {\n')
    done = remit(project, "install", "claude", "--yes")
    assert done.returncode == 2
    assert ".mcp.json: line 2: " in done.stderr
    assert files_of(project) == [".mcp.json"]


def test_toml_comments_and_order_are_kept(tmp_path: Path) -> None:
    file = write(tmp_path, CODEX, TOML)
    assert install(tmp_path, CODEX) is Does.ADD
    lines = file.read_text().splitlines()
    assert [line for line in TOML.splitlines() if line not in lines] == []
    written = tomllib.loads(file.read_text())
    assert (written["model"], written["profiles"]) == ("gpt-5", {"a": {"model": "o3"}})
    assert written["mcp_servers"]["remit"]["env_vars"][0] == "REMIT_CALLER"


def test_codex_entry_is_required_and_has_an_approval_mode(project: Path) -> None:
    assert any("--approve" in note for note in remit_json(project, "install", "codex", "--yes")["notes"])
    file = project / ".codex" / "config.toml"

    def entry() -> dict[str, object]:
        found: dict[str, object] = tomllib.loads(file.read_text())["mcp_servers"]["remit"]
        return found

    assert (entry()["required"], entry()["startup_timeout_sec"], "default_tools_approval_mode" in entry()) == (True, 60, False)
    assert remit_json(project, "install", "codex", "--yes", "--approve")["does"] == "change"
    assert entry()["default_tools_approval_mode"] == "approve"
    assert remit_json(project, "install", "codex", "--yes")["does"] == "nothing", "the earlier choice is kept"
    assert remit_json(project, "install", "codex", "--yes", "--no-approve")["does"] == "change"
    assert "default_tools_approval_mode" not in entry()


def test_json_with_comments_is_not_edited_and_the_entry_is_printed(project: Path) -> None:
    file = project / "opencode.jsonc"
    file.write_text(COMMENTED)
    done = remit(project, "install", "opencode", "--yes")
    assert (done.returncode, file.read_text(), files_of(project)) == (4, COMMENTED, ["opencode.jsonc"])
    assert 'Paste this into "mcp" of opencode.jsonc:' in done.stdout
    pasted = done.stdout.partition("\n\n")[2].strip()
    assert json.loads(f"{{{pasted}}}")["remit"]["command"][-1] == "mcp"
    file.write_text(COMMENTED.replace('"other":', f'{pasted},\n    "other":'))
    assert remit_json(project, "install", "opencode", "--yes")["does"] == "nothing", "the pasted entry is recognised"
    undone = remit(project, "install", "opencode", "--undo", "--yes")
    assert (undone.returncode, "Remove mcp.remit from opencode.jsonc." in undone.stdout) == (4, True)


def test_replaced_entry_is_restored_by_undo(tmp_path: Path) -> None:
    mine = '{"mcpServers": {"remit": {"command": "mine"}, "b": {"command": "b"}}}'
    file = write(tmp_path, CLAUDE, mine)
    change = plan_install(CLAUDE, tmp_path, COMMAND)
    assert change.does is Does.CHANGE
    assert "has other values" in change.notes[0]
    change.make()
    assert json.loads(file.read_text())["mcpServers"]["remit"]["command"] == "remit"
    file.write_text(file.read_text().replace('"b"', '"c"'))
    assert undo(tmp_path, CLAUDE) is Does.REMOVE
    assert json.loads(file.read_text()) == {"mcpServers": {"remit": {"command": "mine"}, "c": {"command": "c"}}}


@pytest.mark.parametrize(("tool", "text"), [(OPENCODE, '{\n  "model": "a"\n}\n'), (CODEX, TOML)], ids=["json", "toml"])
def test_undo_keeps_later_changes_of_the_user(tmp_path: Path, tool: Tool, text: str) -> None:
    file = write(tmp_path, tool, text)
    install(tmp_path, tool)
    file.write_text(file.read_text().replace("model", "mode"))
    change = plan_undo(tool, tmp_path)
    assert (change.does, f"{file.name}.remit-backup" in change.notes[0]) == (Does.REMOVE, True)
    change.make()
    load = json.loads if tool is OPENCODE else tomllib.loads
    assert load(file.read_text()) == load(text.replace("model", "mode"))
    assert "# about the profile" in file.read_text() or tool is OPENCODE


REFUSED = [
    (CLAUDE, "[]", "must be an object"),
    (CLAUDE, '{"mcpServers": 3}', "mcpServers must be a table"),
    (CLAUDE, '{"a": 1, "a": 2}', "a key is written twice"),
    (OPENCODE, '{\n"a": tru\n}', "line 2"),
    (CODEX, "a = 1\nb = tru", "line 2"),
    (CODEX, "mcp_servers = 3", "mcp_servers must be a table"),
]


@pytest.mark.parametrize(("tool", "text", "message"), REFUSED, ids=[f"{tool.name}: {message}" for tool, _, message in REFUSED])
def test_file_that_cannot_be_edited_safely_is_refused(tmp_path: Path, tool: Tool, text: str, message: str) -> None:
    file = write(tmp_path, tool, text)
    with pytest.raises(Misused, match=message):
        plan_install(tool, tmp_path, COMMAND)
    assert file.read_text() == text


def test_outside_link_pipe_and_concurrent_change_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "elsewhere.json").write_text("{}")
    (root / ".mcp.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(Misused, match="leads out of the project"):
        plan_install(CLAUDE, root, COMMAND)
    (root / ".mcp.json").unlink()
    os.mkfifo(root / ".mcp.json")
    with pytest.raises(Misused, match="is not a file"):
        plan_install(CLAUDE, root, COMMAND)
    (root / ".mcp.json").unlink()
    change = plan_install(CLAUDE, root, COMMAND)
    (root / ".mcp.json").write_text('{"now": 1}')
    with pytest.raises(Unavailable, match="changed meanwhile"):
        change.make()
    assert (root / ".mcp.json").read_text() == '{"now": 1}'
