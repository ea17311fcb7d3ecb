"""Best of n with real worktrees: only the selected work remains, and all candidates stay on record."""

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from remit import Context, Remit, State, agent, best, call
from support.cli import run
from support.repository import all_committed

SAMPLES = 20
"""Completed runs of a member from which its usual duration is known."""


def _coder(numbers: "count[int]") -> Any:
    @agent("coder-agent", workspace="worktree")
    async def coder(ctx: Context, task: str) -> int:
        number = next(numbers)
        (ctx.workspace / "solution.txt").write_text("good" if number == 2 else "bad")
        return number

    return coder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text("x")
    all_committed(tmp_path)
    return tmp_path


async def test_only_the_work_of_the_accepted_candidate_remains(project: Path) -> None:
    async with Remit.open(project, agents=[_coder(count())], settings={"accept_in": "host"}) as remit:
        done = await remit.delegate(best(3, call("coder-agent", task="solve it", accept=["grep -q good solution.txt"]), by="accept"))
        assert (done.status, done.data) == ("completed", 2), done
        _, *candidates = await remit.tree(done.session_id)
        assert sorted(one.state for one in candidates) == [State.COMPLETED, State.PARTIAL, State.PARTIAL]
        assert {(one.depth, one.path) for one in candidates} == {(1, ("orchestrator", "coder-agent"))}
        (winner,) = [one for one in candidates if one.state is State.COMPLETED]
        assert [one.result is not None and bool(one.result.artifacts) for one in candidates] == [True] * 3, (
            "rejected candidates stay on record"
        )
        assert {artifact.path.split("/")[2] for artifact in done.artifacts} == {winner.session_id}
    remaining = [one["session_id"] for one in run("workspaces", "--json", cwd=project).json()["workspaces"]]
    assert remaining == [winner.session_id]
    assert not (project / "solution.txt").exists(), "merging waits for approval"
    assert (await asyncio.to_thread(run, "workspaces", winner.session_id, "--merge", cwd=project)).code == 0
    assert (project / "solution.txt").read_text() == "good"


async def test_judge_sees_anonymous_candidates(project: Path) -> None:
    prompts: list[str] = []

    @agent("judge")
    async def judge(task: str) -> str:
        prompts.append(task)
        parts = task.split("---- candidate ")[1:]
        return next(part[0] for part in parts if "+good" in part)

    async with Remit.open(project, agents=[_coder(count()), judge]) as remit:
        done = await remit.delegate(best(3, call("coder-agent", task="solve it"), by="judge"))
        assert done.data == 2
        candidates = [one for one in await remit.tree(done.session_id) if one.agent == "coder-agent"]
    (prompt,) = prompts
    assert "solve it" in prompt
    assert not any(one.session_id in prompt or one.agent in prompt for one in candidates)
    assert len(run("workspaces", "--json", cwd=project).json()["workspaces"]) == 1


async def test_loser_of_a_hedge_leaves_no_workspace(project: Path) -> None:
    runs = count()

    @agent("coder-agent", workspace="worktree", timeout=60)
    async def coder(ctx: Context) -> int:
        number = next(runs)
        (ctx.workspace / "solution.txt").write_text(str(number))
        if number == SAMPLES:
            await asyncio.sleep(30)
        return number

    settings = {"agents": {"team": {"group": ["coder-agent"], "hedge": {"after": "p90", "extra": 1.0}}}}
    async with Remit.open(project, agents=[coder], settings=settings) as remit:
        for _ in range(SAMPLES):
            await remit.delegate("coder-agent")
        done = await remit.delegate("team")
        assert done.data == SAMPLES + 1
        _, loser, winner = await remit.tree(done.session_id)
        assert (loser.state, winner.state) == (State.CANCELLED, State.COMPLETED)
        assert loser.result is not None
        assert any(artifact.path.endswith("changes.diff") for artifact in loser.result.artifacts)
    remaining = [one["session_id"] for one in run("workspaces", "--json", cwd=project).json()["workspaces"]]
    assert winner.session_id in remaining
    assert loser.session_id not in remaining


@pytest.mark.parametrize(
    ("composition", "fault"),
    [
        (best(3, call("shared"), by="vote"), "its own workspace"),
        (best(3, call("merging"), by="vote"), "merges its work by itself"),
        (best(3, call("team"), by="vote"), "its own workspace"),
        (best(3, call("reader"), by="accept"), "acceptance commands"),
        (best(1, call("reader"), by="vote"), "from 2 to 16"),
        (best(3, call("reader"), by="nobody"), "there is no agent"),
        (best(3, call("reader"), by="reader"), "task: there is no such parameter"),
        (best(3, call("reader", key="k"), by="vote"), "cannot share a key"),
    ],
)
async def test_invalid_arguments_are_refused_before_anything_runs(tmp_path: Path, composition: Any, fault: str) -> None:
    async def work() -> None:
        raise AssertionError("it ran")

    agents = [agent("shared")(work), agent("merging", workspace="worktree", merge=True)(work), agent("reader", effects=("read",))(work)]
    async with Remit.open(tmp_path, agents=agents, settings={"agents": {"team": {"group": ["shared"]}}}) as remit:
        refused = await remit.delegate(composition)
        assert fault in refused.errors[0].message
        assert refused.stop_reason == "refused"
