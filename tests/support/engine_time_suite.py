"""Promises of every `Engine` about time and slots: deadlines, partial work, scheduling order and parallelism."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

from remit import Context, State, Status, Stopped, StopReason, agent, call
from remit.testing import Scripted, hang, wait
from support.engine_samples import OpenRemit, code_of, promise, until
from support.pace import allowed

OVERRUN_SECONDS = 1.0
"""How late a return may come after the hard deadline."""


@promise
async def the_return_comes_by_the_hard_deadline(open_remit: OpenRemit, root: Path) -> None:
    async with open_remit(root, [Scripted("sleeper", hang())]) as remit:
        began = time.monotonic()
        result = await remit.delegate("sleeper", timeout=0.3)
        assert 0.3 <= time.monotonic() - began < 0.3 + allowed(OVERRUN_SECONDS)
        assert (result.status, result.stop_reason, code_of(result)) == (Status.PARTIAL, StopReason.DEADLINE, "TIMEOUT")
        assert result.errors[0].recoverable
        assert "0.3 s" in result.summary
        assert (await remit.describe(result.session_id)).state is State.TIMEOUT


@promise
async def an_agent_is_notified_at_the_soft_deadline_and_may_return(open_remit: OpenRemit, root: Path) -> None:
    @agent("willing")
    async def willing(ctx: Context) -> str:
        before = ctx.hand_in
        await ctx.wait_hand_in()
        return f"{before} {ctx.hand_in} {ctx.remaining > 0}"

    async with open_remit(root, [willing]) as remit:
        result = await remit.delegate("willing", timeout=1.0)
        assert result.ok
        assert result.data == "False True True"
        assert result.metadata.duration_seconds > 0.8


@promise
async def work_done_before_the_deadline_is_returned(open_remit: OpenRemit, root: Path) -> None:
    @agent("half", timeout=0.4)
    async def half(ctx: Context) -> None:
        (ctx.root / "declared.md").write_text("half a report")
        ctx.artifact("declared.md", summary="begun")
        (ctx.root / "found.txt").write_text("not declared")
        (ctx.scratch / "notes.txt").write_text("in the scratch folder")
        ctx.emit("a chunk")
        await ctx.checkpoint([1])
        await asyncio.sleep(60)

    async with open_remit(root, [half]) as remit:
        result = await remit.delegate("half")
        assert result.status is Status.PARTIAL
        assert result.data == {"chunks": ["a chunk"], "checkpoint": [1]}
        names = {Path(artifact.path).name for artifact in result.artifacts}
        assert {"declared.md", "found.txt", "notes.txt"} <= names
        assert all(artifact.sha256 for artifact in result.artifacts)


@promise
async def an_answer_that_comes_while_it_is_stopped_is_not_lost(open_remit: OpenRemit, root: Path) -> None:
    @agent("late", timeout=0.5)  # a worker on a busy machine gets it only after 0.2 s
    async def late() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "just in time"
        return "never"

    async with open_remit(root, [late]) as remit:
        result = await remit.delegate("late")
        assert result.stop_reason is StopReason.DEADLINE
        assert result.data == {"late_answer": "just in time"}


@promise
async def silence_beyond_the_idle_limit_ends_it(open_remit: OpenRemit, root: Path) -> None:
    @agent("talker")
    async def talker(ctx: Context, times: int) -> str:
        for _ in range(times):
            ctx.progress("still here")
            await asyncio.sleep(0.1)
        await asyncio.sleep(0 if times > 3 else 60)
        return "done"

    async with open_remit(root, [talker]) as remit:
        assert (await remit.delegate("talker", times=5, idle=0.3)).ok
        began = time.monotonic()
        result = await remit.delegate("talker", times=1, idle=0.3)
        assert time.monotonic() - began < 0.3 + allowed(OVERRUN_SECONDS)
        assert (result.stop_reason, code_of(result)) == (StopReason.IDLE, "TIMEOUT")


@promise
async def a_child_is_never_given_more_time_than_its_caller_has(open_remit: OpenRemit, root: Path) -> None:
    @agent("child")
    async def child(ctx: Context) -> list[float]:
        return [ctx.remaining, ctx.as_dict()["timeout"]]

    @agent("caller")
    async def caller(ctx: Context) -> list[float]:
        await asyncio.sleep(0.05)
        result = await ctx.delegate("child", timeout=60)
        return [ctx.remaining, *result.data]

    async with open_remit(root, [child, caller]) as remit:
        of_caller, of_child, timeout = (await remit.delegate("caller", timeout=5)).data
        assert of_child <= 5
        assert timeout < 5
        assert of_caller <= of_child


@promise
async def waiting_for_a_slot_counts_against_the_deadline(open_remit: OpenRemit, root: Path) -> None:
    worker = Scripted("worker", hang())
    async with open_remit(root, [worker], slots_total=1) as remit:
        first = await remit.start("worker", timeout=5)
        result = await remit.delegate("worker", timeout=0.2)
        assert result.stop_reason is StopReason.DEADLINE
        await remit.cancel(first.session_id)
    assert len(worker.calls) == 1


@promise
async def an_agent_that_ignores_cancellation_is_abandoned_and_reported(open_remit: OpenRemit, root: Path) -> None:
    end = asyncio.Event()
    heard: list[str] = []

    @agent("stubborn", timeout=0.5)
    async def stubborn(ctx: Context) -> str:
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue
        try:
            ctx.emit("too late")
        except Stopped as error:
            heard.append(type(error).__name__)
        return "too late"

    async with open_remit(root, [stubborn]) as remit:
        began = time.monotonic()
        result = await remit.delegate("stubborn")
        assert time.monotonic() - began < 0.5 + allowed(OVERRUN_SECONDS)
        assert result.stop_reason is StopReason.DEADLINE
        assert "stubborn" in remit.export_state()["abandoned"][result.session_id]
        end.set()
        await asyncio.sleep(0.05)
        assert heard == ["Stopped"], "an abandoned agent must not be able to do anything more"
        assert (await remit.describe(result.session_id)).result == result


class _Crowd:
    """An agent that counts its parallel runs; the first wait for `enough` of them."""

    def __init__(self, name: str, enough: int, **declared: Any) -> None:
        self.now = self.most = 0
        is_crowded = asyncio.Event()

        @agent(name, **declared)
        async def worker() -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now >= enough:
                is_crowded.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(is_crowded.wait(), 1)
            await asyncio.sleep(0.01)
            self.now -= 1

        self.agent = worker


@promise
async def no_more_run_at_once_than_there_are_slots(open_remit: OpenRemit, root: Path) -> None:
    crowd = _Crowd("worker", 3)
    async with open_remit(root, [crowd.agent], slots_total=3) as remit:
        results = await asyncio.gather(*(remit.delegate("worker") for _ in range(20)))
        assert all(result.ok for result in results)
    assert crowd.most == 3


@promise
async def an_agent_has_slots_of_its_own(open_remit: OpenRemit, root: Path) -> None:
    few, declared, many = _Crowd("few", 2), _Crowd("declared", 1, slots=1), _Crowd("many", 3)
    async with open_remit(root, [few.agent, declared.agent, many.agent], slots_total=8, slots_per_agent={"few": 2}) as remit:
        await asyncio.gather(*(remit.delegate(name) for name in ("few", "declared", "many") for _ in range(10)))
    assert (few.most, declared.most) == (2, 1)
    assert many.most > 2


@promise
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


@promise
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


@promise
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


@promise
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


@promise
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
    assert sorted(asked["n"] for asked in worker.calls) == [0, 1, 2, 4]


@promise
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
