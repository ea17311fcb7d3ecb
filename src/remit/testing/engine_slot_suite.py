"""The promises of every `Engine` about slots: who runs next, how many at once, and that callers cannot starve their children."""

import asyncio
from pathlib import Path
from typing import Any

from remit.agents.function import agent
from remit.core.request import call
from remit.core.result import Status, StopReason
from remit.core.states import State
from remit.runtime.context import Context
from remit.testing.engine_samples import Check, OpenRemit, code_of, until
from remit.testing.scripted import Scripted, wait

SLOT_CHECKS: list[Check] = []


def _promise(check: Check) -> Check:
    SLOT_CHECKS.append(check)
    return check


class _Crowd:
    """An agent that notes how many of it are at work at once."""

    def __init__(self, name: str, **declared: Any) -> None:
        self.now = self.most = 0

        @agent(name, **declared)
        async def worker() -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.01)
            self.now -= 1

        self.agent = worker


@_promise
async def no_more_run_at_once_than_there_are_slots(open_remit: OpenRemit, root: Path) -> None:
    crowd = _Crowd("worker")
    async with open_remit(root, [crowd.agent], slots_total=3) as remit:
        results = await asyncio.gather(*(remit.delegate("worker") for _ in range(20)))
        assert all(result.ok for result in results)
    assert crowd.most == 3


@_promise
async def an_agent_has_slots_of_its_own(open_remit: OpenRemit, root: Path) -> None:
    few, declared, many = _Crowd("few"), _Crowd("declared", slots=1), _Crowd("many")
    async with open_remit(root, [few.agent, declared.agent, many.agent], slots_total=8, slots_per_agent={"few": 2}) as remit:
        await asyncio.gather(*(remit.delegate(name) for name in ("few", "declared", "many") for _ in range(10)))
    assert (few.most, declared.most) == (2, 1)
    assert many.most > 2


@_promise
async def the_more_urgent_run_first_and_equals_in_order(open_remit: OpenRemit, root: Path) -> None:
    go = asyncio.Event()
    worker = Scripted("worker", wait(go))
    async with open_remit(root, [worker], slots_total=1) as remit:
        handles = [await remit.start("worker", n=0)]
        for number, priority in enumerate(["low", "normal", "critical", "normal", "high"], 1):
            handles.append(await remit.start("worker", n=number, priority=priority))
        go.set()
        await asyncio.gather(*(handle.result() for handle in handles))
    assert [asked["n"] for asked in worker.calls] == [0, 3, 5, 2, 4, 1]


@_promise
async def waiting_raises_priority_so_that_low_is_never_starved(open_remit: OpenRemit, root: Path) -> None:
    go = asyncio.Event()
    worker = Scripted("worker", wait(go))
    async with open_remit(root, [worker], slots_total=1, ageing_seconds=0.05) as remit:
        handles = [await remit.start("worker", n="first")]
        handles.append(await remit.start("worker", n="low", priority="low"))
        await asyncio.sleep(0.2)  # more than three steps of priority
        handles.append(await remit.start("worker", n="critical", priority="critical"))
        go.set()
        await asyncio.gather(*(handle.result() for handle in handles))
    assert [asked["n"] for asked in worker.calls] == ["first", "low", "critical"]


@_promise
async def callers_lend_their_slots_to_their_children(open_remit: OpenRemit, root: Path) -> None:
    @agent("one")
    async def one(ctx: Context) -> Any:
        return (await ctx.delegate("two", timeout=5)).data

    @agent("two")
    async def two(ctx: Context) -> Any:
        return [result.data for result in await ctx.gather(call("three", n=1), call("three", n=2))]

    @agent("three")
    async def three(n: int) -> int:
        return n

    async with open_remit(root, [one, two, three], slots_total=1) as remit:
        results = await asyncio.gather(*(remit.delegate("one", timeout=5) for _ in range(3)))
        assert [result.data for result in results] == [[1, 2]] * 3


@_promise
async def a_started_child_that_is_waited_for_gets_a_slot(open_remit: OpenRemit, root: Path) -> None:
    @agent("caller")
    async def caller(ctx: Context) -> Any:
        handle = await ctx.start("child")
        return (await handle.result()).data

    @agent("child")
    async def child() -> str:
        return "ran"

    async with open_remit(root, [caller, child], slots_total=1) as remit:
        result = await remit.delegate("caller", timeout=2)
        assert result.data == "ran", result


@_promise
async def a_full_queue_says_so_with_advice(open_remit: OpenRemit, root: Path) -> None:
    go = asyncio.Event()
    worker = Scripted("worker", wait(go))
    async with open_remit(root, [worker], slots_total=1, queue_limit=2) as remit:
        handles = [await remit.start("worker", n=n) for n in range(3)]
        result = await remit.delegate("worker", n=3)
        assert (result.status, result.stop_reason, code_of(result)) == (Status.FAILED, StopReason.REFUSED, "QUEUE_FULL")
        assert result.errors[0].recoverable
        assert "queue_limit" in result.errors[0].recommendation
        assert (await remit.describe(result.session_id)).state is State.REFUSED
        go.set()
        await asyncio.gather(*(handle.result() for handle in handles))
        assert (await remit.delegate("worker", n=4)).ok
    assert [asked["n"] for asked in worker.calls] == [0, 1, 2, 4]


@_promise
async def thousands_in_flight_all_come_back(open_remit: OpenRemit, root: Path) -> None:
    @agent("echo")
    async def echo(n: int) -> int:
        await asyncio.sleep(0)
        return n

    async with open_remit(root, [echo], slots_total=64) as remit:
        results = await asyncio.gather(*(remit.delegate("echo", n=n) for n in range(2000)))
        assert [result.data for result in results] == list(range(2000))
        assert len({result.session_id for result in results}) == 2000
        await until(lambda: remit.export_state()["active"] == 0)
