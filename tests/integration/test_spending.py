"""Spending in `remit show` and `remit status`: per delegation and per tree, with unknown prices marked."""

import json
from pathlib import Path

import pytest

from remit import Context, Remit, agent
from support import cli

show, status = cli.typed("show"), cli.typed("status")


@agent("frugal")
async def frugal(ctx: Context) -> str:
    ctx.spend(tokens=200)
    return "done"


@agent("dear")
async def dear(ctx: Context) -> str:
    ctx.spend(tokens=1000, cost=0.25)
    await ctx.delegate("frugal")
    return "done"


async def test_show_has_the_spending_of_a_delegation_and_its_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with Remit.open(tmp_path, agents=[frugal, dear]) as remit:
        returned = await remit.delegate("dear")
        child = (await remit.children(returned.session_id))[0].session_id
    show(tmp_path, returned.session_id)
    output = " ".join(capsys.readouterr().out.split())
    assert "spent 1,000 tokens, 0.25 " in output
    assert "spent in all 1,200 tokens, at least 0.25 " in output
    show(tmp_path, child)
    output = " ".join(capsys.readouterr().out.split())
    assert "spent 200 tokens, money unknown " in output
    show(tmp_path, returned.session_id, as_json=True)
    assert json.loads(capsys.readouterr().out)["spent"] == {"tokens": 1200, "cost": None}


async def test_status_has_the_spending_of_running_delegations(tmp_path: Path) -> None:
    seen: list[tuple[int, float]] = []

    @agent("asking")
    async def asking(ctx: Context) -> str:
        ctx.spend(tokens=30, cost=0.5)
        await ctx.checkpoint({"written": True})
        seen.extend((one["tokens"], one["cost"]) for one in cli.run_json("status", cwd=tmp_path)["delegations"])
        return "done"

    async with Remit.open(tmp_path, agents=[asking]) as remit:
        assert (await remit.delegate("asking")).ok
    assert seen == [(30, 0.5)]
