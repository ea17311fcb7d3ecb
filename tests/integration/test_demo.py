"""`remit demo`: real work on a real folder, and the promises to be seen (issue 2, item 9)."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from cli_project import remit, remit_json


def fill(folder: Path) -> None:
    for name in ("src/a.py", "src/deep/b.py", "docs/guide.md", "tool.sh"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("one\n# TODO: two\nthree\n")


def test_the_demo_keeps_its_four_promises_and_writes_a_report(tmp_path: Path) -> None:
    fill(tmp_path)
    told = remit_json(tmp_path, "demo")
    assert told["ok"] is True
    assert [part["ok"] for part in told["parts"]] == [True] * 5
    assert told["seconds"] < 40
    assert max(record["depth"] for record in told["tree"] if record["status"] == "completed") == 3
    states = {record["agent"]: record["status"] for record in told["tree"] if record["depth"] == 2}
    assert states["demo.stuck"] == "timeout"
    assert states["demo.prose"] == "completed"
    assert [record["status"] for record in told["tree"] if record["agent"] == "demo.survey"] == ["completed", "refused"]
    report = (tmp_path / told["report"]).read_text()
    for word in ("src/", "docs/", "top level"):
        assert word in report


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> "tuple[Path, subprocess.CompletedProcess[str]]":
    """A folder in which the demo was run, and what it said; where no virtualenv is active and the shell does not know the name."""
    folder = tmp_path_factory.mktemp("shown")
    fill(folder)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder, remit(folder, "demo", env={**os.environ, "PATH": os.defpath})


def test_the_demo_tells_what_was_seen_and_what_to_try_next(shown: "tuple[Path, subprocess.CompletedProcess[str]]") -> None:
    folder, done = shown
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("What you saw", "An agent hung", "killed by signal 9", "A cycle was refused", "Try next", "remit show last"):
        assert word in done.stdout
    assert "asking once more" in done.stderr
    status = subprocess.run(["git", "status", "--short", ".remit"], cwd=folder, capture_output=True, text=True, check=True)
    assert "demo" not in status.stdout
    assert "demo.stuck" in remit(folder, "show", "last").stdout


def test_what_to_try_next_can_be_typed_as_it_is_printed(shown: "tuple[Path, subprocess.CompletedProcess[str]]") -> None:
    """Also where no virtualenv is active and the shell does not know the name."""
    folder, done = shown
    line = next(line for line in done.stdout.splitlines() if " show last " in line)
    command = line.strip().partition("  ")[0]
    ran = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, env={"PATH": os.defpath}, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "demo.survey" in ran.stdout


def test_the_demo_works_in_an_empty_folder_inside_a_project(tmp_path: Path) -> None:
    """It surveys its own source then, and works where it was started, not at the project's root."""
    (tmp_path / "remit.toml").touch()
    empty = tmp_path / "empty"
    empty.mkdir()
    done = remit(empty, "demo", "--json")
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["return"]["data"]["measured"] > 20
    assert (empty / ".remit" / "demo" / "report.md").exists()
    assert not (tmp_path / ".remit").exists()


def test_what_the_demo_suggests_works(shown: "tuple[Path, subprocess.CompletedProcess[str]]") -> None:
    """The agent it tells people to write is taken from its own output."""
    folder, done = shown
    lines = done.stdout.splitlines()
    first = next(n for n, line in enumerate(lines) if ".remit/agents/hello.py" in line) + 1
    last = next(n for n, line in enumerate(lines) if line.startswith("and call it"))
    (folder / ".remit" / "agents").mkdir()
    (folder / ".remit" / "agents" / "hello.py").write_text("\n".join(line.removeprefix("  ") for line in lines[first:last]))
    assert remit_json(folder, "delegate", "hello", "name=Ada")["data"] == "Hello, Ada, from depth 1."
