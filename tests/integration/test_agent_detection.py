"""`remit agents --detect`: installed coding agents, whether they are usable, and the settings that declare them."""

import asyncio
import json
from pathlib import Path

import pytest

from remit.agents.coding.detect import KNOWN, detect
from support import cli
from support.processes import look


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    program(folder, "claude", "echo '2.1.197 (Claude Code)'")
    program(folder, "codex", "echo broken >&2; exit 3")
    program(folder, "opencode", "echo 0.9.1")
    return folder


async def test_installed_agents_are_found_with_version_and_login(tmp_path: Path, bin_folder: Path) -> None:
    home = tmp_path / "home"
    (home / ".local/share/opencode").mkdir(parents=True)
    (home / ".local/share/opencode/auth.json").write_text('{"token": "secret-in-file"}')
    environment = {"PATH": f"{bin_folder}:/bin:/usr/bin", "HOME": str(home), "ANTHROPIC_API_KEY": "secret-in-variable"}
    found, _ = await detect(environment)
    claude, codex, opencode = found
    assert (claude.version, claude.is_usable, claude.login) == ("2.1.197", True, "ANTHROPIC_API_KEY")
    assert not codex.is_usable
    assert "exit code 3: broken" in codex.fault
    assert (opencode.version, opencode.is_usable) == ("0.9.1", True)
    assert "secret" not in str(found)


async def test_hanging_program_is_killed(tmp_path: Path, bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.agents.coding.detect.VERSION_SECONDS", 0.5)
    program(bin_folder, "claude", f"echo $$ > {tmp_path}/pid; sleep 60 & wait")
    found, _ = await asyncio.wait_for(detect({"PATH": f"{bin_folder}:/bin:/usr/bin", "HOME": str(tmp_path)}, KNOWN[:1]), 60)
    assert "did not print its version" in found[0].fault
    pid = (tmp_path / "pid").read_text().strip()
    assert look(int(pid)) is None


def run(tmp_path: Path, bin_folder: Path, *text: str) -> str:
    environment = {"PATH": f"{bin_folder}:/bin:/usr/bin", "HOME": str(tmp_path)}
    return cli.run("agents", "--detect", *text, cwd=tmp_path, env=environment).stdout


def test_detect_prints_agents_and_settings(tmp_path: Path, bin_folder: Path) -> None:
    (bin_folder / "opencode").unlink()
    output = run(tmp_path, bin_folder)
    assert "2.1.197" in output
    assert "[agents.claude]" in output
    assert "[agents.codex]" not in output, "a program that does not start is not suggested"
    assert "npm install -g opencode-ai" in output
    assert "# No login" not in output, "the lines can be pasted unchanged"
    listed = json.loads(run(tmp_path, bin_folder, "--json"))["found"]
    assert {one["name"]: one["usable"] for one in listed} == {"claude": False, "codex": False}, "no login was detected"
