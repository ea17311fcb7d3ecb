"""`remit.testing.load_agents`: a project's own agents, for its tests."""

import os
from pathlib import Path

import pytest

from remit import Misused, Remit
from remit.testing import Scripted, answer, load_agents

INLINE = """
from remit import Context, agent

@agent("asks")
async def asks(ctx: Context) -> int:
    return (await ctx.delegate("answers")).unwrap() + 1
"""
PROCESS = """
import os
from remit import agent

@agent("where", isolation="process")
def where() -> int:
    return os.getpid()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / ".remit" / "agents"
    folder.mkdir(parents=True)
    (folder / "inline.py").write_text(INLINE)
    (folder / "process.py").write_text(PROCESS)
    (folder / "_helper.py").write_text("raise RuntimeError('no agents here')")
    return folder


def test_a_folder_gives_its_agents_by_name_and_a_file_its_own(folder: Path) -> None:
    assert sorted(load_agents(folder)) == ["asks", "where"]
    assert list(load_agents(folder / "inline.py")) == ["asks"]


async def test_a_loaded_agent_runs_with_a_scripted_child_in_place_of_the_real_one(folder: Path, tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[load_agents(folder)["asks"], Scripted("answers", answer(41))]) as remit:
        assert (await remit.delegate("asks")).data == 42
        assert remit.directory.problems == [], "it is the one of the project's own folder, not a second one"


async def test_a_loaded_agent_may_run_in_a_process_of_its_own(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "project"
    elsewhere.mkdir()
    async with Remit.open(elsewhere, agents=load_agents(folder).values()) as remit:
        done = await remit.delegate("where")
    assert done.ok, done.errors
    assert done.data != os.getpid()


def test_a_broken_file_raises_what_its_code_raises(folder: Path) -> None:
    (folder / "broken.py").write_text("import no_such_module_anywhere\n")
    with pytest.raises(ModuleNotFoundError):
        load_agents(folder)


def test_a_path_that_is_not_there_and_a_name_that_is_taken_are_said(folder: Path) -> None:
    with pytest.raises(Misused, match="no file or folder"):
        load_agents(folder / "nothing")
    (folder / "twice.py").write_text(INLINE)
    with pytest.raises(Misused, match="Two agents are named 'asks'"):
        load_agents(folder)
