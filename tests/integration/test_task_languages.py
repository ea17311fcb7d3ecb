"""Routing by language: a task names a language of the project or of one of its agents."""

from pathlib import Path

from remit import Remit, agent
from support import cli


@agent("ferris", languages=("rust",))
async def ferris(task: str) -> str:
    return task


def test_task_with_an_unknown_language_is_refused(tmp_path: Path) -> None:
    refused = cli.run("task", "Fix it", "--language", "pyhton", cwd=tmp_path)
    assert refused.code == 2
    assert "This project has no language 'pyhton'. Did you mean python?" in refused.stderr
    assert not (tmp_path / "specs").exists()
    assert cli.run("task", "Fix it", "--language", "python", cwd=tmp_path).code == 0
    (tmp_path / "remit.toml").write_text('languages = ["general", "ada"]\n')
    assert cli.run("task", "Fix it", "--language", "ada", cwd=tmp_path).code == 0
    assert cli.run("task", "Fix it", "--language", "python", cwd=tmp_path).code == 2


async def test_command_with_an_unknown_language_needs_an_agent_for_it(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text('[[routing.implement]]\nagent = "ferris"\nlanguage = "rust"\n')
    async with Remit.open(tmp_path, agents=[ferris], trust=True) as remit:
        refused = await remit.delegate("/implement", task={"task_number": 1, "language": "cobol"}, parameters={"task": "x"})
        assert (refused.stop_reason, refused.errors[0].code) == ("refused", "INVALID_PARAMETERS")
        assert "the setting `languages`" in refused.errors[0].recommendation
        assert (await remit.delegate("/implement", task={"task_number": 1, "language": "rust"}, parameters={"task": "x"})).ok


async def test_error_of_an_unroutable_command_has_the_reason(tmp_path: Path) -> None:
    async with Remit.open(tmp_path) as remit:
        for command, words in (("/todo", "/todo delegates nothing."), ("/reserch", "Unknown command /reserch.")):
            refused = await remit.delegate(command)
            assert (refused.errors[0].code, refused.errors[0].message) == ("INVALID_TARGET", words)
