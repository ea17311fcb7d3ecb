"""Permissions of agents on the Agent Client Protocol: OpenCode must ask, and the policy is asked about everything it names."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from remit.agents.acp.connection import asking_mode
from remit.agents.acp.updates import _facts
from remit.agents.coding.dialects import HYGIENE
from remit.agents.definition import definition_of
from remit.agents.transcript import Call


def asking_settings(**table: Any) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The permissions of all its agents, its settings, and the mode."""
    definition = definition_of("one", {"kind": "acp", "command": ["opencode", "acp"], **table}, source="s")
    made, mode = asking_mode(definition, Path("/scratch"), {})
    assert made.items() >= HYGIENE.items()
    return json.loads(made["OPENCODE_PERMISSION"]), json.loads(made["OPENCODE_CONFIG_CONTENT"]), mode


def test_agent_runs_under_a_name_that_no_project_file_can_know() -> None:
    _, config, mode = asking_settings()
    assert config["default_agent"] == mode
    assert config["agent"][mode]["mode"] == "primary"
    assert config["agent"][mode]["permission"]["*"] == "ask"
    assert (config["autoupdate"], config["share"]) == (False, "disabled")
    assert asking_settings()[2] != mode, "also not a name used before, in a resumed session"


def test_subagents_run_only_if_everything_is_allowed() -> None:
    """Their questions do not reach us, and a project may allow them anything."""
    everybody, config, mode = asking_settings(allow=["think", "execute"])
    assert (everybody["*"], config["agent"][mode]["permission"]["task"]) == ("ask", "deny")
    everybody, config, mode = asking_settings(allow=["*"])
    assert (everybody["*"], config["agent"][mode]["permission"]["*"], config["agent"][mode]["permission"]["task"]) == (
        "allow",
        "ask",
        "ask",
    )


def test_variables_of_an_outer_opencode_are_removed() -> None:
    definition = definition_of("one", {"kind": "acp", "command": ["x"], "environment": {"OPENCODE_CLIENT": "mine"}}, source="s")
    given = {"OPENCODE": "1", "OPENCODE_SERVER_PASSWORD": "p", "OPENCODE_CLIENT": "mine", "OPENCODE_CONFIG": "file"}
    made, _ = asking_mode(definition, Path("/scratch"), given)
    assert {"OPENCODE", "OPENCODE_SERVER_PASSWORD"}.isdisjoint(made)
    assert (made["OPENCODE_CLIENT"], made["OPENCODE_CONFIG"]) == ("mine", "file")


CTX: Any = SimpleNamespace(scratch=Path("/project/.remit/scratch/sess_1"))


@pytest.mark.parametrize(
    ("kind", "title", "call", "expected"),
    [
        (
            "read",
            "Read",
            {"rawInput": {"url": "https://a.example/", "file_path": ".env"}},
            [{"url": "https://a.example/"}, {"path": ".env"}],
        ),
        ("fetch", "Fetch http://127.0.0.1/x", {}, [{"url": "http://127.0.0.1/x"}]),
        ("edit", "Edit", {"rawInput": {"edits": [{"file_path": ".env"}, {"path": "b"}]}}, [{"path": ".env"}, {"path": "b"}]),
        ("edit", "Edit", {"rawInput": {"changes": {".env": {"add": "x"}}}}, [{"path": ".env"}]),
        ("read", "Read", {"rawInput": {"paths": ["a", ".env"]}}, [{"path": "a"}, {"path": ".env"}]),
        ("read", "see https://a.example/", {"locations": [{"path": "a"}]}, [{"path": "a"}]),
        ("other", "thing", {}, [{}]),
        ("edit", "Edit", {"rawInput": {"path": "/project/.remit/scratch/sess_1/x"}}, []),
    ],
)
def test_policy_decides_on_everything_named(kind: str, title: str, call: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    assert list(_facts(CTX, Call(kind=kind, title=title), call)) == expected
