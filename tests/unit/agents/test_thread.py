"""Sync functions on threads: the blocking `ctx`, exceptions, and delegating from inside."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remit import BlockingContext, Remit, Status, StopReason, agent, call


@agent("everything")
def everything(ctx: BlockingContext, n: int) -> dict[str, Any]:
    ctx.progress("begun", 0.5)
    ctx.emit({"n": n})
    ctx.spend(tokens=3)
    ctx.checkpoint([n])
    (ctx.root / "made.txt").write_text("made")
    ctx.artifact("made.txt", "data", "a file")
    one = ctx.delegate("echo", word="a")
    two = ctx.gather(call("echo", word="b"), call("echo", word="c"))
    handle = ctx.start("echo", word="d")
    streamed = [event.kind for event in handle.stream()]
    return {
        "data": [one.data, *[r.data for r in two], handle.result().data],
        "streamed": streamed,
        "saved": ctx.saved,
        "depth": ctx.depth,
        "caller": ctx.caller,
        "left": ctx.remaining > 1,
        "scratch": ctx.scratch.is_dir(),
        "tokens": ctx.budget.tokens,
        "context": ctx.as_dict()["delegation_path"],
    }


@agent("echo")
def echo(word: str) -> str:
    return word


@agent("breaks")
def breaks() -> None:
    raise KeyError("colour")


@agent("leaves")
def leaves() -> None:
    raise SystemExit(2)


@pytest.fixture
async def remit(tmp_path: Path) -> AsyncIterator[Remit]:
    async with Remit.open(tmp_path, agents=[everything, echo, breaks, leaves]) as opened:
        yield opened


async def test_the_blocking_context_does_what_the_async_one_does(remit: Remit) -> None:
    result = await remit.delegate("everything", n=7, budget={"tokens": 10})
    assert result.data == {
        "data": ["a", "b", "c", "d"],
        "streamed": ["complete"],
        "saved": [7],
        "depth": 1,
        "caller": "orchestrator",
        "left": True,
        "scratch": True,
        "tokens": 7,
        "context": ["orchestrator", "everything"],
    }
    assert result.artifacts[0].path == "made.txt"
    record = await remit.describe(result.session_id)
    assert record.tokens == 3
    kinds = [event.kind for event in await remit.events(result.session_id)]
    assert {"progress", "data", "artifact"} <= set(kinds)


async def test_exceptions_of_a_thread_are_its_return(remit: Remit) -> None:
    result = await remit.delegate("breaks")
    assert result.status is Status.FAILED
    assert "KeyError: 'colour'" in result.errors[0].message
    result = await remit.delegate("leaves")
    assert (result.stop_reason, result.errors[0].code) == (StopReason.CRASHED, "AGENT_CRASHED")
    assert "SystemExit: 2" in result.errors[0].message
