"""Declarations of agents that are not Python functions, and their validation."""

from typing import Any

import pytest

from remit import Isolation, Misused
from remit.agents.definition import Kind, PromptBy, definition_of
from remit.core.agents import Answers, WorkspaceKind


def faults(**table: Any) -> str:
    with pytest.raises(Misused) as raised:
        definition_of("one", table, source="remit.toml, [agents.one]")
    return str(raised.value)


@pytest.mark.parametrize(
    ("table", "kind", "command"),
    [
        ({"command": ["make", "it"]}, Kind.COMMAND, ("make", "it")),
        ({"command": "make 'it all' {prompt}"}, Kind.COMMAND, ("make", "it all", "{prompt}")),
        ({"instructions": "You are careful."}, Kind.PROFILE, ()),
    ],
)
def test_kind_is_command_or_profile_by_default(table: dict[str, Any], kind: Kind, command: tuple[str, ...]) -> None:
    definition = definition_of("one", table, source="somewhere")
    assert (definition.kind, definition.command) == (kind, command)
    assert (definition.spec.name, definition.spec.kind, definition.spec.source) == ("one", str(kind), "somewhere")
    if kind is Kind.COMMAND:
        assert (definition.prompt, definition.spec.isolation, definition.spec.answers) == (
            PromptBy.STDIN,
            Isolation.PROCESS,
            Answers.RETURN,
        )


def test_declared_run_options_are_in_the_spec() -> None:
    table = {"command": "x", "timeout": 30, "idle": 5, "workspace": "worktree", "merge": True, "retries": 2, "slots": 1, "answers": "value"}
    spec = definition_of("one", table, source="s").spec
    assert (spec.timeout_seconds, spec.idle_seconds, spec.workspace, spec.merge) == (30, 5, WorkspaceKind.WORKTREE, True)
    assert (spec.retries, spec.slots, spec.answers) == (2, 1, Answers.VALUE)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"command": "x", "time_out": 3}, "remit.toml, [agents.one]: time_out: there is no such key (did you mean timeout?)"),
        ({"command": "x", "retries": -1, "time_out": 3}, "retries"),
        ({"command": "x", "hand_in": "TERM"}, "is not a signal; write e.g. SIGTERM"),
        ({"command": "x", "isolation": "thread"}, "a command is always a process of its own"),
        ({"command": "x", "merge": True}, 'merge = true needs workspace = "worktree"'),
        ({"kind": "acp"}, 'kind = "acp" needs a command'),
        ({"command": "x", "timeout": -1}, "timeout: Input should be greater than 0"),
        ({"command": 3}, "command"),
        ({"command": "x", "environment": {"A": 1}}, "environment.A"),
        ({"command": "x", "environment": {"REMIT_CALLER": "x"}}, "variables that begin with REMIT_ are set by remit alone"),
        ({"command": "x", "environment": {"A=B": "x"}}, "'A=B' is not a valid environment variable"),
        ({"command": "x", "environment": {"A": "x\0"}}, "'A' is not a valid environment variable"),
        ({"command": "x", "folder": "a\0b"}, "folder: 'a\\x00b' is not a folder"),
        ({"command": "echo 'half"}, "command: it cannot be split as a shell would"),
        ({"kind": "opencode", "model": "--dangerously-skip-permissions"}, "model: '--dangerously-skip-permissions' is not a valid model"),
    ],
)
def test_invalid_declaration_is_reported(table: dict[str, Any], words: str) -> None:
    assert words in faults(**table)
