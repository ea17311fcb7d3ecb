"""The directory: agents given, found in a folder, and what is said of files that are broken."""

from pathlib import Path

import pytest

from remit import Misused, Remit, agent
from remit.agents.directory import Directory
from remit.testing import Scripted

FILE = """
from remit import agent

@agent("found")
async def found(n: int) -> int:
    return n + 1

@agent("apart", isolation="process")
def apart(n: int) -> int:
    return n + 2
"""


async def _one() -> None: ...


def directory() -> Directory:
    return Directory(lambda declared: declared)


def test_two_agents_of_one_name_are_refused_and_the_same_twice_is_not() -> None:
    known = directory()
    known.register(agent("a")(_one))
    known.register(agent("a")(_one))
    with pytest.raises(Misused, match="Two agents are named 'a'"):
        known.register(Scripted("a"))
    with pytest.raises(Misused, match="is not an agent"):
        known.register(_one)  # type: ignore[arg-type]
    assert known.find("b") is None


async def test_agents_of_a_folder_are_found_and_run_also_in_processes(tmp_path: Path) -> None:
    folder = tmp_path / ".remit" / "agents"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(FILE)
    async with Remit.open(tmp_path) as remit:
        assert {"found", "apart"} <= set(remit.directory.names())
        assert (await remit.delegate("found", n=1)).data == 2
        assert (await remit.delegate("apart", n=1)).data == 3


def test_a_broken_file_is_named_with_its_line_and_takes_no_other_with_it(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import remit\n\nremit.nonsense\n")
    (tmp_path / "fine.py").write_text(FILE)
    (tmp_path / "_private.py").write_text("raise SystemError")
    known = directory()
    known.load_folder(tmp_path)
    assert sorted(known.names()) == ["apart", "found"]
    assert len(known.problems) == 1
    assert f"{tmp_path / 'broken.py'} (line 3): AttributeError" in known.problems[0]
    known.load_folder(tmp_path / "nowhere")
