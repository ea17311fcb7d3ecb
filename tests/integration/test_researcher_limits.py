"""`researcher.deep_research` where it may not do all it would: no depth, no budget, no time, no package (S5.2)."""

import sys
from pathlib import Path

import pytest

from remit import Context, Remit, Return, Status, agent
from remit.agents.builtin.researcher.findings import Result
from remit.agents.builtin.researcher.question import taken_apart
from remit.agents.builtin.researcher.report import Searched, report
from remit.core.budget import Limits


@agent("second")
async def second(ctx: Context) -> object:
    return (await ctx.delegate("researcher.deep_research", query="What is the limit?", sources=["files"])).to_dict()["data"]


@agent("first")
async def first(ctx: Context) -> object:
    return (await ctx.delegate("second")).data


def page_of(root: Path) -> str:
    return next((root / ".remit" / "scratch").glob("*/report.md")).read_text()


async def test_workers_that_are_refused_for_their_depth_are_named_and_not_called_sent(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("The limit is 5 seconds.\n")
    async with Remit.open(tmp_path, agents=[first, second]) as remit:
        await remit.delegate("first")
    page = page_of(tmp_path)
    assert "Nothing was read: nothing could be searched; why is told below." in page
    assert "beyond the maximum of 3" in page
    assert "0 workers sent" in page


async def test_workers_beyond_the_budget_are_not_called_sent(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"{number}.md").write_text(f"The limit of {number} is {number} seconds.\n")
    async with Remit.open(tmp_path) as remit:
        result: Return = await remit.delegate(
            "researcher.deep_research", query="What is the limit?", sources=["files"], budget=Limits(delegations=5)
        )
    assert result.status in (Status.PARTIAL, Status.FAILED)
    assert result.data["searched"]["children"] <= 4
    assert "BUDGET_EXCEEDED" in {error.code for error in result.errors}


def test_what_is_written_before_anything_was_weighed_claims_nothing() -> None:
    unfinished = report(Result(question=taken_apart("What is the limit?")), Searched(max_depth=2, places=["."]), is_final=False)
    assert "None yet: what was read has not been weighed." in unfinished
    assert "no word of the question" not in unfinished


async def test_without_its_package_a_synthesis_is_blocked_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "bm25s.py").write_text("raise ImportError('hidden', name='bm25s')\n")
    (tmp_path / "a.md").write_text("The limit is 5 seconds.\n")
    monkeypatch.setenv("PYTHONPATH", str(hiding))
    monkeypatch.setattr(sys, "path", [str(hiding), *sys.path])
    async with Remit.open(tmp_path) as remit:
        result = await remit.delegate("researcher.synthesize_sources", sources=["a.md"])
    assert (result.status, result.errors[0].code) == (Status.BLOCKED, "TOOL_UNAVAILABLE")
    assert "remit[research]" in result.errors[0].recommendation
    assert result.artifacts == ()
