"""Policy for many paths and for agents that act for their caller."""

from pathlib import Path

import pytest

from remit import BlockingContext, Context, Remit, agent
from remit.testing import Scripted
from support.audit import DEFAULT_RULES, audit_log

RULES = (
    DEFAULT_RULES
    + """
@id("private") forbid (principal, action, resource) when { context has path && context.path like "private/*" };
"""
)


@agent(effects=("read",))
async def near(ctx: Context, paths: list[str]) -> list[str]:
    return await ctx.permitted(paths)


@agent(effects=("read",), isolation="process")
def far(ctx: BlockingContext, paths: list[str]) -> list[str]:
    return ctx.permitted(paths)


@pytest.mark.parametrize("name", ["near", "far"])
async def test_permitted_filters_many_paths_with_a_short_log(tmp_path: Path, name: str) -> None:
    async with Remit.open(tmp_path, agents=[near, far], policy=RULES) as remit:
        paths = [f"src/{number}.py" for number in range(450)]
        result = await remit.delegate(name, paths=[*paths, "private/x.py", "../out", ".env", "kept"])
        assert result.data == [*paths, "kept"]
    asked = [entry for entry in audit_log(tmp_path) if entry.get("on_the_way")]
    assert [entry["facts"]["path"] for entry in asked if entry["verdict"] == "deny"] == ["private/x.py", "../out", ".env"]
    assert sum(entry["alike"] for entry in asked if entry["verdict"] == "allow") == 451
    assert len(asked) < 10


async def test_analysis_skips_files_that_the_policy_forbids(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "hidden.py").write_text("def hidden_thing():  # TODO keep secret\n    return 1\n")
    (tmp_path / "open.py").write_text("def open_thing():\n    return 1\n")
    async with Remit.open(tmp_path, policy=RULES) as remit:
        result = await remit.delegate("coder.analyze_code")
        reports = "".join((tmp_path / one.path).read_text() for one in result.artifacts)
    assert "open_thing" in reports
    assert "hidden_thing" not in reports
    assert "keep secret" not in reports
    assert "not to be read by the policy" in reports


@pytest.mark.parametrize("name", ["direct", "passing"])
async def test_agent_that_acts_for_its_caller_is_judged_as_the_caller(tmp_path: Path, name: str) -> None:
    @agent
    async def limited(ctx: Context, to: str) -> str:
        await ctx.delegate(to, **({"then": "leaf"} if to == "passing" else {}))
        return "done"

    async def hand_on(ctx: Context, arguments: dict[str, str]) -> str:
        return (await ctx.delegate(arguments["then"])).summary

    rules = DEFAULT_RULES + '@id("limited") forbid (principal == Agent::"limited", action == Action::"leaf", resource);'
    agents = [limited, Scripted("leaf"), Scripted("passing", hand_on, acts_for_caller=True)]
    async with Remit.open(tmp_path, agents=agents, policy=rules) as remit:
        done = await remit.delegate("limited", to="leaf" if name == "direct" else "passing")
        refused = [one for one in await remit.tree(done.session_id) if one.state == "refused"]
        assert [(one.agent, one.caller) for one in refused] == [("leaf", "limited")]
        assert (await remit.delegate("passing", then="leaf")).ok
