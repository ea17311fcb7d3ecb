"""What was spent, as people are shown it: per delegation and per tree, and where a price is unknown, that it is."""

import json
from pathlib import Path

import pytest

from remit import Remit, agent
from remit.cli.project import Project
from remit.cli.sessions import LiveDelegations, show
from remit.core.context import Context


@agent("frugal")
async def frugal(ctx: Context) -> str:
    ctx.spend(tokens=200)
    return "done"


@agent("dear")
async def dear(ctx: Context) -> str:
    ctx.spend(tokens=1000, cost=0.25)
    await ctx.delegate("frugal")
    return "done"


async def test_show_and_status_tell_what_a_delegation_and_its_tree_spent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with Remit.open(tmp_path, agents=[frugal, dear]) as remit:
        returned = await remit.delegate("dear")
        child = (await remit.children(returned.session_id))[0].session_id
        lines = LiveDelegations(remit.store, Project(tmp_path)).lines(0.0)
    assert lines == [], "status tells of what runs, and nothing does"
    show(Project(tmp_path), returned.session_id)
    told = capsys.readouterr().out
    assert "spent     1,000 tokens, 0.25\n" in told
    assert "in all    1,200 tokens, at least 0.25, with all delegations below" in told
    show(Project(tmp_path), child)
    told = capsys.readouterr().out
    assert "spent     200 tokens, money unknown\n" in told
    assert "in all" not in told
    show(Project(tmp_path, as_json=True), returned.session_id)
    assert json.loads(capsys.readouterr().out)["spent"] == {"tokens": 1200, "cost": None}


async def test_what_runs_has_its_tokens_and_money_in_the_roll_call(tmp_path: Path) -> None:
    seen: list[tuple[int, float]] = []

    @agent("asking")
    async def asking(ctx: Context) -> str:
        ctx.spend(tokens=30, cost=0.5)
        await ctx.checkpoint({"written": True})
        seen.extend((line.tokens, line.cost) for line in LiveDelegations(remit.store, Project(tmp_path)).lines(0.0))
        return "done"

    async with Remit.open(tmp_path, agents=[asking]) as remit:
        assert (await remit.delegate("asking")).ok
    assert seen == [(30, 0.5)]
