"""`remit board import` at the command line: what it prints, `--dry-run`, `--json`, and the commit."""

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from remit.cli.main import app

TODO = "## High Priority\n\n### 7. Better parser\n- **Status**: [x]\n- **Owner**: Ann\n\n---\n\n### 9. Only here\n- **Status**: [ ]\n"
STATE = {"active_projects": [{"project_number": "7", "title": "Parser", "status": "in_progress"}, {"project_number": 8, "title": "Other"}]}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    old = tmp_path / ".opencode/specs"
    old.mkdir(parents=True)
    (old / "TODO.md").write_text(TODO)
    (old / "state.json").write_text(json.dumps(STATE))
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["board", "import", *arguments])
    return result.exit_code, result.output


def test_a_dry_run_lists_what_would_come_of_it_and_writes_nothing(project: Path) -> None:
    code, output = run("--dry-run", "--root", str(project))
    assert code == 0
    assert "Would import 3 tasks" in output
    assert "Only in state.json: 8." in output
    assert "Only in TODO.md: 9." in output
    assert "Task 7 status: state.json 'IMPLEMENTING', TODO.md 'COMPLETED' → COMPLETED" in output
    assert "state.json counts" in output
    assert "archive" not in output
    assert sorted(path.name for path in project.iterdir()) == [".opencode"]


def test_it_is_told_as_json_and_committed_with_nothing_else(project: Path) -> None:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(project), *arguments], capture_output=True, text=True, check=True).stdout

    git("init", "-q")
    git("config", "user.email", "a@example.org")
    git("config", "user.name", "A")
    (project / "other.txt").write_text("mine")
    code, output = run("--json", "--root", str(project))
    told = json.loads(output)
    assert code == 0
    assert (told["tasks"], told["imported"], told["warnings"]) == (3, True, [])
    assert {one["field"] for one in told["drift"]} == {"title", "status"}
    assert git("log", "--format=%s").strip() == "board: import 3 tasks"
    committed = git("show", "--format=", "--name-only").split()
    assert {"specs/TODO.md", "specs/state.json", f"{told['kept_in']}/TODO.md"} <= set(committed)
    assert all(path.startswith("specs/") for path in committed)
    code, output = run("--root", str(project))
    assert (code, "nothing was changed" in output) == (0, True)


def test_a_folder_without_a_board_is_a_mistake_told_in_words(tmp_path: Path) -> None:
    code, output = run(str(tmp_path), "--root", str(tmp_path))
    assert code == 2
    assert "neither TODO.md nor state.json" in output
