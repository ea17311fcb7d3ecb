"""Groups: settings, command line, routing table, delegate tool, and invalid declarations."""

from pathlib import Path

from remit import DelegateTool, Remit, agent
from support.cli import run

PROJECT = """
[agents.one]
command = ["sh", "-c", "exit 1"]
answers = "value"
effects = ["read"]

[agents.two]
command = ["sh", "-c", "echo done"]
answers = "value"
effects = ["read"]

[agents.team]
group = ["one", "two"]
by = "success"

[[routing.research]]
agent = "team"
"""


def test_configured_group_is_delegated_to_shown_and_explained(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text(PROJECT)
    assert run("routes", "--json", cwd=tmp_path).json()["groups"] == [{"group": "team", "members": ["one", "two"], "by": "success"}]
    done = run("delegate", "team", "task=x", "--json", cwd=tmp_path).json()
    assert (done["status"], done["metadata"]["route"]["chosen"]) == ("completed", "two")
    assert "two" in run("show", cwd=tmp_path).stdout
    explained = run("routes", "team", "--json", cwd=tmp_path).json()
    assert explained["outcomes"] == 2
    assert {one["member"]: one["chosen"] for one in explained["members"]} == {"one": 0.0, "two": 1.0}
    assert "0.0 of 1.0 succeeded" in run("routes", "team", cwd=tmp_path).stdout
    assert run("routes", "one", cwd=tmp_path).code != 0
    assert "team" in run("agents", cwd=tmp_path).stdout


async def test_group_is_usable_in_routing_and_the_delegate_tool(tmp_path: Path) -> None:
    @agent("one")
    async def one(task: str = "") -> str:
        return "one"

    settings = {"agents": {"team": {"group": ["one"]}}, "routing": {"research": [{"agent": "team"}]}}
    async with Remit.open(tmp_path, agents=[one], settings=settings) as remit:
        done = await remit.delegate("/research", task={"task_number": 1, "language": "python"})
        assert (done.data, done.metadata.agent_type) == ("one", "team")
        result = await DelegateTool(remit).call({"target": "team", "parameters": {"task": "x"}})
        assert (result.success, result.data) == (True, "one")
