"""Command files: discovery, validation, arguments and execution."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import Misused
from remit import find_command as find
from remit.board.command_files import check_arguments, every, fill_arguments, places

HEAD = "---\ndescription: Fix a thing\nagent: fixer\nargument-hint: [number] [words]\n---\n"


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_arguments_are_substituted_once_and_literally() -> None:
    text = fill_arguments("Fix $1: $ARGUMENTS. Costs \\$1 or $10.", ["7", "$ARGUMENTS $1 @x.md `rm -rf /`"])
    assert text == "Fix 7: 7 $ARGUMENTS $1 @x.md `rm -rf /`. Costs $1 or $10."
    assert fill_arguments("Do it.", ["all", "of it"]) == "Do it.\n\nArguments: all of it"
    assert fill_arguments("Do $2.", ["a", "b", "c"]) == "Do b.\n\nMore arguments: a c"
    assert fill_arguments("Fix $1 in $2", ["it"]) == "Fix it in "


@given(st.text(), st.lists(st.text(), max_size=12))
def test_arguments_appear_in_the_text_as_typed(body: str, arguments: list[str]) -> None:
    text = fill_arguments(body, arguments)
    assert all(one in text for one in arguments)
    assert fill_arguments("<$ARGUMENTS>", arguments) == f"<{' '.join(arguments)}>"


def test_files_of_the_folder_are_commands(tmp_path: Path) -> None:
    put(tmp_path, ".remit/commands/fix.md", HEAD + "Ours: $1")
    put(tmp_path, ".remit/commands/tidy.md", "# Tidy\nTidy up.")
    put(tmp_path, ".remit/commands/README.md", "No command.")
    found, problems = every(tmp_path)
    assert ([one.name for one in found], problems) == (["fix", "tidy"], [])
    assert (found[0].hint, found[0].agent, found[1].description) == ("[number] [words]", "fixer", "Tidy")
    assert list(places(tmp_path)) == ["fix", "tidy"]
    assert find(tmp_path, "nothing") is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("---\ntimeout: soon\n---\nx", "timeout must be a positive number of seconds, not 'soon'."),
        ("---\ndescription: x\nagent: [a]\n---\nx", "agent must be text, not a list."),
        ("---\ndescription: x\n---\n", "it has no text below its front matter"),
        ("---\ndescription: x\n", "its front matter does not end"),
        ("---\n- a\n---\nx", "the front matter must be keys and values"),
    ],
)
def test_invalid_file_is_reported_and_others_load(tmp_path: Path, text: str, fault: str) -> None:
    put(tmp_path, ".remit/commands/bad.md", text)
    put(tmp_path, ".remit/commands/good.md", "Do it.")
    found, problems = every(tmp_path)
    assert [one.name for one in found] == ["good"]
    assert problems[0].startswith(f".remit/commands/bad.md: {fault}")
    with pytest.raises(Misused):
        find(tmp_path, "bad")


def test_file_cannot_replace_a_built_in_command(tmp_path: Path) -> None:
    put(tmp_path, ".remit/commands/task.md", "Mine.")
    put(tmp_path, ".remit/commands/odd name.md", "Mine.")
    found, problems = every(tmp_path, ["task"])
    assert found == []
    assert problems == [
        ".remit/commands/odd name.md: 'odd name' is not a name for a command: use letters, digits, - and _.",
        ".remit/commands/task.md: `remit task` is a built-in command and cannot be replaced. Rename the file.",
    ]


def test_links_out_of_the_project_are_not_followed(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "project"
    put(outside, "a.md", "Outside.")
    (root / ".remit/commands").mkdir(parents=True)
    os.symlink(outside / "a.md", root / ".remit/commands/a.md")
    found, problems = every(root)
    assert found == []
    assert problems == [".remit/commands/a.md: it is a link that leads out of the project."]


RULES = "---\ndescription: x\narguments: {number: integer, level: [low, high], focus: 'text...?'}\n---\nDo $1 $ARGUMENTS\n"


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((), "Argument number required. Usage: remit fix NUMBER LEVEL [FOCUS...]"),
        (("x", "low"), "Argument number must be an integer. Got: x"),
        (("3", "middle"), "Argument level must be one of low, high. Got: middle"),
        (("3", "low"), ""),
        (("3", "low", "and", "more"), ""),
    ],
)
def test_arguments_that_break_the_rules_of_the_file_are_refused(tmp_path: Path, arguments: tuple[str, ...], fault: str) -> None:
    put(tmp_path, ".remit/commands/fix.md", RULES)
    command = find(tmp_path, "fix")
    assert command is not None
    assert command.hint == "NUMBER LEVEL [FOCUS...]"
    message = ""
    try:
        check_arguments(command, arguments)
    except Misused as error:
        message = error.message
    assert message == fault


@pytest.mark.parametrize("rules", ["[a]", "{a: integr}", "{a: text?, b: text}", "{a: 'text...', b: text?}"])
def test_invalid_argument_rules_are_an_error_in_the_file(tmp_path: Path, rules: str) -> None:
    put(tmp_path, ".remit/commands/fix.md", f"---\narguments: {rules}\n---\nDo it\n")
    with pytest.raises(Misused, match=r"fix\.md: "):
        find(tmp_path, "fix")
