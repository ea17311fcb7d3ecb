"""The board from task to archive, with kill -9 during implementation, in a real repository.

The agents are one small program; tests/real runs a real coding agent. The result is checked by a reader that shares no code with remit.
"""

import subprocess
import sys
import time
from pathlib import Path

from board_reader import disagreements, git, log_of, phases_of, state_of
from support.cli import run

SCRIPT = Path(__file__).parent / "board_script.py"
SETTINGS = f"""
[agents.script]
command = ["{sys.executable}", "-I", "-S", "{SCRIPT}"]

[roles]
researcher = "script"
planner = "script"
implementer = "script"
"""
PLAN = "specs/001_write_rows_as_csv/plans/implementation-001.md"


def remit(root: Path, *arguments: str) -> str:
    """Run the command line in this process."""
    done = run(*arguments, cwd=root)
    assert done.code == 0, f"remit {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def killed_in_phase_2(root: Path) -> None:
    """Start `remit implement 1` and kill it once phase 2 has written a file."""
    (root / "hang").touch()
    running = subprocess.Popen(
        [sys.executable, "-m", "remit.cli.main", "implement", "1"], cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 60
    while not (root / "csv_out.py").exists():
        assert running.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
    running.kill()
    running.wait()
    (root / "hang").unlink()


def test_task_passes_through_every_step_to_the_archive(tmp_path: Path) -> None:
    """state.json, TODO.md, artifacts and git log agree."""
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "config", "user.name", "Ada")
    git(tmp_path, "config", "user.email", "ada@example.com")
    (tmp_path / "remit.toml").write_text(SETTINGS)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".gitignore").write_text(".remit/\nhang\n")
    git(tmp_path, "add", "remit.toml", ".gitignore")
    git(tmp_path, "commit", "-q", "-m", "begin")

    remit(tmp_path, "task", "Write rows as CSV", "--language", "python")
    remit(tmp_path, "research", "1", "which", "separator")
    remit(tmp_path, "plan", "1")
    assert disagreements(tmp_path) == []
    killed_in_phase_2(tmp_path)
    assert [marker for _, _, marker in phases_of(tmp_path, PLAN)] == ["COMPLETED", "IN PROGRESS", "NOT STARTED"]
    assert state_of(tmp_path)["active_projects"][0]["status"] == "implementing"

    output = remit(tmp_path, "implement", "1")
    assert "Task 1 resumes from phase 2 (1 of 3 done)." in output
    assert "phase 3 of 3: Document it" in output
    assert disagreements(tmp_path) == []
    subjects = [subject for subject, _ in log_of(tmp_path)]
    phases = [f"task 1 phase {number}: {name}" for number, name, _ in phases_of(tmp_path, PLAN)]
    assert subjects[-4:] == [*phases, "task 1: complete implementation"]
    assert set(git(tmp_path, "ls-files", "*.py", "docs.md").split()) == {"rows.py", "csv_out.py", "docs.md"}
    assert git(tmp_path, "status", "--porcelain").strip() == "?? notes.txt", "unrelated files are unchanged"

    remit(tmp_path, "todo")
    assert disagreements(tmp_path) == []
    assert state_of(tmp_path)["active_projects"] == []
