"""Before an agent uses a tool over the Agent Client Protocol: OpenCode is told to ask, and the policy is asked about all it names."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from remit.agents.acp.connection import asking_mode
from remit.agents.acp.updates import RequestedTool, _facts
from remit.agents.coding.dialects import HYGIENE
from remit.agents.definition import definition_of


def told(environment: dict[str, str] | None = None, **table: Any) -> tuple[dict[str, Any], dict[str, Any], str]:
    """What it is told of all its agents, its settings, and the mode."""
    definition = definition_of("one", {"kind": "acp", "command": ["opencode", "acp"], **table}, source="s")
    made = asking_mode(definition, Path("/scratch"), environment or {})
    assert made.environment.items() >= HYGIENE.items()
    return json.loads(made.environment["OPENCODE_PERMISSION"]), json.loads(made.environment["OPENCODE_CONFIG_CONTENT"]), made.mode


def test_it_runs_as_an_agent_that_no_settings_of_a_project_can_name() -> None:
    _, config, mode = told()
    assert config["default_agent"] == mode
    assert config["agent"][mode]["mode"] == "primary"
    assert config["agent"][mode]["permission"]["*"] == "ask"
    assert (config["autoupdate"], config["share"]) == (False, "disabled")
    assert told()[2] != mode, "nor the one that ran before, in a session that is gone on with"


def test_the_users_own_settings_are_kept_but_for_who_runs() -> None:
    given = {"model": "a/b", "default_agent": "plan", "agent": {"plan": {"model": "c/d"}}}
    _, config, mode = told({"OPENCODE_CONFIG_CONTENT": json.dumps(given)})
    assert (config["model"], config["agent"]["plan"], config["default_agent"]) == ("a/b", {"model": "c/d"}, mode)
    for broken in ("{", "[]", '{"agent": []}'):
        _, config, mode = told({"OPENCODE_CONFIG_CONTENT": broken})
        assert config["agent"].keys() == {mode}


def test_a_permission_of_the_users_own_holds_over_the_projects_too() -> None:
    everybody, config, mode = told({"OPENCODE_PERMISSION": '{"bash": "allow"}'})
    assert everybody == config["agent"][mode]["permission"] == {"bash": "allow"}
    assert told({"OPENCODE_PERMISSION": "no table"})[0]["*"] == "ask"


def test_its_agents_below_run_only_where_everything_is_allowed_and_need_not_ask_there() -> None:
    """What they ask does not reach us, and a project may allow them anything."""
    everybody, config, mode = told(allow=["think", "execute"])
    assert (everybody["*"], config["agent"][mode]["permission"]["task"]) == ("ask", "deny")
    everybody, config, mode = told(allow=["*"])
    assert (everybody["*"], config["agent"][mode]["permission"]["*"], config["agent"][mode]["permission"]["task"]) == (
        "allow",
        "ask",
        "ask",
    )


def test_it_does_not_hear_that_it_runs_inside_of_another_one() -> None:
    definition = definition_of("one", {"kind": "acp", "command": ["x"], "environment": {"OPENCODE_CLIENT": "mine"}}, source="s")
    given = {"OPENCODE": "1", "OPENCODE_SERVER_PASSWORD": "p", "OPENCODE_CLIENT": "mine", "OPENCODE_CONFIG": "file"}
    made = asking_mode(definition, Path("/scratch"), given).environment
    assert {"OPENCODE", "OPENCODE_SERVER_PASSWORD"}.isdisjoint(made)
    assert (made["OPENCODE_CLIENT"], made["OPENCODE_CONFIG"]) == ("mine", "file")


# ---- what the policy is asked about

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
def test_everything_it_names_is_asked_about(kind: str, title: str, call: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    assert list(_facts(CTX, RequestedTool(kind=kind, title=title), call)) == expected
