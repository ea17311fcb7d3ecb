"""Operations that a built-in agent calls inside its own operations take no depth: research → specialist → deep_research."""

from pathlib import Path
from typing import Any

import pytest

from remit import Context, Record, Remit, Task, agent
from remit import research_task as research
from support.boards import board_with

TASK = "What is the limit of the queue?"


@agent("study")
async def study(ctx: Context, task: str, write_to: str = "found.md", **more: Any) -> dict[str, Any]:
    """A project researcher that delegates to a built-in specialist."""
    found = await ctx.delegate("lean-research-agent", task=task)
    report = ctx.root / write_to
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(found.summary)
    return {**found.forwarded(), "artifacts": [{"type": "report", "path": write_to}]}


@agent("specialist")
async def specialist(ctx: Context) -> Any:
    """A project agent with deep_research as its child."""
    return (await ctx.delegate("researcher.deep_research", query=TASK, sources=["files"])).data["answer"]


@agent("middle")
async def middle(ctx: Context) -> Any:
    return (await ctx.delegate("specialist")).data


@agent("too-deep")
async def too_deep(ctx: Context) -> Any:
    return (await ctx.delegate("middle")).data


AGENTS = [study, specialist, middle, too_deep]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "queue.md").write_text("# Queue\n\nThe limit of the queue is 512 entries.\n")
    return tmp_path


def places(tree: list[Record]) -> list[tuple[int, str]]:
    return sorted({(one.depth, one.agent) for one in tree})


async def test_deep_research_runs_at_the_maximum_depth_and_not_below(root: Path) -> None:
    async with Remit.open(root, agents=AGENTS) as remit:
        done = await remit.delegate("middle")
        assert "512" in str(done.data)
        helpers = {one.depth for one in await remit.tree(done.session_id) if one.agent.startswith("worker.")}
        assert helpers == {3}
        refused = await remit.delegate("too-deep")
        assert "Depth 4 exceeds the maximum of 3" in str([one.result for one in await remit.tree(refused.session_id)])


async def test_board_reaches_deep_research_through_a_specialist(root: Path) -> None:
    board = board_with(root, Task(number=1, title=TASK, slug="limit", language="general"))
    async with Remit.open(root, agents=[agent("researcher")(study.function)]) as remit:
        outcome = await research(remit, board, 1)
        assert outcome.status == "completed", outcome
        tree = await remit.tree(outcome.session_id)
        assert [one for one in places(tree) if one[1] in ("researcher", "lean-research-agent", "researcher.deep_research")] == [
            (1, "researcher"),
            (2, "lean-research-agent"),
            (2, "researcher.deep_research"),
        ]
