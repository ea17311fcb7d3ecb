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


async def test_an_agent_that_moved_to_another_file_is_taken_up_from_there(tmp_path: Path) -> None:
    path = write(tmp_path, "greet", "From the old file.")
    async with Remit.open(tmp_path) as remit:
        path.with_name("a_new.py").write_text(path.read_text().replace("old", "new"))
        write(tmp_path, "wave", "Waving at you.")
        assert await remit.reload() == []
        assert (await remit.delegate("greet")).data == "From the new file."


async def test_a_file_with_a_name_that_is_taken_does_not_take_it_along_when_it_goes_and_has_it_when_it_is_free(tmp_path: Path) -> None:
    path = write(tmp_path, "greet", "The first.")
    other = path.with_name("z.py")
    async with Remit.open(tmp_path) as remit:
        other.write_text(path.read_text().replace("first", "second"))
        (problem,) = await remit.reload()
        assert "Two agents" in problem
        other.rename(path.with_name("zz.py"))
        assert len(await remit.reload()) == 1
        path.with_name("zz.py").rename(path.with_name("no_agents"))
        assert await remit.reload() == []
        assert (await remit.delegate("greet")).data == "The first."
        path.with_name("no_agents").rename(other)
        await remit.reload()
        path.unlink()
        assert await remit.reload() == []
        assert (await remit.delegate("greet")).data == "The second."


async def test_what_an_editor_keeps_beside_a_file_keeps_nobody_from_reading_the_others(tmp_path: Path) -> None:
    path = write(tmp_path, "greet", "Good morning.")
    path.with_name(f".#{path.name}").symlink_to("somebody@elsewhere.1234")
    path.with_name("gone.py").symlink_to("nowhere.py")
    async with Remit.open(tmp_path) as remit:
        assert await remit.reload() == []
        assert (await remit.delegate("greet")).data == "Good morning."


async def test_the_policy_is_read_again_at_once_and_what_is_wrong_with_it_is_told(tmp_path: Path) -> None:
    write(tmp_path, "greet", "Good morning.")
    rules = tmp_path / ".remit" / "policy.cedar"
    rules.write_text("permit (principal, action, resource);")
    async with Remit.open(tmp_path) as remit:
        assert (await remit.delegate("greet")).ok
        rules.write_text("forbid (principal, action, resource);")
        assert await remit.reload() == []
        assert not (await remit.delegate("greet")).ok
        rules.write_text("this is no rule")
        (problem,) = await remit.reload()
        assert "policy.cedar" in problem
