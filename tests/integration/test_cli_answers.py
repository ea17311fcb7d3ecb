"""What a person sees of a return at the prompt: the answer, not its data; what a program gets by `--json` is the data, whole."""

import os
from pathlib import Path

import pytest
from cli_project import remit, remit_json

GUIDE = "# Tea\n\nGreen tea is brewed at 80 °C for two minutes. Hotter water makes it bitter.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "remit.toml").write_text("")
    (tmp_path / "guide.md").write_text(GUIDE)
    (tmp_path / "kettle.py").write_text("KETTLE_DEGREES = 80  # for green tea\n")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    return tmp_path


def test_a_research_is_shown_as_its_answer_and_told_in_few_lines(project: Path) -> None:
    done = remit(project, "delegate", "researcher.deep_research", "query=Why does green tea get bitter?")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert any("“Hotter water makes it bitter.”" in line for line in lines)
    assert sum("--json shows the data" in line for line in lines) == 1
    assert any(line.startswith("  artifact  ") and "report.md" in line for line in lines)
    assert len(lines) < 20
    assert '"' not in done.stdout
    assert "worker." not in done.stderr
    assert "Searching files for" in done.stderr
    assert "completed." in done.stderr
    assert "“Hotter water makes it bitter.”" in remit(project, "show", "last").stdout


def test_a_child_that_fails_has_its_line(project: Path) -> None:
    done = remit(project, "delegate", "researcher.synthesize_sources", 'sources=["guide.md", "missing.md"]')
    assert done.stderr.count("worker.read_file") == 1
    assert "failed." in done.stderr


def test_files_are_listed_and_matches_shown_as_by_the_usual_tools(project: Path) -> None:
    listed = remit(project, "delegate", "worker.list_files").stdout.splitlines()
    assert [line.split()[-1] for line in listed[2:]] == ["guide.md", "kettle.py", "pkg/", "pkg/__init__.py", "remit.toml"]
    found = remit(project, "delegate", "worker.search_files", "pattern=green tea").stdout.splitlines()
    assert found[2:] == ["  kettle.py:1: KETTLE_DEGREES = 80  # for green tea"]
    assert set(remit_json(project, "delegate", "worker.list_files")["data"]) >= {"entries", "files", "folders", "truncated"}


def test_a_name_with_underscores_is_called_by_its_name(project: Path) -> None:
    done = remit_json(project, "delegate", "worker.read_file", "path=pkg/__init__.py")
    assert done["summary"].startswith("pkg/__init__.py is empty.")
    assert "warnings" not in done or not done["warnings"]


def test_what_is_said_of_a_parameter_goes_on_below_and_cuts_no_name(project: Path) -> None:
    said = remit(project, "agents", "worker.search_files", env={**os.environ, "COLUMNS": "80"}).stdout
    assert all(f"\n{name} " in said for name in ("pattern", "context_lines", "include_ignored"))
    assert "{a,b}, [a-z] and ? too." in " ".join(said.split())
