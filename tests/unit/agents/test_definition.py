"""What can be declared of an agent that is no Python function, and what is said of what cannot."""

from typing import Any

import pytest

from remit.agents.definition import Kind, PromptBy, checked_task, definition_of
from remit.core.agents import Answers, Isolation, Workspace
from remit.core.errors import Misused


def faults(**table: Any) -> str:
    with pytest.raises(Misused) as raised:
        definition_of("one", table, source="remit.toml, [agents.one]")
    return str(raised.value)


def test_a_command_is_enough() -> None:
    definition = definition_of("one", {"command": ["make", "it"]}, source="somewhere")
    assert (definition.kind, definition.command, definition.prompt) == (Kind.COMMAND, ("make", "it"), PromptBy.STDIN)
    assert (definition.spec.isolation, definition.spec.answers) == (Isolation.PROCESS, Answers.RETURN)
    assert (definition.spec.name, definition.spec.kind, definition.spec.source) == ("one", "command", "somewhere")


def test_a_command_may_be_written_as_in_a_shell() -> None:
    definition = definition_of("one", {"command": "make 'it all' {prompt}"}, source="s")
    assert definition.command == ("make", "it all", "{prompt}")


def test_without_a_command_it_is_a_profile() -> None:
    assert definition_of("one", {"instructions": "You are careful."}, source="s").kind is Kind.PROFILE


def test_what_is_declared_of_its_runs_is_in_its_spec() -> None:
    table = {"command": "x", "timeout": 30, "idle": 5, "workspace": "worktree", "merge": True, "retries": 2, "slots": 1, "answers": "value"}
    spec = definition_of("one", table, source="s").spec
    assert (spec.timeout_seconds, spec.idle_seconds, spec.workspace, spec.merge) == (30, 5, Workspace.WORKTREE, True)
    assert (spec.retries, spec.slots, spec.answers) == (2, 1, Answers.VALUE)


def test_an_unknown_key_is_named_with_the_one_that_was_meant() -> None:
    said = faults(command="x", time_out=3)
    assert said.startswith("remit.toml, [agents.one]: ")
    assert "time_out: there is no such key (did you mean timeout?)" in said


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"command": "x", "hand_in": "TERM"}, "is no signal; write e.g. SIGTERM"),
        ({"command": "x", "isolation": "thread"}, "a command is always a process of its own"),
        ({"command": "x", "merge": True}, 'merge = true needs workspace = "worktree"'),
        ({"kind": "acp"}, 'kind = "acp" needs a command'),
        ({"command": "x", "timeout": -1}, "timeout: Input should be greater than 0"),
        ({"command": 3}, "command"),
        ({"command": "x", "environment": {"A": 1}}, "environment.A"),
        ({"command": "x", "environment": {"REMIT_CALLER": "x"}}, "variables that begin with REMIT_ are set by remit alone"),
        ({"command": "x", "environment": {"A=B": "x"}}, "'A=B' is no variable that a program can be given"),
        ({"command": "x", "environment": {"A": "x\0"}}, "'A' is no variable that a program can be given"),
        ({"command": "x", "folder": "a\0b"}, "folder: 'a\\x00b' is no folder"),
        ({"command": "echo 'half"}, "command: it cannot be taken apart as a shell would"),
        ({"kind": "opencode", "model": "--dangerously-skip-permissions"}, "model: '--dangerously-skip-permissions' is no model"),
    ],
)
def test_what_does_not_fit_is_named(table: dict[str, Any], words: str) -> None:
    assert words in faults(**table)


def test_every_fault_is_named_at_once() -> None:
    said = faults(command="x", slots=0, retries=-1)
    assert "slots" in said
    assert "retries" in said


def test_a_task_in_words_is_needed_and_the_rest_is_kept() -> None:
    assert checked_task("one", {"task": "Do it.", "depth": 2}) == {"task": "Do it.", "depth": 2}
    for wrong in ({}, {"task": " "}, {"task": 3}):
        with pytest.raises(Misused, match="task") as raised:
            checked_task("one", wrong)
        assert raised.value.code == "INVALID_PARAMETERS"
