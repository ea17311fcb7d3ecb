"""`remit policy` and `remit audit`: show, check, explain and write rules; list and verify the log."""

from pathlib import Path
from typing import Any

import pytest
from cli_project import remit

AGENTS = """
from remit import agent

@agent(effects=("delete",), acts_on={"path": "path"})
async def wipe(ctx, path: str, recursive: bool = False):
    return f"removed {path}"

@agent
async def tidy(ctx, path: str = "build"):
    await ctx.delegate("wipe", path=path)
    await ctx.delegate("wipe", path="../elsewhere")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".remit" / "agents").mkdir(parents=True)
    (tmp_path / ".remit" / "agents" / "tidying.py").write_text(AGENTS)
    return tmp_path


def json_of(folder: Path, *arguments: str) -> Any:
    return remit(folder, *arguments, "--json").json()


def test_policy_show_init_and_check(project: Path) -> None:
    shown = remit(project, "policy")
    assert "agents-may-work" in shown.stdout
    assert "the default policy" in shown.stderr
    assert remit(project, "policy", "init").returncode == 0
    assert remit(project, "policy", "init").returncode == 2
    assert remit(project, "policy", "check").returncode == 0
    rules = project / ".remit" / "policy.cedar"
    assert rules.read_text() == shown.stdout
    rules.write_text('permit (principal, action == Action::"wipee", resource);')
    checked = remit(project, "policy", "check")
    assert checked.returncode == 1
    assert "Did you mean wipe?" in checked.stdout
    assert json_of(project, "policy", "check")["problems"][0]["line"] == 1
    assert json_of(project, "policy", "show", "--schema")["actions"]["wipe"] == ["delete", "delegate"]


def test_explain_names_the_deciding_rule(project: Path) -> None:
    remit(project, "delegate", "tidy")
    explained = remit(project, "policy", "explain", "last")
    assert explained.returncode == 0
    assert "allow: tidy → wipe build, by agents-may-work." in explained.stdout
    assert "stay-inside" in explained.stdout
    assert remit(project, "policy", "explain").returncode == 2
    assert [entry["action"] for entry in json_of(project, "audit", "--verdict", "deny")["entries"]] == ["wipe"]
    assert json_of(project, "audit", "--agent", "unknown")["entries"] == []


def test_rule_for_an_unknown_action_is_reported(project: Path) -> None:
    """A misspelt name in a `forbid` rule would silently permit the action."""
    (project / ".remit" / "policy.cedar").write_text(
        'permit (principal, action, resource);\nforbid (principal, action in Action::"delte", resource);'
    )
    done = remit(project, "delegate", "wipe", "path=build")
    assert done.returncode == 0
    assert ".remit/policy.cedar, line 2: There is no action 'delte'. Did you mean delete" in " ".join(done.stderr.split())
