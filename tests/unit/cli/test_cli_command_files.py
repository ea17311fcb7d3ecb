"""Command files from hostile repositories, in the help and as `@` references."""

import os
from pathlib import Path

from remit import Remit
from remit.board import project_commands
from remit.board.command_files import find
from remit.board.project_commands import bind_command
from remit.testing import Scripted, answer
from support.cli import run


def command_file(root: Path, name: str, text: str) -> None:
    folder = root / ".remit" / "commands"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)


def test_help_lists_command_files_with_escaped_text(tmp_path: Path) -> None:
    for number in range(50):
        command_file(tmp_path, f"cmd{number}", f"---\ndescription: Command {number}\n---\nDo $ARGUMENTS\n")
    command_file(tmp_path, "evil", '---\ndescription: "\\e[2J[bold]x[/] \\u202e"\n---\nx\n')
    (tmp_path / "remit.toml").write_text("")
    shown = run("--help", cwd=tmp_path, env={**os.environ, "COLUMNS": "200"}).stdout
    assert all(f"Command {number}" in shown for number in range(50))
    assert "�[2J[bold]x[/] �" in shown


async def test_argument_that_cannot_be_a_file_is_passed_as_text(tmp_path: Path) -> None:
    command_file(tmp_path, "see", "---\nagent: reader\n---\nSee @$ARGUMENTS\n")
    command = find(tmp_path, "see")
    assert command is not None
    reader = Scripted("reader", answer("read"), answer("read"))
    found = bind_command(tmp_path, command)
    async with Remit.open(tmp_path, agents=[reader], settings=found.settings) as remit:
        for words in ("x" * 6_000, "a\0b.md"):
            done = await project_commands.run(remit, command, [words], found)
            assert done.status == "completed"
    assert "x" * 6_000 in reader.calls[0]["task"]
