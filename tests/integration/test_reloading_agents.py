"""Agents of a project are read again without a restart, Python files too (issue 7, item 4)."""

from pathlib import Path

from remit import Remit

AGENT = """
from remit import Context, agent

@agent("{name}", isolation="{isolation}")
async def {name}(ctx: Context) -> str:
    return "{words}"
"""


def write(folder: Path, name: str, words: str, isolation: str = "inline") -> Path:
    path = folder / ".remit" / "agents" / "some.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(AGENT.format(name=name, words=words, isolation=isolation))
    return path


async def test_a_python_file_that_changed_is_taken_up(tmp_path: Path) -> None:
    write(tmp_path, "greet", "Good morning.")
    async with Remit.open(tmp_path) as remit:
        assert (await remit.delegate("greet")).data == "Good morning."
        write(tmp_path, "greet", "Good evening, all.")
        assert await remit.reload() == []
        assert (await remit.delegate("greet")).data == "Good evening, all."


async def test_a_process_of_its_own_runs_what_the_file_says_now(tmp_path: Path) -> None:
    write(tmp_path, "greet", "Good morning.", "process")
    async with Remit.open(tmp_path) as remit:
        assert (await remit.delegate("greet")).data == "Good morning."
        write(tmp_path, "greet", "Good evening, all.", "process")
        await remit.reload()
        assert (await remit.delegate("greet")).data == "Good evening, all."


async def test_what_a_file_no_longer_declares_is_gone_and_a_file_that_is_gone_takes_its_agents_along(tmp_path: Path) -> None:
    path = write(tmp_path, "greet", "Good morning.")
    async with Remit.open(tmp_path) as remit:
        write(tmp_path, "wave", "Waving at you.")
        await remit.reload()
        assert {"greet", "wave"} & set(remit.directory.names()) == {"wave"}
        path.unlink()
        await remit.reload()
        assert "wave" not in remit.directory.names()


async def test_a_file_that_broke_keeps_what_it_had_and_is_named_among_the_problems_until_it_is_mended(tmp_path: Path) -> None:
    path = write(tmp_path, "greet", "Good morning.")
    async with Remit.open(tmp_path) as remit:
        path.write_text("this is no Python")
        (problem,) = await remit.reload()
        assert "some.py" in problem
        assert (await remit.delegate("greet")).data == "Good morning."
        write(tmp_path, "greet", "Mended now.")
        assert await remit.reload() == []
        assert (await remit.delegate("greet")).data == "Mended now."
