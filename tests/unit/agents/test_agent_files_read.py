"""Agent files as a file system, an editor or a hostile clone may hold them: pipes, folders that cannot be read, files half written."""

import os
import time
from pathlib import Path

import pytest

from remit.agents import files
from remit.agents.directory import Directory
from remit.agents.pages import page_of
from remit.settings import load_settings
from support.pace import allowed

MODEL = "---\ndescription: It helps.\nremit:\n  kind: model\n---\nYou help.\n"


def opened(root: Path) -> Directory:
    directory = Directory(lambda agent: agent)
    directory.load_definitions(root, load_settings(root, environ={}))
    return directory


def write(root: Path, name: str, text: str = MODEL, folder: str = ".remit/agents") -> Path:
    place = root / folder / f"{name}.md"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_pipe_in_the_place_of_a_schema_or_an_agent_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    write(tmp_path, "one", "---\nremit:\n  kind: model\n  output_schema: schema.json\n---\nYou help.\n")
    for place in (tmp_path / "schema.json", tmp_path / ".remit/agents/two.md"):
        os.mkfifo(place) if kind == "pipe" else place.mkdir()
    problems = opened(tmp_path).problems
    assert any("one.md: line 4: output_schema: schema.json is no file" in problem for problem in problems)
    assert kind == "folder" or any("two.md: it is no file" in problem for problem in problems)


def test_a_key_that_stands_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    """Whoever looks at the file would believe the first."""
    write(tmp_path, "helper", "---\ntools: worker.read_file\nremit:\n  kind: model\ntools: coder\n---\nYou help.\n")
    assert any("helper.md: line 5: its head is not YAML: tools stands there twice" in problem for problem in opened(tmp_path).problems)


def test_the_line_is_that_of_the_key_and_not_of_a_namesake_inside_of_a_schema(tmp_path: Path) -> None:
    schema = "  output_schema:\n    properties:\n      timeout: {type: string}\n"
    write(tmp_path, "helper", f"---\nremit:\n  kind: model\n{schema}  timeout: -1\n---\nYou help.\n")
    assert any("helper.md: line 7: timeout: " in problem for problem in opened(tmp_path).problems)


@pytest.mark.parametrize("path", ["../secret.json", "../gone.json", "/etc/gone.json", "a/../../gone.json"])
def test_a_schema_out_of_the_project_is_refused_alike_whether_it_is_there_or_not(tmp_path: Path, path: str) -> None:
    root = tmp_path / "project"
    (tmp_path / "secret.json").write_text("{}")
    write(root, "helper", f"---\nremit:\n  kind: model\n  output_schema: {path}\n---\nYou help.\n")
    assert opened(root).problems == [f"{root}/.remit/agents/helper.md: line 4: output_schema: {path} leads out of the project."]


def test_whatever_stands_in_a_head_is_read_in_a_moment() -> None:
    """Blanks amid a line once took a time that grew with their square: 13 s for these."""
    began = time.monotonic()
    page = page_of(f"---\ndescription: b{' ' * 60_000}x: y\n---\nYou help.\n", Path("helper.md"))
    assert page is not None
    assert page.head["description"].endswith("x: y")
    assert time.monotonic() - began < allowed(5)


def test_of_more_than_can_be_read_at_once_the_rest_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        write(tmp_path, f"a{number}")
    monkeypatch.setattr(files, "MOST_SECONDS", -1)
    directory = opened(tmp_path)
    assert directory.registered() == ()
    assert directory.problems == [f"{tmp_path}/.remit/agents: to read all of it takes more than -1 s; 3 of its files are not read."]
