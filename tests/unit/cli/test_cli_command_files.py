"""Command files in the help and behind an `@`, as hostile repositories and long words make them (S6.9)."""

import os
from pathlib import Path

import pytest
from typer.main import get_command

from remit import Remit
from remit.cli.main import app
from remit.orchestrator.command_files import find
from remit.orchestrator.command_runs import bound, run
from remit.testing import Scripted, answer


def command_file(root: Path, name: str, text: str) -> None:
    folder = root / ".remit" / "commands"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)


def test_the_help_looks_at_the_folders_once_however_many_commands_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        command_file(tmp_path, f"cmd{number}", f"---\ndescription: Command {number}\n---\nDo $ARGUMENTS\n")
    command_file(tmp_path, "evil", '---\ndescription: "\\e[2J[bold]x[/] \\u202e"\n---\nx\n')
    (tmp_path / "remit.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    group = get_command(app)
    walked: list[object] = []
    walk = os.walk
    monkeypatch.setattr(os, "walk", lambda *given, **more: walked.append(given) or walk(*given, **more))
    names = group.list_commands(None)  # type: ignore[attr-defined]
    helped = [group.get_command(None, name).help for name in names if name.startswith("cmd")]  # type: ignore[attr-defined]
    assert (len(helped), len(walked)) == (50, 1)
    assert group.get_command(None, "evil").help == "�[2J\\[bold]x\\[/] �"  # type: ignore[attr-defined]


async def test_words_that_can_be_no_file_are_handed_over_as_words(tmp_path: Path) -> None:
    command_file(tmp_path, "see", "---\nagent: reader\n---\nSee @$ARGUMENTS\n")
    command = find(tmp_path, "see")
    assert command is not None
    reader = Scripted("reader", answer("read"), answer("read"))
    found = bound(tmp_path, command)
    async with Remit.open(tmp_path, agents=[reader], settings=found.settings) as remit:
        for words in ("x" * 6_000, "a\0b.md"):
            carried = await run(remit, command, [words], found)
            assert carried.outcome.status == "completed"
    assert "x" * 6_000 in reader.calls[0]["task"]
