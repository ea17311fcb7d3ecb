"""What becomes of a tree when one of its nodes is ended: every node is settled, in the store too."""

import asyncio
import time
from pathlib import Path

from remit import Context, Remit, agent
from remit.core.states import State


@agent("sleeps-in-a-process", isolation="process")
def sleeps_in_a_process() -> None:
    time.sleep(60)


@agent("waits", timeout=1.5)
async def waits(ctx: Context) -> str:
    return (await ctx.delegate("sleeps-in-a-process")).summary


@agent("spends")
async def spends(ctx: Context) -> str:
    ctx.spend(tokens=30, cost=0.5)
    ctx.spend(tokens=12)
    return "Spent."


async def until_live(remit: Remit, count: int) -> None:
    """Until so many delegations are live; two seconds are plenty."""
    async with asyncio.timeout(2.0):
        while len(await remit.live()) != count:  # noqa: ASYNC110 - the store of another process has no event to wait for
            await asyncio.sleep(0.01)


async def test_a_process_child_of_a_caller_that_reached_its_deadline_is_settled_before_the_caller(tmp_path: Path) -> None:
    """Cancelling the caller must not be taken for the end of its child."""
    async with Remit.open(tmp_path, agents=[sleeps_in_a_process, waits]) as remit:
        done = await remit.delegate("waits")
        states = {record.agent: record.state for record in await remit.tree(done.session_id)}
    assert states == {"waits": State.TIMEOUT, "sleeps-in-a-process": State.TIMEOUT}
    assert [error.code for error in done.errors] == ["TIMEOUT", "TIMEOUT"]


async def test_cancelling_a_tree_with_a_process_child_acknowledges_both_at_once(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[sleeps_in_a_process, waits]) as remit:
        await remit._executor_deps.processes.wait_warm()  # the first start of a process is not what is timed here
        handle = await remit.start("waits")
        await until_live(remit, 2)
        async with asyncio.timeout(2.0):
            nodes = await remit.cancel(handle.session_id, "not needed")
        assert {node["agent"]: node["state"] for node in nodes} == {"waits": "stopped", "sleeps-in-a-process": "killed"}
        assert not await remit.live()


async def test_another_fault_in_the_same_call_is_told_as_what_it_is(tmp_path: Path) -> None:
    """Only the identical refused call is answered from memory."""

    @agent("asks")
    async def asks(ctx: Context) -> list[list[str]]:
        refused = [await ctx.delegate("spends", timeout=seconds) for seconds in (-1.0, 1e12, -1.0)]
        return [[one.errors[0].message, one.session_id] for one in refused]

    async with Remit.open(tmp_path, agents=[asks, spends]) as remit:
        first, other, again = (await remit.delegate("asks")).data
        assert "-1.0" in first[0]
        assert "1000000000000.0" in other[0]
        assert again == first


async def test_cancelling_what_had_ended_by_itself_says_so(tmp_path: Path) -> None:
    """Its handle answers as `Remit.cancel` does."""
    async with Remit.open(tmp_path, agents=[spends]) as remit:
        handle = await remit.start("spends")
        await handle.result()
        nodes = [*await handle.cancel(), *await remit.cancel(handle.session_id)]
    assert [node["state"] for node in nodes] == ["already completed", "already completed"]
