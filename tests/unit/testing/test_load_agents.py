"""`remit.testing.load_agents`: agents of a project for its tests."""

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / ".remit" / "agents"
    folder.mkdir(parents=True)
    (folder / "inline.py").write_text(INLINE)
    (folder / "_helper.py").write_text("raise RuntimeError('no agents here')")
    return folder


async def test_loaded_agents_run_with_a_scripted_child(folder: Path, tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[*load_agents(folder).values(), Scripted("answers", answer(41))]) as remit:
        assert (await remit.delegate("asks")).data == 42
        assert remit.directory.problems == [], "the agent of the project's folder is not registered twice"


def test_missing_path_and_duplicate_name_are_reported(folder: Path) -> None:
    with pytest.raises(Misused, match="no file or folder"):
        load_agents(folder / "nothing")
    (folder / "twice.py").write_text(INLINE)
    with pytest.raises(Misused, match="Two agents are named 'asks'"):
        load_agents(folder)
