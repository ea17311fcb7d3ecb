"""Outcomes of delegations: answers near the deadline, state in the registry, original answers."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from remit import Clock, Context, Evidence, Remit, Return, State, Status, StopReason, agent, call
from remit.core import ids
from remit.testing import Scripted, answer, wait
from support.clocks import ManualClock


def dated_by(clock: ManualClock) -> Clock:
    """Events have the time of this clock; limits use the real one."""
    return Clock(wall=clock.as_clock().wall)


@agent("quick")
async def quick(n: int = 0) -> int:
    return n


@agent("precious")
async def precious(ctx: Context) -> dict[str, int]:
    (ctx.root / "report.md").write_text("work")
    ctx.artifact("report.md")
    return {"precious": 1}


async def test_answer_is_kept_if_the_deadline_falls_into_acceptance(tmp_path: Path) -> None:
    """It is not accepted, so it is partial; its data and artifacts are kept."""
    async with Remit.open(tmp_path, agents=[precious]) as remit:
        result = await remit.delegate("precious", timeout=3, accept=["sleep 30"])
    assert result.status is Status.PARTIAL
    assert "'precious': 1" in str(result.data)
    assert [artifact.path for artifact in result.artifacts] == ["report.md"]


async def test_checkpoints_and_progress_of_children_reset_the_idle_timeout(tmp_path: Path) -> None:
    @agent("saves", idle=0.3)
    async def saves(ctx: Context) -> str:
        for step in range(6):
            await asyncio.sleep(0.1)
            await ctx.checkpoint(step)
        return "saved"

    @agent("talks")
    async def talks(ctx: Context) -> str:
        for _ in range(6):
            ctx.progress("on it")
            await asyncio.sleep(0.1)
        return "said"

    @agent("listens", idle=0.3)
    async def listens(ctx: Context) -> Any:
        return (await ctx.delegate("talks")).data

    async with Remit.open(tmp_path, agents=[saves, talks, listens]) as remit:
        results = await asyncio.gather(remit.delegate("saves"), remit.delegate("listens"))
        assert [result.data for result in results] == ["saved", "said"]


async def test_registry_retention_counts_from_the_end(tmp_path: Path) -> None:
    """Retention counts from the end of a delegation."""
    clock = ManualClock()
    go = asyncio.Event()
    slow = Scripted("slow", wait(go))
    async with Remit.open(tmp_path, agents=[slow, quick], clock=dated_by(clock)) as remit:
        handle = await remit.start("slow")
        await remit.delegate("quick")
        assert remit.export_state()["active"] == 1
        clock.advance(5000)
        go.set()
        await handle.result()
        assert [entry["agent"] for entry in remit.export_state()["list"]] == ["slow"]
        clock.advance(3601)
        state = remit.export_state()
        assert (state["active"], state["total"], state["list"]) == (0, 2, [])


async def test_child_inherits_the_task_of_its_caller(tmp_path: Path) -> None:
    @agent("shows")
    async def shows(ctx: Context) -> Any:
        return ctx.task.task_number if ctx.task else None

    @agent("hands-on")
    async def hands_on(ctx: Context) -> list[Any]:
        return [(await ctx.delegate("shows")).data, (await ctx.delegate("shows", task={"task_number": 8})).data]

    async with Remit.open(tmp_path, agents=[shows, hands_on]) as remit:
        result = await remit.delegate("hands-on", task={"task_number": 195, "language": "lean"})
        assert result.data == [195, 8]
        assert [record.task.task_number for record in await remit.tree(result.session_id) if record.task] == [195, 195, 8]


@pytest.mark.parametrize("claimed", ["refused", "cancelled", "deadline", "crashed"])
async def test_agent_cannot_choose_its_state_in_the_registry(tmp_path: Path, claimed: str) -> None:
    liar = Scripted("liar", answer({"status": "completed", "summary": "I did it. All of it.", "stop_reason": claimed}))
    async with Remit.open(tmp_path, agents=[liar]) as remit:
        result = await remit.delegate("liar")
        assert (result.status, result.stop_reason) == (Status.COMPLETED, StopReason.FINISHED)
        assert (await remit.describe(result.session_id)).state is State.COMPLETED


def saved_answers(root: Path, result: Return) -> list[str]:
    for artifact in result.artifacts:
        assert artifact.evidence is Evidence.CHECKED
    return [(root / artifact.path).read_text() for artifact in result.artifacts]


@agent("model", answers="return")
async def model(ctx: Context, first: str) -> str:
    """Like a language model: its first answer as given, then a plain return."""
    lineage = {"delegation_depth": 1, "delegation_path": ["orchestrator", "model"]}
    metadata = {"session_id": ctx.session_id, "agent_type": "model", **lineage}
    plain = json.dumps({"status": "completed", "summary": "Read it. Counted it.", "artifacts": [], "metadata": metadata})
    return plain if ctx.repair is not None else first.replace("RETURN", plain)


async def test_original_answer_is_saved_if_it_was_extracted_or_repaired(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[model]) as remit:
        clean = await remit.delegate("model", first="RETURN")
        assert (clean.status, clean.artifacts) == (Status.COMPLETED, ())
        fenced = await remit.delegate("model", first="Here you are:\n```json\nRETURN\n```\nAnything else?")
        assert fenced.status is Status.COMPLETED
        assert [words.endswith("Anything else?") for words in saved_answers(tmp_path, fenced)] == [True]
        repaired = await remit.delegate("model", first="I counted to seven.")
        assert repaired.status is Status.COMPLETED
        assert saved_answers(tmp_path, repaired) == ["I counted to seven."]


async def test_duplicate_session_ids_are_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry guarantees uniqueness, for roots and children alike."""
    draws = itertools.chain([5, 5, 5, 6, 6, 5, 7], itertools.count(8))
    monkeypatch.setattr(ids, "_pool", [])
    monkeypatch.setattr(ids, "_draw", lambda: ids._pool.append(f"{next(draws):06}"))

    @agent("asks")
    async def asks(ctx: Context) -> list[str]:
        results = await ctx.gather(*(call("quick", n=n) for n in range(3)))
        return [ctx.session_id, *(result.session_id for result in results)]

    moments = itertools.count()
    clock = Clock(wall=lambda: 1_766_700_000 + next(moments) / 1e6)  # all within one second
    async with Remit.open(tmp_path, agents=[quick, asks], clock=clock) as remit:
        one = await remit.delegate("quick")
        other = await remit.delegate("quick")
        tree = (await remit.delegate("asks")).data
        assert len({one.session_id, other.session_id, *tree}) == 6
        assert len(await remit.history()) == 6
        assert len(await remit.children(tree[0])) == 3
        assert {record.root_id for record in await remit.tree(tree[0])} == {tree[0]}
        assert not remit.engine.live()
