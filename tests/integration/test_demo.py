"""`remit demo`: real work in a real folder, and suggestions that work as printed."""

import os
import subprocess
from pathlib import Path

import pytest
from cli_project import remit, remit_json

from support.cli import Result


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A folder in which the demo ran, with its output; without an active virtualenv, and `remit` not on the path."""
    folder = tmp_path_factory.mktemp("shown")
    for name in ("src/a.py", "src/deep/b.py", "docs/guide.md", "tool.sh"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("one\ntwo\nthree\n")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder, remit(folder, "demo", env={**os.environ, "PATH": os.defpath})


def test_demo_shows_the_promises_and_next_steps(shown: tuple[Path, Result]) -> None:
    folder, done = shown
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in ("What you saw", "An agent hung", "A cycle was refused", "Try next", "show last"):
        assert expected in done.stdout
    assert "✗" not in done.stdout
    assert "asking once more" in done.stderr
    report = (folder / ".remit" / "demo" / "report.md").read_text()
    assert all(expected in report for expected in ("src/", "docs/", "top level"))
    status = subprocess.run(["git", "status", "--short", ".remit"], cwd=folder, capture_output=True, text=True, check=True)
    assert "demo" not in status.stdout


def test_commands_suggested_by_the_demo_work(shown: tuple[Path, Result]) -> None:
    """The command and the agent are taken from the output."""
    folder, done = shown
    lines = done.stdout.splitlines()
    command = next(line for line in lines if " show last" in line).strip()
    ran = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, env={"PATH": os.defpath}, check=False)
    assert (ran.returncode, "demo.survey" in ran.stdout) == (0, True), ran.stderr
    first = next(n for n, line in enumerate(lines) if ".remit/agents/hello.py" in line) + 1
    last = next(n for n, line in enumerate(lines) if line.startswith("and call it"))
    (folder / ".remit" / "agents").mkdir()
    (folder / ".remit" / "agents" / "hello.py").write_text("\n".join(line.removeprefix("  ") for line in lines[first:last]))
    assert remit_json(folder, "delegate", "hello", "name=Ada")["data"] == "Hello, Ada, from depth 1."
