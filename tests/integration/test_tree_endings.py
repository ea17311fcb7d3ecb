"""Ending a node of a tree settles every node below it."""

import asyncio
import time
from pathlib import Path

from remit import Context, Remit, State, agent


@agent("sleeps-in-a-process", isolation="process")
def sleeps_in_a_process() -> None:
    time.sleep(60)


@agent("waits", timeout=1.5)
async def waits(ctx: Context) -> str:
    return (await ctx.delegate("sleeps-in-a-process")).summary


async def until_live(remit: Remit, count: int) -> None:
    """Wait until this many delegations are live."""
    async with asyncio.timeout(30.0):
        while len(await remit.live()) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_process_child_is_settled_before_its_caller_at_the_deadline(tmp_path: Path) -> None:
    """The end of the caller is not the end of its child."""
    async with Remit.open(tmp_path, agents=[sleeps_in_a_process, waits]) as remit:
        done = await remit.delegate("waits")
        states = {record.agent: record.state for record in await remit.tree(done.session_id)}
    assert states == {"waits": State.TIMEOUT, "sleeps-in-a-process": State.TIMEOUT}
    assert [error.code for error in done.errors] == ["TIMEOUT", "TIMEOUT"]


async def test_cancelling_a_tree_ends_its_process_child(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[sleeps_in_a_process, waits]) as remit:
        await remit._executor_deps.processes.wait_warm()  # the first start of a process does not count
        handle = await remit.start("waits")
        await until_live(remit, 2)
        async with asyncio.timeout(20.0):
            nodes = await remit.cancel(handle.session_id, "not needed")
        assert {node["agent"]: node["state"] for node in nodes} == {"waits": "stopped", "sleeps-in-a-process": "killed"}
        assert not await remit.live()
